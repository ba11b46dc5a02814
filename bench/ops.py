"""The operators of one GPU on every official shape: ours, torch eager and torch.compile(max-autotune), in one run.

    python3 bench/ops.py                                 all problems of one rank
    python3 bench/ops.py swiglu cross_entropy            these
    python3 bench/ops.py --seconds 240                   nothing is compiled by torch that begins later
    python3 bench/ops.py --data docs/measurements/4-gpu-1x-h200/10-ops.yaml     ... and in the document

A time is the median of the device's clock over calls with flushed caches, one at a time with pauses, about as in an
evaluation (harness/tuning/clock.py). The part of the limit is that of the GPU's data sheet (hardware.yaml), with
TFLOP/s where operations set it. Memory is the most that a call holds, input and result included. A call of a problem
that works in place (cross_entropy) gets its input back before the caches are flushed. Our result is judged by the
strict checker on a hardened input of every shape before it is timed. attention is measured by cuDNN, too.
"""

import argparse
import importlib
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "bench")]

import torch
from figures import Figures, add_data_argument, need_gpus
from kernel_ranks import imported
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.core.checkout import Checkout
from harness.core.records import Case
from harness.judging import correctness
from harness.machine import hardware
from harness.problems.shape_file import find, problem_names
from harness.ranks.strict_check import parts_of
from harness.tuning.clock import DeviceClock, TimedCall, restorer

LIBRARIES = ("liger_kernel", "quack", "transformer_engine")  # that people use in place of torch
MODE = "max-autotune-no-cudagraphs"  # CUDA graphs would copy the inputs, which is no kernel's time
CALLS = 15
GIB = 2**30
Kernel = Callable[[Any], Any]


def main() -> None:
    single = [name for name in problem_names(Checkout.here()) if is_single(name)]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="*", help=f"of {', '.join(single)} (default: all)")
    parser.add_argument("--without-compile", action="store_true", help="leave torch.compile out, which takes minutes")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="leave it out after so many (default: no limit)"
    )
    add_data_argument(parser)
    options = parser.parse_args()
    if unknown := set(options.problems) - set(single):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(single)}")
    need_gpus(parser, 1, torch.cuda.device_count())
    name = torch.cuda.get_device_name(0)
    figures = Figures("Operators of one GPU", f"1x {name}")
    absent = [library for library in LIBRARIES if find_spec(library) is None]
    until = -math.inf if options.without_compile else time.monotonic() + options.seconds
    for problem in options.problems or single:
        rows = list(measured(problem, name, until))
        whose = ("ours", "eager", *VENDORS.get(problem, {}), "compile")
        columns = ("shape", "limit us", *(f"{who} {what}" for who in whose for what in CELLS))
        figures.table(columns, rows, problem, f"Not on this machine: {', '.join(absent)}." if absent else "")
        figures.write(options.data)


CELLS = ("us", "of limit", "GiB")


def cudnn_attention(data: Any) -> Any:
    """cuDNN's attention through torch, forward or backward."""
    queries, keys, values, saved = data
    if saved is None:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(
                queries, keys, values, is_causal=True, enable_gqa=True
            )
    seq, state = queries.shape[2], torch.zeros((), dtype=torch.int64)
    given = (saved.gradient_BHSD, queries, keys, values, saved.output_BHSD, saved.logarithm_BHS[..., None])
    backward = torch.ops.aten._scaled_dot_product_cudnn_attention_backward
    return backward(*given, state, state, None, None, None, seq, seq, 0.0, True)


VENDORS: dict[str, dict[str, Kernel]] = {"attention": {"cuDNN": cudnn_attention}}


def is_single(name: str) -> bool:
    problem = find(name, Checkout.here())
    return problem.kind == "op" and not problem.multi_gpu and problem.cost_of is not None


