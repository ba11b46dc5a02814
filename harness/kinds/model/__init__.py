"""Models that generate tokens."""
