"""Kinds of problem, one module each, in one registry: the only package that knows which kind a problem is of."""
