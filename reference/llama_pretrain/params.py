"""What a case of llama_pretrain is made of; its target is a perplexity."""

from harness.problems.training import RunParams as Params  # noqa: F401
