"""The kernels with explicit warps of submissions/llama's prompts: played on CPUs (played_warps.py), with faults that
this has to notice, and compiled for a GPU that is not here."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from played_warps import Descriptor, Machine, Pointer, is_noticed
from torch import Tensor


class Registers(torch.Tensor):
    """A sum, whose method `split` is Triton's."""

    def split(self) -> tuple[Tensor, ...]:
        return self.unbind(-1)


class Prompted(Machine):
    """One rank, whose kernels get descriptors."""

    def __init__(self, programs: int, seed: int, edit: tuple[str, str] = ("", "")) -> None:
        super().__init__("llama", 1, programs, seed, edit)

    def paths(self, problem: str) -> list[str]:
        return ["common/warps.py", "llama/prompt_warps.py", "llama/prompt_attention.py", "llama/prompt_qkv.py"]

    def language(self) -> dict[str, Any]:
        names = super().language()
        zeros = names["gl"].zeros
        names["gl"].join = lambda one, other: torch.stack([one, other], -1)
        names["gl"].zeros = lambda *given: zeros(*given).as_subclass(Registers)
        return names

    def assembly(self) -> dict[str, Any]:
        nothing = {name: lambda: None for name in ("launch_next", "wait_for_kernel_before")}
        return super().assembly() | nothing | {"silu": torch.nn.functional.silu}

    def pointer(self, tensor: Tensor) -> Pointer:
        return Pointer(self.memory, self.memory.add(tensor).places, tensor.dtype)

    def descriptor(self, tensor: Tensor, block: list[int]) -> Descriptor:
        return Descriptor(self.pointer(tensor), list(tensor.shape), block)

    def play(self, name: str, arguments: list[Any], **constants: Any) -> None:
        self.names[name].__globals__.update(self.names)
        kernel = self.names[name]
        self.join([self.thread(program, kernel, arguments, constants) for program in range(self.programs)])


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape).bfloat16()


def off(found: Tensor, exact: Tensor) -> float:
    """The largest error, relative to the largest element."""
    return float((found.double() - exact.double()).abs().max() / exact.double().abs().max())


def notices(error: Callable[[Prompted], float], programs: int, edit: tuple[str, str]) -> bool:
    """Whether a kernel that is right is wrong, or hangs, in one of some runs if it is edited so."""

    def is_right(seed: int) -> bool:
        try:
            return error(Prompted(programs, seed, edit)) < 0.02
        except (AssertionError, RuntimeError, TimeoutError, TypeError):  # of what a GPU would hang or crash at
            return False

    assert error(Prompted(programs, 0)) < 0.02
    return is_noticed(is_right)


# ---- attention -------------------------------------------------------------------------------------------------------

HEADS, KEY_HEADS, DIM, LENGTH = 4, 2, 64, 320


