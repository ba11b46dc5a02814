import torch

TWO = torch.tensor(2.0, device="cuda")


def custom_kernel(data):
    return (data[0] + data[1]) * TWO.to(torch.device("cuda", 0))
