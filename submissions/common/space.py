"""What a problem's space.py says of a row, so that `python -m harness tune-kernel` can predict and prune."""

from typing import NamedTuple


class Need(NamedTuple):
    """What a call asks of a chip: floating-point operations, bytes of its memory, bytes that its multiprocessors read
    in all (mostly from the L2 cache), into how many `tiles` of equal work it is cut, and how many of them a
    multiprocessor works on at a time, `fit` (0: a program does not fit)."""

    flops: float
    hbm_bytes: float
    read_bytes: float
    tiles: int
    fit: int


SHARED_BYTES = 227 << 10  # a multiprocessor's, for programs; NVIDIA H100 white paper
RESERVED_BYTES = 1 << 10  # of it, for each program


def fitting(shared_bytes: int, most: int = 1) -> int:
    """How many programs with that much shared memory a multiprocessor holds, at most `most`."""
    return min(most, SHARED_BYTES // (shared_bytes + RESERVED_BYTES))
