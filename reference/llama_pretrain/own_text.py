"""A user's text (--data): sequences out of token files, some of which are held out for the whole evaluation."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

FILE = Path(__file__).parent / "own_text.json"  # which only trusted ranks have: {path, dtype, offset, count, ...} each


class OwnText:
    """Sequences of `length` tokens, side by side in their files. `held_out` of them are drawn from `seed`: of files
    that are held out, where there are some, else of all."""

    def __init__(self, length: int, held_out: int, seed: str) -> None:
        files = json.loads(FILE.read_text())
        self.length = length
        apart, text = ([file for file in files if file["is_held_out"] is held] for held in (True, False))
        self.parts = [_rows(file, length) for file in text]
        self.apart = [_rows(file, length) for file in apart] or self.parts
        self.held = random.Random(f"{seed}/held out").sample(range(sum(map(len, self.apart))), held_out)

    def text(self, sequences: int, seed: str) -> torch.Tensor:
        """[sequences, length] int32 on the host, drawn from `seed`, none of them held out."""
        held = set(self.held) if self.apart is self.parts else set()
        drawn = random.Random(seed).sample(range(sum(map(len, self.parts))), sequences + len(held))
        return _taken(self.parts, [index for index in drawn if index not in held][:sequences])

    def held_out(self) -> torch.Tensor:
        """[held_out, length] int32 on the host."""
        return _taken(self.apart, self.held)


_known: dict[tuple[str, int], OwnText] = {}


def own_text(data: str, length: int, held_out: int, seed: str) -> OwnText:
    """The evaluation's text, of that sha256. What is held out is drawn once, from the first run's seed, so that no run
    trains on what another one is evaluated on."""
    if (data, length) not in _known:
        _known[data, length] = OwnText(length, held_out, seed)
    return _known[data, length]


def _rows(file: dict[str, Any], length: int) -> np.ndarray:
    count = file["count"] // length
    return np.memmap(file["path"], file["dtype"], "r", file["offset"], (count, length))


def _taken(parts: list[np.ndarray], indices: list[int]) -> torch.Tensor:
    ends = np.cumsum([len(part) for part in parts])
    found = np.empty((len(indices), parts[0].shape[1]), np.int32)
    for row, index in enumerate(indices):
        part = int(np.searchsorted(ends, index, side="right"))
        found[row] = parts[part][index - (ends[part - 1] if part else 0)]
    return torch.from_numpy(found)
