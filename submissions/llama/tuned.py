"""What of the kernels can be tuned, and what was fastest; bench/llama.py tries others."""

from typing import NamedTuple


class Tile(NamedTuple):
    """Of a streaming kernel: weights' rows of a program, and its warps."""

    rows: int
    warps: int


class Blocks(NamedTuple):
    """Of a product on the tensor cores."""

    m: int
    n: int
    k: int
    stages: int
    warps: int


class Ring(NamedTuple):
    """Of a kernel of one sequence's step (rings.py): rows and places of the ring, how many of the warps share a row,
    warps, programs."""

    rows: int
    slots: int
    columns: int
    warps: int
    programs: int


class Rings(NamedTuple):
    """One for each kernel. An H200 has 132 multiprocessors: 264 programs are two on each."""

    project: Ring = Ring(4, 3, 1, 4, 132)
    out: Ring = Ring(4, 2, 1, 4, 264)
    gate_up: Ring = Ring(4, 4, 1, 4, 132)
    down: Ring = Ring(2, 2, 4, 4, 264)
    logits: Ring = Ring(8, 3, 1, 4, 264)


class Stages(NamedTuple):
    """Of a product by explicit warps (prompt_warps.py); n counts gates and ups. The second warpgroup begins `lead`
    stages later than the first, so that one multiplies while the other ends a tile."""

    m: int
    n: int
    k: int
    stages: int
    lead: int = 0


class Warps(NamedTuple):
    """One for each product of a layer."""

    qkv: Stages = Stages(128, 128, 64, 5)
    out: Stages = Stages(128, 128, 64, 5)
    swiglu: Stages = Stages(128, 256, 64, 4, lead=2)
    down: Stages = Stages(128, 128, 64, 5)


class Keys(NamedTuple):
    """Of a prompt's attention by explicit warps (prompt_attention.py): keys at a time, and stages of their rings."""

    keys: int = 128
    stages: int = 3


class Tuning(NamedTuple):
    """What was fastest on an H200, batch 1 (bench/llama.py)."""

    project: Tile = Tile(4, 4)
    out: Tile = Tile(8, 4)
    gate_up: Tile = Tile(4, 4)
    down: Tile = Tile(2, 4)
    logits: Tile = Tile(8, 4)
    keys: int = 64  # of a part of the cache
    attention: Blocks = Blocks(64, 64, 64, 3, 4)  # m tokens, n keys at a time
    long: Blocks = Blocks(128, 128, 64, 4, 8)
    qkv: Blocks = Blocks(128, 128, 64, 4, 8)
    swiglu: Blocks = Blocks(128, 128, 64, 4, 8)
    short: Blocks = Blocks(64, 32, 128, 4, 4)  # prompts of at most 64 tokens
    early: bool = True
    rings: Rings | None = Rings()  # of a step of one sequence
    warps: Warps | None = Warps()  # of prompts that are not short
    attend: Keys | None = Keys()  # of the same, by explicit warps
    turned: Stages | None = Stages(128, 192, 64, 4)  # of the same: queries, keys and values, turned in that kernel
