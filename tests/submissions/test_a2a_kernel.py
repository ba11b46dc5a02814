"""a2a's kernel without a GPU: interpreted, in real processes that share memory; and compiled for GPUs.

`python tests/submissions/test_a2a_kernel.py shapes` plays ranks, see kernel_ranks.
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

a2a: Any = None  # in ranks: the submission
kernel: Any = None  # and its kernel


# ---- compiled for GPUs -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def submission() -> Iterator[ModuleType]:
    with imported("a2a") as module:
        yield module


def built(submission: ModuleType, row: Any, world_size: int, num_experts: int, top_k: int, chip: str = "") -> Any:
    """The kernel as it would be launched for the row's shape, on its chip or another."""
    hidden, capacity, _ = row.shape
    what, chip = (world_size, num_experts, top_k, hidden, capacity), chip or row.chip
    plan = submission.make_plan(row, chip_of(submission, chip), *what)
    return compiled(chip, plan.launch, plan.example_arguments(), plan.constants, plan.options)


def rows_of(submission: ModuleType, chip: str) -> list[Any]:
    return [row for row in submission.TABLE if row.chip == chip]


@pytest.mark.parametrize("chip", ["sm_90", "gfx942"])
def test_every_row_of_the_table_compiles_without_spilling_and_all_its_programs_fit_at_once(
    submission: ModuleType, chip: str
) -> None:
    """Programs wait for each other, so that one which does not fit would be waited for forever."""
    for row in rows_of(submission, chip):
        kernel = built(submission, row, row.shape[2], 128, 8)
        assert kernel.spilled_bytes == 0, row
        assert kernel.fit >= row.per_sm, row


@pytest.mark.parametrize(("chip", "like"), [("sm_100", "sm_90"), ("gfx950", "gfx942")])
def test_a_chip_without_rows_has_room_for_its_makers(submission: ModuleType, chip: str, like: str) -> None:
    for row in rows_of(submission, like)[-2:]:
        assert submission.nearest(submission.TABLE, chip, row.shape) == row
        assert built(submission, row, row.shape[2], 128, 8, chip).fit >= row.per_sm, row


def test_what_spills_and_what_does_not_fit_is_seen(submission: ModuleType) -> None:
    """The control of the test above: a row that asks for far too much."""
    for chip in ("sm_90", "gfx942"):
        kernel = built(submission, rows_of(submission, chip)[-1]._replace(per_sm=8), 8, 256, 8)
        assert kernel.spilled_bytes > 0 or kernel.fit < 8, chip


def test_an_nvidia_gpu_moves_16_bytes_at_a_time_and_orders_memory_for_the_whole_system(submission: ModuleType) -> None:
    for row in rows_of(submission, "sm_90")[:5]:
        text = built(submission, row, row.shape[2], 128, 8).assembly
        accesses = re.findall(r"(?:ld|st)\.global[.\w]*", text)
        assert not [access for access in accesses if access.endswith((".b16", ".b8", "v2.b16", "v2.b32"))], row
        assert len([access for access in accesses if access.startswith("st.global.v4.b32")]) >= 3, row
        atomics = re.findall(r"atom[.\w]+", text)
        assert set(atomics) == {RELEASE, ACQUIRE}, row
        # Of the stores before a flag all of the program's are released, as each flag has a barrier right before it.
        between = re.split(r"st\.global\.v4", text.partition("release.exch")[0])[-1]
        assert "bar.sync" in between, row


def test_pieces_that_are_sent_together_share_a_fence_and_need_no_more_registers(submission: ModuleType) -> None:
    row = submission.nearest(submission.TABLE, "sm_90", (4096, 4096, 2))
    made = built(submission, row._replace(sends=8), 2, 64, 8)
    assert made.spilled_bytes == 0
    assert made.fit >= row.per_sm
    assert re.findall(r"atom[.\w]+", made.assembly).count(RELEASE) == 2  # a piece's way there and its way back


def test_an_amd_gpu_moves_16_bytes_at_a_time_and_orders_memory_for_the_whole_system(submission: ModuleType) -> None:
    for row in rows_of(submission, "gfx942"):
        text = built(submission, row, row.shape[2], 128, 8).assembly
        stores = re.findall(r"\b(?:global|flat|buffer)_store_\w+", text)
        assert {store.rpartition("_")[2] for store in stores} == {"dwordx4"}, row
        assert re.search(r"buffer_inv sc0 sc1", text), row  # acquire, the whole system
        # Every wave writes its caches back, and waits until that is done, before the barrier before the flag.
        released = r"s_waitcnt vmcnt\(0\)\s+buffer_wbl2 sc0 sc1\s+s_waitcnt vmcnt\(0\)[^!]*?s_barrier[^!]*?atomic_swap"
        assert len(re.findall(released, text)) == 2, row


