"""Every metric that a case is measured by, and how values of each unit are shown and spoken of.

A metric is an entry here. A unit of its own is an entry of UNITS; a unit that is none of them is shown with its name.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from harness.core.words import size_text, us_text

Clock = Literal["wall", "device", "gpumode"]  # docs/clocks.md says what each of them times


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A unit's formatter and words. `value` makes a table's cell of a number, `head` stands behind `ref` and the limit
    in a table's columns and behind a value elsewhere, `own` is the column of the submission's values. `limit` is what
    bounds values, `ratio` what the ratio to the reference is called. The rest are parts of sentences: what the values
    are called and what they are, how they were `measured` on which `inputs`, what is `counted`, by which `pairs` two
    submissions are compared, what of theirs was `judged`, and how to get `more` samples."""

    head: str
    own: str
    value: Callable[[float], str]
    case: str = "shape"
    ratio: str = "ratio"
    limit: str = "limit"
    better: str = "better"
    worse: str = "worse"
    values: str = "Values"
    medians: str = "medians"
    measured: str = "measured"
    inputs: str = "inputs"
    counted: str = "timed calls"
    paired: str = "the median ratio on the same input"
    pairs: str = "calls in blocks"
    judged: str = "Outputs of A and of B were judged in every call."
    more: str = "--seconds says how long a shape is timed"
    has_gap: bool = False  # to a proved bound, in decades, in place of the spread

    @property
    def columns(self) -> tuple[str, ...]:
        """A table's: case, reference, own value, ratio, limit, fraction of it, spread or gap, samples."""
        limit, head = self.limit, f" {self.head}" if self.head in ("us", "s") else ""
        spread = "gap" if self.has_gap else "spread"
        return (self.case, f"ref {self.head}", self.own, self.ratio, f"{limit}{head}", f"{limit} %", spread, "n")

    def text(self, value: float) -> str:
        """A value with its unit: `3.20 us`, `1.2 GiB`, `1,306 tok/s`."""
        return f"{self.value(value)} {self.head}".rstrip()


def whole_text(value: float) -> str:
    """A count or a cost in full, or to six digits where it is long."""
    return f"{value:,.0f}" if 1000 <= value < 1e12 else f"{value:.6g}"


def rate_of_tokens_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


UNITS = {
    "us": Unit(
        head="us",
        own="time us",
        value=us_text,
        ratio="speedup",
        better="faster",
        worse="slower",
        values="Times",
        measured="timed",
    ),
    "cost": Unit(
        head="cost",
        own="cost",
        value=whole_text,
        case="instance",
        limit="bound",
        better="cheaper",
        worse="dearer",
        values="Costs",
        medians="medians over n runs",
        measured="run",
        inputs="instances",
        counted="runs",
        paired="reference / own under the same limit",
        pairs="runs under the same limit",
        judged="Every answer that counts was judged.",
        more="--seconds says how long an instance is run, over and over",
        has_gap=True,
    ),
    "s": Unit(
        head="s",
        own="time s",
        value=us_text,
        case="case",
        ratio="speedup",
        better="faster",
        worse="slower",
        values="Times to the target",
        medians="medians over runs",
        measured="run",
        inputs="data",
        counted="runs",
        paired="the median ratio of runs on the same data",
        pairs="runs on the same data",
        judged="The weights of every run were evaluated.",
        more="the shape file says how many runs a case has",
    ),
    "tokens/s": Unit(
        head="tok/s",
        own="tok/s",
        value=rate_of_tokens_text,
        case="prompt",
        ratio="speedup",
        better="faster",
        worse="slower",
        values="Tokens a second",
        medians="medians over whole generations, prompt included",
        measured="timed",
        inputs="prompts",
        counted="timed generations",
        paired="the median ratio on the same prompt",
        pairs="generations in blocks",
        more="--seconds says how long a prompt is timed",
    ),
    "bytes": Unit(head="", own="own", value=size_text, limit="least"),
}


def unit_of(name: str) -> Unit:
    """The unit of that name; one that is not known is shown with its name."""
    return UNITS.get(name) or Unit(head=name, own=name, value=whole_text)


def ratio_name(units: Iterable[str]) -> str:
    """What ratios of values in these units are called together; of none, what those of times are."""
    names = {unit_of(unit).ratio for unit in units} or {UNITS["us"].ratio}
    return names.pop() if len(names) == 1 else "ratio"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What a series measures: its name (of a clock, where it is time), its unit, and which values are the better."""

    name: str
    unit: str
    better: Literal["less", "more"] = "less"

    @property
    def sign(self) -> int:
        """The sign of log(other / own): chosen so that values above 0 mean that `own` is better."""
        return 1 if self.better == "less" else -1

    @property
    def words(self) -> Unit:
        return unit_of(self.unit)

    @property
    def label(self) -> str:
        return label_of(self.name)

    @property
    def note(self) -> str:
        """What it is, for a reader of the label; empty where the label says it."""
        return LABELS.get(self.name, ("", ""))[1]


# What tables of several metrics call them, with what is said of them below.
LABELS = {
    "memory": ("peak memory", "peak memory is what a call holds of the device at most, input and result included"),
    "host": (
        "host",
        "host is what the caller's thread says that it needs to queue a call (* more than the call takes)",
    ),
    "area": ("area", "area is the mean over the limit of 1 - bound / cost, where 1 is no answer"),
    "ttft": ("ttft", "ttft is the time to the first token"),
    "step": ("step", "step is the time of a later token"),
    "samples": ("samples", "samples are the sequences that a run needed to its target"),
}


def label_of(name: str) -> str:
    return LABELS.get(name, (name, ""))[0]


CLOCKS: dict[Clock, Metric] = {name: Metric(name=name, unit="us") for name in get_args(Clock)}
HOST = Metric(name="host", unit="us")  # what the hosts of GPUs need to queue a call
RANKED: dict[str, Clock] = {"cpu": "wall", "cuda": "device", "rocm": "wall"}  # the clock that ranks, by device
THEIRS = Metric(name="theirs", unit="us")  # whatever a folder's own eval.py times
MEMORY = Metric(name="memory", unit="bytes")  # that a call holds of its device at most
COST = Metric(name="cost", unit="cost")  # of a solver's last answer
GAP = Metric(name="area", unit="gap")  # the mean over the limit of 1 - bound / cost, where 1 is no answer
TOKENS = Metric(name="tokens", unit="tokens/s", better="more")  # of all sequences, over the whole generation
# Whose limit is that of one step after the other. A generation that speculates may pass it, and is not held for that.
STEPWISE = frozenset({TOKENS.name})
TTFT = Metric(name="ttft", unit="us")  # time to first token
STEP = Metric(name="step", unit="us")  # of a token after the first
TIME_TO_TARGET = Metric(name="time_to_target", unit="s")  # of a training run
SAMPLES = Metric(name="samples", unit="sequences")  # that a run needed to its target
