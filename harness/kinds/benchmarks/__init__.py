"""Problems of other benchmarks as they are: KernelBench, ParallelKernelBench, FlashInfer-Trace. A module each; what
ranks run of them is in ranks.benchmarks."""
