"""Leaves folders behind that are nested deeper than programs count, and that nobody may open.

expect: harmless
"""

import os
import tempfile

from reference import ref_kernel

here, top = os.getcwd(), tempfile.mkdtemp()
os.chdir(top)
for _ in range(3000):
    os.mkdir("deeper")
    os.chdir("deeper")
os.chdir(here)
os.chmod(top, 0)
custom_kernel = ref_kernel
