"""What a case of llama_lora is made of; its target is a loss."""

from harness.problems.training import RunParams as Params  # noqa: F401
