"""attention's kernels with explicit warps (Hopper), as far as that goes without a GPU: played on CPUs by played_warps,
with faults that this has to notice, and compiled for a GPU that is not here."""

import math
from typing import Any

import pytest
import torch
from compiled import chip_of, compiled_all
from kernel_ranks import imported
from played_warps import Machine, is_noticed
from torch import Tensor

DIM, SCALE = 128, 128**-0.5
Played = tuple[int, int, int, int]  # heads of keys, heads of queries that share one, places, programs (forward)


class Attention(Machine):
    """One rank."""

    def __init__(self, name: str, programs: int, seed: int, edit: tuple[str, str] = ("", "")) -> None:
        self.file = f"attention/hopper_{name}.py"
        super().__init__("attention", 1, programs, seed, edit, kernel=f"{name}_kernel")

    def paths(self, problem: str) -> list[str]:
        return ["common/warps.py", self.file]


def exact_of(case: Played) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
    """Queries, keys, values and the output's gradient; their gradients; the output, and the rows' logarithms."""
    heads, share, seq, _ = case
    torch.manual_seed(5)
    q, dout = (torch.randn(heads * share, seq, DIM).bfloat16() for _ in range(2))
    k, v = (torch.randn(heads, seq, DIM).bfloat16() for _ in range(2))
    leaves = [one.double().requires_grad_() for one in (q, k, v)]
    keys, values = (one.repeat_interleave(share, 0) for one in leaves[1:])
    scores = leaves[0] @ keys.transpose(1, 2) * SCALE
    scores = scores.masked_fill(torch.ones(seq, seq).triu(1).bool(), -math.inf)
    out = scores.softmax(-1) @ values
    gradients = torch.autograd.grad(out, leaves, dout.double())
    return [q, k, v, dout], list(gradients), out.detach(), scores.logsumexp(-1).detach()


def off(found: Tensor, exact: Tensor) -> float:
    """The largest error, relative to the largest element."""
    return float((found.double() - exact).abs().max() / exact.abs().max())


def forward_error(machine: Attention, case: Played) -> float:
    heads, share, seq, _ = case
    (q, k, v, _), _, exact, _ = exact_of(case)
    out = torch.full_like(q, float("nan"))
    sizes = {"BLOCK_M": 128, "BLOCK_N": 128, "DIM": DIM, "STAGES": 2}
    machine.run([[q, k, v, out]], [[heads * share, seq]], SHARE=share, FACTOR=SCALE * math.log2(math.e), **sizes)
    return off(out, exact)


def backward_error(machine: Attention, case: Played) -> float:
    """The largest of the three gradients'."""
    heads, share, seq, _ = case
    (q, k, v, dout), exact, out, logs = exact_of(case)
    log2 = (logs * math.log2(math.e)).float()
    delta = (out * dout.double()).sum(-1).float()
    dq = torch.zeros(heads * share, seq, DIM)
    dk, dv = (torch.full_like(one, float("nan")) for one in (k, v))
    sizes = {"BLOCK_M": 64, "BLOCK_N": 128, "DIM": DIM, "STAGES": 2}
    factors = {"SHARE": share, "SECTION": 2, "FACTOR": SCALE * math.log2(math.e), "SCALE": SCALE}
    machine.run([[q, k, v, dout, log2, delta, dq, dk, dv]], [[heads, seq]], **factors, **sizes)
    return max(off(found, one) for found, one in zip((dq * SCALE, dk, dv), exact, strict=True))


ERROR = {"forward": forward_error, "backward": backward_error}


def machine_of(name: str, case: Played, seed: int, edit: tuple[str, str] = ("", "")) -> Attention:
    heads, _, seq, programs = case
    return Attention(name, programs if name == "forward" else heads * (seq // 128), seed, edit)


@pytest.mark.parametrize("case", [(1, 1, 128, 1), (2, 1, 256, 3), (1, 2, 384, 2), (3, 2, 256, 8)])
@pytest.mark.parametrize("name", ERROR)
def test_played_by_threads_it_is_right(name: str, case: Played) -> None:
    assert ERROR[name](machine_of(name, case, 3), case) < 0.02


FAULTS = [
    ("forward", "mbarrier.wait(q_emptied, q_phase)", "pass"),
    ("forward", "mbarrier.wait(k_emptied.index(slot), phase)", "pass"),
    ("forward", "mbarrier.wait(v_emptied.index(slot), phase)", "pass"),
    ("forward", "mbarrier.wait(q_filled, q_phase)", "pass"),
    ("forward", "mbarrier.wait(v_filled.index(v_slot), v_phase)", "pass"),
    ("forward", "tma.store_wait(0)\n        out_s", "out_s"),
    ("backward", "mbarrier.wait(emptied.index(slot), phase)", "pass"),
    ("backward", "mbarrier.wait(kv_filled, 0)", "pass"),
    ("backward", "mbarrier.wait(q_filled.index(slot), phase)", "pass"),
    ("backward", "mbarrier.wait(dout_filled.index(slot), phase)", "pass"),
    ("backward", "mbarrier.wait(ds_filled.index(turn), step // 2 % 2)", "pass"),
    ("backward", "turn = step % 2", "turn = 0"),
    ("backward", "tma.store_wait(0)\n        dq_ring", "dq_ring"),
    ("backward", "mbarrier.wait(over, 0)", "pass"),
    ("backward", "if block * BLOCK_M < (MINE + 1) * HALF:", "if block * BLOCK_M < MINE * HALF:"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault[0]}: {fault[1]}")
def test_a_kernel_that_does_not_wait_is_noticed(fault: tuple[str, str, str]) -> None:
    name, *edit = fault
    case: Played = (1, 2, 384, 1)

    def is_right(seed: int) -> bool:
        try:
            return ERROR[name](machine_of(name, case, seed, tuple(edit)), case) < 0.02
        except (AssertionError, RuntimeError, TimeoutError):  # of what a GPU would hang or crash at
            return False

    assert ERROR[name](machine_of(name, case, 0), case) < 0.02
    assert is_noticed(is_right)


@pytest.mark.parametrize("shape", [(8, 8, 192, 128), (8, 8, 256, 64)])
def test_shapes_that_the_backward_kernel_cannot_do_are_the_librarys(shape: tuple[int, int, int, int]) -> None:
    with imported("attention") as submission:
        [*_, row] = [row for row in submission.TABLE if row.chip == "sm_90" and row.backward]
        chip = chip_of(submission, "sm_90")
        assert row.kernel == "warps"
        assert submission.make_plan(row, chip, (8, 8, 256, 128)) is not None
        assert submission.make_plan(row, chip, shape) is None


@pytest.mark.parametrize(("backward", "blocks"), [(False, (128, 128, 2)), (True, (64, 128, 2))])
def test_it_fits_a_multiprocessor(backward: bool, blocks: tuple[int, int, int]) -> None:
    """The loop keeps its sums in registers; a few words beside it may be spilled."""
    with imported("attention") as submission:
        row = submission.Row("sm_90", (64, 8, 8192, DIM), backward, "warps", *blocks, 8, "")
        plan = submission.make_plan(row, chip_of(submission, "sm_90"), row.shape)
        kernel_name = "backward_kernel" if backward else "forward_kernel"
        [(step, given)] = [one for one in plan.examples() if one[0].launch.kernel.fn.__name__ == kernel_name]

        def compile_step() -> Any:
            return step.launch.compile(tuple(given), step.constants, step.options)

        [kernel] = compiled_all("sm_90", compile_step)
    assert kernel.fit == 1
    assert kernel.spilled_bytes <= 64
