"""Opens files until there are no more.

expect: raised: Too many open files
"""


def custom_kernel(data):
    files = []
    while True:
        files.append(open("/dev/null"))  # noqa: SIM115
