"""What the tuner and its child tell each other, and what is kept between runs. Files of JSON lines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.core.json_file import line_of, lines_if_any
from harness.core.records import Param
from harness.tuning.search import Rates, Row, Tried

PAUSE = 3.0  # before a call, in times of the call before


@dataclass(frozen=True, kw_only=True)
class TuneOrder:
    """What the child is to do: the cases of a problem, on the chip at hand or, where `chip` is named, only to predict.
    It has so many `seconds` from `began` on (monotonic clock). `pause`: see clock.DeviceClock. `rates` are of the chip,
    with 0 multiprocessors where the child is to ask it. `in_place`: the problem's calls may overwrite their input."""

    root: str
    problem: str
    in_place: bool
    cases: tuple[dict[str, Param], ...]
    began: float
    seconds: float
    at_most: int
    pause: float
    kept: str
    out: str
    chip: str
    rates: Rates


@dataclass(frozen=True, kw_only=True)
class Finalist:
    row: Row
    us: float


@dataclass(frozen=True, kw_only=True)
class CaseFound:
    """What came of one case. `best` is the table's row (its `found` filled in); None where no row is right, or none was
    measured. `finalists`: the best first. `reference_us`: what the problem's reference takes; None where it failed."""

    params: dict[str, Param]
    best: Row | None
    best_us: float | None
    candidates: int
    measured: int
    pruned: int
    ended: str
    predicted_us: float | None
    failed: tuple[str, ...]
    finalists: tuple[Finalist, ...] = ()
    reference_us: float | None = None


@dataclass(frozen=True, kw_only=True)
class TuneResult:
    """All that the child found. `table` has the lines of the whole new table."""

    gpu: str
    cases: tuple[CaseFound, ...]
    table: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class KeptRow:
    """A measured row, kept between runs. It counts for the same GPU, kernels (`digest`), pause and case only."""

    gpu: str
    digest: str
    pause: float
    params: dict[str, Param]
    row: Row
    us: float | None
    note: str


def load(path: Path) -> list[KeptRow]:
    """The rows kept there; [] where there are none. Malformed lines, of a run that was cut off, are ignored."""
    return lines_if_any(KeptRow, path.read_text()) if path.exists() else []


def keep(path: Path, one: KeptRow) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(line_of(one))


def tried(kept: Sequence[KeptRow], gpu: str, digest: str, pause: float, params: Mapping[str, object]) -> list[Tried]:
    return [
        Tried(row=one.row, us=one.us, note=one.note)
        for one in kept
        if (one.gpu, one.digest, one.pause, one.params) == (gpu, digest, pause, params)
    ]