def test_numbers_that_change_from_call_to_call_need_no_new_kernel(submission: ModuleType) -> None:
    """Neither num_tokens nor an epoch of 1 or 16 asks for another variant."""
    assert specialized(submission.launch) == ["x", "indices", "weights", "out", "blocks"]


# ---- interpreted, in real processes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names", ["shapes back_to_back", "on_cpu", pytest.param("many_programs", marks=pytest.mark.slow)]
)
def test_ranks_in_processes_of_their_own_get_right_results(names: str) -> None:
    """See the functions of these names below."""
    assert not started(__file__, *names.split(), interpreted=names != "on_cpu")


def shapes(rank: int, world_size: int) -> None:
    """Shapes one after another, of different sizes, so that the heap grows; ranks have from no token to C - 1."""
    tune_interpreter()
    calls = kept_calls(a2a.launch)
    cases: list[tuple[Routing, str]] = [
        ((world_size, 1, 16, 2), "any"),
        ((2 * world_size, 2, 72, 6), "any"),  # two pieces, of 40 columns and of 32
        ((2 * world_size, 2, 72, 6), "none"),
        ((4 * world_size, 3, 5, 4), "any"),  # rows that no vector access fits
        ((2 * world_size, 2, 136, 4), "own"),  # nobody has business with another
    ]
    if world_size > 1:
        cases += [
            ((2 * world_size, 2, 136, 4), "first"),  # all with rank 0
            ((world_size, 1, 16, 2), "next"),
            ((2 * world_size, 2, 136, 4), "zipf"),
            ((2 * world_size, 2, 136, 4), "single"),
            ((2 * world_size, 2, 136, 4), "empty"),
        ]
    for number, (config, which) in enumerate(cases):
        routed_right(a2a, config, which, 100 * number, rank, world_size)
        assert kinds(calls[-1]) == kinds(a2a.plan_of(torch.device("cpu"), world_size, *config).example_arguments())


def back_to_back(rank: int, world_size: int) -> None:
    routed_back_to_back(a2a, 8, rank, world_size)


@triton.jit
def in_turns(  # what a2a_kernel does
    x, indices, weights, out, blocks, num_tokens, capacity, rank, epoch, first_flag, arrivals, returns,
    WORLD: tl.constexpr, PER_RANK: tl.constexpr, TOP_K: tl.constexpr, HIDDEN: tl.constexpr, PIECES: tl.constexpr,
    PIECE: tl.constexpr, SENDS: tl.constexpr, ROWS: tl.constexpr, DIES: tl.constexpr, AMD: tl.constexpr,
    PROGRAMS: tl.constexpr,
):  # fmt: skip
    units = capacity * PIECES
    own_block = tl.load(blocks + rank)
    cut = (WORLD, PER_RANK, TOP_K, HIDDEN, PIECES, PIECE)
    for program in range(PROGRAMS):
        where = (program, PROGRAMS, num_tokens, units, rank, epoch, first_flag)
        kernel.send(x, indices, blocks, *where, arrivals, *cut, SENDS, AMD)
    for program in range(PROGRAMS):
        where = (kernel.turned(program, PROGRAMS, units, DIES), PROGRAMS, units, rank, epoch, first_flag)
        kernel.answer(blocks, own_block, *where, arrivals, returns, WORLD, PIECE, ROWS, AMD)
    for program in range(PROGRAMS):
        mine = kernel.turned(program, PROGRAMS, units * WORLD, DIES)
        where = (mine, PROGRAMS, num_tokens, units, rank, epoch, first_flag)
        kernel.combine(x, indices, weights, out, own_block, *where, returns, *cut)


def many_programs(rank: int, world_size: int) -> None:
    """Work is divided right among several programs, which are played one after another, phase by phase."""
    global kernel
    kernel = sys.modules["kernel"]
    tune_interpreter()
    a2a.launch = a2a.Launcher(in_turns)
    make_plan = a2a.make_plan
    for programs, dies, rows, sends in ((3, 1, 1, 1), (8, 2, 4, 4), (64, 8, 2, 2)):
        given = {"rows": rows, "sends": sends}

        def plan(
            row: Any, chip: Any, *shape: int, given: dict[str, int] = given, programs: int = programs, dies: int = dies
        ) -> Any:
            made = make_plan(row._replace(**given), chip._replace(dies=dies), *shape)
            return made._replace(constants={**made.constants, "PROGRAMS": programs})

        a2a.make_plan = plan
        a2a.plan_of.cache_clear()
        routed_right(a2a, (2 * world_size, 2, 72, 5), "any", programs, rank, world_size)


def on_cpu(rank: int, world_size: int) -> None:
    routed_on_cpu(a2a, rank, world_size)


if __name__ == "__main__":
    sys.exit(play("a2a", globals(), "a2a", lambda what: (1, 2, 3) if what == "shapes" else (4,)))
