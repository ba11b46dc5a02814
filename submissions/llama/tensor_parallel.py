#!POPCORN leaderboard llama
"""Llama 3.2 split over ranks (tensor parallelism): each has some of the heads, of the ffn columns and of the words.

On GPUs the kernels of streamed.py on a part of the weights, and in place of those that add a product to the residual
stream ones that add all ranks' products (across.py): product, all-reduce and sum are one kernel of a decode step. Of a
prompt, a product goes into the symmetric heap, and the kernel behind it sums all ranks' parts and normalises the sum.
A step is still one CUDA graph.

On CPU cores, the operators of plain.py, and sums through shared memory.

    make eval PROBLEM=llama SUBMISSION=submissions/llama/tensor_parallel.py RANKS=2

Legend: as in streamed.py; W ranks, T tokens of all sequences.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import triton
from across import add_products, add_rows, gather_logits
from common.heap import LINE_BYTES, Heap, aligned, open_heap
from plain import Plain
from streamed import MOST_BATCH, Cache, Prompt, Streamed, fits
from streaming import logits
from torch import Tensor
from tuned import Tile, Tuning
from utils import all_gather_single
from weights import share

MOST_TOKENS = 4096  # of prompts that the heap has room for
GATHERED = 1024  # words that a program of gather_logits has of each rank
WORD_BYTES = 8
# `down` has as many programs as have room at once, since they wait for other ranks'.
SPLIT_TUNING = Tuning(down=Tile(4, 4), rings=None, warps=None)


class Split(Plain):
    """The model in operators of torch."""

    def __init__(self, config: Any, weights: dict[str, Tensor], heap: Heap | None, **more: Any) -> None:
        self.heap, self.rank, self.world_size = heap, dist.get_rank(), dist.get_world_size()
        super().__init__(*share(config, weights, self.rank, self.world_size), **more)
        self.words = self.table.chunk(self.world_size)[self.rank]

    def added(self, x: Tensor, a: Tensor, weight: Tensor) -> Tensor:
        return x + self.all_parts(a @ weight.T).sum(0)

    def logits(self, x: Tensor) -> Tensor:
        return self.all_parts(x @ self.words.T).transpose(0, 1).flatten(1)

    def all_parts(self, part: Tensor) -> Tensor:
        """[W, *]: every rank's tensor of this shape. What is returned is good until the next call but one."""
        whole = (self.world_size, *part.shape)
        if self.heap is None or part.is_cuda:
            found = part.new_empty(self.world_size * len(part), *part.shape[1:])
            all_gather_single(found, part)
            return found.view(whole)
        turn = self.heap.turn(self.world_size * part.nbytes)
        place = self.heap.view(0, turn.offset, part.dtype, whole)
        place[self.rank] = part
        self.heap.barrier()
        return place


