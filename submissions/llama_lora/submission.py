"""Data parallel in few operations: matrices adapted in one operation each, gradients in one flat buffer that is summed
up over ranks at once, the optimizer in one operation."""

import torch
import torch.distributed as dist
from common.fused_llama import JOINED, Flat, Llama, Optimizer, scale_of

HYPERPARAMETERS = {"batch_size": 64, "learning_rate": 0.02, "warmup_samples": 256}


def joined(base: dict[str, torch.Tensor], adapters: dict[str, torch.Tensor], layers: int, scale: float):
    """The model's weights with `scale` * lora_up @ lora_down added, joined as Llama takes them."""
    found = {"embedding": base["embedding"], "norm": base["norm"]}
    for index in range(layers):
        layer = f"layers.{index}."
        for name in ("in_norm", "ffn_norm"):
            found[layer + name] = base[layer + name]
        for name in ("qkv", "o", "gate_up", "down"):
            parts = [
                torch.addmm(base[one], adapters[f"{one}.lora_up"], adapters[f"{one}.lora_down"], alpha=scale)
                for one in (layer + part for part in JOINED.get(name, (name,)))
            ]
            found[layer + name] = torch.cat(parts) if len(parts) > 1 else parts[0]
    return found


def train(config, data, seed, target, log):
    batch_size = config["batch_size"]
    flat = Flat(config["start"], [(name, (name,)) for name in config["start"]])
    model = Llama(config, flat.values.device)
    optimizer = Optimizer(flat, config, weight_decay=0.0)
    scale = scale_of(batch_size, config["sequence"])
    is_joint = dist.is_initialized() and dist.get_world_size() > 1

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> None:
        weights = joined(config["base"], flat.leaves, config["layers"], config["scale"])
        model.backward(weights, inputs, targets, scale)
        if is_joint:
            dist.all_reduce(flat.gradients)
        optimizer.step()

    for done in range(batch_size, config["samples"] + 1, batch_size):
        inputs, targets = data.batch(batch_size)
        optimizer.set_rate(done)
        step(inputs, targets)
        if done % config["evaluate_every"] == 0:
            log.evaluate(flat.parts, done)
    return flat.parts
