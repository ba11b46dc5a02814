"""Training to a target quality."""
