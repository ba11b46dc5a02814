"""Evaluates kernels, solvers, models and training runs: correctness, speed, distance from the limit."""

__version__ = "0.1.0"
