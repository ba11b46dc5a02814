"""gemm_rs's and ag_gemm's kernels with explicit warps (Hopper), as far as that goes without a GPU: the order of their
tiles as plain Python, what they compile to, and their threads, barriers and flags played by played_warps."""

import importlib
import itertools
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from compiled import Compiled, chip_of, compiled
from kernel_ranks import before_each, first_after_each, imported
from played_warps import Machine, is_noticed

# The rank's product on 2 ranks, blocks and stages.
BLOCKS = {
    "gemm_rs": [((2048, 2880, 1440), (128, 256, 64), 3), ((2048, 2880, 1440), (128, 128, 64), 5)],
    "ag_gemm": [
        ((2048, 1440, 2880), (128, 256, 64), 3),
        ((2048, 1440, 2880), (128, 128, 64), 5),
        ((2048, 1440, 2880), (128, 192, 64), 4),
    ],
}
# Of what is played: ranks, the rank's product, blocks, stages, bias, programs.
Played = tuple[int, tuple[int, int, int], tuple[int, int, int], int, bool, int]
PLAYED: list[Played] = [
    (2, (256, 256, 200), (128, 128, 64), 3, True, 3),
    (2, (512, 200, 328), (128, 64, 64), 4, True, 5),
    (2, (256, 200, 456), (128, 64, 64), 2, True, 9),  # more programs than tiles
    (4, (512, 264, 200), (128, 128, 128), 2, False, 3),
    # A rank has 192, 320 or 176 rows: its last tile is moved back.
    (2, (384, 264, 200), (128, 128, 64), 3, True, 3),
    (2, (640, 136, 328), (128, 64, 64), 4, False, 5),
    (4, (704, 136, 200), (128, 128, 64), 3, True, 3),
    (2, (256, 64, 1200), (128, 64, 64), 3, True, 2),  # more flags of a tile's rows than are read at once
    (2, (512, 520, 136), (128, 256, 64), 2, True, 3),  # wide tiles have no room of their own for what comes in
]
# Of ag_gemm alone: tiles of three times a power of two columns. The last tile's third part begins behind all columns.
WIDE: list[Played] = [
    (2, (512, 200, 328), (128, 96, 64), 4, True, 5),
    (2, (384, 264, 200), (128, 192, 64), 3, False, 3),
    (4, (704, 136, 200), (128, 96, 64), 2, True, 3),
]
# For faults: programs with several tiles for the other rank, whose products take little time.
FAULTY: Played = (2, (1024, 256, 72), (128, 128, 64), 3, True, 2)
# Of each kernel, or way that it goes: what a fault takes away, with what stands in its place.
FAULTS: dict[str, dict[str, tuple[str, str]]] = {
    "gemm_rs, fetched": {
        "copies are not complete when they are flagged": ("    finish_copies()", "    pass"),
        "no flag is waited for": ("value = epoch - 1", "value = epoch"),
        "results are kept before they are there": ("mbarrier.wait(taken.index(group), turn)", "pass"),
    },
    "gemm_rs, by fetching warps": {
        "no flag is waited for": ("value = epoch - 1", "value = epoch"),
        "partial products are added before they are there": ("mbarrier.wait(come.index(MINE), fetched)", "pass"),
        "partial products come before there is room": ("mbarrier.wait(free.index(MINE), turn)", "pass"),
        "the output buffer is not waited for": ("mbarrier.wait(given.index(MINE), handed)", "pass"),
    },
    "gemm_rs": {
        "copies are not complete when they are flagged": ("    finish_copies()", "    pass"),
        "no flag is waited for": ("value = epoch - 1", "value = epoch"),
        "stages are filled before they are empty": ("mbarrier.wait(emptied.index(slot), turn)", "pass"),
        "stages are read before they are full": ("mbarrier.wait(filled.index(slot), phase)", "pass"),
        "the output buffer is not waited for": ("mbarrier.wait(given.index(MINE), handed)", "pass"),
        "results are sent before they are there": ("mbarrier.wait(taken.index(group), turn)", "pass"),
        "a buffer is used again while it is sent": ("tma.store_wait(0)", "pass"),
    },
    "ag_gemm": {
        "copies are not complete when they are flagged": ("    finish_copies()", "    pass"),
        "a chunk is flagged before it is sent": ("blocks, flagged, sent, rank", "blocks, flagged, sent + 1, rank"),
        "no flag is waited for": ("come = gl.where(own, FLAGS_K, 0)", "come = FLAGS_K"),
        "stages are filled before they are empty": ("mbarrier.wait(emptied.index(slot), turn)", "pass"),
        "stages are read before they are full": ("mbarrier.wait(filled.index(slot), phase)", "pass"),
        "chunks are sent before they are there": ("mbarrier.wait(loaded.index(slot), phase)", "pass"),
        "a buffer is used again while it is sent": ("tma.store_wait((BUFFERS - 1) * (WORLD - 1))", "pass"),
    },
}
MORE = {"send_m": 32, "flag_k": 128, "senders": 2, "lead": 2, "send_rows": 64}  # of rows
CALLS = 2  # one after the other: what the first leaves is not taken for the second's
RELEASE, ACQUIRE = "st.release.sys.global.u32", "ld.acquire.sys.global.u32"


