"""llama: a decoder of the Llama 3.2 family in plain torch, and what its logits are judged by.

Legend: B sequences, P tokens of the prompt, N new tokens, T tokens at a time, S tokens so far, H heads, G key heads,
D head_dim, V vocabulary, C hidden, W ranks.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from adapter import Generation, one_thread
from params import CONFIGS, Config
from task import input_t, output_t
from torch import Tensor
from utils import all_gather_single, rank_device, seeded
from weights import draw, share

from harness.judging.correctness import Expected

# How many times as large as the reference's own error an honest model's may be: another order of sums, other places
# where values are rounded. float32 models differ in their sums alone, of which errors grow with the way of summing.
MARGIN = {"bfloat16": 1.25, "float32": 6.0}
BETTER = {"bfloat16": torch.float32, "float32": torch.float64}
Cache = list[tuple[Tensor, Tensor]]  # keys and values of each layer, [B, G, S, D]


def frequencies(config: Config, device: torch.device) -> Tensor:
    """The angle per position of each pair of a head, [D / 2] float32: Llama 3.1's scaling, which stretches slow pairs
    by rope_factor and keeps fast ones."""
    pairs = torch.arange(0, config.head_dim, 2, dtype=torch.float64, device=device)
    fast = config.rope_theta ** (-pairs / config.head_dim)
    turns = config.rope_original * fast / (2 * math.pi)  # over the original context
    smooth = ((turns - config.rope_low) / (config.rope_high - config.rope_low)).clamp(0, 1)
    return (fast * smooth + fast / config.rope_factor * (1 - smooth)).float()


class Llama:
    """The model: prefill(tokens) and decode(token, cache), each with the logits of the last token. With `dtype` it
    computes in that one."""

    def __init__(self, config: Config, weights: dict[str, Tensor], dtype: torch.dtype | None = None) -> None:
        self.config = config
        self.weights = {name: weight if dtype is None else weight.to(dtype) for name, weight in weights.items()}
        self.dtype = dtype or getattr(torch, config.dtype)
        self.angles = frequencies(config, weights["model.norm.weight"].device)

    def prefill(self, tokens_BP: Tensor) -> tuple[Tensor, Cache]:
        """Logits [B, V] of the token behind the prompts, and a cache."""
        hidden_BTC, cache = self.hidden(tokens_BP, [])
        return self.logits(hidden_BTC[:, -1]), cache

    def decode(self, token_B: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """Logits [B, V] of the token behind this one, and the cache with it."""
        hidden_BTC, cache = self.hidden(token_B[:, None], cache)
        return self.logits(hidden_BTC[:, -1]), cache

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(self.norm(hidden, "model.norm.weight"), self.weights["model.embed_tokens.weight"])

    def hidden(self, tokens_BT: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """The residual stream behind the last layer, [B, T, C]."""
        before = cache[0][0].shape[2] if cache else 0
        positions_T = torch.arange(before, before + tokens_BT.shape[1], device=tokens_BT.device)
        wide = torch.float64 if self.dtype == torch.float64 else torch.float32
        angles_TD = torch.outer(positions_T.to(wide), self.angles.to(wide)).repeat(1, 2)
        turn = angles_TD.cos().to(self.dtype), angles_TD.sin().to(self.dtype)
        x_BTC = F.embedding(tokens_BT, self.weights["model.embed_tokens.weight"])
        grown: Cache = []
        for layer in range(self.config.layers):
            prefix = f"model.layers.{layer}."
            normed_BTC = self.norm(x_BTC, f"{prefix}input_layernorm.weight")
            out_BTC, kept = self.attention(normed_BTC, f"{prefix}self_attn.", turn, cache[layer] if cache else None)
            grown.append(kept)
            x_BTC = x_BTC + out_BTC
            normed_BTC = self.norm(x_BTC, f"{prefix}post_attention_layernorm.weight")
            gate, up = (self.linear(normed_BTC, f"{prefix}mlp.{name}_proj.weight") for name in ("gate", "up"))
            x_BTC = x_BTC + self.linear(F.silu(gate) * up, f"{prefix}mlp.down_proj.weight")
        return x_BTC, grown

    def attention(
        self, x_BTC: Tensor, prefix: str, turn: tuple[Tensor, Tensor], before: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        q_BHTD, k_BGTD, v_BGTD = (self.heads(self.linear(x_BTC, f"{prefix}{name}_proj.weight")) for name in "qkv")
        q_BHTD, k_BGTD = rotated(q_BHTD, *turn), rotated(k_BGTD, *turn)
        if before is not None:
            k_BGTD, v_BGTD = torch.cat([before[0], k_BGTD], 2), torch.cat([before[1], v_BGTD], 2)
        is_causal = before is None and x_BTC.shape[1] > 1
        mixed_BHTD = F.scaled_dot_product_attention(q_BHTD, k_BGTD, v_BGTD, is_causal=is_causal, enable_gqa=True)
        return self.linear(mixed_BHTD.transpose(1, 2).flatten(2), f"{prefix}o_proj.weight"), (k_BGTD, v_BGTD)

    def heads(self, x_BTC: Tensor) -> Tensor:
        """[B, T, heads * D] as [B, heads, T, D]."""
        return x_BTC.unflatten(-1, (-1, self.config.head_dim)).transpose(1, 2)

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[name])

    def norm(self, x: Tensor, name: str) -> Tensor:
        wide = x.double() if self.dtype == torch.float64 else x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.config.eps)
        return self.weights[name] * (wide * scale).to(self.dtype)


def rotated(x_BHTD: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
    """Each pair (d, d + D / 2) of a head turned by its position's angle."""
    first, second = x_BHTD.chunk(2, -1)
    return x_BHTD * cos_TD + torch.cat([-second, first], -1) * sin_TD


