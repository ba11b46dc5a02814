"""Answers with millions of empty objects, in one line that is shorter than an answer may be.

expect: wrong: an answer for 2000000 nodes, and the instance has [0-9]+
problem: iopddl
mode: test
devices: cpu
"""

import sys

sys.stdout.write("[" + "{}," * 1_999_999 + "{}]\n")
