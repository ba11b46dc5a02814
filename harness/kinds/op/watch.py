"""What the parent sees of the machine in one evaluation: its state before, and its GPUs' clocks, its links' counters or
its cores' use by others."""

import contextlib
import os
from collections.abc import Iterator

from harness.core.machine_records import CpuUse, MachineState, Sampling
from harness.core.processes import descendants
from harness.kinds.op.plan import OpPlan
from harness.machine import doctor, host
from harness.machine.nvml import LinkCounters
from harness.machine.readings import Gpus
from harness.machine.sampler import GpuSampler
from harness.process import usage

LOAD = "load"  # of doctor.CHECKS


class CoresWatch:
    """What others use of this process's cores, from when it is made."""

    def __init__(self) -> None:
        self.before, self._own_s = host.cpu_time(), _own_s()

    def others(self) -> float | None:
        """How many cores they have used on average; None where that is not known."""
        return host.cpu_time().others_since(self.before, _own_s() - self._own_s)


class MachineWatch:
    """Made before any rank runs, which would be seen as somebody else's work; closed when all have ended. `sampler` is
    None on CPU cores, `links` where GPUs do not share a machine's."""

    def __init__(self, plan: OpPlan) -> None:
        readings = doctor.read(with_smoke=False)
        self._before: tuple[MachineState, ...] = doctor.short(doctor.doctor(readings))
        self._load = readings.load if isinstance(readings.load, float) else 0.0
        self._since_start = CoresWatch()
        used = readings.gpus.visible[: plan.world_size] if isinstance(readings.gpus, Gpus) else None
        self.sampler = GpuSampler(used) if plan.device != "cpu" else None
        self._is_here = plan.nodes == 1
        self._spare = max(0, host.cores() - plan.threads * plan.world_size)
        self._others: list[float] = []
        has_links = plan.device != "cpu" and plan.world_size > plan.nodes == 1
        self.links = LinkCounters(used) if has_links else None

    @contextlib.contextmanager
    def timing(self) -> Iterator[None]:
        """While something is timed, the GPUs' clocks are sampled; on CPU cores it is seen what others used of them."""
        if self.sampler is None:
            cores = CoresWatch()
            try:
                yield
            finally:
                if (others := cores.others()) is not None:
                    self._others.append(round(others, 3))
            return
        self.sampler.start()
        try:
            yield
        finally:
            self.sampler.stop()

    @property
    def load_per_core(self) -> float:
        """What others have used of a core since the evaluation began; where that is not known the last minute's load,
        whoever's."""
        others = self._since_start.others()
        return (self._load if others is None else others) / host.cores()

    @property
    def state(self) -> tuple[MachineState, ...]:
        """The machine's state before. Its load, which an evaluation that has just ended raises as well, says nothing
        once it was seen what others used of the cores while something was timed."""
        seen = self.cpu_use is not None
        return tuple(one for one in self._before if not (seen and one.check == LOAD))

    @property
    def sampling(self) -> Sampling | None:
        """The state of the GPUs while something was timed; None on CPU cores."""
        return self.sampler.record if self.sampler else None

    @property
    def cpu_use(self) -> CpuUse | None:
        """What others used of the cores while something was timed; None on GPUs, and where ranks on nodes are others
        too."""
        known = bool(self._others) and self._is_here
        return CpuUse(cores=host.cores(), spare=self._spare, others=tuple(self._others)) if known else None

    def close(self) -> None:
        for reader in (self.sampler, self.links):
            if reader:
                reader.close()


def _own_s() -> float:
    """The processor seconds of this process and of all below it, whoever started them; those that have ended count with
    the process that waited for them."""
    return sum(usage.processor(pid)[0] for pid in (os.getpid(), *descendants(os.getpid())))
