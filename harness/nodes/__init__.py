"""Ranks on several nodes: an agent on each starts them, and the hub beside the parent stands in for their zygotes.

parent -- hub ==TCP== agent -- zygote -- ranks, on each node. The parent knows as much of it as `Launch.nodes` says: the
hub takes the zygote's orders and answers them, and what a rank and the parent send each other passes through both.

What a rank does is in harness.ranks, and where a whole evaluation runs in harness.engine.
"""
