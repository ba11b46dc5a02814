"""Llama 3.2 by Triton and Gluon kernels, on NVIDIA GPUs from Hopper on: memory, graphs, and which kernel gets what.

A decode step is five kernels a layer: norm, queries, keys, values and their turn; attention split over the cache, put
together by the last program to arrive; product added to the residual stream; norm, gate, up and swiglu; product added.
Those with weights are in rings.py for one sequence, in streaming.py for several. All of a step is one CUDA graph, whose
kernels overlap at their ends: each loads its weights before it waits for the one before. A prompt goes through products
on the tensor cores with what follows them in the same kernel (prompt_warps.py, and prompt.py where it is short), two
graphs for each length. In the last layer only the last token goes on behind keys and values, since only its logits are
asked for. Tokens are read where they are, by a kernel ahead of the graphs, which works while the host submits them.

Legend: B sequences, P tokens of a prompt, T = B P, C hidden, F ffn, V vocabulary, H heads, G key heads, D head_dim.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton
from common.launch import Launcher
from plain import Plain, turns
from prompt import attend_prompt, embed_rows, multiply, norm_rows, turn_and_keep
from prompt_attention import LOG2E, attend_by_warps
from prompt_qkv import project_by_warps
from prompt_warps import bulk_descriptor, multiply_warps, squares_layout
from rings import ring_add_product, ring_gate_up, ring_logits, ring_project
from streaming import add_product, attend, embed, gate_and_up, logits, project
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor
from tuned import Blocks, Ring, Stages, Tuning, Warps

INTERPRETED = triton.knobs.runtime.interpret
MOST_BATCH = 8  # sequences; more would have too many sums in a program
MOST_GRAPHS = 4  # of prompts
SHORT = 64  # tokens of a prompt that has blocks of its own
FIRST = 2  # layers of a prompt's first graph
LEAST_COLUMNS = 64  # of a product that is added to the residual stream

OPTIONS = {"num_warps": 4}
read_rows, read_tokens = (Launcher(kernel, all_at_once=False) for kernel in (embed_rows, embed))


class Cache:
    """A step's memory for that many sequences; `at` is how many tokens keys and values have."""

    def __init__(self, config: Any, batch: int, table: Tensor, keys: int) -> None:
        splits = config.max_length // keys
        heads, kv_heads, head_dim = config.heads, config.kv_heads, config.head_dim
        wide = table.new_empty(0, dtype=torch.float32)
        self.batch = batch
        self.at = torch.zeros(1, dtype=torch.int32, device=table.device)
        shape = (config.layers, batch, kv_heads, config.max_length, head_dim)
        self.keys, self.values = table.new_zeros(shape), table.new_zeros(shape)
        self.x = wide.new_empty(batch, config.hidden)  # the residual stream
        self.query, self.mixed = (table.new_empty(batch, heads * head_dim) for _ in range(2))
        self.inner = table.new_empty(batch, config.ffn)
        self.parts = wide.new_empty(batch * heads, splits, head_dim)
        self.scales = wide.new_empty(batch * heads, 2, splits)
        self.arrived = torch.zeros(batch * kv_heads, dtype=torch.int32, device=table.device)
        self.logits = wide.new_empty(batch, config.vocab)
        self.step: Any = None  # what runs a decode step


