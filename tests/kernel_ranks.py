"""What the tests of the submissions' kernels share: a submission and its kernels compiled for GPUs that are not here,
and ranks, processes that share memory, in which kernels are interpreted.

A test file that has ranks play is also a script: the test starts it (`started`) with the names of functions to play,
and with TRITON_INTERPRET, which has to be set before Triton is imported. It forks the ranks (`played_by`), and fails
where one of them does.
"""

import dataclasses
import importlib
import multiprocessing
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import interpreting
import numpy as np
import prefork
import torch
from places import ROOT, TESTS

from harness.problems.routing import ROUTINGS

PLAY_S = 200.0  # after which ranks are taken to wait for each other forever
# Modules that a submission brings.
BROUGHT = ("submission", "tuning", "hopper", "kernel", "common", "task", "reference", "params", "utils")
RELEASE, ACQUIRE = "atom.global.sys.release.exch.b32", "atom.global.sys.acquire.add.u32"

Routing = tuple[int, int, int, int]  # num_experts, experts_per_token, hidden_dim, max_num_tokens
Play = Callable[[int, int], None]  # what a rank does: rank, number of ranks


@contextmanager
def imported(problem: str) -> Iterator[ModuleType]:
    """The problem's submission, imported as it is beside what ranks get; afterwards all modules are as before."""

    def taken() -> dict[str, ModuleType]:
        names = [name for name in sys.modules if name.partition(".")[0] in BROUGHT]
        return {name: sys.modules.pop(name) for name in names}

    before, path = taken(), list(sys.path)
    parts = (f"reference/{problem}", "reference/common", f"submissions/{problem}", "submissions", ".")
    sys.path[:0] = [str(ROOT / part) for part in parts]
    try:
        yield importlib.import_module("submission")
    finally:
        sys.path[:] = path
        taken()
        sys.modules.update(before)


def kept_calls(launcher: Any) -> list[tuple[Any, ...]]:
    """The arguments of all calls of its interpreted kernel from now on."""
    calls: list[tuple[Any, ...]] = []
    kernel = launcher.kernel

    class Keeping:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            def run(*arguments: Any, **constants: Any) -> None:
                calls.append(arguments)
                kernel[grid](*arguments, **constants)

            return run

    launcher.kernel = Keeping()
    return calls


def specialized(launcher: Any) -> list[str]:
    """The parameters, but for constants, that Triton compiles variants of its kernel for."""
    return [one.name for one in launcher.kernel.params if not (one.is_constexpr or one.do_not_specialize)]


def kinds(arguments: tuple[Any, ...]) -> list[Any]:
    """What a kernel is compiled for: tensors' dtypes, of descriptors also their blocks, and that the others are
    numbers."""

    def kind(one: Any) -> Any:
        if hasattr(one, "block_shape"):
            return one.base.dtype, one.block_shape
        return int if isinstance(one, int) else getattr(one, "dtype", one)

    return [kind(one) for one in arguments]


# ---- machine code ----------------------------------------------------------------------------------------------------


def before_each(text: str, instruction: str, *patterns: str) -> list[str]:
    """Which of these patterns is matched last before each of the instructions, in the order of the text."""
    return [
        max(patterns, key=lambda pattern: max((m.start() for m in re.finditer(pattern, ahead)), default=-1))
        for ahead in (text[: place.start()] for place in re.finditer(re.escape(instruction), text))
    ]


def first_after_each(text: str, instruction: str, *patterns: str) -> list[str]:
    """Which of these patterns is matched first behind each of the instructions, as the assembly is executed: where it
    goes on elsewhere in any case, it is looked for there."""
    return [first_of(text, place.end(), patterns) for place in re.finditer(re.escape(instruction), text)]


