"""ParallelKernelBench: a file with solution(*inputs), which every rank calls."""
