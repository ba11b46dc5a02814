"""Honest: runs a program, as a compiler is run, in a temporary folder.

expect: ranked
mode: leaderboard
"""

import subprocess
import sys
import tempfile

from reference import ref_kernel

with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.executable, "-S", "-c", "open('built', 'w').write('x')"], cwd=folder, check=True)
custom_kernel = ref_kernel
