"""Data parallel in few operations: joined matrices, gradients in one flat buffer that is summed up over ranks while the
backward pass goes on, the optimizer in one operation."""

import torch
from common.fused_llama import Buckets, Flat, Llama, dtype_on, layer_groups, run

HYPERPARAMETERS = {"batch_size": 64, "learning_rate": 0.015, "warmup_samples": 512}


def train(config, data, seed, target, log):
    device = config["start"]["norm"].device
    flat = Flat(config["start"], layer_groups(config["layers"]), dtype_on(device))
    model, buckets = Llama(config, device), Buckets(flat)

    def gradients(inputs: torch.Tensor, targets: torch.Tensor, scale: float) -> None:
        model.backward(flat.leaves, inputs, targets, scale)
        buckets.wait()

    return run(config, data, log, flat, 0.1, gradients)
