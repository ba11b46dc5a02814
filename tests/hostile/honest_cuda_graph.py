"""Honest: records its product as a CUDA graph once for each shape, and plays it on new inputs.

expect: ranked
devices: gpu
problem: gemm_rs
mode: leaderboard
"""

import torch
import torch.distributed as dist

graphs = {}


def recorded(input_Mk, weight_Nk):
    places = [torch.empty_like(input_Mk), torch.empty_like(weight_Nk)]
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        places[0] @ places[1].T
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        partial_MN = places[0] @ places[1].T
    return graph, places, partial_MN


def custom_kernel(data):
    input_Mk, weight_Nk, bias_N = data
    key = input_Mk.shape, weight_Nk.shape
    if key not in graphs:
        graphs[key] = recorded(input_Mk, weight_Nk)
    graph, places, partial_MN = graphs[key]
    places[0].copy_(input_Mk)
    places[1].copy_(weight_Nk)
    graph.replay()
    whole_MN = partial_MN if bias_N is None else partial_MN + bias_N
    output = whole_MN.new_empty(len(whole_MN) // dist.get_world_size(), whole_MN.shape[1])
    dist.reduce_scatter_tensor(output, whole_MN)
    return output
