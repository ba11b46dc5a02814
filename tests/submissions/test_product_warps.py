"""gemm's kernel with explicit warps (Hopper), as far as that goes without a GPU: how programs share the last round, as
plain Python; what it compiles to; and its threads and barriers, played by played_warps."""

import importlib
from collections.abc import Callable
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from compiled import chip_of, compiled
from kernel_ranks import before_each, first_after_each, imported
from played_warps import Machine, is_noticed

# M, N and K, the row's fields, and programs.
Played = tuple[tuple[int, int, int], dict[str, Any], int]
SHARED = {"shared": True}
PLAYED: list[Played] = [
    ((384, 200, 200), {}, 5),  # several tiles a program, less than whole blocks of columns and of depth
    ((384, 200, 200), SHARED, 4),  # 6 tiles: a round, and 2 that 4 programs share
    ((640, 128, 520), SHARED, 4),  # a tile among 4 programs
    ((384, 264, 456), SHARED, 5),  # 9 tiles: 4 among 5, whose runs go on in the next tile
    ((256, 128, 392), SHARED, 7),  # fewer tiles than programs: 2 among 7, no round before
    ((384, 200, 200), {"shared": True, "parts": 2}, 4),
    ((520, 128, 200), SHARED, 3),  # less than whole blocks of rows: 5 tiles, 2 of them shared
]
FAULTY: Played = ((640, 128, 136), SHARED, 3)
FAULTS = {
    "stages are filled before they are empty": ("mbarrier.wait(emptied.index(slot), phase)", "pass"),
    "stages are read before they are full": ("mbarrier.wait(filled.index(slot), phase)", "pass"),
    "results are written over while they leave": ("tma.store_wait(0)", "pass"),
    "the first part to come is taken for the last": ("complete = before == last - first", "complete = before == 0"),
    "parts are not counted anew in the next call": ("gl.store(counter, 0)", "pass"),
    "parts of one half are counted for the other": ("bitcast=True) + (2 * tile + MINE)", "bitcast=True) + 2 * tile"),
    "parts lie over each other": ("sums_ptr + gl.program_id(0) * (2 * size)", "sums_ptr"),
}
CALLS = 2  # one after the other: the second finds what the first has left


def row_of(submission: ModuleType, blocks: tuple[int, int, int], stages: int, fields: dict[str, Any]) -> Any:
    block_m, block_n, block_k = blocks
    row = next(row for row in submission.TABLE if row.kernel == "warps")
    row = row._replace(block_m=block_m, block_n=block_n, block_k=block_k, stages=stages, group=2, shared=False, parts=1)
    return row._replace(**fields)


def errors(submission: ModuleType, machine: Machine, case: Played) -> list[float]:
    """How far each call's result is off, relative to the largest element."""
    (rows, columns, depth), fields, programs = case
    row = row_of(submission, (128, 128, 64), 3, fields)
    plan = submission.make_plan(row, submission.Chip("sm_90", programs, 1), rows, columns, depth)
    assert plan.constants["SHARED"] == bool(fields.get("shared"))
    chance, work, found = torch.Generator().manual_seed(0), torch.zeros(max(1, plan.work)), []
    for _ in range(CALLS):
        a, b = (torch.randn(size, depth, generator=chance).bfloat16() for size in (rows, columns))
        out = torch.full((rows, columns), float("nan"), dtype=torch.bfloat16)
        machine.run([[a, b, out, work]], [list(plan.sizes)], **plan.constants)
        exact = a.float() @ b.float().T
        off = ((out.float() - exact).abs().max() / exact.abs().max()).item()
        found.append(off)
    return found


def machine_of(case: Played, seed: int, edit: tuple[str, str] = ("", "")) -> Machine:
    return Machine("gemm", 1, case[-1], seed, edit, kernel="product_kernel")


@pytest.mark.parametrize("case", PLAYED)
def test_played_by_threads_every_tile_is_right(case: Played) -> None:
    with imported("gemm") as submission:
        assert all(error < 0.01 for error in errors(submission, machine_of(case, 3), case))


def test_the_same_input_has_the_same_result_whoever_comes_last() -> None:
    """Bit for bit: parts are added in the order of the depth."""
    case: Played = ((640, 128, 520), SHARED, 4)
    with imported("gemm") as submission:
        found = {tuple(errors(submission, machine_of(case, seed), case)) for seed in range(3)}
    assert len(found) == 1