class Split(Llama):
    """The model with heads, ffn columns and words of the vocabulary split over ranks (tensor parallelism, Shoeybi et
    al., 2019, arXiv 1909.08053). Every rank has all logits."""

    SUMMED = ("o_proj.weight", "down_proj.weight")

    def __init__(self, config: Config, weights: dict[str, Tensor]) -> None:
        rank, self.world_size = dist.get_rank(), dist.get_world_size()
        super().__init__(*share(config, weights, rank, self.world_size))
        self.words = self.weights["model.embed_tokens.weight"].chunk(self.world_size)[rank]

    def linear(self, x: Tensor, name: str) -> Tensor:
        product = super().linear(x, name)
        if name.endswith(self.SUMMED):
            dist.all_reduce(product)
        return product

    def logits(self, hidden: Tensor) -> Tensor:
        mine = F.linear(self.norm(hidden, "model.norm.weight"), self.words)
        all_WBv = mine.new_empty(self.world_size * len(mine), mine.shape[1])
        all_gather_single(all_WBv, mine)
        return all_WBv.view(self.world_size, *mine.shape).transpose(0, 1).flatten(1)


def build(config: Config, weights: dict[str, Tensor]) -> Llama:
    """What is timed as the reference."""
    is_split = dist.is_initialized() and dist.get_world_size() > 1
    return (Split if is_split else Llama)(config, weights)


ref_kernel = Generation(build)


def generate_input(rank: int, world_size: int, model: str, batch: int, prompt: int, new: int, seed: int) -> input_t:
    device, vocab = rank_device(), CONFIGS[model].vocab
    generator = seeded(seed, device)
    sizes = ((batch, prompt), (batch, new))
    prompt_BP, shifts_BN = (torch.randint(vocab, size, generator=generator, device=device) for size in sizes)
    return model, prompt_BP, shifts_BN


def harden(data: input_t, seed: int) -> input_t:
    """Every input is random as it is: every token and every step matters."""
    return data


def output_shape(data: input_t) -> tuple[int, ...]:
    """Of the logits for this input."""
    return (*data[2].shape, CONFIGS[data[0]].vocab)


def output_nbytes(data: input_t) -> int:
    """What they take, in float32."""
    return 4 * math.prod(output_shape(data))


