"""The kernels of gemm_rs and ag_gemm without a GPU: interpreted, in real processes that share memory; and compiled for
GPUs.

`python tests/submissions/test_gemm_kernels.py shapes` plays ranks, see kernel_ranks.
"""

import importlib
import itertools
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from compiled import Compiled, chip_of, compiled
from kernel_ranks import (
    ACQUIRE,
    RELEASE,
    ROOT,
    before_each,
    first_after_each,
    imported,
    judged,
    kept_calls,
    kinds,
    play,
    specialized,
    started,
    tune_interpreter,
)

PROBLEMS = ("gemm_rs", "ag_gemm")
RANKS = {"sm_90": 4, "gfx942": 8}  # for which the tables have rows
STORES = {"gemm_rs_kernel": "dwordx2", "ag_gemm_kernel": "dwordx4"}  # to ranks' blocks: as MFMA leaves tiles
COUNT = r"\b(?:red|atom)\.global\.sys\.release\.add\.u32"  # Triton 3.9 and 3.6
SHARED_COUNT = "atom.global.gpu.acq_rel.add.u32"

gemm: Any = None  # in ranks: the submission
Shape = tuple[int, int, int, bool]  # the rank's product, M, N and K, and whether it has a bias

pytestmark = pytest.mark.slow  # compiling every row of both tables takes a minute


