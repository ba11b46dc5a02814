"""Data parallel in few operations: joined matrices, gradients in one flat buffer that is summed up over ranks while the
backward pass goes on, the optimizer in one operation."""

import torch
from common.fused_llama import Flat, Llama, Optimizer, layer_groups, scale_of

HYPERPARAMETERS = {"batch_size": 64, "learning_rate": 0.015, "warmup_samples": 512}


def train(config, data, seed, target, log):
    batch_size = config["batch_size"]
    flat = Flat(config["start"], layer_groups(config["layers"]))
    model = Llama(config, flat.values.device)
    optimizer = Optimizer(flat, config, weight_decay=0.1)
    buckets = flat.sum_while_backward()
    scale = scale_of(batch_size, config["sequence"])

    def step(inputs: torch.Tensor, targets: torch.Tensor) -> None:
        model.backward(flat.leaves, inputs, targets, scale)
        buckets.wait()
        optimizer.step()

    for done in range(batch_size, config["samples"] + 1, batch_size):
        inputs, targets = data.batch(batch_size)
        optimizer.set_rate(done)
        step(inputs, targets)
        if done % config["evaluate_every"] == 0:
            log.evaluate(flat.parts, done)
    return flat.parts
