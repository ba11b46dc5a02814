"""Problem folders under their own eval.py, whose result is taken as it is."""