class Prompt:
    """A prompt's memory, and what runs it: two graphs, so that the device is at work while the host submits most of
    it."""

    def __init__(self, config: Any, cache: Cache, length: int) -> None:
        total, like = cache.batch * length, cache.query
        self.x = cache.x.new_empty(total, config.hidden)
        self.normed, self.inner = like.new_empty(total, config.hidden), like.new_empty(total, config.ffn)
        self.squares = cache.x.new_empty(total * config.hidden // LEAST_COLUMNS)  # sums, of a product's columns
        self.qkv = like.new_empty(total, (config.heads + 2 * config.kv_heads) * config.head_dim)
        self.query, self.mixed = (like.new_empty(total, config.heads * config.head_dim) for _ in range(2))
        self.graphs: list[Any] = []


class Streamed(Plain):
    """The model by kernels. A cache is good until the next prompt of as many sequences, and so are logits until the
    next step."""

    def __init__(self, config: Any, weights: dict[str, Tensor], tuning: Tuning | None = None) -> None:
        super().__init__(config, weights, paired=False)
        self.tuning = tuning or Tuning()
        self.turns = turns(config, self.table.device)
        device = self.table.device
        is_gpu = device.type == "cuda"
        self.multiprocessors = torch.cuda.get_device_properties(device).multi_processor_count if is_gpu else 1
        self.caches: dict[int, Any] = {}
        self.prompts: dict[tuple[int, int], Prompt] = {}
        self.of_programs: dict[int, dict[str, Any]] = {}  # constants of the kernels that read so many tokens

    @property
    def early(self) -> dict[str, bool]:
        """What every launch is told: whether a kernel begins before the one ahead of it has ended."""
        if self.tuning.early and not INTERPRETED:
            return {"EARLY": True, "launch_pdl": True}
        return {"EARLY": False}

    def prefill(self, tokens: Tensor) -> tuple[Tensor, Any]:
        batch, length = tokens.shape
        if batch > MOST_BATCH:
            return super().prefill(tokens)
        if not isinstance(self.caches.get(batch), Cache):
            self.caches = {batch: Cache(self.config, batch, self.table, self.tuning.keys)}
            self.prompts = {}
        cache = self.caches[batch]
        prompt = self.prompts.get((batch, length))
        if prompt is None:
            while len(self.prompts) >= MOST_GRAPHS:
                del self.prompts[next(iter(self.prompts))]
            prompt = self.prompts[batch, length] = Prompt(self.config, cache, length)
            prompt.graphs = [self.graph(partial(part, prompt, cache)) for part in self.prompt_parts()]
        self.read_prompt(prompt, cache, tokens)
        for graph in prompt.graphs:
            graph()
        return cache.logits, cache

    def decode(self, token: Tensor, cache: Any) -> tuple[Tensor, Any]:
        if not isinstance(cache, Cache):
            return super().decode(token, cache)
        if cache.step is None:
            at = cache.at.clone()
            cache.step = self.graph(lambda: self.run_step(cache))
            cache.at.copy_(at)
        self.read_token(cache, token)
        cache.step()
        return cache.logits, cache

    def graph(self, work: Any) -> Any:
        """What does that work again and again: a CUDA graph."""
        if INTERPRETED:
            return work
        work()  # compiles, and allocates what it needs
        torch.cuda.synchronize()
        made = torch.cuda.CUDAGraph()
        with torch.cuda.graph(made):
            work()
        return made.replay

    # ---- tokens

    def read_token(self, cache: Cache, token: Tensor) -> None:
        """The residual stream of a step; `token` is [B] of whatever integers, anywhere."""
        self.read(read_tokens, token, (self.table, cache.x), ())

    def read_prompt(self, prompt: Prompt, cache: Cache, tokens: Tensor) -> None:
        """The residual stream of a prompt and its norm; `tokens` is [B, P]."""
        made = (self.table, self.layers[0].norm, prompt.x, prompt.normed, cache.at)
        self.read(read_rows, tokens, made, (tokens.shape[1], self.config.eps))

    def read(self, launch: Launcher, tokens: Tensor, more: tuple[Tensor, ...], numbers: tuple[float, ...]) -> None:
        programs = tokens.numel()
        constants = self.of_programs.setdefault(programs, {"C": self.config.hidden})
        launch(programs, (tokens.to(self.table.device, torch.int64).contiguous(), *more), numbers, constants, OPTIONS)

    # ---- a step

    def run_step(self, cache: Cache) -> None:
        """Behind `read_token`."""
        for number in range(self.config.layers):
            self.run_layer(number, cache, cache.x, self.config.hidden)
        self.run_head(cache)

    def run_layer(self, number: int, cache: Cache, x: Tensor, stride: int) -> None:
        """A layer for one token of each sequence, whose residual stream is `x`, a row every `stride` elements; what
        comes behind keys and values is added to the cache's own x."""
        config, tuning, layer, batch = self.config, self.tuning, self.layers[number], cache.batch
        keys, values = cache.keys[number], cache.values[number]
        sizes = {"H": config.heads, "G": config.kv_heads, "D": config.head_dim, "LENGTH": config.max_length}
        if ring := self.ring(cache, "project"):
            ring_project[(ring.programs,)](
                x, layer.norm, layer.qkv, self.turns, cache.at, cache.query, keys, values, config.eps,
                K=config.hidden, **sizes, **self.of_ring(ring),
            )  # fmt: skip
        else:
            programs = (config.heads + 2 * config.kv_heads) * (config.head_dim // 2 // tuning.project.rows)
            project[(programs,)](
                x, stride, layer.norm, layer.qkv, self.turns, cache.at, cache.query, keys, values, config.eps, B=batch,
                C=config.hidden, PAIRS=tuning.project.rows, num_warps=tuning.project.warps, **sizes, **self.early,
            )  # fmt: skip
        splits = config.max_length // tuning.keys
        attend[(batch * config.kv_heads, splits)](
            cache.query, keys, values, cache.at, cache.parts, cache.scales, cache.arrived, cache.mixed,
            config.head_dim**-0.5, PADDED=max(16, config.heads // config.kv_heads), BLOCK=tuning.keys, S=splits,
            num_warps=4, **sizes, **self.early,
        )  # fmt: skip
        self.add(cache, cache.mixed, layer.out, "out")
        self.feed_forward(cache, layer)

    def feed_forward(self, cache: Cache, layer: Any) -> None:
        config, tuning = self.config, self.tuning
        if ring := self.ring(cache, "gate_up"):
            ring_gate_up[(ring.programs,)](
                cache.x, layer.mlp_norm, layer.gate_up, cache.inner, config.eps, K=config.hidden, F=config.ffn,
                **self.of_ring(ring),
            )  # fmt: skip
        else:
            gate_and_up[(config.ffn // tuning.gate_up.rows,)](
                cache.x, layer.mlp_norm, layer.gate_up, cache.inner, config.eps, C=config.hidden, F=config.ffn,
                B=cache.batch, ROWS=tuning.gate_up.rows, num_warps=tuning.gate_up.warps, **self.early,
            )  # fmt: skip
        self.add(cache, cache.inner, layer.down, "down")

    def add(self, cache: Cache, inner: Tensor, weight: Tensor, name: str) -> None:
        """The residual stream += inner weight^T, as the tuning says under that name."""
        if ring := self.ring(cache, name):
            ring_add_product[(ring.programs,)](
                cache.x, inner, weight, N=len(weight), K=weight.shape[1], **self.of_ring(ring)
            )  # fmt: skip
            return
        tile = getattr(self.tuning, name)
        add_product[(len(weight) // tile.rows,)](
            cache.x, inner, weight, C=len(weight), K=weight.shape[1], B=cache.batch, ROWS=tile.rows,
            num_warps=tile.warps, **self.early,
        )  # fmt: skip

    def ring(self, cache: Cache, name: str) -> Ring | None:
        """That kernel's, where it has one."""
        have_room = self.config.hidden <= 2048 and self.config.ffn <= 8192
        usable = cache.batch == 1 and have_room and not INTERPRETED
        return getattr(self.tuning.rings, name) if usable and self.tuning.rings else None

    def of_ring(self, ring: Ring) -> dict[str, Any]:
        """What a launch is told of its ring."""
        constants = {"ROWS": ring.rows, "SLOTS": ring.slots, "COLUMNS": ring.columns}
        return constants | {"num_warps": ring.warps, "launch_pdl": self.tuning.early}

    def run_head(self, cache: Cache) -> None:
        if ring := self.ring(cache, "logits"):
            ring_logits[(ring.programs,)](
                cache.x, self.norm, self.table, cache.logits, cache.at, 1, self.config.eps, N=self.config.vocab,
                K=self.config.hidden, **self.of_ring(ring),
            )  # fmt: skip
            return
        config, tile = self.config, self.tuning.logits
        logits[(config.vocab // tile.rows,)](
            cache.x, self.norm, self.table, cache.logits, cache.at, 1, config.eps, C=config.hidden, V=config.vocab,
            B=cache.batch, ROWS=tile.rows, num_warps=tile.warps, **self.early,
        )  # fmt: skip

    # ---- a prompt

    def run_prompt(self, prompt: Prompt, cache: Cache) -> None:
        """Behind `read_prompt`."""
        self.begin_prompt(prompt, cache)
        self.end_prompt(prompt, cache)

    def prompt_parts(self) -> tuple[Callable[[Prompt, Cache], None], ...]:
        """What a prompt has a graph of each."""
        return self.begin_prompt, self.end_prompt

    def begin_prompt(self, prompt: Prompt, cache: Cache) -> None:
        self.whole_layers(prompt, cache, range(min(FIRST, self.config.layers - 1)))

    def whole_layers(self, prompt: Prompt, cache: Cache, numbers: range) -> None:
        """These layers, for all tokens."""
        for number in numbers:
            layer = self.layers[number]
            self.queries_and_keys(prompt, cache, number, layer.qkv, self.config.heads)
            self.attention(prompt, cache, number, len(prompt.x) // cache.batch)
            self.add_rows(prompt, prompt.mixed, layer.out, layer.mlp_norm, "out")
            self.product_of_normed(prompt, layer.gate_up, prompt.inner, "swiglu", behind="out")
            self.add_rows(prompt, prompt.inner, layer.down, self.layers[number + 1].norm, "down")

    def end_prompt(self, prompt: Prompt, cache: Cache) -> None:
        config, (total, hidden) = self.config, prompt.x.shape
        length = total // cache.batch
        self.whole_layers(prompt, cache, range(FIRST, config.layers - 1))
        # The last layer has keys and values of all tokens, and goes on with the last token alone.
        number, layer = config.layers - 1, self.layers[-1]
        of_keys = layer.qkv[config.heads * config.head_dim :]
        self.queries_and_keys(prompt, cache, number, of_keys, 0)
        # torch's kernel, which begins when all before have ended: the step's attention reads keys before it waits.
        cache.x.copy_(prompt.x.view(cache.batch, length, hidden)[:, -1])
        self.run_layer(number, cache, cache.x, hidden)
        self.run_head(cache)

    def add_rows(self, prompt: Prompt, a: Tensor, weight: Tensor, norm: Tensor, name: str) -> None:
        """The residual stream += a weight^T, and its norm."""
        if warps := self.warps(prompt):
            self.product_by_warps(prompt, a, weight, prompt.normed, getattr(warps, name), norm)
            return
        self.product(a, weight, prompt.x, ADD=True)
        norm_rows[(len(a),)](prompt.x, norm, prompt.normed, self.config.eps, prompt.x.shape[1], **self.early)

    def queries_and_keys(self, prompt: Prompt, cache: Cache, number: int, weight: Tensor, heads: int) -> None:
        """Queries of so many heads, and a layer's keys and values, of all tokens."""
        total = len(prompt.x)
        if heads and (blocks := self.tuning.turned) and self.has_tiles(prompt, cache) and len(weight) % blocks.n == 0:
            parts = prompt.x.shape[1] // self.tuning.warps.down.n if number else 0
            rows = [kept[number].view(-1, self.config.head_dim) for kept in (cache.keys, cache.values)]
            project_by_warps(
                prompt.normed, weight, prompt.query, *rows, self.turns, prompt.squares, parts, total // cache.batch,
                self.config, blocks, self.multiprocessors, self.tuning.early,
            )  # fmt: skip
            return
        made = prompt.qkv.view(-1)[: total * len(weight)].view(total, -1)
        self.product_of_normed(prompt, weight, made, "qkv", behind="down" if number else "")
        self.keep(prompt, cache, number, made, heads)

    def product_of_normed(self, prompt: Prompt, weight: Tensor, out: Tensor, name: str, behind: str = "") -> None:
        """out = the normalised residual stream times weight^T, as the tuning says under that name; `behind` the product
        of that name, unless the norm was a kernel of its own."""
        if warps := self.warps(prompt):
            parts = prompt.x.shape[1] // getattr(warps, behind).n if behind else 0
            self.product_by_warps(prompt, prompt.normed, weight, out, getattr(warps, name), parts=parts)
        else:
            self.product(prompt.normed, weight, out, getattr(self.tuning, name), SWIGLU=name == "swiglu")

    def warps(self, prompt: Prompt) -> Warps | None:
        return None if INTERPRETED or len(prompt.x) <= SHORT else self.tuning.warps

    def product_by_warps(
        self,
        prompt: Prompt,
        a: Tensor,
        b: Tensor,
        out: Tensor,
        blocks: Stages,
        norm: Tensor | None = None,
        parts: int = 0,
    ) -> None:
        """out = a b^T, with swiglu if b has twice the rows; or the residual stream += a b^T, and out = that times
        `norm`."""
        (m, k), n = a.shape, out.shape[1]
        swiglu = len(b) > n
        columns = blocks.n // 2 if swiglu else blocks.n
        halves = [(a, [blocks.m // 2, blocks.k]), (b, [columns, blocks.k]), (out, [blocks.m // 2, columns])]
        multiply_warps[(min(self.multiprocessors, triton.cdiv(m, blocks.m) * (n // columns)),)](
            *[bulk_descriptor(*one) for one in halves], prompt.x, self.norm if norm is None else norm, prompt.squares,
            m, self.config.eps, N=n, K=k, BLOCK_M=blocks.m, BLOCK_N=blocks.n, BLOCK_K=blocks.k, STAGES=blocks.stages,
            SWIGLU=swiglu, ADD=norm is not None, PARTS=parts, LEAD=blocks.lead,
            PARTS_LAYOUT=squares_layout(parts) if parts else None, num_warps=4,
            launch_pdl=self.tuning.early,
        )  # fmt: skip

    def product(
        self, a: Tensor, b: Tensor, out: Tensor, blocks: Blocks | None = None, ADD: bool = False, SWIGLU: bool = False
    ) -> None:
        blocks = self.tuning.short if len(a) <= SHORT else blocks or self.tuning.long
        (m, k), n = a.shape, out.shape[1]
        step = min(blocks.k, k)
        multiply[(triton.cdiv(m, blocks.m) * triton.cdiv(n, blocks.n),)](
            TensorDescriptor.from_tensor(a, [blocks.m, step]), TensorDescriptor.from_tensor(b, [blocks.n, step]), out,
            m, N=n, K=k, BLOCK_M=blocks.m, BLOCK_N=blocks.n, BLOCK_K=step, ADD=ADD, SWIGLU=SWIGLU,
            num_stages=blocks.stages, num_warps=blocks.warps, **self.early,
        )  # fmt: skip

    def keep(self, prompt: Prompt, cache: Cache, number: int, qkv: Tensor, heads: int) -> None:
        config = self.config
        turn_and_keep[(len(qkv),)](
            qkv, self.turns, prompt.query, cache.keys[number], cache.values[number], len(qkv) // cache.batch,
            H=heads, G=config.kv_heads, D=config.head_dim, LENGTH=config.max_length,
            PADDED=triton.next_power_of_2(heads + 2 * config.kv_heads), **self.early,
        )  # fmt: skip

    def attention(self, prompt: Prompt, cache: Cache, number: int, length: int) -> None:
        config, blocks = self.config, self.tuning.attention
        keys, values = cache.keys[number], cache.values[number]
        rows = [kept.view(-1, config.head_dim) for kept in (keys, values)]
        if (warps := self.tuning.attend) and self.has_tiles(prompt, cache):
            attend_by_warps(
                prompt.query, *rows, prompt.mixed, length, config, warps, self.multiprocessors, self.tuning.early
            )
            return
        keys, values = (TensorDescriptor.from_tensor(one, [blocks.n, config.head_dim]) for one in rows)
        attend_prompt[(triton.cdiv(length, blocks.m), cache.batch * config.heads)](
            prompt.query, keys, values, prompt.mixed, length,
            LOG2E * config.head_dim**-0.5, H=config.heads, G=config.kv_heads, D=config.head_dim,
            LENGTH=config.max_length, BLOCK_M=blocks.m, BLOCK=blocks.n,
            num_warps=blocks.warps, num_stages=blocks.stages, **self.early,
        )  # fmt: skip

    def has_tiles(self, prompt: Prompt, cache: Cache) -> bool:
        """Whether products and attention by explicit warps that know of heads have these sizes: no tile has rows of
        two sequences or of two key heads."""
        config, length = self.config, len(prompt.x) // cache.batch
        has_rows = (cache.batch == 1 or length % 64 == 0) and config.max_length % 128 == 0
        has_heads = config.heads // config.kv_heads % 2 == 0 and config.head_dim == 64
        return has_rows and has_heads and self.warps(prompt) is not None


def fits(config: Any, table: Tensor) -> bool:
    """Whether there are kernels for these sizes on this device."""
    sizes = (config.hidden, config.ffn, config.head_dim, config.heads * config.head_dim)
    are_powers = all(size & (size - 1) == 0 for size in (*sizes, config.heads // config.kv_heads))
    if INTERPRETED:  # whose bfloat16 arithmetic is wrong
        return are_powers and table.dtype == torch.float32
    on_hopper = table.is_cuda and not torch.version.hip and torch.cuda.get_device_capability(table.device) >= (9, 0)
    return are_powers and on_hopper and table.dtype == torch.bfloat16 and config.hidden >= 1024
