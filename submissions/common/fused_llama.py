"""A Llama for training in few operations: joined matrices, backward passes written out, one flat buffer of gradients.

The same function as reference/llama_pretrain/model.py. What joins: q, k and v, and gate and up, are one matrix each,
which lie side by side in a flat buffer; the cross entropy is not computed, only its gradient, over the logits. On GPUs
the passes are in bfloat16, by Triton kernels between the products, and the weights that are trained stay float32.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from common.llama_kernels import INTERPRETED, NORM_EPSILON, Kernels
from torch import Tensor
from torch.nn import functional

THETA = 10000.0
BUCKETS = 2  # of the gradient, at least, which are summed up over ranks while the backward pass goes on
BUCKET = 1 << 24  # elements of one, about
BASE_HIDDEN = 64  # as in reference/llama_pretrain/model.py
JOINED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}


class Norm(torch.autograd.Function):
    """The RMS norm over the last dimension."""

    @staticmethod
    def forward(context, values: Tensor, weight: Tensor) -> Tensor:
        inverse = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
        inverse = inverse.square_().div_(values.shape[-1]).add_(NORM_EPSILON).rsqrt_()
        normed = values * inverse
        context.save_for_backward(normed, inverse, weight)
        return normed * weight

    @staticmethod
    def backward(context, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        normed, inverse, weight = context.saved_tensors
        products = gradient * normed
        of_weight = products.flatten(0, -2).sum(0) if context.needs_input_grad[1] else None
        along = (products @ weight).unsqueeze(-1) / normed.shape[-1]
        return (gradient * weight).addcmul_(normed, along, value=-1).mul_(inverse), of_weight


class SwiGlu(torch.autograd.Function):
    """silu(gate) * up of [..., gate and up]."""

    @staticmethod
    def forward(context, both: Tensor) -> Tensor:
        gate, up = both.chunk(2, dim=-1)
        sigmoid = gate.sigmoid()
        context.save_for_backward(both, sigmoid)
        return (gate * sigmoid).mul_(up)

    @staticmethod
    def backward(context, gradient: Tensor) -> Tensor:
        both, sigmoid = context.saved_tensors
        gate, up = both.chunk(2, dim=-1)
        found = torch.empty_like(both)
        of_gate, of_up = found.chunk(2, dim=-1)
        silu = gate * sigmoid
        torch.mul(gradient, silu, out=of_up)
        # silu' = sigmoid + silu * (1 - sigmoid)
        torch.mul(gradient, up, out=of_gate).mul_(sigmoid + silu * (1 - sigmoid))
        return found


class Eager:
    """The steps between products, in torch's operations. Legend as in model.py; cosines and sines are [S, D / 2]."""

    def __init__(self, heads: int, kv_heads: int, cosines: Tensor, sines: Tensor) -> None:
        self.heads, self.kv_heads = heads, kv_heads
        self.cosines = torch.cat((cosines, cosines), dim=-1)[:, None]  # [S, 1, D]
        self.sines = torch.cat((-sines, sines), dim=-1)[:, None]

    def added_norm(self, stream: Tensor, delta: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
        """stream + delta, and its norm, [B, S, H]."""
        total = stream if delta is None else stream + delta
        return total, Norm.apply(total, weight)

    def rotated(self, heads: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values of heads [B, S, N + 2 K, D], the first two with their positions."""
        turned, values = heads.split((self.heads + self.kv_heads, self.kv_heads), dim=2)
        turned = turned * self.cosines + turned.roll(turned.shape[-1] // 2, -1) * self.sines
        return *turned.split((self.heads, self.kv_heads), dim=2), values

    def swiglu(self, both: Tensor) -> Tensor:
        """[B, S, F] of gate and up, [B, S, 2 F]."""
        return SwiGlu.apply(both)

    def gradient(self, logits: Tensor, targets: Tensor, scale: float) -> Tensor:
        """`scale` times the gradient of the summed cross entropy of targets [B * S], by logits [B * S, V], over which
        it may be written."""
        found = torch.softmax(logits, dim=-1)
        found.scatter_add_(1, targets[:, None], found.new_full((1, 1), -1.0).expand(len(found), 1))
        return found.mul_(scale)


class Llama:
    """The forward and the backward pass of one shape. `weights` has joined matrices."""

    def __init__(self, config: dict, device: torch.device) -> None:
        self.layers, self.width = config["layers"], config["hidden"] // config["heads"]
        half = self.width // 2
        rates = THETA ** (-torch.arange(half, device=device, dtype=torch.float32) / half)
        angles = torch.arange(config["sequence"], device=device, dtype=torch.float32)[:, None] * rates
        steps = Kernels if device.type == "cuda" or INTERPRETED else Eager
        self.steps = steps(config["heads"], config["kv_heads"], angles.cos(), angles.sin())

    def logits(self, weights: dict[str, Tensor], tokens: Tensor) -> Tensor:
        """[B * S, V] for tokens [B, S]."""
        batch, length = tokens.shape
        steps, delta = self.steps, None
        stream = functional.embedding(tokens, weights["embedding"])
        for index in range(self.layers):
            layer = f"layers.{index}."
            stream, inputs = steps.added_norm(stream, delta, weights[layer + "in_norm"])
            heads = functional.linear(inputs, weights[layer + "qkv"]).view(batch, length, -1, self.width)
            queries, keys, values = (part.transpose(1, 2) for part in steps.rotated(heads))
            mixed = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)
            mixed = mixed.transpose(1, 2).reshape(batch, length, -1)
            delta = functional.linear(mixed, weights[layer + "o"])
            stream, inputs = steps.added_norm(stream, delta, weights[layer + "ffn_norm"])
            delta = functional.linear(
                steps.swiglu(functional.linear(inputs, weights[layer + "gate_up"])), weights[layer + "down"]
            )
        _, normed = steps.added_norm(stream, delta, weights["norm"])
        return functional.linear(normed, weights["embedding"]).flatten(0, 1)

    def backward(self, weights: dict[str, Tensor], inputs: Tensor, targets: Tensor, scale: float) -> None:
        """Adds to every weight's gradient `scale` times that of the summed cross entropy."""
        found = self.logits(weights, inputs)
        found.backward(self.steps.gradient(found.detach(), targets.reshape(-1), scale))


class Flat:
    """Weights in one flat buffer, float32, and their gradients in another, in the order in which the backward pass has
    them. Leaves are what the passes take: the weights, or a copy of them in `dtype`. `names` of a joined leaf are side
    by side."""

    def __init__(self, given: dict[str, Tensor], groups: list[tuple[str, tuple[str, ...]]], dtype: torch.dtype) -> None:
        first = next(iter(given.values()))
        total = sum(weight.numel() for weight in given.values())
        self.values = torch.empty(total, device=first.device)
        self.used = self.values.to(dtype)  # the same tensor where that is float32
        self.gradients = torch.zeros_like(self.used)
        self.leaves: dict[str, Tensor] = {}
        self.parts: dict[str, Tensor] = {}  # each given weight, where it now lies
        self.ends: dict[str, int] = {}
        at = 0
        for leaf, names in groups:
            start, rows = at, 0
            for name in names:
                weight = given[name]
                part = self.values[at : at + weight.numel()].view(weight.shape)
                self.parts[name] = part.copy_(weight)
                at, rows = at + weight.numel(), rows + weight.shape[0]
            shape = (rows, *given[names[0]].shape[1:])
            self.leaves[leaf] = self.used[start:at].view(shape).detach().requires_grad_()
            self.leaves[leaf].grad = self.gradients[start:at].view(shape)
            self.ends[leaf] = at
        assert at == total, "a weight is in no group"
        self.used.copy_(self.values)


class Buckets:
    """Sums gradients up over ranks, a bucket as soon as the backward pass has it."""

    def __init__(self, flat: Flat) -> None:
        self.flat = flat
        self.work: list[dist.Work] = []
        total, self.bounds = flat.values.numel(), [0]
        self.open: list[set[str]] = [set()]
        for leaf, end in flat.ends.items():
            self.open[-1].add(leaf)
            if end >= total * len(self.open) / max(BUCKETS, total // BUCKET):
                self.bounds.append(end)
                self.open.append(set())
        self.open = [leaves for leaves in self.open if leaves]
        self.left = [set(leaves) for leaves in self.open]
        # Without other ranks there is nothing to wait for.
        for number, leaves in enumerate(self.open if is_joint() else ()):
            for name in leaves:
                flat.leaves[name].register_post_accumulate_grad_hook(lambda _, at=number, of=name: self._ready(at, of))

    def _ready(self, number: int, leaf: str) -> None:
        self.left[number].discard(leaf)
        if not self.left[number]:
            part = self.flat.gradients[self.bounds[number] : self.bounds[number + 1]]
            self.work.append(dist.all_reduce(part, async_op=True))

    def wait(self) -> None:
        """Returns when all gradients are summed up."""
        for one in self.work:
            one.wait()
        self.work.clear()
        self.left = [set(leaves) for leaves in self.open]


class Optimizer:
    """AdamW over a flat buffer, in one operation, with a warm-up of the rate."""

    def __init__(self, flat: Flat, config: dict, weight_decay: float) -> None:
        self.flat, self.warmup = flat, config["warmup_samples"]
        self.rate = config["learning_rate"] * min(1.0, BASE_HIDDEN / config["hidden"])
        values = flat.values.detach().requires_grad_()
        self.gradients = values.grad = flat.gradients.float()
        self.adamw = torch.optim.AdamW([values], betas=(0.9, 0.95), weight_decay=weight_decay, fused=True)

    def set_rate(self, done: int) -> None:
        """The rate of the step after which `done` sequences have been seen."""
        self.adamw.param_groups[0]["lr"] = self.rate * min(1.0, done / self.warmup)

    def step(self) -> None:
        """Updates the weights, and makes gradients 0."""
        self.gradients.copy_(self.flat.gradients)  # nothing happens where they are the same tensor, nor below
        self.adamw.step()
        self.flat.used.copy_(self.flat.values)
        self.flat.gradients.zero_()


def layer_groups(layers: int) -> list[tuple[str, tuple[str, ...]]]:
    """The leaves of a whole model, in the order in which the backward pass has them, and the weights of each."""
    groups: list[tuple[str, tuple[str, ...]]] = [("norm", ("norm",))]
    for index in reversed(range(layers)):
        layer = f"layers.{index}."
        for name in ("down", "gate_up", "ffn_norm", "o", "qkv", "in_norm"):
            groups.append((layer + name, tuple(layer + one for one in JOINED.get(name, (name,)))))
    return [*groups, ("embedding", ("embedding",))]


def dtype_on(device: torch.device) -> torch.dtype:
    """In which the passes are."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def is_joint() -> bool:
    """Whether there are other ranks."""
    return dist.is_initialized() and dist.get_world_size() > 1


def run(config: dict, data, log, flat: Flat, weight_decay: float, gradients: Callable[..., None]) -> dict[str, Tensor]:
    """All steps of a run: `gradients(inputs, targets, scale)` adds those of all ranks to the flat buffer, of the summed
    loss times `scale`. Returns the weights."""
    batch_size, optimizer = config["batch_size"], Optimizer(flat, config, weight_decay)
    scale = 1.0 / (batch_size * config["sequence"])  # makes a mean of the sum over a batch of all ranks
    for done in range(batch_size, config["samples"] + 1, batch_size):
        inputs, targets = data.batch(batch_size)
        optimizer.set_rate(done)
        gradients(inputs, targets, scale)
        optimizer.step()
        if done % config["evaluate_every"] == 0:
            log.evaluate(flat.parts, done)
    return flat.parts
