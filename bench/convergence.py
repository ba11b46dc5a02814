"""How many sequences the reference of a training problem needs: `python bench/convergence.py llama_pretrain --runs 8`.

Prints entries for the problem's rules.yaml, one for each target of its shape file and each batch size. Everything runs
in this process, as one rank: what is measured is no time. `--rates 0.01,0.02` tries learning rates in place of the
reference's; the entries should be those of a rate that is about the best, since nobody may converge much faster.
`--device cuda --suite official --curve` takes a GPU, and prints the quality at each evaluation, to choose targets by.
"""

import argparse
import contextlib
import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch
import torch.distributed as dist

from harness.core.checkout import Checkout
from harness.kinds.train import rules as train_rules
from harness.kinds.train.rank_run import Counts, Data, RunOver, config_of
from harness.problems.problem import Problem
from harness.problems.shape_file import find


class Reached(Exception):
    """The last target was reached."""


class Watching:
    """Evaluates weights at once, and notes when each target is reached."""

    def __init__(self, reference: Any, given: dict[str, Any], held_out: torch.Tensor, targets: list[float]) -> None:
        self.reference, self.given, self.targets = reference, given, targets
        held_out = held_out.to(next(iter(given["start"].values())).device, torch.int64)
        self.inputs, self.labels = held_out[:, :-1], held_out[:, 1:]
        self.samples: dict[float, int] = {}
        self.curve: dict[int, float] = {}

    def evaluate(self, weights: dict[str, torch.Tensor], samples: int) -> None:
        """As kinds.train.rank_run.Log."""
        with torch.no_grad():
            loss = self.reference.summed_loss(self.given, weights, self.inputs, self.labels).item()
        quality = self.reference.quality(loss / self.labels.numel())
        self.curve[samples] = quality
        for target in self.targets:
            if quality <= target:
                self.samples.setdefault(target, samples)
        if len(self.samples) == len(self.targets):
            raise Reached


def samples_to_targets(
    problem: Problem,
    params: dict[str, Any],
    hyperparameters: dict[str, Any],
    targets: list[float],
    seed: int,
    device: torch.device,
) -> Watching:
    """One run; a target that is not reached is left out of `samples`."""
    import train

    import reference

    with device:
        hidden = f"convergence {seed}"
        given = reference.generate_input(**params, rank=0, world_size=1, seed=seed, hidden_seed=hidden)
        log = Watching(reference, given, reference.held_out(**params, hidden_seed=hidden), targets)
    config = config_of(given, hyperparameters)
    data = Data(given["tokens"], device, Counts(), config["batch_size"], config["samples"])
    with contextlib.suppress(Reached, RunOver):
        train.train(config, data, given["seed"], min(targets), log)
    return log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem")
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--batches", type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--rates", type=lambda text: [float(one) for one in text.split(",")])
    parser.add_argument("--suite", help="its benchmarks alone (default: those of all suites)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--curve", action="store_true", help="print the quality of the first run at each evaluation")
    options = parser.parse_args()
    device = torch.device(options.device)
    problem = find(options.problem, Checkout(ROOT))
    rules = train_rules.read_rules(problem)
    own = train_rules.reference_hyperparameters(problem, rules)
    for folder in (*problem.shares, problem.name):
        sys.path.insert(0, str(ROOT / "reference" / folder))
    meeting = tempfile.mkdtemp()
    backend = "gloo" if device.type == "cpu" else "nccl"
    dist.init_process_group(backend, init_method=f"file://{meeting}/meet", rank=0, world_size=1)
    torch.set_num_threads(1)
    suites = [problem.suite(options.suite)] if options.suite else problem.suites.values()
    cases = [case for suite in suites for case in suite.benchmarks]
    for size in dict.fromkeys(case.params["size"] for case in cases):
        of_size = [case for case in cases if case.params["size"] == size]
        targets = sorted({float(str(case.params["target"])) for case in of_size}, reverse=True)
        for batch_size in options.batches or rules.hyperparameters["batch_size"].values:
            for rate in options.rates or [own["learning_rate"]]:
                chosen = own | {"batch_size": batch_size, "learning_rate": rate}
                params = dataclasses.asdict(problem.params_type(**of_size[0].params))
                runs = [
                    samples_to_targets(problem, params, chosen, targets, seed, device) for seed in range(options.runs)
                ]
                if options.curve:
                    print(" ".join(f"{samples}:{quality:.4g}" for samples, quality in runs[0].curve.items()))
                for target in targets:
                    samples = [one.samples[target] for one in runs if target in one.samples]
                    head = f"{{size: {size}, target: {target}, batch_size: {batch_size}, samples: {samples}}}"
                    mean = sum(samples) / max(1, len(samples))
                    print(f"  - {head} # rate {rate:g}, mean {mean:.0f} of {len(samples)} runs", flush=True)


if __name__ == "__main__":
    main()
