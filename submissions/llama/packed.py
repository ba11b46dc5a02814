"""What persistent.py needs beside a model and its cache: all matrices in one buffer, words to count in, and how many
tiles there are. The model's matrices become parts of that buffer, so that they are there once."""

import itertools
from typing import Any, NamedTuple

import torch
from persistent import persistent_step
from triton.experimental.gluon.language import NVMMASharedLayout, bfloat16
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

LINE = 64  # numbers
PARTS = 16  # of a key head's cache: with 8 key heads, 128 programs attend
# What a program does between the times that it notes, of which it has 16, in the last layer.
PHASES = (
    "all other layers",
    "wait",
    "norm, queries, keys, values",
    "wait, attention",
    "wait",
    "out",
    "wait",
    "norm, gate, up",
    "wait",
    "down",
    "wait",
    "norm, logits",
)
WORDS = 32  # between what programs count themselves in and what they only read: 128 bytes


class Persistent(NamedTuple):
    """Lines of a tile (of 64 numbers: 256 lines are 32 KB), places of the ring, warps; tiles behind the ring's that
    are asked into the L2; whether programs note times. Without `waits`, which only shows what they cost, results are
    wrong."""

    lines: int = 256
    slots: int = 6
    warps: int = 8
    ahead: int = 0
    timed: bool = False
    waits: bool = True


class Plan(NamedTuple):
    """Tiles of a step. In a layer, `out`, `gate_up` and `down` are the numbers of those matrices' first tiles, behind
    those of queries, keys and values; `end` is how many a layer has, `tiles` how many there are with the last
    matrix's."""

    layers: int
    out: int
    gate_up: int
    down: int
    end: int
    tiles: int


def matrices(config: Any) -> tuple[int, ...]:
    """Numbers of a layer's matrices, and of the last matrix, as they lie behind each other."""
    hidden, of_heads, of_keys = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    layer = ((of_heads + 2 * of_keys) * hidden, of_heads * hidden, 2 * config.ffn * hidden, config.ffn * hidden)
    return (*layer, config.vocab * hidden)


def plan_of(config: Any, lines: int) -> Plan:
    *ends, end = itertools.accumulate(size // (lines * LINE) for size in matrices(config))
    return Plan(config.layers, *ends, (config.layers - 1) * ends[-1] + end)


def suits(config: Any, lines: int) -> bool:
    """Whether the kernel can have these sizes: a warp has 32 lines of one row, tiles have whole rows of one matrix."""
    sizes, tile = (config.hidden, config.ffn), lines * LINE
    return (
        all(size % 2048 == 0 and tile % size == 0 for size in sizes)
        and all(size % tile == 0 for size in matrices(config))
        and tile >= 2 * config.hidden == 2 * config.heads * config.head_dim
        and config.max_length % PARTS == 0
        and config.max_length <= 2048
        and config.head_dim in (32, 64)
        and config.heads <= 4 * config.kv_heads
    )


class Packed:
    """A model's matrices in one buffer [lines, 64], of which the model's own become parts."""

    def __init__(self, model: Any) -> None:
        config, table = model.config, model.table
        places = [(layer, name) for layer in model.layers for name in ("qkv", "out", "gate_up", "down")]
        places.append((model, "table"))
        flat = table.new_empty(sum(getattr(*place).numel() for place in places))
        at = 0
        for owner, name in places:
            matrix = getattr(owner, name)
            part = flat[at : at + matrix.numel()].view(matrix.shape)
            part.copy_(matrix)
            setattr(owner, name, part)
            at += matrix.numel()
        self.lines = flat.view(-1, LINE)
        norms = [norm for layer in model.layers for norm in (layer.norm, layer.mlp_norm)]
        self.norms = torch.stack([*norms, model.norm])
        rows = (config.heads + 2 * config.kv_heads) * config.head_dim
        wide = table.new_empty(0, dtype=torch.float32)
        self.made = wide.new_empty(rows)
        self.parts = wide.new_empty(config.heads, PARTS, config.head_dim)
        self.scales = wide.new_empty(config.heads, 2, PARTS)
        self.times = torch.zeros(model.multiprocessors, 16, dtype=torch.int64, device=table.device)
        self.words = torch.zeros(2 * WORDS, dtype=torch.int32, device=table.device)

    def run(self, model: Any, cache: Any) -> None:
        """The step of one sequence behind its embedding."""
        config, (lines, slots, warps, ahead, timed, waits) = model.config, model.tuning.persistent
        block = [lines // 2, LINE]
        layout = NVMMASharedLayout.get_default_for(block, bfloat16)
        desc = TensorDescriptor.from_tensor(self.lines, block, layout)
        persistent_step[(model.multiprocessors,)](
            desc, self.lines, self.norms, model.turns, cache.at, self.words, self.words[WORDS:], cache.x, self.made,
            cache.keys, cache.values, self.parts, self.scales, cache.arrived, cache.mixed, cache.inner, cache.logits,
            self.times, config.head_dim**-0.5, config.eps, K=config.hidden, F=config.ffn, H=config.heads,
            G=config.kv_heads, D=config.head_dim, LENGTH=config.max_length, S=PARTS, LINES=lines, SLOTS=slots,
            PLAN=plan_of(config, lines), AHEAD=ahead, WAITS=waits, TIMED=timed, num_warps=warps,
            launch_pdl=model.tuning.early,
        )  # fmt: skip


def packed(model: Any) -> Packed | None:
    """The model's, if its tuning asks for the kernel and its sizes suit it."""
    wanted = model.tuning.persistent
    return Packed(model) if wanted and model.table.is_cuda and suits(model.config, wanted.lines) else None
