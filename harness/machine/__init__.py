"""This machine, and whether its measurements can be trusted: hardware, GPUs, readings, findings, peaks. Runs no
submission."""
