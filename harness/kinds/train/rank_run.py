"""A training run in its rank, on either side: train() as a kernel whose every call trains on to the next evaluation.

A run is a row of calls, one for each period between two evaluations. The first input has what the run begins with, and
every input has the sequences of its period, which nobody had before. The first call gives train() a thread of its own;
a call ends when train() hands weights to log.evaluate(), or returns. So the parent's clocks and gates, which know
nothing but calls, time the run, and evaluations lie between calls. Nothing here is trusted: what it counts is a claim.
"""

import contextlib
import importlib
import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from harness.ranks.roles import must_take

STOP_S = 10.0  # for train() to end when its run is over
ARGUMENTS = "config, data, seed, target, log"  # of train
Train = Callable[..., Any]


class RunOver(BaseException):
    """Leaves train() when its run is over. No Exception, so that no handler in there takes it for an error."""


@dataclass
class Counts:
    """Counts over a run and all ranks: sequences read, sequences logged, and seconds spent on loading."""

    read: int = 0
    logged: int = 0
    loading_s: float = 0.0

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Counts the time of this context as loading."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.loading_s += time.perf_counter() - began


class Data:
    """The run's text, in its order, of the period at hand: every rank reads its part of each batch."""

    def __init__(self, tokens: torch.Tensor, device: torch.device, counts: Counts, batch_size: int, most: int) -> None:
        self._tokens, self._device, self._counts = tokens, device, counts
        self._before = 0  # sequences of earlier periods
        self._batch_size, self._most = batch_size, most

    def go_on(self, tokens: torch.Tensor) -> None:
        """The next period begins, with these sequences."""
        self._before += len(self._tokens)
        self._tokens = tokens

    def batch(self, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
        """This rank's part of the next `samples` sequences of all ranks: inputs and targets, [samples / W, S] int64 on
        the rank's device, to which they are copied in the order of the current stream. Does not wait for the device.
        Raises ValueError where `samples` is not the run's batch size, where W does not divide it, and where
        log.evaluate has to come first; ends the run where all data is used."""
        rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        if samples < 1 or samples % world_size:
            raise ValueError(f"data.batch({samples}): a multiple of the number of ranks, {world_size}, is needed")
        if samples != self._batch_size:
            raise ValueError(
                f"data.batch({samples}): HYPERPARAMETERS say that batch_size is {self._batch_size}; a batch may be "
                "split once it is here"
            )
        if self._counts.read + samples > self._most:
            raise RunOver
        first = self._counts.read - self._before
        if first + samples > len(self._tokens):
            raise ValueError(
                f"data.batch({samples}): log.evaluate(weights, {self._before + len(self._tokens)}) is due, and the "
                "sequences behind it are handed out then"
            )
        with self._counts.loading():
            share = samples // world_size
            part = self._tokens[first + rank * share :][:share]
            if self._device.type == "cuda":
                # From pageable memory, the copy would keep the host until the device is done with all earlier work.
                part = part.pin_memory().to(self._device, non_blocking=True)
            part = part.to(torch.int64)  # on the device: narrow over the bus
        self._counts.read += samples
        return part[:, :-1], part[:, 1:]


@dataclass
class TrainLog:
    """How train() talks to the harness."""

    _own_run: "_TrainThread" = field(repr=False)

    def evaluate(self, weights: dict[str, torch.Tensor], samples: int) -> None:
        """Has trusted ranks evaluate rank 0's weights after so many sequences; all ranks call it. Returns to go on."""
        self._own_run.hand_over(weights, samples)

    def loading(self) -> contextlib.AbstractContextManager[None]:
        """Counts the time of this context as loading, in the report's account of the run."""
        return self._own_run.counts.loading()


def config_of(given: dict[str, Any], hyperparameters: dict[str, Any]) -> dict[str, Any]:
    weights = {name: given[name] for name in ("start", "base") if name in given}
    return {**given["config"], **hyperparameters, **weights}


class _TrainThread:
    """One run of train(), in a thread that works while a call lasts. Two queues pass the turn."""

    def __init__(self, train: Train, given: Any, hyperparameters: dict[str, Any], is_first: bool) -> None:
        self.is_first, self.counts = is_first, Counts()
        self.outputs: queue.SimpleQueue[dict[str, Any] | BaseException] = queue.SimpleQueue()
        self.goes_on: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.is_done = False
        device = next(iter(given["start"].values())).device
        config = config_of(given, hyperparameters)
        self.data = Data(given["tokens"], device, self.counts, config["batch_size"], config["samples"])
        arguments = (config, self.data, given["seed"], given["target"], TrainLog(self))
        work = (train, arguments, torch.get_num_threads(), device)
        self.thread = threading.Thread(target=self._work, args=work, daemon=True)

    def _work(self, train: Train, arguments: tuple[Any, ...], threads: int, device: torch.device) -> None:
        torch.set_num_threads(threads)  # a thread has its own of these
        if device.type == "cuda":
            torch.cuda.set_device(device)
        weights = None
        try:
            with contextlib.suppress(RunOver):
                weights = train(*arguments)
                self._check(weights)
        except BaseException as error:
            self.outputs.put(error)
            return
        self.outputs.put(self._output(weights, True))

    def _check(self, weights: Any) -> None:
        if not isinstance(weights, dict):
            raise TypeError(f"train returned a {type(weights).__name__}; it must return the weights, a dict of tensors")

    def _output(self, weights: Any, is_done: bool) -> dict[str, Any]:
        shown = weights if self.is_first else None
        counted = {"samples": self.counts.logged, "loading_s": self.counts.loading_s}
        return {"weights": shown, "is_done": is_done, **counted}

    def hand_over(self, weights: Any, samples: int) -> None:
        """In train()'s thread: ends the call with these weights, and waits for the next."""
        self._check(weights)
        self.counts.logged = int(samples)
        self.outputs.put(self._output(weights, False))
        if not self.goes_on.get():
            raise RunOver

    def next_output(self) -> dict[str, Any]:
        """Lets train() work to its next evaluation or its end. Raises what it raised."""
        if self.is_done:
            raise RuntimeError("train has ended on this rank and goes on on others; all evaluate equally often")
        if self.thread.ident is None:
            self.thread.start()
        else:
            self.goes_on.put(True)
        found = self.outputs.get()
        if isinstance(found, BaseException):
            self.is_done = True
            raise found
        self.is_done = found["is_done"]
        return found

    def stop(self) -> None:
        """Ends a run that is over. Raises RuntimeError where train() does not end."""
        if self.is_done or self.thread.ident is None:
            return
        self.goes_on.put(False)
        self.thread.join(STOP_S)
        if self.thread.is_alive():
            raise RuntimeError(f"train had not ended {STOP_S:g} s after its run was over")


def adapted(hyperparameters_file: str, submission: ModuleType) -> Callable[[Any], Any]:
    """The kernel of a side's program, which is imported already."""
    sys.modules["train"] = submission
    return kernel(hyperparameters_file)


def kernel(hyperparameters_file: str) -> Callable[[Any], Any]:
    """The kernel of the train.py in this rank's folder, where the hyperparameters are too, as the parent read them."""
    train = getattr(importlib.import_module("train"), "train", None)
    if not callable(train):
        raise AttributeError(f"the submission defines no train({ARGUMENTS}); define it at the top level")
    must_take(train, "train", ARGUMENTS)
    file = sys.modules["train"].__file__
    assert file is not None
    hyperparameters = json.loads((Path(file).parent / hyperparameters_file).read_text())
    run: _TrainThread | None = None

    def call(given: Any) -> dict[str, Any]:
        nonlocal run
        if "start" in given:
            if run is not None:
                run.stop()
            is_first = not dist.is_initialized() or dist.get_rank() == 0
            run = _TrainThread(train, given, hyperparameters, is_first)
        else:
            assert run is not None
            run.data.go_on(given["tokens"])
        return run.next_output()

    return call
