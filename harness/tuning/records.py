"""What the tuner and its child tell each other, and what is kept between runs. Files of JSON lines."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.core.decode import DecodeError
from harness.core.files import replace_file
from harness.core.records import Param
from harness.tuning.search import Tried


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the child is to do: the cases of a problem, within so many seconds, on the chip at hand or, where `chip` is
    named, only to predict. Rates are of the chip; `multiprocessors` is 0 where the child is to ask it. `in_place`: the
    problem's calls may overwrite their input."""

    root: str
    problem: str
    in_place: bool
    cases: tuple[dict[str, Param], ...]
    seconds: float
    at_most: int
    kept: str
    out: str
    chip: str
    multiprocessors: int
    flops_per_s: float
    hbm_bytes_per_s: float


@dataclass(frozen=True, kw_only=True)
class CaseFound:
    """What came of one case. `best` is the table's row (its `found` filled in); None where no row is right, or none was
    measured."""

    params: dict[str, Param]
    best: tuple[object, ...] | None
    best_us: float | None
    candidates: int
    measured: int
    pruned: int
    ended: str
    predicted_us: float | None
    failed: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """All that the child found. `table` has the lines of the whole new table."""

    gpu: str
    cases: tuple[CaseFound, ...]
    table: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A measured row, kept between runs. It counts for the same GPU, kernels (`digest`) and case only."""

    gpu: str
    digest: str
    params: dict[str, Param]
    row: tuple[object, ...]
    us: float | None
    note: str


def load(path: Path) -> list[Kept]:
    """What was kept there; [] where nothing was. A line that is none, of a run that was cut off, is left out."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            data = json.loads(line)
            found.append(Kept(**{**data, "row": _tuples(data["row"])}))
        except (ValueError, TypeError, KeyError):
            continue
    return found


def keep(path: Path, one: Kept) -> None:
    """Appends it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(asdict(one)) + "\n")


def tried(kept: Sequence[Kept], gpu: str, digest: str, params: Mapping[str, object]) -> list[Tried]:
    """What of that counts for a case."""
    return [
        Tried(row=one.row, us=one.us, note=one.note)
        for one in kept
        if (one.gpu, one.digest, one.params) == (gpu, digest, params)
    ]


def write(path: Path, record: Order | Result) -> None:
    replace_file(path, json.dumps(asdict(record)).encode())


def read_order(path: Path) -> Order:
    data = json.loads(path.read_text())
    return Order(**{**data, "cases": tuple(data["cases"])})


def read_result(path: Path) -> Result:
    """Raises DecodeError where the file is none."""
    try:
        data = json.loads(path.read_text())
        cases = tuple(
            CaseFound(**{**case, "best": case["best"] and _tuples(case["best"]), "failed": tuple(case["failed"])})
            for case in data["cases"]
        )
        return Result(gpu=str(data["gpu"]), cases=cases, table=tuple(map(str, data["table"])))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DecodeError("", f"not what the tuner's child writes ({error})") from None


def _tuples(value: object) -> object:
    """JSON's lists as the tuples that rows have."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
