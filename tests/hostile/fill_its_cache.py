"""Fills its compile cache with files dated in the future, so that nobody takes them for old.

expect: harmless
"""

import os
import pathlib
import time

from reference import ref_kernel

FOLDER = pathlib.Path(os.environ["TRITON_CACHE_DIR"])
for number in range(16):
    file = FOLDER / f"kernel-{number}"
    file.write_bytes(bytes(1 << 20))
    os.utime(file, (time.time() + 1e9,) * 2)
os.utime(FOLDER.parent, (time.time() + 1e9,) * 2)
custom_kernel = ref_kernel
