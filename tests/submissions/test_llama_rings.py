"""The kernels of submissions/llama/rings.py without a GPU: torch plays what they are written in (played_gluon.py).

Programs are fewer than tiles, and tiles not always a multiple of programs; a ring has fewer places than a program has
tiles, or more.
"""

import itertools

import pytest
import torch
from played_gluon import Machine
from torch import Tensor

K, EPS = 64, 1e-5
RINGS = [(4, 2, 3), (2, 3, 5), (8, 6, 4)]  # rows, places, programs


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape).bfloat16()


def played(name: str, programs: int, tensors: list[Tensor], numbers: list[float], **constants: int) -> None:
    machine = Machine(programs, 4)
    machine.run(machine.kernel("llama", ["rings"], name), tensors, numbers, COLUMNS=1, **constants)


def norm(x: Tensor, weight: Tensor) -> Tensor:
    return torch.nn.functional.rms_norm(x.double(), (K,), weight.double(), EPS)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(8)


@pytest.mark.parametrize(("rows", "slots", "programs"), RINGS)
def test_gates_and_ups_of_the_normalised_stream(rows: int, slots: int, programs: int) -> None:
    ffn = 40
    x, weight, gates_and_ups, out = torch.randn(K), drawn(K), drawn(2 * ffn, K), drawn(ffn)
    constants = {"K": K, "F": ffn, "ROWS": rows, "SLOTS": slots}
    played("ring_gate_up", programs, [x, weight, gates_and_ups, out], [EPS], **constants)
    gate, up = (gates_and_ups.double() @ norm(x, weight)).chunk(2)
    torch.testing.assert_close(out, (torch.nn.functional.silu(gate) * up).bfloat16(), rtol=0.01, atol=1e-3)


@pytest.mark.parametrize(("rows", "slots", "programs"), RINGS)
def test_a_product_is_added_once(rows: int, slots: int, programs: int) -> None:
    x, a, weight = torch.randn(48), drawn(K), drawn(48, K)
    expected = (x.double() + weight.double() @ a.double()).float()
    played("ring_add_product", programs, [x, a, weight], [], N=48, K=K, ROWS=rows, SLOTS=slots)
    torch.testing.assert_close(x, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "slots", "programs"), RINGS)
def test_logits_move_the_position_once(rows: int, slots: int, programs: int) -> None:
    x, weight, table, out, at = torch.randn(K), drawn(K), drawn(56, K), torch.zeros(56), torch.tensor([7])
    constants = {"N": 56, "K": K, "ROWS": rows, "SLOTS": slots}
    played("ring_logits", programs, [x, weight, table, out, at], [1, EPS], **constants)
    torch.testing.assert_close(out, (table.double() @ norm(x, weight)).float(), rtol=1e-4, atol=1e-4)
    assert at.tolist() == [8]


@pytest.mark.parametrize(("rows", "slots", "programs"), RINGS)
def test_queries_and_keys_are_turned_and_the_cache_gets_one_place(rows: int, slots: int, programs: int) -> None:
    heads, kv_heads, head_dim, length, position = 4, 2, 16, 6, 5
    half = head_dim // 2
    x, weight, qkv = torch.randn(K), drawn(K), drawn((heads + 2 * kv_heads) * head_dim, K)
    angles = torch.randn(length, half)
    turns, at = torch.cat([angles.cos(), angles.sin()], 1), torch.tensor([position]).int()
    query = drawn(heads, head_dim)
    keys, values = (torch.zeros(kv_heads, length, head_dim).bfloat16() for _ in range(2))
    sizes = {"K": K, "H": heads, "G": kv_heads, "D": head_dim, "LENGTH": length, "ROWS": rows, "SLOTS": slots}
    played("ring_project", programs, [x, weight, qkv, turns, at, query, keys, values], [EPS], **sizes)
    made = (qkv.double() @ norm(x, weight)).view(-1, 2, half)
    cos, sin = angles[position].double().cos(), angles[position].double().sin()
    turned = torch.stack([made[:, 0] * cos - made[:, 1] * sin, made[:, 1] * cos + made[:, 0] * sin], 1)
    expected = [turned[:heads], turned[heads : heads + kv_heads], made[heads + kv_heads :]]
    for found, wanted in zip((query, keys[:, position], values[:, position]), expected, strict=True):
        torch.testing.assert_close(found, wanted.flatten(1).bfloat16(), rtol=0.01, atol=1e-3)
    for cache, place in itertools.product((keys, values), range(position)):
        assert not cache[:, place].any()
