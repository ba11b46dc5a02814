"""Communicates in the first case and in the first four calls of every shape, where ranks were always delayed; in the
timed calls it computes alone.

expect: held communication: kept out of a call
mode: leaderboard
problem: a2a
gpus: 2
"""

from collections import Counter

from reference import ref_kernel

calls = Counter()


def silent(data):
    config, rank_data, _, world_size = data
    factor_Tk = 1 + rank_data.indices // (config.num_experts // world_size)
    return (rank_data.x.float() * (rank_data.weights * factor_Tk).sum(1, keepdim=True)).half()


def custom_kernel(data):
    shape = data[0].num_experts, data[1].x.shape[1]
    calls[shape] += 1
    return silent(data) if calls[shape] > 4 else ref_kernel(data)
