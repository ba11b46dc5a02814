"""The engines by name, and the file that describes a cluster. The one place where an engine is added."""

from collections.abc import Callable, Mapping
from pathlib import Path

from harness.core.errors import BadFileError
from harness.core.yaml_file import read_yaml
from harness.engine.base import Engine
from harness.engine.local import LocalEngine
from harness.engine.slurm import SlurmEngine, SlurmSettings

LOCAL = "local"
FILE = "engine.yaml"  # in the checkout: of an engine that needs more than its name

Make = Callable[[Path, Path, Mapping[str, str], Path, str], Engine]


def _slurm(folder: Path, cwd: Path, environ: Mapping[str, str], root: Path, use: str) -> Engine:
    settings = slurm_settings(root)
    return SlurmEngine(root / settings.folder / use, cwd, environ, settings)


def slurm_settings(root: Path) -> SlurmSettings:
    """The settings of the checkout's engine.yaml; Slurm's own defaults where there is none. Raises BadFileError."""
    if not (root / FILE).exists():
        return SlurmSettings(engine="slurm")
    settings = read_yaml(SlurmSettings, root / FILE, root)
    for name, least in (("time_limit_min", 1), ("jobs_at_once", 1), ("nodes", 1), ("gpus_per_node", 0)):
        if (value := getattr(settings, name)) < least:
            raise BadFileError(f"{FILE}: $.{name}: {value}: expected at least {least}")
    return settings


def limit_s(root: Path) -> float:
    """For how long a job may run that nobody has set a deadline for. Raises BadFileError."""
    return slurm_settings(root).time_limit_min * 60.0


ENGINES: dict[str, Make] = {
    LOCAL: lambda folder, cwd, environ, root, use: LocalEngine(folder, cwd, environ),
    "slurm": _slurm,
}


def make(name: str, folder: Path, cwd: Path, environ: Mapping[str, str], root: Path, use: str) -> Engine:
    """The engine of that name, whose jobs run in `cwd` with `environ`. Its jobs' folders are in `folder`, or where
    engine.yaml in the checkout at `root` says, below `use`: who uses it, and nobody else."""
    return ENGINES[name](folder, cwd, environ, root, use)
