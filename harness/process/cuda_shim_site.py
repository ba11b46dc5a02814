"""Installs the CUDA shim in processes that are not the harness's: a copy of this file, named `sitecustomize.py`, lies
on their PYTHONPATH, so Python runs it at its start. Once torch is imported, the shim replaces "cuda" by the CPU.
The variable HARNESS_CUDA_SHIM has the shim's path.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "HARNESS_CUDA_SHIM"
MODULE = "_cuda_is_cpu"  # what the shim is imported as
SHIM = Path(__file__).with_name("cuda_shim.py")


class AfterTorch(importlib.abc.MetaPathFinder):
    """Finds torch as Python would, and calls `install` after its import."""

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
    """Installs the shim, which is loaded by its path. It is a known module, since torch.compile imports the module of
    every function that it compiles, by name."""
    spec = importlib.util.spec_from_file_location(MODULE, os.environ[VARIABLE])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    spec.loader.exec_module(module)
    module.install()


if VARIABLE in os.environ:
    sys.meta_path.insert(0, AfterTorch())