def attention_error(machine: Prompted, sequences: int, length: int, keys: int, stages: int) -> float:
    """Beside torch's; the cache has numbers behind the prompt."""
    torch.manual_seed(4)
    query = drawn(sequences, length, HEADS, DIM) * 2
    kept = [drawn(sequences, KEY_HEADS, LENGTH, DIM) for _ in range(2)]
    out = torch.full_like(query, float("nan"))
    k, v = (one[:, :, :length].double() for one in kept)
    exact = torch.nn.functional.scaled_dot_product_attention(
        query.double().transpose(1, 2), k, v, is_causal=True, enable_gqa=True
    ).transpose(1, 2)
    query_rows, out_rows = (one.view(sequences * length, HEADS * DIM) for one in (query, out))
    key_rows = [machine.descriptor(one.view(-1, DIM), [keys, DIM]) for one in kept]
    arguments = [machine.descriptor(query_rows, [64, DIM]), *key_rows, machine.descriptor(out_rows, [64, DIM])]
    numbers = [torch.tensor(length), torch.tensor(sequences * HEADS // 2), torch.tensor(1.4426950408889634 / 8)]
    sizes = {"H": HEADS, "G": KEY_HEADS, "D": DIM, "LENGTH": LENGTH}
    machine.play("attend_warps", [*arguments, *numbers], **sizes, BLOCK=keys, STAGES=stages)
    return off(out, exact)


@pytest.mark.parametrize(
    ("programs", "sequences", "length", "keys", "stages"),
    [(3, 1, 256, 64, 2), (1, 1, 300, 128, 3), (5, 2, 192, 128, 2), (9, 1, 100, 64, 4), (2, 1, 320, 128, 2)],
)
def test_tokens_attend_to_those_before(programs: int, sequences: int, length: int, keys: int, stages: int) -> None:
    assert attention_error(Prompted(programs, 3), sequences, length, keys, stages) < 0.02


@pytest.mark.parametrize(
    "fault",
    [
        ("mbarrier.wait(q_emptied.index(q_slot), turn // AHEAD % 2 ^ 1)", "pass"),
        ("mbarrier.wait(k_emptied.index(slot), phase)", "pass"),
        ("mbarrier.wait(v_emptied.index(slot), phase)", "pass"),
        ("mbarrier.wait(q_filled.index(q_slot), turn // AHEAD % 2)", "pass"),
        ("mbarrier.wait(k_filled.index(slot), phase)", "pass"),
        ("mbarrier.wait(v_filled.index(v_slot), v_phase)", "pass"),
        ("mbarrier.wait(v_filled.index(slot), phase)", "pass"),
        ("tma.store_wait(0)\n        out_s", "out_s"),
        ("warpgroup_mma_wait(0, deps=(added,))", "added"),
    ],
)
def test_attention_that_does_not_wait_is_noticed(fault: tuple[str, str]) -> None:
    # Queries of a tile that comes too soon only show where tiles have fewer blocks of keys than the ring.
    sizes = (3, 64, 64, 4) if "q_emptied" in fault[0] else (1, 320, 64, 2)
    assert notices(lambda machine: attention_error(machine, *sizes), 1, fault)


# ---- products --------------------------------------------------------------------------------------------------------

TOKENS, DEPTH, EPS = 200, 256, 1e-5  # the last tile has rows that are not there


def product_error(machine: Prompted, columns: int, kind: str, lead: int) -> float:
    """Beside float64: of what the product leaves, the residual stream and sums of squares included."""
    torch.manual_seed(6)
    block, parts = 64, 8
    a, b = drawn(TOKENS, DEPTH), drawn(2 * columns if kind == "swiglu" else columns, DEPTH)
    out, norm, x = drawn(TOKENS, columns), drawn(columns), torch.randn(TOKENS, columns) * 16
    squares = torch.rand(TOKENS, parts) * DEPTH if kind != "add" else torch.zeros(TOKENS, columns // block)
    exact = a.double() @ b.double().T
    stream = x.double()
    if kind == "add":
        stream = stream + exact
        expected = stream * norm.double()
    else:
        exact *= torch.rsqrt(squares.double().sum(1, keepdim=True) / DEPTH + EPS)
        gate, up = exact.chunk(2, 1) if kind == "swiglu" else (exact, exact)
        expected = torch.nn.functional.silu(gate) * up if kind == "swiglu" else exact
    mine = block // 2 if kind == "swiglu" else block
    blocks = [machine.descriptor(*one) for one in ((a, [64, 64]), (b, [mine, 64]), (out, [64, mine]))]
    memories = [machine.pointer(one) for one in (x, norm, squares)]
    machine.play(
        "multiply_warps", [*blocks, *memories, torch.tensor(TOKENS), torch.tensor(EPS)], N=columns, K=DEPTH,
        BLOCK_M=128, BLOCK_N=block, BLOCK_K=64, STAGES=3, SWIGLU=kind == "swiglu", ADD=kind == "add",
        PARTS=0 if kind == "add" else parts, LEAD=lead, PARTS_LAYOUT=None,
    )  # fmt: skip
    errors = [off(out, expected)]
    if kind == "add":
        sums = stream.square().view(TOKENS, -1, block).sum(2)
        errors += [off(x, stream), off(squares, sums)]
    return max(errors)


@pytest.mark.parametrize("kind", ["plain", "add", "swiglu"])
@pytest.mark.parametrize(("lead", "programs"), [(0, 2), (2, 3), (1, 1)])
def test_products_with_what_follows_them(kind: str, lead: int, programs: int) -> None:
    assert product_error(Prompted(programs, 5), 192, kind, lead) < 0.02


@pytest.mark.parametrize(
    "fault",
    [
        ("mbarrier.wait(emptied.index(slot), phase)", "pass"),
        ("mbarrier.wait(filled.index(slot), phase)", "pass"),
        ("tma.store_wait(0)\n        out_s", "out_s"),
        ("acc = warpgroup_mma_init(warpgroup_mma_wait(1, deps=(acc,)))", "pass"),
        ("product = warpgroup_mma_wait(0, deps=(acc,))", "product = acc"),
    ],
)
def test_a_product_that_does_not_wait_is_noticed(fault: tuple[str, str]) -> None:
    assert notices(lambda machine: product_error(machine, 192, "plain", 1), 1, fault)


def turned_error(machine: Prompted, sequences: int, length: int, parts: int) -> float:
    """Beside float64: queries, keys and values of 6 heads, 2 of each, in the places that they have in memory."""
    torch.manual_seed(7)
    tokens, rows = sequences * length, 2 * LENGTH * sequences
    a, b = drawn(tokens, DEPTH), drawn(6 * DIM, DEPTH)
    squares, angles = torch.rand(tokens, 8) * DEPTH, torch.randn(LENGTH, DIM // 2)
    query, keys, values = torch.zeros(tokens, 2 * DIM).bfloat16(), drawn(rows, DIM) * 0, drawn(rows, DIM) * 0
    exact = a.double() @ b.double().T
    if parts:
        exact *= torch.rsqrt(squares.double().sum(1, keepdim=True) / DEPTH + EPS)
    made = exact.view(sequences, length, 6, 2, DIM // 2)
    cos, sin = angles[:length, None].double().cos(), angles[:length, None].double().sin()
    first, second = made.unbind(3)
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
    blocks = [
        machine.descriptor(*one)
        for one in (
            (a, [64, 64]), (b, [64, 64]), (query, [64, 64]), (keys, [64, 64]), (values, [64, 64]),
        )
    ]  # fmt: skip
    memories = [machine.pointer(one) for one in (torch.cat([angles.cos(), angles.sin()], 1), squares)]
    numbers = [torch.tensor(one) for one in (tokens, length, EPS)]
    machine.play(
        "project_warps", [*blocks, *memories, *numbers], N=6 * DIM, K=DEPTH, H=2, G=2, LENGTH=LENGTH, BLOCK_K=64,
        STAGES=3, PARTS=parts, PARTS_LAYOUT=None,
    )  # fmt: skip
    kept = [one.view(sequences, 2, LENGTH, DIM)[:, :, :length].transpose(1, 2) for one in (keys, values)]
    expected = (turned[:, :, :2].flatten(2), turned[:, :, 2:4], made[:, :, 4:].flatten(3))
    found = (query.view(sequences, length, -1), *kept)
    return max(off(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("programs", "sequences", "length", "parts"), [(3, 1, 200, 8), (1, 1, 256, 0), (2, 2, 192, 8), (9, 3, 64, 8)]
)
def test_tiles_of_three_heads_are_turned_and_kept(programs: int, sequences: int, length: int, parts: int) -> None:
    assert turned_error(Prompted(programs, 5), sequences, length, parts) < 0.02


@pytest.mark.parametrize(
    "fault",
    [
        ("mbarrier.wait(emptied.index(slot), phase)", "pass"),
        ("mbarrier.wait(filled.index(slot), phase)", "pass"),
        ("tma.store_wait(0)\n        store_head(first", "store_head(first"),
        ("first, second, third = warpgroup_mma_wait(3, deps=(first, second, third))", "pass"),
        ("first, second, third = warpgroup_mma_wait(0, deps=(first, second, third))", "pass"),
    ],
)
def test_tiles_of_three_heads_that_do_not_wait_are_noticed(fault: tuple[str, str]) -> None:
    assert notices(lambda machine: turned_error(machine, 1, 200, 8), 1, fault)
