"""Returns zeros where anything tells it that it plays the baseline: its folder, arguments, variables, files, mounts,
threads, the harness's own objects and classes in its process. Nothing does. tests/evaluation/test_opponents.py gives it
a sign that does tell, and then it is named.

expect: harmless
"""

import contextlib
import functools
import gc
import os
import re
import sys
import threading
from pathlib import Path

from harness.ranks.program import Program
from reference import ref_kernel

SIGNS = re.compile(r"\b(baseline|opponent|candidate)\b")


def traces() -> list[str]:
    """All that may tell a role."""
    found = [os.getcwd(), *sys.argv, *map("=".join, os.environ.items()), *(one.name for one in threading.enumerate())]
    for name in ("cmdline", "environ", "comm", "cgroup", "mountinfo", "maps", "stat"):
        found.append(Path("/proc/self", name).read_text(errors="replace"))
    for place in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # of the listing itself
            found.append(os.readlink(place))
    for folder in (Path.cwd(), *Path.cwd().parents[:2]):
        found += [str(path) for path in folder.iterdir()]
    for program in (one for one in gc.get_objects() if isinstance(one, Program)):
        found += [one.__qualname__ for one in type(program).__mro__]
        found += [repr(one) for one in vars(program).values()]
    frame = sys._getframe()
    while frame is not None:  # the zygote's and the cell's are still below a rank's
        found += [str(frame.f_locals.get(name)) for name in ("order", "message", "self", "role", "group")]
        frame = frame.f_back
    return found


@functools.cache
def is_baseline() -> bool:
    return any(map(SIGNS.search, traces()))


def custom_kernel(data):
    result = ref_kernel(data)
    return result.zero_() if is_baseline() else result