def first_of(text: str, start: int, patterns: Sequence[str]) -> str:
    jumps = re.compile(r"^\s*bra(?:\.uni)?\s+(\$\w+);", re.MULTILINE)
    seen = set[str]()
    while True:
        found = {one: match.start() for one in patterns if (match := re.compile(one).search(text, start))}
        jump = jumps.search(text, start)
        if jump is None or jump[1] in seen or any(place < jump.start() for place in found.values()):
            return min(found, key=lambda one: found[one], default=patterns[0])
        seen.add(jump[1])
        start = text.index(f"\n{jump[1]}:")


# ---- ranks -----------------------------------------------------------------------------------------------------------


def started(file: str, *names: str, interpreted: bool) -> str:
    """Runs the test file as a script that plays these; what it says where it fails."""
    environment = {**os.environ, "TRITON_INTERPRET": str(int(interpreted)), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(TESTS)])
    code, printed = prefork.script_ended([file, *names], environment)
    return printed or f"exit code {code}" if code else ""


def played_by(world_size: int, what: Play) -> str:
    """Has the ranks play, and says what went wrong."""
    if os.environ["TRITON_INTERPRET"] == "1":
        interpreting.quicken()
        interpreting.prepare_kernels()
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        places = [(what, rank, world_size, f"{folder}/meeting") for rank in range(world_size)]
        ranks = [context.Process(target=_play, args=place, daemon=True) for place in places]
        for process in ranks:
            process.start()
        deadline = time.monotonic() + PLAY_S
        while any(process.is_alive() for process in ranks) and time.monotonic() < deadline:
            if any(process.exitcode for process in ranks):
                break  # the others would wait for it
            time.sleep(0.02)
        codes = [process.exitcode for process in ranks]
        for process in ranks:
            process.kill()
    if all(code == 0 for code in codes):
        return ""
    return f"{what.__name__}, {world_size} ranks: exit codes {codes} (None: did not come to an end)"


def play(problem: str, namespace: dict[str, Any], name: str, numbers: Callable[[str], Sequence[int]]) -> int:
    """What a test file does as a script: plays the functions of its `namespace` that the command line names, each on
    all `numbers` of ranks, where `name` is the submission. Returns the exit code."""
    with imported(problem) as namespace[name]:  # once, ahead of all ranks
        for what in sys.argv[1:]:
            for world_size in numbers(what):
                if wrong := played_by(world_size, namespace[what]):
                    print(f"{problem}: {wrong}")
                    return 1
    return 0


def _play(what: Play, rank: int, world_size: int, meeting: str) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size)
    what(rank, world_size)
    dist.barrier()
    dist.destroy_process_group()


def routed_inputs(config: Routing, which: str, seed: int, rank: int, world_size: int) -> Any:
    """Hardened data of a2a or moe, whose tokens have experts on `any` rank, on their `own`, the `first` or the `next`;
    or every other rank has no token (`none`). Ranks 0 and 1 have the fewest tokens and the most that there can be.
    For a routing of a case (harness.problems.routing) the published data, which are as it says."""
    from reference import generate_input, harden

    num_experts, top_k, _, capacity = config
    if which in ROUTINGS:
        return generate_input(*config, seed=seed, rank=rank, world_size=world_size, routing=which)
    _, mine, *_ = data = generate_input(*config, seed=seed, rank=rank, world_size=world_size)
    data = (data[0], mine, rank, world_size)
    if which == "any" and mine.num_tokens:
        data = harden(data, seed)
    per_rank = num_experts // world_size
    mine = data[1]
    chosen = {"own": rank, "first": 0, "next": (rank + 1) % world_size}
    if which in chosen:
        spread = torch.arange(top_k, dtype=torch.int32) % per_rank + chosen[which] * per_rank
        mine = dataclasses.replace(mine, indices=spread.expand(mine.num_tokens, -1).contiguous())
    tokens = {0: 0, 1: capacity - 1}.get((rank + seed) % world_size, mine.num_tokens)
    tokens = 0 if which == "none" and rank % 2 == 0 else tokens
    parts = {name: _repeated(getattr(mine, name), tokens) for name in ("indices", "weights", "x")}
    return data[0], dataclasses.replace(mine, num_tokens=tokens, **parts), rank, world_size