def is_right(submission: ModuleType, machine: Machine, case: Played) -> bool:
    try:
        return all(error < 0.01 for error in errors(submission, machine, case))
    except (AssertionError, RuntimeError, TimeoutError):  # of the machine: what a GPU would hang or crash at
        return False


@pytest.mark.parametrize("fault", FAULTS)
def test_a_kernel_with_a_fault_is_noticed(fault: str) -> None:
    with imported("gemm") as submission:
        assert is_right(submission, machine_of(FAULTY, 0), FAULTY)
        assert is_noticed(lambda seed: is_right(submission, machine_of(FAULTY, seed, FAULTS[fault]), FAULTY))


# ---- how programs share the last round -------------------------------------------------------------------------------


def as_python(module: ModuleType, name: str, program: int, programs: int) -> Callable[..., Any]:
    """A kernel's function of numbers, as one of so many programs calls it."""
    gl = SimpleNamespace(program_id=lambda axis: program, num_programs=lambda axis: programs)
    return FunctionType(getattr(module, name).fn.__code__, {"gl": gl})


@pytest.mark.parametrize(
    ("shared", "programs", "steps"),
    [(68, 132, 64), (68, 132, 448), (52, 132, 128), (36, 132, 64), (80, 132, 128), (1, 132, 200), (131, 132, 2)],
)
def test_shared_steps_are_done_once_in_runs_of_at_most_two_tiles(shared: int, programs: int, steps: int) -> None:
    """Who finishes a tile knows how many parts it has and where they lie."""
    with imported("gemm"):
        hopper = importlib.import_module("hopper")
        runs = [as_python(hopper, "run_of", program, programs)(shared, steps) for program in range(programs)]
        program_of = as_python(hopper, "program_of", 0, programs)
    assert [first for first, _ in runs] + [shared * steps] == [0] + [last for _, last in runs]
    assert {last - first for first, last in runs} <= {shared * steps // programs, shared * steps // programs + 1}
    assert all(last > first for first, last in runs)
    parts = [(step // steps, program) for program, (first, last) in enumerate(runs) for step in range(first, last)]
    assert [program_of(step, shared, steps) for step in range(shared * steps)] == [program for _, program in parts]
    by_part = set(parts)
    assert max(sum(one == program for _, one in by_part) for program in range(programs)) <= 2
    assert len({tile + program for tile, program in by_part}) == len(by_part)  # a slot each
    assert max(tile + program for tile, program in by_part) < shared + programs


def test_a_round_is_shared_only_where_each_program_has_a_step_of_it() -> None:
    with imported("gemm") as submission:
        row, chip = row_of(submission, (128, 128, 64), 3, SHARED), submission.Chip("sm_90", 4, 1)
        plans = {
            shape: submission.make_plan(row, chip, *shape)
            for shape in ((512, 128, 4096), (640, 128, 192), (640, 128, 256))
        }
    assert [plan.constants["SHARED"] for plan in plans.values()] == [False, False, True]  # no tile left; 3 steps; 4
    assert [plan.work for plan in plans.values()] == [0, 0, 1024 + 5 * 128 * 128]


# ---- compiled --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, SHARED])
@pytest.mark.parametrize(
    "blocks", [((128, 256, 64), 3, 1), ((128, 256, 64), 4, 2), ((256, 128, 64), 3, 1), ((128, 128, 64), 6, 1)]
)
def test_it_fits_without_spilling_and_counts_parts_behind_a_barrier(
    blocks: tuple[tuple[int, int, int], int, int], fields: dict[str, Any]
) -> None:
    with imported("gemm") as submission:
        row = row_of(submission, *blocks[:2], {**fields, "parts": blocks[2]})
        plan = submission.make_plan(row, chip_of(submission, "sm_90"), 8192, 8192, 4096)
        kernel = compiled("sm_90", plan.launch, plan.example_arguments(), plan.constants, plan.options)
    assert (kernel.spilled_bytes, kernel.fit) == (0, 1)
    count, barrier = r"atom.global.gpu.acq_rel.add.u32", r"bar\.sync"
    assert kernel.assembly.count(count) == (2 if fields else 0)  # one of each warpgroup
    assert set(before_each(kernel.assembly, count, barrier, r"\bst\.global")) <= {barrier}
    assert set(first_after_each(kernel.assembly, count, barrier, r"\bld\.global")) <= {barrier}
