"""Honest: the reference itself.

expect: ranked
mode: leaderboard
"""

from reference import ref_kernel as custom_kernel  # noqa: F401
