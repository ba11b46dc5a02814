"""A training step as a CUDA graph."""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

WARM_STEPS = 3  # before a capture, as torch's documentation asks for


def graphed(
    step: Callable[..., None], like: Sequence[Tensor], state: Sequence[Tensor], optimizer: torch.optim.Optimizer
) -> Callable[..., None]:
    """The step with inputs of the make of `like`, as one graph on a GPU. What it changes, `state` and the optimizer's,
    is as before afterwards. On CPUs, and on several GPUs, it is the step itself."""
    if like[0].device.type != "cuda" or (dist.is_initialized() and dist.get_world_size() > 1):
        return step
    kept = [tensor.clone() for tensor in state]
    inputs = [tensor.clone() for tensor in like]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_STEPS):
            step(*inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(*inputs)
    for tensor, was in zip(state, kept, strict=True):
        tensor.copy_(was)
    for moments in optimizer.state.values():
        for tensor in moments.values():
            tensor.zero_()

    def replay(*given: Tensor) -> None:
        for tensor, new in zip(inputs, given, strict=True):
            tensor.copy_(new)
        graph.replay()

    return replay
