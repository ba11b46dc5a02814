"""Solvers: programs that print answers within a limit of time."""
