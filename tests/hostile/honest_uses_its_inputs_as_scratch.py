"""Honest: writes into its inputs after it has read them. On GPU MODE every ranked call gets new ones.

expect: ranked
mode: leaderboard
"""

from reference import ref_kernel


def custom_kernel(data):
    result = ref_kernel(data)
    rank_data = data[1]
    rank_data.x.zero_()
    rank_data.weights.fill_(-1)
    return result
