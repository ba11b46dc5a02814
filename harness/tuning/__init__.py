"""Finds a kernel's blocks for the machine at hand: predicts, measures, and writes a submission's tuning table. Ranks
nothing, and judges no more than that a row is right: what a submission is worth is for harness.evaluation to say.
"""
