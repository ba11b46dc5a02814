"""What a report says of the machine that it was made on: hardware, software, rates, and how GPUs ran meanwhile."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class MachineState:
    """A check of `doctor` that warned or failed before the run."""

    status: Literal["fail", "warn"]
    check: str
    found: str


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """Rates that bound one rank, with where they come from (`measured` on this machine, or a vendor's figure)."""

    flops_per_s: float
    hbm_bytes_per_s: float
    link_bytes_per_s: float
    source: str


def class_of_gpus(model: str, count: int) -> str:
    return f"{count}x {model}"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The machine and the software of a run. `machine_class` is what leaderboards are kept apart by; `machine` is an
    anonymous id of this very machine (host.machine_id), empty where it has none."""

    machine_class: str
    cpu: str
    cores: int
    memory_bytes: int
    python: str
    torch: str
    triton: str | None
    platform: str
    harness: str
    machine: str = ""


@dataclass(frozen=True, kw_only=True)
class GpuTrack:
    """One GPU over the sampled time: what held its clocks down, its energy (None if not counted)."""

    index: int
    sm_mhz_min: int
    sm_mhz_median: float
    sm_mhz_max: int
    temperature_c_max: int
    power_w_mean: float
    power_w_max: float
    throttled: tuple[str, ...]
    energy_j: float | None


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """`samples` of every GPU over `sampled_s` seconds between start() and stop()."""

    gpus: tuple[GpuTrack, ...]
    samples: int
    sampled_s: float
    type: Literal["sampled"] = "sampled"


@dataclass(frozen=True, kw_only=True)
class NotSampled:
    """Nothing was sampled, and why: no GPU, no NVML, or nothing between start() and stop()."""

    why: str
    type: Literal["not_sampled"] = "not_sampled"


Sampling = Sampled | NotSampled


@dataclass(frozen=True, kw_only=True)
class CpuUse:
    """How many of the `cores` went to processes that are none of the evaluation's, and to other guests of the host: on
    average while each benchmark was measured, in the order of the measurements (`others`). The reference's threads
    leave `spare` cores free."""

    cores: int
    spare: int
    others: tuple[float, ...]


OWN_REASONS = ("application clocks", "power cap")  # that depend on what a GPU is given to do, or never change


@dataclass(frozen=True, kw_only=True)
class BlockState:
    """The GPUs while either side made its calls on the same inputs, those that were sampled meanwhile; `pairs` of these
    calls count."""

    own: tuple[GpuTrack, ...]
    baseline: tuple[GpuTrack, ...]
    pairs: int = 0

    @property
    def changes(self) -> tuple[str, ...]:
        """What held a GPU's clocks down in the calls of one side alone, by no doing of these."""
        held = [{one.index: set(one.throttled) - {*OWN_REASONS} for one in side} for side in (self.own, self.baseline)]
        both = [held[0][index] ^ held[1][index] for index in held[0] if index in held[1]]
        return tuple(sorted(set().union(*both)))


@dataclass(frozen=True, kw_only=True)
class LinkBytes:
    """Bytes over a GPU's NVLinks, without what the protocol adds."""

    sent: int
    received: int

    def since(self, before: "LinkBytes") -> "LinkBytes":
        return LinkBytes(sent=self.sent - before.sent, received=self.received - before.received)

    @property
    def busier(self) -> int:
        """The bytes in the direction that carried more."""
        return max(self.sent, self.received)


@dataclass(frozen=True, kw_only=True)
class LinkTraffic:
    """The traffic over NVLinks in `calls` timed calls of either side: bytes a GPU and call, in the busier direction,
    the mean over GPUs. `least_bytes` is what a rank must move, by the problem's cost."""

    calls: int
    own_bytes: float
    baseline_bytes: float
    least_bytes: float
    type: Literal["link_traffic"] = "link_traffic"


@dataclass(frozen=True, kw_only=True)
class NoTraffic:
    """Traffic shows no communication: no counters, too few bytes, or an uncounted reference."""

    why: str
    type: Literal["no_traffic"] = "no_traffic"


Traffic = LinkTraffic | NoTraffic
