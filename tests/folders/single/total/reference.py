import torch


def generate_input(size: int, seed: int):
    return torch.randint(1000, (size,), generator=torch.Generator().manual_seed(seed))


def ref_kernel(data):
    return int(data.sum())


def check_implementation(data, output):
    return "" if output == ref_kernel(data) else "not the sum"
