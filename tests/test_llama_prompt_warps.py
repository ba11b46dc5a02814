"""The kernels with explicit warps of submissions/llama's prompts: played on CPUs (played_warps.py), with faults that
this has to notice, and compiled for a GPU that is not here."""

from collections.abc import Callable
from typing import Any

import played_warps
import pytest
import torch
from played_warps import Descriptor, Machine, Pointer
from torch import Tensor

SEEDS = 4  # a fault has to show in one of so many runs


class Prompted(Machine):
    """One rank, whose kernels get descriptors."""

    def __init__(self, programs: int, seed: int, edit: tuple[str, str] = ("", "")) -> None:
        super().__init__("llama", 1, programs, seed, edit)

    def paths(self, problem: str) -> list[str]:
        return ["common/warps.py", "llama/prompt_warps.py", "llama/prompt_attention.py"]

    def assembly(self) -> dict[str, Any]:
        nothing = {name: lambda: None for name in ("launch_next", "wait_for_kernel_before")}
        return super().assembly() | nothing

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


def is_noticed(error: Callable[[Prompted], float], programs: int, edit: tuple[str, str]) -> bool:
    """Whether a kernel that is edited so is wrong, or hangs, in one of some runs."""
    for seed in range(SEEDS):
        try:
            if not error(Prompted(programs, seed, edit)) < 0.02:
                return True
        except (AssertionError, RuntimeError, TimeoutError):  # of the machine: what a GPU would hang or crash at
            return True
    return False


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
    "waits",
    [
        "mbarrier.wait(q_emptied.index(q_slot), turn // AHEAD % 2 ^ 1)",
        "mbarrier.wait(k_emptied.index(slot), phase)",
        "mbarrier.wait(v_emptied.index(slot), phase)",
        "mbarrier.wait(q_filled.index(q_slot), turn // AHEAD % 2)",
        "mbarrier.wait(k_filled.index(slot), phase)",
        "mbarrier.wait(v_filled.index(v_slot), v_phase)",
        "mbarrier.wait(v_filled.index(slot), phase)",
        "tma.store_wait(0)\n        out_s",
    ],
)
def test_attention_that_does_not_wait_is_noticed(waits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(played_warps, "PLAY_S", 5.0)
    edit = (waits, "pass" + waits.partition("(0)")[2] if "store" in waits else "pass")
    # Queries of a tile that comes too soon only show where tiles have fewer blocks of keys than the ring.
    sizes = (3, 64, 64, 4) if "q_emptied" in waits else (1, 320, 64, 2)
    assert is_noticed(lambda machine: attention_error(machine, *sizes), 1, edit)
