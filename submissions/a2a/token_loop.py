#!POPCORN leaderboard amd-all2all
#!POPCORN gpus MI300
"""a2a token by token: the way of GPU MODE's published baseline, in Python loops, kept as something to compare with.

Every (token, expert) pair travels as a row of its own beside a row of metadata. Python visits each pair when it is
sent, when the expert works on it and when it comes back, and reads numbers out of tensors one `.item()` at a time:
on a GPU each of these waits for the device. The vectorised reference does the same work without the loops.

Measured, speedup over the reference within one run: suite cpu 0.79 0.54 0.49 0.28 0.36, geomean 0.46 (8 gloo ranks on
2 busy cores, 2026-11-20). gloo's own latency hides much of the loops at the small shapes.

Legend: T this rank's tokens, k experts per token, H hidden dimension, P pairs sent, Q pairs received.
"""

import torch
import torch.distributed as dist
from task import input_t, output_t
from torch import Tensor

TOKEN, SLOT, EXPERT = range(3)  # a row of metadata: which token, which of its k experts, and that expert's number


def custom_kernel(data: input_t) -> output_t:
    config, mine, rank, world_size = data
    per_rank = config.num_experts // world_size

    # Dispatch
    rows: list[list[Tensor]] = [[] for _ in range(world_size)]
    notes: list[list[tuple[int, int, int]]] = [[] for _ in range(world_size)]
    for token in range(mine.num_tokens):
        for slot in range(config.experts_per_token):
            expert = int(mine.indices[token, slot].item())
            rows[expert // per_rank].append(mine.x[token])
            notes[expert // per_rank].append((token, slot, expert))
    send = [len(part) for part in rows]
    receive = exchanged_counts(send, mine.x.device)
    x_PH = torch.stack([row for part in rows for row in part]) if mine.num_tokens else mine.x
    x_QH = exchanged(x_PH, send, receive)
    sent_notes_P3 = torch.tensor([note for part in notes for note in part], dtype=torch.int64, device=mine.x.device)
    notes_Q3 = exchanged(sent_notes_P3.view(-1, 3), send, receive)

    # The experts of this rank
    y_QH = torch.empty_like(x_QH)
    for pair in range(len(x_QH)):
        expert = int(notes_Q3[pair, EXPERT].item())
        assert expert // per_rank == rank, f"rank {rank} got a token for expert {expert}"
        y_QH[pair] = x_QH[pair] * (1 + rank)

    # Combine
    y_PH = exchanged(y_QH, receive, send)
    notes_P3 = exchanged(notes_Q3, receive, send)
    sum_TH = torch.zeros(mine.num_tokens, config.hidden_dim, dtype=torch.float32, device=mine.x.device)
    for pair in range(len(y_PH)):
        token, slot = int(notes_P3[pair, TOKEN].item()), int(notes_P3[pair, SLOT].item())
        sum_TH[token] += mine.weights[token, slot].item() * y_PH[pair].float()
    return sum_TH.to(config.out_dtype)


def exchanged_counts(send: list[int], device: torch.device) -> list[int]:
    """How many rows each rank sends here."""
    receive = torch.empty(len(send), dtype=torch.int64, device=device)
    dist.all_to_all_single(receive, torch.tensor(send, device=device))
    return receive.tolist()


def exchanged(rows: Tensor, send: list[int], receive: list[int]) -> Tensor:
    """What the other ranks sent here: `send[r]` consecutive rows go to rank r, `receive[r]` come from it."""
    received = rows.new_empty(sum(receive), rows.shape[1])
    dist.all_to_all_single(received, rows, output_split_sizes=receive, input_split_sizes=send)
    return received
