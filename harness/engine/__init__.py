"""Where an evaluation runs as a job of its own. Knows no kind of problem."""
