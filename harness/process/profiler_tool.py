"""What a vendor's profiler has to offer, so that a call can be put under it and its report be read. process.profilers
lists those that there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RANGE = "custom_kernel"  # the range around the call


@dataclass(frozen=True, kw_only=True)
class Dispatch:
    """One run of a kernel. `percents` are shares of the device's peak by the tool's names."""

    name: str
    time_us: float
    percents: Mapping[str, float] = field(default_factory=dict)


class Tool:
    """A profiler. `devices` are the kinds of device that it knows, `most_ranks` is how many it can profile at a time
    (None: any number), `starts` whether it waits for cudaProfilerStart. A tool that runs each kernel many times
    profiles the first `launch_count` launches of a call unless told otherwise (None: it profiles all). `places` are
    further folders for it, with wildcards; `complaints` what it prints where it may not profile, with advice."""

    program: str
    devices: tuple[str, ...]
    most_ranks: int | None = None
    starts = False
    launch_count: int | None = None
    places: tuple[str, ...]
    complaints: tuple[tuple[str, str], ...] = ()

    def command(self, program: str, folder: Path, inner: Sequence[str], launch_count: int | None) -> list[str]:
        """The command that runs `inner` and leaves a report of the marked call in the folder."""
        raise NotImplementedError

    def dispatches(self, program: str, folder: Path) -> list[Dispatch]:
        """The kernels of the call that counts, from the report in the folder. Raises HarnessError if there is none."""
        raise NotImplementedError