def measured(name: str, gpu: str, compile_until: float) -> Iterator[list[str | float]]:
    """A row a shape. What fails says so in its cell, and the others go on. torch.compile is left out from that moment
    of the monotonic clock on."""
    problem, peaks = find(name, Checkout.here()), hardware.match(gpu)
    assert peaks is not None, f"{gpu} is not in hardware.yaml"
    with imported(name) as submission, torch.device("cuda"):
        reference = importlib.import_module("reference")
        for case in problem.suites["official"].benchmarks:
            cost = problem.cost(case)
            limit_us, by = hardware.bound(cost, peaks)
            row: list[str | float] = [case.label.replace("  ", " "), limit_us]
            kernels: list[tuple[str, Kernel]] = [("ours", submission.custom_kernel), ("eager", reference.ref_kernel)]
            kernels += VENDORS.get(name, {}).items()
            if time.monotonic() < compile_until:
                kernels.append(("compile", compiled_of(name, reference)))
            for who, kernel in kernels:
                try:
                    if who == "ours":
                        check(reference, case, kernel)
                    time_us, held = figures_of(reference, case, kernel, problem.in_place)
                    rate = f" ({cost.flops / time_us / 1e6:.0f} TFLOP/s)" if by == "flops" else ""
                    row += [time_us, f"{limit_us / time_us:.1%}{rate}", held / GIB]
                except Exception as error:  # a compiler that gives up must not cost the other figures
                    row += [f"{type(error).__name__}: {str(error)[:60]}", "-", "-"]
                torch.cuda.empty_cache()
            row += ["-"] * (2 + (3 + len(VENDORS.get(name, {}))) * len(CELLS) - len(row))
            print(
                " ".join(f"{cell:.4g}" if isinstance(cell, float) else cell for cell in row),
                file=sys.stderr,
                flush=True,
            )
            yield row


def compiled_of(name: str, reference: ModuleType) -> Kernel:
    """The reference under torch.compile, anew for each shape, since one compiled before is compiled for any shape."""
    torch.compiler.reset()
    if name != "cross_entropy":
        return torch.compile(reference.ref_kernel, mode=MODE, dynamic=False)

    def losses_of(logits: Any, targets: Any, ignore_index: int, smoothing: float) -> Any:
        return torch.nn.functional.cross_entropy(
            logits.float(), targets, ignore_index=ignore_index, label_smoothing=smoothing, reduction="none"
        )

    compiled = torch.compile(losses_of, mode=MODE, dynamic=False)

    def kernel(data: Any) -> Any:
        """Autograd's backward pass, which is compiled with it."""
        logits, targets, ignore_index, smoothing, scale = data
        leaf = logits.detach().requires_grad_()
        losses = compiled(leaf, targets, ignore_index, smoothing)
        mean = losses.sum() / (targets != ignore_index).sum()
        return losses.detach(), torch.autograd.grad(mean * scale, leaf)[0]

    return kernel


def input_of(reference: ModuleType, case: Case, hardened: bool) -> Any:
    data = reference.generate_input(**case.params, rank=0, world_size=1, seed=case.seed)
    return reference.harden(data, case.seed) if hardened else data


def check(reference: ModuleType, case: Case, kernel: Kernel) -> None:
    """Raises ValueError where the strict checker is against the result."""
    expected = parts_of(reference.exact_kernel(input_of(reference, case, True)))
    result = kernel(input_of(reference, case, True))
    for part, right in zip(result if isinstance(result, tuple) else (result,), expected, strict=True):
        verdict = correctness.strict(part, right)
        if not verdict.passed:
            raise ValueError(f"wrong: {right.name} {verdict.message}")


def figures_of(reference: ModuleType, case: Case, kernel: Kernel, in_place: bool) -> tuple[float, int]:
    """The median time of a call in us, and the most bytes that one holds."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    data = input_of(reference, case, False)
    kernel(data)  # compiles
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    result = kernel(data)
    torch.cuda.synchronize()
    held = torch.cuda.max_memory_allocated() - before
    del result, data
    # Two inputs, so that no call finds what the one before has left in the L2.
    turns = [input_of(reference, case, hardened) for hardened in (False, True)]
    restorers = [restorer(data, in_place) for data in turns]
    calls = [TimedCall(partial(kernel, data), restore) for data, restore in zip(turns, restorers, strict=True)]
    times_us = DeviceClock().times_us(calls[call % 2] for call in range(CALLS))
    return statistics.median(times_us), held


if __name__ == "__main__":
    main()
