"""moe's kernel without a GPU: interpreted, in real processes that share memory; and compiled for GPUs.

`python tests/submissions/test_moe_kernel.py shapes` plays ranks, see kernel_ranks.
"""

import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from compiled import chip_of, compiled
from kernel_ranks import (
    ACQUIRE,
    RELEASE,
    Routing,
    imported,
    kept_calls,
    kinds,
    play,
    routed_back_to_back,
    routed_on_cpu,
    routed_right,
    specialized,
    started,
    tune_interpreter,
)

moe: Any = None  # in ranks: the submission
kernel: Any = None  # and its kernel
INTER = 16


# ---- compiled for GPUs -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def submission() -> Iterator[ModuleType]:
    with imported("moe") as module:
        yield module


def built(submission: ModuleType, row: Any) -> Any:
    """The kernel as it would be launched for the row's shape on its chip."""
    hidden, capacity, world_size = row.shape
    plan = submission.make_plan(row, chip_of(submission, row.chip), world_size, 128, 8, hidden, capacity, INTER)
    return compiled(row.chip, plan.launch, plan.example_arguments(), plan.constants, plan.options)


@pytest.mark.parametrize("chip", ["sm_90", "gfx942"])
def test_every_row_of_the_table_compiles_without_spilling_and_all_its_programs_fit_at_once(
    submission: ModuleType, chip: str
) -> None:
    """Programs wait for each other, so that one which does not fit would be waited for forever."""
    for row in submission.TABLE:
        if row.chip == chip:
            kernel = built(submission, row)
            assert kernel.spilled_bytes == 0, row
            assert kernel.fit >= row.per_sm, row


@pytest.mark.parametrize("partial_sums", [False, True])
def test_an_nvidia_gpu_orders_memory_for_the_whole_system(submission: ModuleType, partial_sums: bool) -> None:
    """Every flag is released with all of the program's stores before it, and acquired before what it stands for. On its
    device alone is released what only this device waits for: sums and, if it adds them up, rows of pairs."""
    text = built(submission, submission.TABLE[0]._replace(partial_sums=partial_sums)).assembly
    here = RELEASE.replace("sys", "gpu")
    assert set(re.findall(r"atom[.\w]+", text)) == {RELEASE, here, ACQUIRE}
    assert text.count(here) == 1 + partial_sums
    between = re.split(r"st\.global", text.partition("release.exch")[0])[-1]
    assert "bar.sync" in between
    assert "ld.global.nc" not in text  # what others write is not constant


def test_numbers_that_change_from_call_to_call_need_no_new_kernel(submission: ModuleType) -> None:
    """Neither num_tokens nor an epoch of 1 or 16 asks for another variant."""
    assert specialized(submission.launch) == ["x", "indices", "weights", "up", "down", "out", "blocks"]


# ---- interpreted, in real processes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", ["shapes back_to_back", "on_cpu", pytest.param("many_programs", marks=pytest.mark.slow)]
)
def test_ranks_in_processes_of_their_own_get_right_results(names: str) -> None:
    """See the functions of these names below."""
    assert not started(__file__, *names.split(), interpreted=names != "on_cpu")


def ways() -> Iterator[bool]:
    """From now on outputs come back a row for each expert; then, one for each rank that has some."""
    rows = moe.TABLE
    for partial_sums in (False, True):
        moe.TABLE = [row._replace(partial_sums=partial_sums) for row in rows]
        moe.plan_of.cache_clear()
        yield partial_sums


def shapes(rank: int, world_size: int) -> None:
    """Shapes one after another, of different sizes, so that the heap grows; ranks have from no token to C - 1. Experts
    have from no token to several blocks of them; routing is read, and rows are added up, in several parts."""
    tune_interpreter()
    moe.TOLD, moe.SCANNED, moe.TERMS = 16, 8, 32
    calls = kept_calls(moe.launch)
    cases: list[tuple[Routing, str]] = [
        ((world_size, 1, 16, 2), "any"),
        ((2 * world_size, 2, 72, 5), "any"),  # two parts of 32 columns and one of 8
        ((2 * world_size, 2, 72, 5), "none"),
        ((4 * world_size, 3, 5, 4), "any"),  # rows that no vector access fits
        ((2 * world_size, 2, 72, 3), "own"),  # nobody has business with another
    ]
    if world_size > 1:
        cases += [
            ((2 * world_size, 2, 72, 3), "first"),  # all with rank 0
            ((world_size, 1, 16, 2), "next"),
            ((2 * world_size, 2, 72, 3), "zipf"),
            ((2 * world_size, 2, 40, 12), "single"),
            ((2 * world_size, 2, 72, 3), "empty"),
        ]
    for partial_sums in ways():
        for number, (config, which) in enumerate(cases):
            plan = moe.plan_of(torch.device("cpu"), world_size, *config, INTER)
            assert bool(plan.constants["PARTIALS"]) == (partial_sums and min(world_size, config[1]) > 1)
            if partial_sums and not plan.constants["PARTIALS"]:
                continue  # both ways are the same
            routed_right(moe, config, which, 100 * number, rank, world_size)
            assert kinds(calls[-1]) == kinds(plan.example_arguments())


