"""Competitions and contests: their rules, what happened in them, who stands where. Evaluates nothing."""
