"""What has to be the same on all nodes of an evaluation: the class of machine, and the versions of what runs there."""

import hashlib
from dataclasses import asdict, dataclass
from functools import cache

from harness.core.checkout import ROOT
from harness.machine import host
from harness.machine.gpus import gpu_names

SHOWN_CHARS = 12  # of a digest


@dataclass(frozen=True, kw_only=True)
class Traits:
    """One node's. `harness` is a digest of the harness's own files."""

    machine: str
    gpus: tuple[str, ...]
    memory_gib: int
    platform: str
    python: str
    torch: str
    triton: str
    harness: str


@cache
def traits() -> Traits:
    found = host.environment("", 1)
    return Traits(
        machine=found.machine_class,
        gpus=gpu_names(),
        memory_gib=round(found.memory_bytes / 2**30),
        platform=found.platform.rpartition(" ")[2],
        python=found.python,
        torch=found.torch,
        triton=found.triton or "none",
        harness=_digest(),
    )


def difference(here: Traits, there: Traits) -> str:
    """In what the two differ; "" if they do not."""
    theirs = asdict(there)
    return "; ".join(
        f"{name}: {value} here, {theirs[name]} there" for name, value in asdict(here).items() if value != theirs[name]
    )


def _digest() -> str:
    """The sha256 of every source file, so that a checkout with a change of its own is noticed."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "harness").rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:SHOWN_CHARS]