# ---- compiled for GPUs -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=PROBLEMS)
def submission(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    with imported(request.param) as module:
        yield module


def problem_of(submission: ModuleType) -> str:
    return "gemm_rs" if "gemm_rs_kernel" in vars(submission) else "ag_gemm"


def built(submission: ModuleType, chip: str) -> Iterator[tuple[Any, Any, Compiled]]:
    """Each row of that chip that has a kernel with its plan and the kernel as it would be launched, without a bias and
    with one."""
    for row, bias in itertools.product(submission.TABLE, (False, True)):
        if row.chip != chip:
            continue
        plan = submission.make_plan(row, chip_of(submission, chip), RANKS[chip], *row.shape, bias)
        if plan.launch:
            yield row, plan, compiled(chip, plan.launch, plan.example_arguments(), plan.constants, plan.options)


@pytest.mark.parametrize("chip", RANKS)
def test_every_row_of_the_table_compiles_without_spilling_and_a_program_fits(submission: ModuleType, chip: str) -> None:
    """As programs wait for each other, no more are launched than fit: see test_launch."""
    for row, _, kernel in built(submission, chip):
        assert kernel.spilled_bytes == 0, row
        assert kernel.fit >= 1, row


@pytest.mark.parametrize(("chip", "numerator"), [("sm_90", 7), ("sm_90", 5), ("gfx942", 7)])
def test_shapes_whose_rows_no_block_divides_have_the_tables_blocks(
    submission: ModuleType, chip: str, numerator: int
) -> None:
    """7 or 5 eighths of a row's M: a rank has 28, 56, 112, 448, ... or 20, 40, 80, ... rows."""
    ranks, known = RANKS[chip], set()
    for row in submission.TABLE:
        kind = (row.kernel, row.block_m, row.block_n)
        if row.chip != chip or kind in known:
            continue
        known.add(kind)
        m, columns, depth = row.shape[0] * numerator // 8 // ranks, *row.shape[1:]
        plan = submission.make_plan(row, chip_of(submission, chip), ranks, m * ranks, columns, depth, True)
        if plan.launch is None:
            continue
        if m >= row.block_m:
            assert (plan.kernel, plan.constants["BLOCK_M"]) == (row.kernel, row.block_m), row
        kernel = compiled(chip, plan.launch, plan.example_arguments(), plan.constants, plan.options)
        assert kernel.spilled_bytes == 0, row
        assert kernel.fit >= 1, row
        if (chip, plan.kernel) == ("sm_90", "plain"):
            assert set(re.findall(r"\bst\.global[.\w]*", kernel.assembly)) >= {"st.global.v4.b32"}, row


def test_a_tile_waits_for_the_flags_of_all_of_its_rows() -> None:
    """Of ag_gemm, for any number of rows a rank; and a flag tells of rows of one rank."""
    with imported("ag_gemm") as submission:
        rows = [row for row in submission.TABLE if row.kernel == "plain"]
        for row, ranks, m in itertools.product(rows, (2, 8), range(1, 300)):
            plan = submission.make_plan(row, chip_of(submission, "sm_90"), ranks, m * ranks, 256, 256, True)
            block, flag, flags = (plan.constants[name] for name in ("BLOCK_M", "FLAG_M", "FLAGS_M"))
            assert plan.constants["MIXED"] == (m < block)
            assert m % flag == 0
            starts = range(0, m * ranks, block) if m < block else [*range(0, m - block, block), m - block]
            ends = [min(start + block, m * ranks) for start in starts]
            most = max((end - 1) // flag - start // flag + 1 for start, end in zip(starts, ends, strict=True))
            assert most <= flags, (row, m)


@pytest.mark.parametrize(("chip", "like"), [("sm_100", "sm_90"), ("gfx950", "gfx942")])
def test_a_chip_without_rows_has_room_for_its_makers(submission: ModuleType, chip: str, like: str) -> None:
    rows = [row for row in submission.TABLE if row.chip == like and row.kernel == "plain"]
    for row in (rows[0], rows[len(rows) // 2]):
        assert submission.nearest(submission.TABLE, chip, row.shape) == row
        plan = submission.make_plan(row, chip_of(submission, chip), RANKS[like], *row.shape, True)
        assert compiled(chip, plan.launch, plan.example_arguments(), plan.constants, plan.options).fit >= 1, row


@pytest.mark.slow
@pytest.mark.parametrize("chip", RANKS)
def test_a_kernel_that_spills_is_seen(submission: ModuleType, chip: str) -> None:
    """The control of the test above."""
    # Explicit warps have registers of their own, whatever is asked for the first warpgroup.
    plans = [plan for _, plan, _ in built(submission, chip) if plan.kernel != "warps"]
    plan = max(plans, key=lambda plan: plan.constants["BLOCK_M"] * plan.constants["BLOCK_N"])
    options = {**plan.options, **({"num_warps": 2} if chip == "sm_90" else {"waves_per_eu": 8})}
    kernel = compiled(chip, plan.launch, plan.example_arguments(), plan.constants, options)
    assert kernel.spilled_bytes > 0


def test_an_nvidia_gpu_writes_16_bytes_at_a_time_and_orders_memory_for_the_whole_system(submission: ModuleType) -> None:
    for row, _, kernel in built(submission, "sm_90"):
        if row.kernel == "warps":
            continue  # test_gemm_warps.py has these
        text = kernel.assembly
        # Beside a copy engine there are no stores but bulk copies, which are counted.
        stores, release = {"st.global.v4.b32"}, RELEASE
        if row.kernel == "engine":
            stores, (release,) = set(), set(re.findall(COUNT, text))
        # Programs that share a tile also count themselves, set that back, and store sums as their products lie.
        counts, more = ({SHARED_COUNT}, {"st.global.b32", "st.global.v2.b32"}) if row.split > 1 else (set(), set())
        assert stores <= set(re.findall(r"\bst\.global[.\w]*", text)) <= stores | more, row
        assert set(re.findall(r"\b(?:atom|red)\.[.\w]+", text)) == {release, ACQUIRE, *counts}, row
        # What all threads have stored is released: a barrier comes right before.
        before = before_each(text, release, r"bar\.sync", r"\bst\.global", r"\.bulk_group")
        assert set(before) == {r"bar\.sync"}, row


def test_a_tile_stored_by_bulk_copies_has_arrived_before_it_is_counted() -> None:
    """Triton alone waits only until its copies have read their source, by `wait_group.read`."""
    arrived, sent = r"cp\.async\.bulk\.wait_group 0;", r"global\.shared::cta\.bulk_group"
    with imported("gemm_rs") as submission:
        texts = [kernel.assembly for row, _, kernel in built(submission, "sm_90") if row.kernel == "engine"]
    assert texts
    for text in texts:
        assert re.search(sent, text)
        (count,) = set(re.findall(COUNT, text))
        assert set(before_each(text, count, arrived, sent, COUNT)) == {arrived}


def test_bulk_loads_come_after_a_fence_where_they_read_what_was_waited_for(submission: ModuleType) -> None:
    """Bulk copies go past the path of ordinary loads, on which an acquire is, and by which gemm_rs_kernel reads."""
    fence, load = r"fence\.proxy\.async\.global", r"cp\.async\.bulk\.tensor\.2d\.shared"
    seen = 0
    for row, plan, kernel in built(submission, "sm_90"):
        if row.kernel != "warps" and plan.launch.kernel.__name__ != "gemm_rs_kernel":
            assert set(first_after_each(kernel.assembly, ACQUIRE, fence, load)) == {fence}, row
            seen += 1
    assert seen


def test_weights_that_are_read_once_are_loaded_by_ordinary_copies(submission: ModuleType) -> None:
    """Bulk copies do not heed the window that a launch has for them."""
    rows = [row for row in submission.TABLE if row.read_once]
    assert rows
    for row in rows:
        for depth, is_read_once in ((row.shape[2], True), (row.shape[2] + 8, False)):
            plan = submission.make_plan(row, chip_of(submission, row.chip), 2, *row.shape[:2], depth, False)
            kernel = compiled(row.chip, plan.launch, plan.example_arguments(), plan.constants, plan.options)
            assert any(isinstance(of, submission.ReadOnce) for of in plan.tiles) == is_read_once
            assert ("cp.async.cg.shared.global" in kernel.assembly) == is_read_once


@pytest.mark.parametrize("chip", RANKS)
def test_programs_that_share_a_tiles_depth_see_each_others_sums(submission: ModuleType, chip: str) -> None:
    """Each counts itself behind a barrier behind its stores, and the last reads what it then acquires."""
    counted = {"sm_90": r"atom\.global\.gpu\.acq_rel\.add\.u32", "gfx942": r"global_atomic_add v\d+, .*\] sc0\n"}[chip]
    row = next(row for row in submission.TABLE if row.chip == chip)
    plan = submission.make_plan(row._replace(split=4), chip_of(submission, chip), RANKS[chip], *row.shape, True)
    kernel = compiled(chip, plan.launch, plan.example_arguments(), plan.constants, plan.options)
    assert kernel.spilled_bytes == 0
    assert kernel.fit >= 1
    text = kernel.assembly
    (count,) = re.findall(counted, text)
    if chip == "sm_90":
        assert before_each(text, count, r"bar\.sync", r"\bst\.global") == [r"bar\.sync"]
        assert first_after_each(text, count, r"bar\.sync", r"\bld\.global") == [r"bar\.sync"]
    else:
        ahead, _, behind = text.partition(count)
        stored = max(ahead.rfind(f"{kind}_store") for kind in ("buffer", "global"))
        assert 0 < stored < ahead.rindex("buffer_wbl2 sc0 sc1") < ahead.rindex("s_barrier")
        assert behind.index("buffer_inv sc1") < behind.index("s_barrier")


def test_an_amd_gpu_orders_memory_for_the_whole_system(submission: ModuleType) -> None:
    for row, _, kernel in built(submission, "gfx942"):
        text = kernel.assembly
        stores = {one.rpartition("_")[2] for one in re.findall(r"\bglobal_store_\w+", text)}  # to ranks' blocks
        assert stores == {STORES[submission.launch.kernel.__name__]}, row
        assert re.search(r"buffer_inv sc0 sc1", text), row  # acquire, the whole system
        # Every wave writes its caches back, and waits until that is done, before the barrier before the flag.
        order = before_each(text, "global_atomic_swap", r"s_barrier", r"\b(?:global|flat|buffer)_store")
        assert set(order) == {"s_barrier"}, row
        released = r"s_waitcnt vmcnt\(0\)\s+buffer_wbl2 sc0 sc1\s+s_waitcnt vmcnt\(0\)[^!]*?s_barrier[^!]*?atomic_swap"
        assert len(re.findall(released, text)) == text.count("global_atomic_swap"), row


def test_numbers_that_change_from_call_to_call_need_no_new_kernel(submission: ModuleType) -> None:
    """A launcher does not look at numbers. Sizes are the plan's; where a turn's share of the heap begins is aligned."""
    tensors = {"a", "b", "out", "whole", "a_ptr", "b_ptr", "bias_ptr", "out_ptr", "blocks_ptr", "work_ptr"}
    tensors |= {"products_ptr", "counts_ptr"}
    numbers = {"gemm_rs": ["M", "N", "K", "slots"], "ag_gemm": ["m", "n", "K", "gathered"]}[problem_of(submission)]
    for launcher in (submission.launch, getattr(submission, "launch_beside_engine", submission.launch)):
        assert [name for name in specialized(launcher) if name not in tensors] == numbers


# ---- what bench/ makes of the tables ---------------------------------------------------------------------------------


def test_what_kernels_need_is_told_of_every_row_of_every_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """By bench/compiled.py; here nothing is compiled."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    bench = importlib.import_module("bench.compiled")
    assert set(bench.PROBLEMS) == {path.parent.name for path in ROOT.glob("submissions/*/tuning.py")} - {"common"}
    kernel = Compiled(registers=8, spilled_bytes=0, spilled_scalars=0, shared_bytes=0, warps=4, assembly="", fit=1)
    monkeypatch.setattr(bench, "compiled_all", lambda chip, compiling: [kernel])
    for problem in bench.PROBLEMS:
        with imported(problem) as module:
            tuned = {(row.chip, " x ".join(map(str, row.shape))) for row in module.TABLE if row.chip != "interpreter"}
        made = list(bench.rows(problem))
        assert {(chip, shape.removesuffix(" backward")) for _, chip, shape, *_ in made} == tuned
        assert {len(row) for row in made} == {len(bench.COLUMNS)}


def test_the_tuner_finds_rows_for_every_official_benchmark_and_compiles_each_kernel_once() -> None:
    """As far as that goes without a GPU."""
    command = [sys.executable, ROOT / "bench" / "tune.py", *PROBLEMS, "a2a", "moe", "--ranks", "4", "--dry-run"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout.splitlines()
    assert [line.partition(" ")[0] for line in shown] == ["gemm_rs"] * 6 + ["ag_gemm"] * 6 + ["a2a"] * 5 + ["moe"] * 6
    for line in shown:
        rows, kernels = map(int, re.search(r": (\d+) rows, (\d+) kernels$", line).groups())
        assert rows >= kernels > 1, line


def test_between_ways_that_cost_hosts_differently_the_tuner_goes_by_the_hosts_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT / "bench"), *sys.path])
    tune = importlib.import_module("tune")
    with imported("gemm_rs") as submission:
        kernel = submission.TABLE[0]._replace(kernel="plain")
    beside, slower = kernel._replace(kernel="engine"), kernel._replace(group=1)
    walls = {kernel: 450.0, beside: 550.0}
    clock = SimpleNamespace(walls_us=lambda call: [walls[call]] * 3)
    tried = [(us, row, [row]) for us, row in ((350.0, beside), (390.0, kernel), (400.0, slower))]
    ordered, told = tune.by_way(tried, clock)
    assert [row for _, row, _ in ordered] == [kernel, slower, beside]
    assert dict(told) == walls
    assert tune.by_way(tried[1:], clock) == (tried[1:], [])  # one way: as the devices say


# ---- interpreted, in real processes ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    ["shapes back_to_back by_split by_engine a_program_a_tile not_the_kernels", "on_cpu no_shared_memory unlike"],
)
def test_ranks_in_processes_of_their_own_get_right_results(names: str) -> None:
    """See the functions of these names below."""
    assert not started(__file__, *names.split(), interpreted="on_cpu" not in names)


def shapes(rank: int, world_size: int) -> None:
    """Shapes one after another, of different sizes, so that the heap, small at first, grows: in flags and in bytes."""
    tune_interpreter()
    open_heap().allocate(flags=2, half_bytes=256)
    calls = kept_calls(gemm.launch)
    w = world_size
    cases: list[tuple[Shape, dict[str, Any]]] = [
        ((16 * w, 16, 8, False), {}),
        ((8 * w, 72, 40, True), {}),  # tiles of several owners, or sources; less than whole blocks of columns and depth
    ]
    if w < 8:
        cases += [
            ((64 * w, 40, 72, False), {}),  # several tiles of rows a rank
            ((8 * w, 40, 40, False), {"block_n": 64, "block_m": 16}),
            # The last tile of a rank's rows moved back; tiles of several ranks' rows, and of fewer than a tile has.
            ((24 * w, 40, 40, True), {}),
            ((40 * w, 72, 40, False), {}),
            ((28 * w, 40, 40, True), {"block_m": 64}),
            ((10 * w, 40, 72, True), {}),
            ((10 * w, 40, 40, False), {"block_m": 16}),
            # Weights read once, whose last block has fewer rows; where no block divides the depth they are not.
            ((64 * w, 40, 64, True), {"read_once": True}),
            ((8 * w, 72, 96, False), {"read_once": True}),
            ((40 * w, 72, 40, True), {"read_once": True}),
        ]
    if w < 8 and problem_of(gemm) == "gemm_rs":
        cases += [
            ((32 * w, 40, 8, True), {"sum_m": 8, "sum_n": 16}),
            ((96 * w, 40, 8, True), {"sum_late": True, "sum_m": 64, "block_m": 16}),
        ]
        cases += [
            ((16 * w, 40, 72, True), {"split": 2}),
            ((16 * w, 8, 72, False), {"split": 3, "block_m": 16}),
            ((8 * w, 72, 40, True), {"split": 2}),  # tiles of several owners
            # Rows of tiles moved back, and sums with them.
            ((40 * w, 40, 8, True), {"sum_late": True, "sum_m": 8, "block_m": 16}),
            ((20 * w, 40, 72, False), {"split": 2, "block_m": 16}),
            ((12 * w, 40, 72, True), {"split": 2}),
        ]
    elif w < 8:
        cases += [
            ((32 * w, 40, 72, True), {"flag_k": 16, "send_m": 8}),
            # A tile whose rows have several flags, sent column by column of several tiles; and of a part of the rows.
            ((96 * w, 40, 72, False), {"flag_k": 16, "send_m": 8, "flag_m": 8, "send_rows": 64}),
            ((8 * w, 40, 40, True), {"flag_k": 16, "send_m": 4, "flag_m": 4, "send_rows": 8}),
            # Products split over K: in as many parts as there are steps, in one more, and of tiles of several ranks.
            ((64 * w, 40, 72, True), {"flag_k": 16, "split": 3}),
            ((32 * w, 72, 72, False), {"flag_k": 16, "block_k": 16, "split": 4}),
            ((8 * w, 40, 136, True), {"flag_k": 32, "block_k": 16, "split": 4}),
            # Rows of tiles moved back; flags of 8 rows, and of 10 and 14, of which a tile needs parts.
            ((40 * w, 40, 72, True), {"flag_k": 16, "send_m": 8, "flag_m": 16}),
            ((40 * w, 40, 72, False), {"flag_k": 16, "split": 2, "block_m": 16}),
            ((28 * w, 40, 72, True), {"flag_k": 16, "send_m": 8, "flag_m": 16, "block_m": 64, "send_rows": 64}),
        ]
    for seed, (shape, row) in enumerate(cases):
        rows = gemm.TABLE
        gemm.TABLE = [one._replace(**row) for one in rows if one.chip == "interpreter"][:1]
        gemm.way_of.cache_clear()
        check(shape, seed, rank, world_size)
        assert len(calls) == seed + 1, f"{shape}: not by the kernel"
        assert kinds(calls[-1]) == kinds(gemm.plan_of(torch.device("cpu"), world_size, *shape).example_arguments())
        gemm.TABLE = rows
    assert open_heap().flags > 2
    assert open_heap().half_bytes > 256


def back_to_back(rank: int, world_size: int) -> None:
    """Calls of two shapes in turn whose flags lie crosswise. In every second call a rank falls far behind between two
    of its flags, so that others are a call ahead.

    With one set of flags in place of two it fails. A late rank sets a flag back that another has set in the next call,
    and ranks wait for it forever; or, in gemm_rs, a rank takes the flag of the next call for that of a tile that has
    not come, and reads what lay there before.
    """
    flags_left = 0  # of this rank, until it falls behind

    def lag_s() -> float:
        nonlocal flags_left
        flags_left -= 1
        return 0.5 if flags_left == 0 else 0.0

    tune_interpreter(flag_s=lag_s)
    w = world_size
    two_flags, one_flag = (32 * w, 40, 40, False), (32 * w, 32, 8, False)  # that a rank sets for another
    lags = [(1, 2), (0, 4)]  # which rank, after how many flags
    made = [inputs((two_flags, one_flag)[call % 2], call, rank, world_size) for call in range(2 * len(lags))]
    outputs = []
    for call, data in enumerate(made):
        late, flags = lags[call // 2]
        flags_left = flags if rank == late and call % 2 == 0 else 0
        outputs.append(gemm.custom_kernel(data))
    for call, (data, output) in enumerate(zip(made, outputs, strict=True)):
        judged(output, data, f"call {call}")


def by_split(rank: int, world_size: int) -> None:
    """Products split over K, back to back: each call finds the counters as the one before found them. In ag_gemm by
    several programs, one after the other; there none waits for a later one."""
    kernel = gemm.launch.kernel

    class Many:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return kernel[(5,)]

    if problem_of(gemm) == "ag_gemm":
        gemm.launch.kernel = Many()
    gemm.TABLE = [row._replace(split=3) for row in gemm.TABLE if row.chip == "interpreter"][:1]
    gemm.way_of.cache_clear()
    back_to_back(rank, world_size)


def by_engine(rank: int, world_size: int) -> None:
    """Calls of larger and smaller shapes in turn where a copy engine sends. Rank 0 and then rank 1 are late with that
    for two calls, between its first copies, so that others are a call ahead."""
    tune_interpreter()
    engine = importlib.import_module("common.engine").CpuEngine
    send, sent, late_for, left = engine.send, 0, -1, 0

    def late_send(self: Any, *arguments: Any) -> None:
        nonlocal sent, left
        sent, left = sent + 1, left - 1
        if left == 0 and late_for == rank:
            time.sleep(0.2)
        send(self, *arguments)

    engine.send = late_send
    w, rows = world_size, gemm.TABLE
    gemm.TABLE = [row._replace(kernel="engine") for row in rows if row.chip == "interpreter"][:1]
    gemm.way_of.cache_clear()
    # The last tile of the third begins in the piece before that in which it ends.
    called = [(96 * w, 40, 72, True), (16 * w, 72, 40, False), (72 * w, 40, 72, True), (24 * w, 72, 40, False)]
    made = [inputs(shape, call, rank, w) for call, shape in enumerate(called)]
    outputs = []
    for call, data in enumerate(made):
        late_for, left = call // 2, 2
        outputs.append(gemm.custom_kernel(data))
    assert sent >= len(made) * (w - 1), "not by the engine"
    for call, (data, output) in enumerate(zip(made, outputs, strict=True)):
        judged(output, data, f"call {call}")


def a_program_a_tile(rank: int, world_size: int) -> None:
    """gemm_rs beside a copy engine with more programs than tiles: those without a second tile count their first all the
    same. They are interpreted one after the other, the other ranks' rows first."""
    if problem_of(gemm) == "ag_gemm":
        return
    kernel, tiles = gemm.launch_beside_engine.kernel, []

    class Many:
        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            tiles.append(grid)
            return kernel[(4 * world_size,)]

    gemm.launch_beside_engine.kernel = Many()
    gemm.TABLE = [row._replace(kernel="engine") for row in gemm.TABLE if row.chip == "interpreter"][:1]
    gemm.way_of.cache_clear()
    check((32 * world_size, 40, 40, True), 0, rank, world_size)
    assert tiles == [(1,)]


def not_the_kernels(rank: int, world_size: int) -> None:
    """Shapes, and numbers of ranks, that the kernel cannot do."""
    calls = kept_calls(gemm.launch)
    w = world_size
    for seed, shape in enumerate([(16 * w, 16, 12, True), (16 * w, 20, 8, False)]):
        check(shape, seed, rank, world_size)
    if world_size == 3:
        check((16 * w, 16, 8, True), 2, rank, world_size)
    assert not calls


def no_shared_memory(rank: int, world_size: int) -> None:
    calls = kept_calls(gemm.launch)
    gemm.open_heap = lambda device: None
    gemm.way_of.cache_clear()
    for seed, bias in enumerate([False, True]):
        check((16 * world_size, 24, 16, bias), seed, rank, world_size)
    assert not calls


def unlike(rank: int, world_size: int) -> None:
    """GPUs that the kernels are not for, as far as that goes without one: of different sizes, of another chip, or out
    of each other's reach."""
    heap, others = importlib.import_module("common.heap"), world_size - 1
    torch.cuda.device_count = lambda: world_size
    for what, suits in (
        (([132] * world_size, "sm_90", True), True),
        (([*[132] * others, 114], "sm_90", True), world_size == 1),
        (([108] * world_size, "sm_80", True), False),
        (([132] * world_size, "sm_90", rank < others), False),
    ):
        counts, name, reach = what
        heap.chip_of = lambda device, counts=counts, name=name: gemm.Chip(name, counts[rank], 1)
        torch.cuda.can_device_access_peer = lambda device, other, reach=reach: reach
        assert heap.GpuHeap(torch.device("cpu", 0), rank, world_size).suits() == suits, what


def on_cpu(rank: int, world_size: int) -> None:
    """Not interpreted: the way of CPU ranks; with odd shapes, and some for which the heap grows."""
    w = world_size
    for seed, shape in enumerate(
        [(w, 3, 5, True), (24 * w, 72, 40, False), (128 * w, 1200, 600, True), (w, 1, 1, True)]
    ):
        check(shape, seed, rank, world_size)


def open_heap() -> Any:
    return gemm.open_heap(torch.device("cpu"))


def check(shape: Shape, seed: int, rank: int, world_size: int) -> None:
    data = inputs(shape, 100 * seed, rank, world_size)
    judged(gemm.custom_kernel(data), data, f"{shape}, {world_size} ranks")


def inputs(shape: Shape, seed: int, rank: int, world_size: int) -> Any:
    """Hardened data for a product of that shape on each rank."""
    reference = importlib.import_module("reference")
    m, n, k, has_bias = shape
    if problem_of(gemm) == "gemm_rs":
        k *= world_size
    else:
        n *= world_size
    return reference.harden(reference.generate_input(rank, world_size, m, n, k, has_bias, seed), seed)


NUMBERS = {"shapes": (2, 4, 8), "by_engine": (4,), "not_the_kernels": (2, 3)}  # of ranks; of the others 4


if __name__ == "__main__":
    sys.exit(max(play(problem, globals(), "gemm", lambda what: NUMBERS.get(what, (4,))) for problem in PROBLEMS))