class Judge:
    """The models by which logits are judged: one in the config's own precision, whose error shows what rounding does,
    and one in a better one. Kept for the next output of the same model."""

    def __init__(self, name: str, device: torch.device) -> None:
        one_thread(device)
        config = CONFIGS[name]
        weights = draw(config, device)
        self.models = Llama(config, weights), Llama(config, weights, BETTER[config.dtype])
        self.table_VC = self.models[1].weights["model.embed_tokens.weight"]
        self.factor_CC = torch.linalg.cholesky(self.table_VC.T @ self.table_VC)

    def logits(self, tokens_BT: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Of the last `steps` tokens, [B, steps, V], by either model."""
        own, exact = (model.logits(model.hidden(tokens_BT, [])[0][:, -steps:]) for model in self.models)
        return own, exact

    def nearest(self, logits_BNV: Tensor) -> Tensor:
        """The logits nearest to these that the exact last matrix makes of any hidden state: least squares, by the
        normal equations, whose matrix is well conditioned where V is a few times C."""
        rows_RV = logits_BNV.to(self.table_VC.dtype).flatten(0, 1)
        hidden_CR = torch.cholesky_solve((rows_RV @ self.table_VC).T, self.factor_CC)
        return (hidden_CR.T @ self.table_VC.T).view(logits_BNV.shape)


_judges: dict[str, Judge] = {}


@torch.no_grad()
def exact_kernel(data: input_t, output: Tensor) -> tuple[Expected, Expected]:
    """The logits for the tokens that the output's own logits led to, all in one pass, and the nearest ones to the
    output that the exact last matrix can make; `output` is of the right shape.

    The noise of the first is derived from the reference's own: how far its logits, in the model's precision, are from
    exact ones, in the root mean square over a step or over all, whichever is more, times MARGIN. So is that of the
    second: what of the reference's own logits the last matrix cannot make, as a part of them in the root mean square,
    times MARGIN, and times the value or the root mean square of all values, whichever is more, since logits are rounded
    by their size.
    """
    name, prompt_BP, shifts_BN = data
    if name not in _judges:
        _judges.clear()  # first, so that two never need memory at once
        _judges[name] = Judge(name, prompt_BP.device)
    judge, margin = _judges[name], MARGIN[CONFIGS[name].dtype]
    greedy_BN = output.argmax(-1)
    tokens_BN = (greedy_BN + shifts_BN) % CONFIGS[name].vocab
    tokens_BT = torch.cat([prompt_BP, tokens_BN[:, :-1]], 1)
    own_BNV, value_BNV = judge.logits(tokens_BT, shifts_BN.shape[1])
    own_BNV = own_BNV.to(value_BNV.dtype)
    squares_BN = (own_BNV - value_BNV).square_().mean(-1, keepdim=True)
    noise_BN = torch.maximum(squares_BN, squares_BN.mean()).sqrt_() * margin
    size = value_BNV.square().mean().sqrt()
    outside = (own_BNV - judge.nearest(own_BNV)).square_().mean().sqrt() / size
    return (
        Expected(value=value_BNV, noise=noise_BN.expand_as(value_BNV), dtype=torch.float32),
        Expected(
            value=judge.nearest(output),
            noise=value_BNV.abs().clamp_min_(size).mul_(margin * outside),
            dtype=torch.float32,
            name="the nearest product with the last matrix",
        ),
    )


def check_implementation(
    data: input_t, output: output_t, exact: Callable[[], tuple[Expected, ...]] | None = None
) -> tuple[bool, str]:
    """The contest's tolerance in its simplest form: logits within 1e-3 of the reference's for the same tokens, in the
    mean, and as many of them. `exact` is exact_kernel for both, where its result is at hand."""
    if tuple(output.shape) != output_shape(data):
        return False, f"the shape is {list(output.shape)}; expected {list(output_shape(data))}"
    expected = (exact or partial(exact_kernel, data, output))()[0]
    divergence = float((output - expected.value).square().mean() / expected.value.square().mean())
    return divergence <= 1e-3, f"the logits' mean square error is {divergence:.2e} of their mean square"
