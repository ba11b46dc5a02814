"""Trains on a period's sequences once the period is over: when it is asked for the next one, before the clock runs.

expect: no gain
problem: llama_pretrain
mode: leaderboard
devices: cpu
"""

import gc
import time
from functools import partial

import model
import torch
import torch.distributed as dist

from harness.ranks.program import Program

owed = []  # steps that are still to be taken, of the last period


def take_steps(*_):
    while owed:
        owed.pop(0)()


program = next(thing for thing in gc.get_objects() if isinstance(thing, Program))
program.settle = take_steps  # between two commands


def train(config, data, seed, target, log):
    owed.clear()
    size = model.Size(**{name: config[name] for name in model.Size.__dataclass_fields__})
    batch, every = config["batch_size"], config["evaluate_every"]
    weights = {name: weight.clone().requires_grad_() for name, weight in config["start"].items()}
    optimizer = torch.optim.AdamW(weights.values(), lr=config["learning_rate"], betas=(0.9, 0.95), weight_decay=0.1)

    def step(done, inputs, targets):
        for group in optimizer.param_groups:
            group["lr"] = config["learning_rate"] * min(1.0, done / config["warmup_samples"])
        loss = model.summed_loss(size, weights, inputs, targets) / (batch * size.sequence)
        loss.backward()
        for weight in weights.values():
            dist.all_reduce(weight.grad)
        optimizer.step()
        optimizer.zero_grad()

    for done in range(batch, config["samples"] + 1, batch):
        owed.append(partial(step, done, *data.batch(batch)))
        if done % every == 0:
            if done == every:  # else its first weights would be those that it began with
                owed.pop(0)()
            time.sleep(0.02)  # else its times would differ by more than they may
            log.evaluate(weights, done)
    return weights
