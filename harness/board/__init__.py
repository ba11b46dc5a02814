"""What is kept of evaluations: leaderboard.yaml, its entries and places, the runs/ folder, results as bundles, and what
of it can go (prune). Evaluates nothing.
"""
