"""The device's peak rates, which bound cases: by the table, or the best that trusted ranks ever measured here."""

import time
from pathlib import Path

from harness.core.machine_records import Peaks
from harness.core.records import Held, Outcome
from harness.core.stats import median
from harness.kinds.op.calls import Calls
from harness.kinds.op.plan import OpPlan
from harness.kinds.op.watch import CoresWatch
from harness.machine import hardware, host, peaks_cache
from harness.ranks import wire


class CaseLimits:
    """`peaks` are the table's, or the best that were ever measured here; None until they are measured, where they have
    to be. Other work makes measured peaks low, so what seems faster than them is reason to measure them again, once."""

    def __init__(self, plan: OpPlan, device_model: str, load_per_core: float) -> None:
        self._model, self._load_per_core = device_model or plan.device, load_per_core
        self.peaks: Peaks | None = known(plan, self._model, load_per_core)
        listed = hardware.match(self._model) is not None
        self._doubtful: set[bool] = set() if listed else {True, False}  # by the reference, by another

    def measure(self, calls: Calls) -> None:
        self.peaks = measured(calls, self._model, self._load_per_core)

    def doubted_by(self, failure: Outcome, is_reference: bool = False) -> bool:
        """Whether a result exceeds measured peaks for the first time, so that they have to be measured again."""
        is_reason = is_reference in self._doubtful and isinstance(failure, Held) and failure.check == "roofline"
        if is_reason:
            self._doubtful.remove(is_reference)
        return is_reason


def known(plan: OpPlan, device_model: str, load_per_core: float) -> Peaks | None:
    """The rates by the table, or as measured here before; None if they are due. `load_per_core` is of other work."""
    listed = hardware.match(device_model)
    measures = any(phase.then == "measure" for phase in plan.phases)
    if listed is None and not peaks_cache.is_due(file := _file(plan, device_model), load_per_core, measures):
        return peaks_cache.load(file)
    return listed


def measured(calls: Calls, device_model: str, load_per_core: float) -> Peaks:
    """The best rates of this and earlier measurements, which are remembered, with what others used of a core meanwhile
    (`load_per_core` where that is not known)."""
    cores = CoresWatch()
    ranks = calls.trusted.ask(wire.Do(what="measure_peaks"), wire.PeaksMeasured, calls.deadline)
    others, stolen = cores.others(), host.cpu_time().stolen_since(cores.before)
    peaks = Peaks(
        flops_per_s=median([rank.flops_per_s for rank in ranks]),
        hbm_bytes_per_s=median([rank.memory_bytes_per_s for rank in ranks]),
        link_bytes_per_s=median([rank.link_bytes_per_s for rank in ranks]),
        source=f"measured on this machine, {time.strftime('%Y-%m-%d', time.gmtime())}",
    )
    load_per_core = load_per_core if others is None else others / host.cores()
    return peaks_cache.store(_file(calls.plan, device_model), peaks, load_per_core, stolen)


def _file(plan: OpPlan, device_model: str) -> Path:
    return peaks_cache.path(plan.problem.root, device_model, plan.world_size, plan.nodes)
