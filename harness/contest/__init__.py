"""Competitions: which problems, until when. Evaluates nothing."""
