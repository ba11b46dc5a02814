"""The trusted ranks' program for training runs: they make its start and its data, period by period, and evaluate it.

The held-out data is made here, from the run's hidden seed, and never leaves these ranks. Weights are rank 0's; all
trusted ranks get them and evaluate a part of the data each.
"""

import math
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from harness.core.records import Params, Verdict, Verdicts
from harness.ranks import payload, wire
from harness.ranks.shared_buffer import Source
from harness.ranks.trusted import Trusted

BATCH = 32  # sequences that a rank evaluates at once
SHOWN = 3  # names, in a message


class QualityTrusted(Trusted):
    """Judges outputs by the problem's own measure of quality."""

    def __init__(self, order: wire.RankOrder, fds: dict[str, int]) -> None:
        super().__init__(order, fds)
        self.held_out = torch.empty(0)
        self.run: tuple[Params, wire.InputSpec] | None = None  # of which these are:
        self.given: dict[str, Any] = {}  # all data that the run may read, and what it begins with
        self.before: dict[str, Tensor] = {}  # the weights of its last evaluation

    def make_input(self, params: Params, spec: wire.InputSpec) -> Any:
        """The sequences of one period, and in the first what the run begins with."""
        run = (params, replace(spec, period=0))
        if run != self.run:
            where = {"rank": self.order.rank, "world_size": self.order.world_size, "seed": spec.seed}
            self.given = self.reference.generate_input(**params, **where, hidden_seed=spec.hidden_seed)
            self.held_out = self.reference.held_out(**params, hidden_seed=spec.hidden_seed)
            self.run = run
        every = int(params["every"])  # type: ignore[arg-type]
        period = {"tokens": self.given["tokens"][every * spec.period :][:every]}
        if spec.period:
            return period
        self.before = self.given["start"]
        return self.given | period

    def right_result(self, data: Any) -> Any:
        return {"weights": self.reference.expected(data)}

    def nbytes_of(self, expected: Any) -> int:
        return sum(payload.aligned(one.nbytes) for one in expected["weights"].values())

    def take(self, source: Source, output: wire.Output) -> Any:
        """The value, and why it has none."""
        return payload.read_tree(source, output, self.limit)

    def verified(self, command: wire.Verify) -> wire.Verified:
        """Evaluates rank 0's weights, on all ranks."""
        data = self.given
        output, lacking = self.taken[command.taken]
        self.taken[command.taken] = (None, "")
        expected = self.reference.expected(data)
        given = output.get("weights") if isinstance(output, dict) else None
        wrong = ""
        if self.order.rank == 0:
            wrong = f"they cannot be read: {lacking}" if lacking else unlike(given, expected)
        anything_wrong = torch.tensor([bool(wrong)], dtype=torch.int32, device=self.device.id)
        if self.is_joint:
            dist.broadcast(anything_wrong, 0)
        if anything_wrong.item():
            verdict = Verdict(passed=not wrong, message=f"the weights: {wrong}" if wrong else "")
            return wire.Verified(verdicts=Verdicts(strict=verdict, gpumode=verdict))
        weights = self.shared(given, expected)
        before, self.before = self.before, weights
        is_unchanged = all(torch.equal(weights[name], before[name].to(one.device)) for name, one in expected.items())
        passed = Verdict(passed=True)
        verdicts = Verdicts(strict=passed, gpumode=passed)
        return wire.Verified(verdicts=verdicts, quality=self.quality(data, weights), is_unchanged=is_unchanged)

    @property
    def is_joint(self) -> bool:
        """Whether there are other trusted ranks."""
        return self.order.world_size > 1

    def shared(self, given: Any, expected: dict[str, Tensor]) -> dict[str, Tensor]:
        """Rank 0's weights, on every rank."""
        weights = {}
        for name, like in expected.items():
            own = given[name] if self.order.rank == 0 else torch.empty_like(like)
            weights[name] = own.to(like.device).contiguous()
            if self.is_joint:
                dist.broadcast(weights[name], 0)
        return weights

    @torch.no_grad()
    def quality(self, data: Any, weights: dict[str, Tensor]) -> float | None:
        """The quality that the problem derives from the mean loss over the held-out data; None if not finite."""
        device = next(iter(weights.values())).device
        own = self.held_out[self.order.rank :: self.order.world_size]
        total = torch.zeros(2, dtype=torch.float64, device=device)
        for part in torch.split(own, BATCH):
            tokens = part.to(device, torch.int64)
            total[0] += self.reference.summed_loss(data, weights, tokens[:, :-1], tokens[:, 1:]).double()
            total[1] += tokens[:, 1:].numel()
        if self.is_joint:
            dist.all_reduce(total)
        loss, count = total.tolist()
        return float(self.reference.quality(loss / count)) if math.isfinite(loss) else None


def unlike(given: Any, expected: dict[str, Tensor]) -> str:
    """How the weights differ from the model's in names, dtypes or shapes, or ""."""
    if not isinstance(given, dict):
        return "there are none of rank 0"
    lacking, unknown = expected.keys() - given.keys(), given.keys() - expected.keys()
    for names, what in ((lacking, "the model has {}, which is missing"), (unknown, "the model has no {}")):
        if names:
            some = ", ".join(sorted(names)[:SHOWN])
            return what.format(some if len(names) <= SHOWN else f"{some} and {len(names) - SHOWN} more")
    for name, like in expected.items():
        value = given[name]
        if not isinstance(value, Tensor):
            return f"{name} is no tensor"
        if value.shape != like.shape or value.dtype != like.dtype:
            due = f"{like.dtype} {list(like.shape)}"
            return f"{name} is {value.dtype} {list(value.shape)}, and the model has {due}"
    return ""
