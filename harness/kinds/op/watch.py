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
    `load_per_core` is of other work. `links` are None where GPUs do not share a machine's."""

    def __init__(self, plan: OpPlan) -> None:
        readings = doctor.read(with_smoke=False)
        self.state: tuple[MachineState, ...] = doctor.short(doctor.doctor(readings))
        self.load_per_core = readings.load / host.cores() if isinstance(readings.load, float) else 0.0
        used = readings.gpus.visible[: plan.world_size] if isinstance(readings.gpus, Gpus) else None
        self._sampler = GpuSampler(used) if plan.device != "cpu" else None
        has_links = plan.device != "cpu" and plan.world_size > plan.nodes == 1
        self.links = LinkCounters(used) if has_links else None

    @contextlib.contextmanager
    def timing(self) -> Iterator[None]:
        """While something is timed, the GPUs' clocks are sampled."""
        if self._sampler is None:
            yield
            return
        self._sampler.start()
        try:
            yield
        finally:
            self._sampler.stop()

    @property
    def sampling(self) -> Sampling | None:
        """The state of the GPUs while something was timed; None on CPU cores."""
        return self._sampler.record if self._sampler else None

    def close(self) -> None:
        for reader in (self._sampler, self.links):
            if reader:
                reader.close()
