import torch
from utils import generator, within


def generate_input(size, seed):
    made = generator(seed, "cuda")
    assert isinstance(made, torch.Generator)
    first = torch.randn(size, device="cuda", generator=made)
    second = torch.full((size,), 3.0, pin_memory=True).to("cuda:0", non_blocking=True)
    return first, second, torch.zeros(size).cuda()


def ref_kernel(data):
    first, second, room = data
    with torch.cuda.stream(torch.cuda.Stream()):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        room[:] = 2 * (first + second)
        end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0
    return room


def check_implementation(data, output):
    return within(output, 2 * (data[0] + data[1]), 1e-5)