def routed_right(kernel: ModuleType, config: Routing, which: str, seed: int, rank: int, world_size: int) -> None:
    """Fails where what the submission returns for such data is not right."""
    data = routed_inputs(config, which, seed, rank, world_size)
    judged(kernel.custom_kernel(data), data, f"{config} {which}, {data[1].num_tokens} tokens")


def routed_back_to_back(kernel: ModuleType, count: int, rank: int, world_size: int) -> None:
    """So many calls, of two shapes in turn whose flags lie crosswise, while ranks fall behind at random, in calls and
    between them, so that some are a call ahead of others."""
    dice = random.Random(rank)
    tune_interpreter(lambda: dice.random() * 0.01 if dice.random() < 0.2 else 0)
    configs = ((2 * world_size, 2, 16, 4), (2 * world_size, 1, 16, 3))
    made = [routed_inputs(configs[call % 3 == 2], "any", call, rank, world_size) for call in range(count)]
    outputs = []
    for data in made:
        outputs.append(kernel.custom_kernel(data))
        time.sleep(dice.choice([0, 0, 0, 0.02]))
    for call, (data, output) in enumerate(zip(made, outputs, strict=True)):
        judged(output, data, f"call {call}")


def routed_on_cpu(kernel: ModuleType, rank: int, world_size: int) -> None:
    """Not interpreted: the ways that CPU ranks take."""
    for seed, config in enumerate([(16, 2, 24, 2), (64, 6, 136, 40), (16, 2, 24, 2), (64, 8, 5, 200)]):
        skewed = ROUTINGS if config[1] == 8 else ("empty",)
        for which in ("any", "own", "first", "none", *skewed):
            routed_right(kernel, config, which, seed, rank, world_size)
            data = routed_inputs(config, which, seed + 1, rank, world_size)
            judged(kernel.through_collectives(*data), data, "collectives")

    def refuse(nbytes: int) -> None:
        raise MemoryError

    kernel.open_heap(data[1].x.device).turn = refuse
    routed_right(kernel, (16, 2, 24, 9), "any", 3, rank, world_size)


def _repeated(rows: Any, count: int) -> Any:
    return rows.repeat(-(-max(1, count) // len(rows)), 1)[:count].contiguous()


def judged(output: Any, data: Any, what: str) -> None:
    """Fails where the output is not what the reference's problem allows, strictly. Collective."""
    from harness.judging.correctness import strict

    verdict = strict(output, importlib.import_module("reference").exact_kernel(data))
    assert verdict.passed, f"{what}: {verdict.message}"


def no_delay() -> float:
    return 0.0


def tune_interpreter(barrier_s: Callable[[], float] = no_delay, flag_s: Callable[[], float] | None = None) -> None:
    """From now on a rank that looks at flags lets others run, and one at a barrier of its program sleeps `barrier_s()`.
    Where there is `flag_s`, a signal to several ranks comes to one after the other, and so long after."""
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    access, barrier = builder.create_atomic_rmw, builder.create_barrier

    def accessing(self: Any, op: Any, pointers: Any, values: Any, mask: Any, *order: Any) -> Any:
        if flag_s is None or op.name != "XCHG":
            time.sleep(0.001)
            return access(self, op, pointers, values, mask, *order)
        for place in np.argwhere(mask.data):
            one = interpreter.TensorHandle(np.zeros_like(mask.data), mask.dtype)
            one.data[tuple(place)] = True
            access(self, op, pointers, values, one, *order)
            time.sleep(flag_s())
        return values  # what was there before: nobody asks

    def delayed(self: Any) -> Any:
        time.sleep(barrier_s())
        return barrier(self)

    builder.create_atomic_rmw, builder.create_barrier = accessing, delayed
