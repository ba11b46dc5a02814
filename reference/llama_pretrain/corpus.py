"""A language that a run draws anew, and text in it.

Every token has a few successors. Which of them are likely depends on the sequence's topic, which its first token names:
what follows a token is learnt from pairs, how likely it is from the start of the sequence, by attention.
"""

import hashlib
import math

import numpy as np
import torch

SUCCESSORS = 8  # of a token
TOPICS = 4


def uniform(seed: str, *shape: int) -> torch.Tensor:
    """Float32 numbers in [0, 1) on the host, drawn from all of the seed by SHAKE-128. Torch's generators use 32 bits of
    a seed, which a search of minutes finds from what they drew."""
    words = np.frombuffer(hashlib.shake_128(seed.encode()).digest(4 * math.prod(shape)), np.uint32)
    return torch.from_numpy((words >> 8).astype(np.float32) * np.float32(2**-24)).view(shape)


class Language:
    """Drawn from `seed`. `shift` rewires that part of the successors: a dialect, to adapt to."""

    def __init__(self, vocabulary: int, seed: str, shift: float = 0.0, shift_seed: str = "") -> None:
        self.vocabulary = vocabulary
        self.successors = _drawn(vocabulary, seed)  # [V, SUCCESSORS]
        if shift > 0:
            rewired = uniform(f"{shift_seed}/rewired", vocabulary, SUCCESSORS) < shift
            self.successors = torch.where(rewired, _drawn(vocabulary, shift_seed), self.successors)
        ranks = torch.arange(SUCCESSORS, dtype=torch.float32, device="cpu")
        zipf = 1 / (ranks + 1)
        step = SUCCESSORS // TOPICS
        self.likely = torch.stack([(zipf / zipf.sum()).roll(step * topic) for topic in range(TOPICS)])

    def text(self, sequences: int, length: int, seed: str) -> torch.Tensor:
        """[sequences, length] int16 on the host."""
        topics = (uniform(f"{seed}/topics", sequences) * TOPICS).long()
        draws = uniform(f"{seed}/draws", length, sequences)
        reached = self.likely.cumsum(1)[topics, :-1].contiguous()  # [sequences, SUCCESSORS - 1]
        tokens = torch.empty((length, sequences), dtype=torch.int64, device="cpu")
        tokens[0] = topics
        tokens[1] = TOPICS + (draws[1] * (self.vocabulary - TOPICS)).long()
        for place in range(2, length):
            which = torch.searchsorted(reached, draws[place, :, None]).squeeze(1)
            tokens[place] = self.successors[tokens[place - 1], which]
        return tokens.t().to(torch.int16).contiguous()


def _drawn(vocabulary: int, seed: str) -> torch.Tensor:
    return TOPICS + (uniform(f"{seed}/successors", vocabulary, SUCCESSORS) * (vocabulary - TOPICS)).long()
