"""Finds a kernel's blocks for the machine at hand: predicts, measures, and writes a submission's tuning table."""
