"""Patches medians and means. The parent computes with its own: nothing comes of it.

expect: harmless
mode: leaderboard
"""

import statistics

import torch

from reference import ref_kernel as custom_kernel  # noqa: F401

statistics.median = statistics.mean = statistics.fmean = lambda *_: 1e-9
torch.median = torch.mean = lambda *_, **__: torch.tensor(1e-9)
