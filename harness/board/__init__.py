"""What is kept of evaluations: leaderboard.yaml, its entries and places, and the runs/ folder. Evaluates nothing."""
