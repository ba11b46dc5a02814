"""The types of train(config, data, seed, target, log) -> weights: docs/training.md says what each is."""

from typing import Any, Protocol

from torch import Tensor

Weights = dict[str, Tensor]
Config = dict[str, Any]  # the model's size, `start` (the weights to begin with), the hyperparameters


class Data(Protocol):
    """The run's text."""

    def batch(self, samples: int) -> tuple[Tensor, Tensor]:
        """This rank's part of the next `samples` sequences of all ranks: inputs and targets, [samples / W, S] int64."""
        ...


class Log(Protocol):
    """What train tells the harness."""

    def evaluate(self, weights: Weights, samples: int) -> None:
        """Has these weights evaluated, after so many sequences of all ranks. Returns if training is to go on."""
        ...
