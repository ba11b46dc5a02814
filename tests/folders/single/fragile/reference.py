import os

import torch
from task import input_t, output_t
from utils import generator, within


def generate_input(size: int, seed: int) -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.randn(size, generator=generator(seed, device), device=device)


def ref_kernel(data: input_t) -> output_t:
    return data * data.numel()


def check_implementation(data: input_t, output: output_t) -> tuple[bool, str]:
    if bool(output.isnan().any()):
        os.abort()  # as native code does at an index out of range
    return within(output, ref_kernel(data), 1e-3 * data.numel())
