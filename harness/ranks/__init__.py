"""The three groups of ranks of one evaluation: how they start, talk, wait, call a kernel and read clocks."""
