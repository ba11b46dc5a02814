"""The reference's steps, without the parts that it shares with nobody.

expect: ranked
problem: llama_pretrain
mode: leaderboard
devices: cpu
"""

import model
import torch
import torch.distributed as dist


def train(config, data, seed, target, log):
    size = model.Size(**{name: config[name] for name in model.Size.__dataclass_fields__})
    batch, every = config["batch_size"], config["evaluate_every"]
    weights = {name: weight.clone().requires_grad_() for name, weight in config["start"].items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=config["learning_rate"], betas=(0.9, 0.95), weight_decay=0.1)
    for done in range(batch, config["samples"] + 1, batch):
        for group in optimizer.param_groups:
            group["lr"] = config["learning_rate"] * min(1.0, done / config["warmup_samples"])
        inputs, targets = data.batch(batch)
        loss = model.summed_loss(size, weights, inputs, targets) / (batch * size.sequence)
        loss.backward()
        for weight in weights.values():
            dist.all_reduce(weight.grad)
        optimizer.step()
        optimizer.zero_grad()
        if done % every == 0:
            log.evaluate(weights, done)
    return weights
