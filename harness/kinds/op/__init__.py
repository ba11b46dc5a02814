"""Operators, on one rank or on several: our ranks run reference and submission under our clocks."""
