"""The reference as a submission: what every other entry is measured against, so its speedup is 1."""

from reference import ref_kernel as custom_kernel  # noqa: F401