def back_to_back(rank: int, world_size: int) -> None:
    for _ in ways():
        routed_back_to_back(moe, 8, rank, world_size)


@triton.jit
def in_turns(  # what moe_kernel does
    x, indices, weights, up, down, out, blocks, num_tokens, capacity, rank, epoch, first_flag,
    arrivals, routing, lists, sums, returns,
    WORLD: tl.constexpr, PER_RANK: tl.constexpr, TOP_K: tl.constexpr, HIDDEN: tl.constexpr, INTER: tl.constexpr,
    SPLIT: tl.constexpr, SLICE: tl.constexpr, TOKENS: tl.constexpr, BLOCK: tl.constexpr, TOGETHER: tl.constexpr,
    COLUMNS: tl.constexpr, PARTIALS: tl.constexpr, PORTIONS: tl.constexpr, TOLD: tl.constexpr, SENDS: tl.constexpr,
    SCANNED: tl.constexpr, REQUEST: tl.constexpr, DIES: tl.constexpr, AMD: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    own_block = tl.load(blocks + rank)
    first_sent = first_flag + WORLD * PORTIONS * kernel.COPIES
    first_summed = first_sent + WORLD * capacity * SPLIT
    first_back = first_summed + PER_RANK * SPLIT
    cut = (WORLD, PER_RANK, TOP_K, HIDDEN)
    for program in range(PROGRAMS):
        where = (program, PROGRAMS, num_tokens, capacity, rank, epoch, first_flag, routing)
        kernel.tell(indices, weights, blocks, *where, WORLD, TOP_K, PORTIONS, TOLD, AMD)
    for program in range(PROGRAMS):
        mine = kernel.turned(program, PROGRAMS, WORLD * PORTIONS, DIES)
        where = (mine, PROGRAMS, num_tokens, capacity, rank)
        kernel.send(x, indices, blocks, *where, arrivals, *cut, SPLIT, SLICE)
        kernel.flag_sent(indices, blocks, *where, epoch, first_sent, WORLD, PER_RANK, TOP_K, SPLIT, SENDS, AMD)
    for program in range(PROGRAMS):
        mine = kernel.turned(program, PROGRAMS, WORLD * PORTIONS + capacity * SPLIT, DIES)
        where = (mine, PROGRAMS, capacity, rank, epoch, first_flag, first_sent, first_summed)
        how = (INTER, SPLIT, SLICE, TOKENS, BLOCK, PORTIONS, SCANNED, AMD)
        kernel.multiply_up(up, own_block, *where, arrivals, routing, lists, sums, *cut, *how)
    for program in range(PROGRAMS):
        mine = kernel.turned(program, PROGRAMS, WORLD * PORTIONS + capacity * SPLIT, DIES)
        where = (mine, PROGRAMS, capacity, epoch, first_summed, first_back, routing, lists, sums, returns)
        how = (INTER, SPLIT, SLICE, TOKENS, BLOCK, TOGETHER, PARTIALS, AMD)
        kernel.multiply_down(down, blocks, own_block, *where, *cut, *how)
    for program in range(PROGRAMS):
        mine = kernel.turned(program, PROGRAMS, WORLD * PORTIONS + (capacity + PER_RANK) * SPLIT, DIES)
        if PARTIALS:
            kernel.wait_for_routing(own_block, mine, epoch, first_flag, WORLD, PORTIONS)
            where = (mine, PROGRAMS, capacity, rank, epoch, first_back, routing, returns)
            kernel.add_up(blocks, own_block, *where, *cut, SPLIT, SLICE, COLUMNS, PARTIALS, AMD)
        else:
            where = (mine, PROGRAMS, num_tokens, epoch, first_back, returns)
            kernel.combine(out, own_block, *where, TOP_K, HIDDEN, SPLIT, SLICE, COLUMNS)
    for program in range(PROGRAMS if PARTIALS else 0):
        mine = kernel.turned(program, PROGRAMS, WORLD * PORTIONS + (WORLD * capacity + PER_RANK) * SPLIT, DIES)
        where = (mine, PROGRAMS, num_tokens, capacity, rank, epoch, first_back, returns)
        kernel.combine_partials(indices, out, own_block, *where, *cut, SPLIT, SLICE, COLUMNS, PARTIALS)


def many_programs(rank: int, world_size: int) -> None:
    """Work is divided right among several programs, which are played one after another, phase by phase."""
    global kernel
    kernel = sys.modules["kernel"]
    tune_interpreter()
    moe.launch = moe.Launcher(in_turns)
    make_plan = moe.make_plan
    for programs, dies in ((3, 1), (64, 8)):

        def plan(row: Any, chip: Any, *shape: int, given: tuple[int, int] = (programs, dies)) -> Any:
            made = make_plan(row, chip._replace(multiprocessors=given[0], dies=given[1]), *shape)
            return made._replace(constants={**made.constants, "PROGRAMS": given[0]})

        moe.make_plan = plan
        for _ in ways():
            routed_right(moe, (2 * world_size, 2, 72, 5), "any", programs, rank, world_size)


def on_cpu(rank: int, world_size: int) -> None:
    routed_on_cpu(moe, rank, world_size)


if __name__ == "__main__":
    sys.exit(play("moe", globals(), "moe", lambda what: (1, 3) if what == "shapes" else (4,)))
