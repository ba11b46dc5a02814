"""Answers with twenty million empty objects, in one line that is shorter than an answer may be.

expect: wrong: an answer for 20000000 nodes, and the instance has [0-9]+
problem: iopddl
mode: test
devices: cpu
"""

import sys

sys.stdout.write("[" + "{}," * 19_999_999 + "{}]\n")
