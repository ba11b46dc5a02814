"""Problems of other benchmarks as they are: KernelBench, ParallelKernelBench, FlashInfer-Trace. A module each; what
ranks import of them is in the modules named rank_*, the only ones here that know torch."""
