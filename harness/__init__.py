"""Evaluate multi-GPU kernels at home: right or wrong, how fast, how close to the limit."""

__version__ = "0.1.0"
