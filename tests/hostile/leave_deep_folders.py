"""Leaves folders behind that are nested deeper than Python recurses and paths are long, and that nobody may open.

expect: harmless
"""

import os
import tempfile

from reference import ref_kernel

here, top = os.getcwd(), tempfile.mkdtemp()
os.chdir(top)
for _ in range(1100):
    os.mkdir("deeper")
    os.chdir("deeper")
os.chdir(here)
os.chmod(top, 0)
custom_kernel = ref_kernel
