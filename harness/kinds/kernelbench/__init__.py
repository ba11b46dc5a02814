"""KernelBench: a file with a Model; a submission defines ModelNew."""
