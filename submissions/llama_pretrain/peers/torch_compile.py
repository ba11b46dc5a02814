# library: torch.compile
"""llama_pretrain with the model's forward and backward passes compiled, gradients summed up in one piece, and fused
AdamW. Runs share what is compiled: shapes are the same in all of them.
"""

import model
import torch
import torch.distributed as dist
from task import Config, Data, Log, Weights

summed_loss = torch.compile(model.summed_loss, fullgraph=True, dynamic=False)


def train(config: Config, data: Data, seed: int, target: float, log: Log) -> Weights:
    size = model.Size(**{name: config[name] for name in model.Size.__dataclass_fields__})
    batch_size = config["batch_size"]
    rate = model.rate_of(size, config["learning_rate"])
    weights = {name: weight.clone().requires_grad_() for name, weight in config["start"].items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=rate, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    for done in range(batch_size, config["samples"] + 1, batch_size):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, done / config["warmup_samples"])
        inputs, targets = data.batch(batch_size)
        loss = summed_loss(size, weights, inputs, targets) / (batch_size * size.sequence)
        gradients = torch.autograd.grad(loss, list(weights.values()))
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        parts = flat.split([weight.numel() for weight in weights.values()])
        for weight, part in zip(weights.values(), parts, strict=True):
            weight.grad = part.view_as(weight)
        optimizer.step()
        if done % config["evaluate_every"] == 0:
            log.evaluate(weights, done)
    return weights
