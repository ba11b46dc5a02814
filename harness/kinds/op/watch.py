"""What the parent sees of the machine in one evaluation: its state before, its GPUs' clocks, its links' counters."""

import contextlib
from collections.abc import Iterator

from harness.core.machine_records import MachineState, Sampling
from harness.kinds.op.plan import OpPlan
from harness.machine import doctor, host
from harness.machine.nvml import LinkCounters
from harness.machine.readings import Gpus
from harness.machine.sampler import GpuSampler


class MachineWatch:
    """Made before any rank runs, which would be seen as somebody else's work; closed when all have ended.
    `load_per_core` is of other work. `sampler` is None on CPU cores, `links` where GPUs do not share a machine's."""

    def __init__(self, plan: OpPlan) -> None:
        readings = doctor.read(with_smoke=False)
        self.state: tuple[MachineState, ...] = doctor.short(doctor.doctor(readings))
        self.load_per_core = readings.load / host.cores() if isinstance(readings.load, float) else 0.0
        used = readings.gpus.visible[: plan.world_size] if isinstance(readings.gpus, Gpus) else None
        self.sampler = GpuSampler(used) if plan.device != "cpu" else None
        has_links = plan.device != "cpu" and plan.world_size > plan.nodes == 1
        self.links = LinkCounters(used) if has_links else None

    @contextlib.contextmanager
    def timing(self) -> Iterator[None]:
        """While something is timed, the GPUs' clocks are sampled."""
        if self.sampler is None:
            yield
            return
        self.sampler.start()
        try:
            yield
        finally:
            self.sampler.stop()

    @property
    def sampling(self) -> Sampling | None:
        """The state of the GPUs while something was timed; None on CPU cores."""
        return self.sampler.record if self.sampler else None

    def close(self) -> None:
        for reader in (self.sampler, self.links):
            if reader:
                reader.close()
