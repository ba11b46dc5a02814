"""Data parallel in few operations: matrices adapted in one operation each, gradients in one flat buffer that is summed
up over ranks at once, the optimizer in one operation."""

import torch
import torch.distributed as dist
from common.fused_llama import JOINED, Flat, Llama, dtype_on, is_joint, run

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
    device = config["base"]["norm"].device
    flat = Flat(config["start"], [(name, (name,)) for name in config["start"]], dtype_on(device))
    base = {name: weight.to(dtype_on(device)) for name, weight in config["base"].items()}
    model = Llama(config, device)

    def gradients(inputs: torch.Tensor, targets: torch.Tensor, scale: float) -> None:
        weights = joined(base, flat.leaves, config["layers"], config["scale"])
        model.backward(weights, inputs, targets, scale)
        if is_joint():
            dist.all_reduce(flat.gradients)

    return run(config, data, log, flat, 0.0, gradients)
