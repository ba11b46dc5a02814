import torch
from utils import generator, within


def generate_input(rows, columns, seed):
    """Columns lie next to each other in memory, which kernels may rely on."""
    values = torch.randn(columns, rows, generator=generator(seed)).T
    assert values.stride() == (1, rows)
    return values, torch.full((rows, columns), float("nan"))


def ref_kernel(data):
    values, room = data
    room.copy_(values.sort(1).values)
    values.zero_()  # as kernels may
    return {"sorted": room, "places": [room.argsort(1), None]}


def check_implementation(data, output):
    values, _ = data
    right, message = within(output["sorted"], values.sort(1).values, 0.0)
    if not right:
        return False, message
    return torch.equal(output["places"][0], output["sorted"].argsort(1)), "places"