# Of each way that a kernel goes: the problem and fields of its row.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "gemm_rs": ("gemm_rs", {"window": 16384, "fetchers": False}),
    "gemm_rs, fetched": ("gemm_rs", {"window": 0, "fetchers": False}),
    "gemm_rs, by fetching warps": ("gemm_rs", {"window": 0, "fetchers": True}),
    "ag_gemm": ("ag_gemm", {}),
}


@pytest.fixture(scope="module", params=WAYS)
def problem(request: pytest.FixtureRequest) -> Iterator[tuple[str, ModuleType, ModuleType]]:
    """The problem's name, its submission and its hopper module."""
    name, fields = WAYS[request.param]
    with mock.patch.dict(MORE, fields), imported(name) as submission:
        yield name, submission, importlib.import_module("hopper")


def row_of(submission: ModuleType, shape: tuple[int, int, int], blocks: tuple[int, int, int], stages: int) -> Any:
    fields = {"chip": "sm_90", "shape": shape, "stages": stages, "kernel": "warps", "split": 1, "group": 3}
    fields |= dict(zip(("block_m", "block_n", "block_k"), blocks, strict=True))
    fields |= {name: value for name, value in MORE.items() if name in submission.Row._fields}
    return submission.TABLE[0]._replace(**fields)


def plans(name: str, submission: ModuleType) -> Iterator[Any]:
    for shape, *blocks in BLOCKS[name]:
        row = row_of(submission, shape, *blocks)
        yield submission.make_plan(row, chip_of(submission, "sm_90"), 2, *shape, True)


def built(name: str, submission: ModuleType) -> Iterator[tuple[Any, Compiled]]:
    for plan in plans(name, submission):
        assert plan.kernel == "warps"
        yield plan, compiled("sm_90", plan.launch, plan.example_arguments(), plan.constants, plan.options)


def test_they_fit_and_set_flags_only_behind_copies_that_are_complete(
    problem: tuple[str, ModuleType, ModuleType],
) -> None:
    name, submission, _ = problem
    arrived, sent = r"cp\.async\.bulk\.wait_group 0;", r"global\.shared::cta\.bulk_group"
    fence, load = r"fence\.proxy\.async\.global", r"cp\.async\.bulk\.tensor\.2d\.shared"
    barrier = r"bar\.(warp\.)?sync"
    for plan, kernel in built(name, submission):
        assert (kernel.spilled_bytes, kernel.fit) == (0, 1), plan
        text = kernel.assembly
        assert "wgmma.mma_async" in text
        assert "setmaxnreg" in text
        assert ("m64n192k16" in text, "m64n64k16" in text) == (plan.constants.get("PARTS") == 3, False)
        assert set(before_each(text, RELEASE, arrived, sent)) == {arrived}
        assert set(before_each(text, RELEASE, barrier, sent)) == {barrier}
        assert set(first_after_each(text, ACQUIRE, fence, load)) == {fence}
        # What is read by ordinary loads is read before a bulk copy, or a fetching warp, may write over it.
        done = r"bar(rier)?\.sync" if plan.constants.get("FETCHERS") else r"fence\.proxy\.async\.shared::cta"
        loads = first_after_each(text, "ldmatrix.sync", done, r"mbarrier\.arrive\.shared")
        assert set(loads) == ({done} if name == "gemm_rs" else set())


def test_other_chips_and_shapes_go_by_the_plain_kernel(problem: tuple[str, ModuleType, ModuleType]) -> None:
    name, submission, _ = problem
    plan = next(plans(name, submission))
    row = next(row for row in submission.TABLE if row.chip == "sm_90")._replace(kernel="warps", block_m=128)
    for chip, rows in (("sm_100", 4096), ("sm_90", 96)):  # 48 rows of a rank are no tiles of 64
        other = submission.make_plan(row, chip_of(submission, chip), 2, rows, 256, 256, True)
        assert (plan.kernel, other.kernel) == ("warps", "plain")
    if name == "ag_gemm":  # its plain kernel has one sum
        other = submission.make_plan(row._replace(block_n=192), chip_of(submission, "sm_100"), 2, 4096, 256, 256, True)
        assert other.constants["BLOCK_N"] == 128


# ---- played ----------------------------------------------------------------------------------------------------------


