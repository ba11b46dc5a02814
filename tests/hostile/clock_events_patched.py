"""Has the device's events say that no time has passed: they are a claim that is shown, and never what is ranked.

expect: no gain:
devices: gpu
mode: leaderboard
"""

import torch

from reference import ref_kernel as custom_kernel  # noqa: F401

torch.cuda.Event.elapsed_time = lambda self, other: 1e-9  # ms
