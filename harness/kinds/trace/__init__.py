"""FlashInfer-Trace: a Definition with Workloads; a submission is a Solution."""