class SplitStreamed(Split, Streamed):
    """The model by kernels. What ranks send each other lies in one turn of the heap, which nobody else uses."""

    heap: Heap

    def __init__(self, config: Any, weights: dict[str, Tensor], heap: Heap, tuning: Tuning = SPLIT_TUNING) -> None:
        super().__init__(config, weights, heap, tuning=tuning)
        hidden, element = config.hidden, self.table.element_size()
        self.sums = 2 * config.layers + 1  # of a pass, the last of which puts logits together
        self.words_bytes = aligned(self.world_size * MOST_BATCH * hidden * WORD_BYTES)  # of a sum
        self.rows_bytes = aligned(MOST_TOKENS * hidden * element)
        logits_bytes = aligned(MOST_BATCH * config.vocab * WORD_BYTES)
        nbytes = 2 * self.words_bytes + logits_bytes + 2 * self.rows_bytes
        self.turn = heap.turn(nbytes, 2 * self.world_size)
        self.rows_at = self.turn.offset + 2 * self.words_bytes + logits_bytes
        self.number = 0  # of the next sum of a pass
        self.passes = torch.ones(1, dtype=torch.int32, device=self.table.device)
        self.arrived = torch.zeros_like(self.passes)
        self.part = self.turns.new_empty(MOST_BATCH * len(self.words))  # of logits
        # An earlier model's flags and words may look like ours.
        heap.barrier()
        flags_bytes = 2 * self.world_size * LINE_BYTES
        for begin, count in ((self.turn.flags, flags_bytes), (self.turn.offset, nbytes)):
            heap.view(self.rank, begin, torch.uint8, (count,)).zero_()
        heap.barrier()

    def prefill(self, tokens: Tensor) -> tuple[Tensor, Any]:
        return (super() if tokens.numel() <= MOST_TOKENS else super(Streamed, self)).prefill(tokens)

    def run_step(self, cache: Cache) -> None:
        self.number = 0
        super().run_step(cache)

    def run_prompt(self, prompt: Prompt, cache: Cache) -> None:
        self.number = 0
        super().run_prompt(prompt, cache)

    def prompt_parts(self) -> tuple[Callable[[Prompt, Cache], None], ...]:
        return (self.run_prompt,)  # whose sums are counted from its beginning

    def next_sum(self) -> tuple[int, int]:
        """Its number in the pass, and which of the two places it has."""
        self.number += 1
        return self.number - 1, (self.number - 1) % 2

    def add(self, cache: Cache, inner: Tensor, weight: Tensor, name: str) -> None:
        (number, place), tile = self.next_sum(), getattr(self.tuning, name)
        add_products[(len(weight) // tile.rows,)](
            cache.x, inner, weight, self.heap.pointers, self.passes, self.rank, number,
            self.turn.offset + place * self.words_bytes, SUMS=self.sums, C=len(weight), K=weight.shape[1],
            B=cache.batch, WORLD=self.world_size, ROWS=tile.rows, num_warps=tile.warps, **self.early,
        )  # fmt: skip

    def run_head(self, cache: Cache) -> None:
        config, tile, vocab = self.config, self.tuning.logits, len(self.words)
        logits[(vocab // tile.rows,)](
            cache.x, self.norm, self.words, self.part, cache.at, 1, config.eps, C=config.hidden, V=vocab,
            B=cache.batch, ROWS=tile.rows, num_warps=tile.warps, **self.early,
        )  # fmt: skip
        gather_logits[(triton.cdiv(vocab, GATHERED),)](
            self.part, cache.logits, self.heap.pointers, self.passes, self.arrived, self.rank,
            self.turn.offset + 2 * self.words_bytes, SUMS=self.sums, V=config.vocab, B=cache.batch,
            WORLD=self.world_size, BLOCK=GATHERED, num_warps=4, **self.early,
        )  # fmt: skip

    def add_rows(self, prompt: Prompt, a: Tensor, weight: Tensor, norm: Tensor, name: str) -> None:
        number, place = self.next_sum()
        total, hidden = prompt.x.shape
        offset = self.rows_at + place * self.rows_bytes
        self.product(a, weight, self.heap.view(self.rank, offset, self.table.dtype, (total, hidden)))
        add_rows[(total,)](
            prompt.x, norm, prompt.normed, self.heap.pointers, self.passes, self.rank, number, offset,
            self.turn.flags + place * self.world_size * LINE_BYTES, self.config.eps, SUMS=self.sums, C=hidden,
            WORLD=self.world_size, **self.early,
        )  # fmt: skip


def build(config: Any, weights: dict[str, Tensor]) -> Plain:
    """This rank's part of the model. Collective, on a process group of all ranks."""
    table = weights["model.embed_tokens.weight"]
    heap = open_heap(table.device)
    mine = share(config, {}, dist.get_rank(), dist.get_world_size())[0]
    if heap is not None and heap.kernels and fits(mine, table):
        return SplitStreamed(config, weights, heap)
    return Split(config, weights, heap)
