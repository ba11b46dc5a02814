"""One call of a kernel under a vendor's profiler."""
