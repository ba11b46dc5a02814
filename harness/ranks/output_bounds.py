"""What an output's description may hold at most: who describes one is not trusted, and who reads it has little room."""

from collections.abc import Mapping
from typing import Any

from harness.core.decode import DecodeError

MAX_RANK = 16  # dimensions of a tensor
MAX_PARTS = 256  # of a tuple, list or dict
MAX_WORD_CHARS = 300
MAX_PLAIN = 1000  # characters of a text, or bits of a number, that is a value itself


def excess(described: Mapping[str, Any]) -> str:
    """The first field of an output's description (wire.Output) that exceeds its bound, in words, or ""."""
    words = (*(described[name] for name in ("kind", "dtype", "device", "note", "memory")), *described["keys"])
    rank = max(len(described[name]) for name in ("shape", "strides"))
    parts = max(len(described[name]) for name in ("items", "keys"))
    if any(len(word) > MAX_WORD_CHARS for word in words):
        return f"words of more than {MAX_WORD_CHARS} characters"
    if rank > MAX_RANK:
        return f"{rank} dimensions, of {MAX_RANK} at most"
    if parts > MAX_PARTS:
        return f"{parts} parts, of {MAX_PARTS} at most"
    return "" if is_short(described["plain"]) else f"a value of more than {MAX_PLAIN} characters or bits"


def is_short(plain: bool | int | float | str | None) -> bool:
    """Whether a plain value is one that a description may hold."""
    size = len(plain) if isinstance(plain, str) else plain.bit_length() if isinstance(plain, int) else 0
    return size <= MAX_PLAIN


class Bounded:
    """A description that is refused (DecodeError) if it holds more."""

    def __post_init__(self) -> None:
        if found := excess(vars(self)):
            raise DecodeError("", found)
