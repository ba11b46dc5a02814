"""Python runs this at its start where it lies as `sitecustomize.py` on PYTHONPATH: once torch is imported, the CPU
stands in for "cuda" (cuda_shim.py, whose path HARNESS_STANDIN has). For processes that are not the harness's.
"""

import importlib.util
import os
import sys
from types import ModuleType
from typing import Any


class AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as it is found without it, and has `install` called behind its import."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            install()

        loader.exec_module = exec_module
        return spec


def install() -> None:
    """harness/process/cuda_shim.py's, loaded by its path."""
    spec = importlib.util.spec_from_file_location("_cuda_is_cpu", os.environ["HARNESS_STANDIN"])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.install()


if "HARNESS_STANDIN" in os.environ:
    sys.meta_path.insert(0, AfterTorch())