def errors(name: str, submission: ModuleType, machine: Machine, case: Played) -> list[float]:
    """How far each rank's result of each call is off, relative to the largest element."""
    world, (rows, columns, depth), blocks, stages, bias, programs = case
    row = row_of(submission, (rows, columns, depth), blocks, stages)
    plan = submission.make_plan(row, submission.Chip("sm_90", programs, 1), world, rows, columns, depth, bias)
    m, chance, found = rows // world, torch.Generator().manual_seed(0), []
    gathers = name == "ag_gemm"

    def made(*shape: int) -> list[torch.Tensor]:
        return [torch.randn(*shape, generator=chance).bfloat16() for _ in range(world)]

    for call in range(CALLS):
        a, b, biases = made(m if gathers else rows, depth), made(columns, depth), made(columns)
        outputs = [torch.full(plan.output, float("nan"), dtype=torch.bfloat16) for _ in range(world)]
        if gathers:
            exact = [torch.cat(a).float() @ weight.float().T for weight in b]
        else:
            whole = sum(one.float() @ weight.float().T for one, weight in zip(a, b, strict=True))
            exact = list(whole.split(m))
        if bias:
            exact = [one + (1 if gathers else world) * more.float() for one, more in zip(exact, biases, strict=True)]
        lines, turn = 128 * plan.flags, call % 2
        sending = plan.sending if gathers else ()
        offset = 2 * lines + turn * plan.nbytes
        operands = (a, b)
        if gathers:
            operands = (a, a, b, [block[offset:].view(torch.bfloat16) for block in machine.blocks])
        machine.run(
            [list(ranks) for ranks in zip(*operands, biases, outputs, strict=True)],
            [[*plan.sizes, rank, call + 1, turn * lines, offset, *sending]
             for rank in range(world)],
            plan.tiles,
            **plan.constants,
        )  # fmt: skip
        for output, value in zip(outputs, exact, strict=True):
            found.append(((output.float() - value).abs().max() / value.abs().max()).item())
    return found


@pytest.mark.parametrize("case", PLAYED)
def test_played_by_threads_every_rank_has_its_product(
    problem: tuple[str, ModuleType, ModuleType], case: Played
) -> None:
    name, submission, _ = problem
    machine = Machine(name, case[0], case[-1], seed=3)
    assert all(error < 0.02 for error in errors(name, submission, machine, case))


@pytest.mark.parametrize("case", WIDE)
def test_a_tile_may_have_columns_that_are_no_power_of_two(case: Played) -> None:
    with imported("ag_gemm") as submission:
        machine = Machine("ag_gemm", case[0], case[-1], seed=5)
        assert all(error < 0.02 for error in errors("ag_gemm", submission, machine, case))


def is_right(name: str, submission: ModuleType, machine: Machine, case: Played) -> bool:
    try:
        return all(error < 0.02 for error in errors(name, submission, machine, case))
    except (AssertionError, RuntimeError, TimeoutError):  # of the machine: what a GPU would hang or crash at
        return False


@pytest.mark.parametrize(("way", "fault"), [(way, fault) for way, faults in FAULTS.items() for fault in faults])
def test_a_kernel_that_does_not_wait_is_noticed(way: str, fault: str) -> None:
    """What is played shows such faults."""
    name, fields = WAYS[way]
    world, programs, edit = FAULTY[0], FAULTY[-1], FAULTS[way][fault]
    with mock.patch.dict(MORE, fields), imported(name) as submission:
        assert is_right(name, submission, Machine(name, world, programs, 0), FAULTY)
        assert is_noticed(lambda seed: is_right(name, submission, Machine(name, world, programs, seed, edit), FAULTY))


# ---- the order of tiles ----------------------------------------------------------------------------------------------


def as_python(module: ModuleType, name: str) -> Callable[..., Any]:
    """A kernel's function of scalars."""
    scalars = SimpleNamespace(
        cdiv=lambda a, b: -(-a // b), where=lambda condition, a, b: a if condition else b, minimum=min, maximum=max
    )
    names: dict[str, Any] = {"gl": scalars}
    for other in {"in_groups", name} & {*vars(module)}:
        names[other] = FunctionType(getattr(module, other).fn.__code__, names)
    return names[name]


def test_every_tile_is_multiplied_once_and_no_rank_waits_for_a_tile_that_comes_later(
    problem: tuple[str, ModuleType, ModuleType],
) -> None:
    name, _, hopper = problem
    place = as_python(hopper, "place")
    for world, (rows, columns, block_n), group in itertools.product(
        (2, 4, 8), ((1024, 200, 64), (2048, 720, 128), (4096, 1024, 256), (1536, 200, 64), (2624, 720, 128)), (3, 8)
    ):
        m, block_m = rows // world, 128
        size = m if name == "ag_gemm" else rows
        starts = [min(row, m - block_m) for row in range(0, m, block_m)]  # of a rank's tiles
        everything = {
            (first + start, column)
            for first, start, column in itertools.product(range(0, rows, m), starts, range(0, columns, block_n))
        }
        orders = [
            [place(tile, size, columns, rank, world, block_m, block_n, group) for tile in range(len(everything))]
            for rank in range(world)
        ]
        for rank, order in enumerate(orders):
            assert {at[:2] for at in order} == everything
            owned = [row // m == rank for row, *_ in order]
            assert owned == sorted(owned, reverse=name == "ag_gemm")  # own rows last, or first
            if name == "gemm_rs":
                # By one number all ranks tell a tile of this rank's rows from the others.
                mine = [at for at in order if at[3]]
                assert [bool(at[3]) for at in order] == owned
                assert len({at[2] for at in mine}) == len(mine)
                for other in orders:
                    numbers = {at[:2]: at[2] for at in other}
                    assert all(numbers[row, column] == number for row, column, number, _ in mine)
