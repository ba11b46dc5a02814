"""KernelBot problem folders, run by our ranks and clocks and judged by the folder's own check."""
