"""A language that a run draws anew, and text in it.

Every token has a few successors. Which of them are likely depends on the sequence's topic, which its first token names:
what follows a token is learnt from pairs, how likely it is from the start of the sequence, by attention.
"""

import torch

SUCCESSORS = 8  # of a token
TOPICS = 4


class Language:
    """Drawn from `seed`. `shift` rewires that part of the successors: a dialect, to adapt to."""

    def __init__(self, vocabulary: int, seed: int, shift: float = 0.0, shift_seed: int = 0) -> None:
        generator = torch.Generator("cpu").manual_seed(seed)
        self.vocabulary = vocabulary
        self.successors = _drawn(vocabulary, generator)  # [V, SUCCESSORS]
        if shift > 0:
            other = torch.Generator("cpu").manual_seed(shift_seed)
            rewired = torch.rand(self.successors.shape, generator=other, device="cpu") < shift
            self.successors = torch.where(rewired, _drawn(vocabulary, other), self.successors)
        ranks = torch.arange(SUCCESSORS, dtype=torch.float32, device="cpu")
        zipf = 1 / (ranks + 1)
        step = SUCCESSORS // TOPICS
        self.likely = torch.stack([(zipf / zipf.sum()).roll(step * topic) for topic in range(TOPICS)])

    def text(self, sequences: int, length: int, seed: int) -> torch.Tensor:
        """[sequences, length] int16 on the host."""
        generator = torch.Generator("cpu").manual_seed(seed)
        topics = torch.randint(TOPICS, (sequences,), generator=generator, device="cpu")
        draws = torch.rand((length, sequences), generator=generator, device="cpu")
        reached = self.likely.cumsum(1)[topics, :-1].contiguous()  # [sequences, SUCCESSORS - 1]
        tokens = torch.empty((length, sequences), dtype=torch.int64, device="cpu")
        tokens[0] = topics
        tokens[1] = TOPICS + (draws[1] * (self.vocabulary - TOPICS)).long()
        for place in range(2, length):
            which = torch.searchsorted(reached, draws[place, :, None]).squeeze(1)
            tokens[place] = self.successors[tokens[place - 1], which]
        return tokens.t().to(torch.int16).contiguous()


def _drawn(vocabulary: int, generator: torch.Generator) -> torch.Tensor:
    shape = (vocabulary, SUCCESSORS)
    return torch.randint(TOPICS, vocabulary, shape, generator=generator, device="cpu")
