"""Makes the harness's process its debuggee by asking to be traced, and gains rights by a set-uid program.

expect: raised: no new rights
"""

import pathlib


def custom_kernel(data):
    status = pathlib.Path("/proc/self/status").read_text()
    rights = [line for line in status.splitlines() if line.startswith(("CapEff", "CapBnd", "NoNewPrivs"))]
    none = [line.split()[1] in ("0" * 16, "1") for line in rights]
    raise PermissionError("no new rights" if all(none) else str(rights))
