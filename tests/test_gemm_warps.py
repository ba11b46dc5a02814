"""gemm_rs's and ag_gemm's kernels with explicit warps (Hopper), as far as that goes without a GPU: the order of their
tiles as plain Python, and what they compile to."""

import importlib
import itertools
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest
from compiled import Compiled, chip_of, compiled
from kernel_ranks import before_each, first_after_each, imported

BLOCKS = {  # the rank's product on 2 ranks, blocks, stages and a chunk that is sent; the first with mixed tiles
    "gemm_rs": [((64, 7168, 9216), (64, 64, 128), 6, (0, 0)), ((2048, 2880, 1440), (128, 256, 64), 3, (0, 0))],
    "ag_gemm": [((64, 9216, 7168), (64, 64, 128), 5, (32, 128)), ((2048, 1440, 2880), (128, 256, 64), 3, (64, 128))],
}
RELEASE, ACQUIRE = "st.release.sys.global.u32", "ld.acquire.sys.global.u32"


@pytest.fixture(scope="module", params=BLOCKS)
def problem(request: pytest.FixtureRequest) -> Iterator[tuple[str, ModuleType, ModuleType]]:
    """The problem's name, its submission and its hopper module."""
    with imported(request.param) as submission:
        yield request.param, submission, importlib.import_module("hopper")


def plans(name: str, submission: ModuleType) -> Iterator[Any]:
    for shape, blocks, stages, (send_m, flag_k) in BLOCKS[name]:
        fields = {"shape": shape, "stages": stages, "kernel": "warps", "split": 1, "group": 8}
        fields |= dict(zip(("block_m", "block_n", "block_k"), blocks, strict=True))
        if name == "ag_gemm":
            fields |= {"send_m": send_m, "flag_k": flag_k, "senders": 132}
        row = submission.TABLE[0]._replace(**fields)
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
    for plan, kernel in built(name, submission):
        assert (kernel.spilled_bytes, kernel.fit) == (0, 1), plan
        text = kernel.assembly
        assert "wgmma.mma_async" in text
        assert "setmaxnreg" in text
        assert set(before_each(text, RELEASE, arrived, sent)) == {arrived}
        assert set(first_after_each(text, ACQUIRE, fence, load)) == {fence}
        # What is read by ordinary loads is read before a bulk copy may write over it.
        done, given_back = r"fence\.proxy\.async\.shared::cta", r"mbarrier\.arrive\.shared"
        loads = first_after_each(text, "ldmatrix.sync", done, given_back)
        assert set(loads) == ({done} if name == "gemm_rs" else set())


def test_other_chips_and_shapes_go_by_the_plain_kernel(problem: tuple[str, ModuleType, ModuleType]) -> None:
    name, submission, _ = problem
    plan = next(plans(name, submission))
    row = next(row for row in submission.TABLE if row.chip == "sm_90")._replace(kernel="warps", block_m=128)
    for chip, rows in (("sm_100", 4096), ("sm_90", 96)):  # 48 rows of a rank are no tiles of 64
        other = submission.make_plan(row, chip_of(submission, chip), 2, rows, 256, 256, True)
        assert (plan.kernel, other.kernel) == ("warps", "plain")


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
    for world, (rows, columns, block_m, block_n), group in itertools.product(
        (2, 4, 8), ((64, 200, 64, 64), (2048, 720, 128, 128), (4096, 1024, 64, 256)), (3, 8)
    ):
        m = rows // world
        mixed, size = m < block_m, m if name == "ag_gemm" else rows
        everything = {(row, column) for row in range(0, rows, block_m) for column in range(0, columns, block_n)}
        orders = [
            [place(tile, size, columns, rank, world, mixed, block_m, block_n, group) for tile in range(len(everything))]
            for rank in range(world)
        ]
        for rank, order in enumerate(orders):
            assert {at[:2] for at in order} == everything
            owned = [mixed or row // m == rank for row, *_ in order]
            assert owned == sorted(owned, reverse=name == "ag_gemm")  # own rows last, or first
            if name == "gemm_rs":
                # By one number all ranks tell a tile of this rank's rows from the others, and where they are mixed,
                # they come to it in the same round.
                mine = [(index, at) for index, at in enumerate(order) if at[3]]
                assert [bool(at[3]) for at in order] == owned
                assert len({at[2] for _, at in mine}) == len(mine)
                for other in orders:
                    numbers = {at[:2]: (index, at[2]) for index, at in enumerate(other)}
                    for index, (row, column, number, _) in mine:
                        assert numbers[row, column][1] == number
                        assert not mixed or numbers[row, column][0] == index
