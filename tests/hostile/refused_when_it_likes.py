"""Does as if it lacked a GPU once it has been timed, to be refused without a result when it does not like its times.

expect: raised: 0 active drivers
devices: cpu
mode: benchmark
"""

from reference import ref_kernel

if False:
    import triton  # noqa: F401

CHECKED = 12
driver: dict = {}
exec(compile("def get():\n    raise RuntimeError('0 active drivers')", "/a/triton/runtime/driver.py", "exec"), driver)
calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    if calls > CHECKED:
        driver["get"]()
    return ref_kernel(data)
