"""The machine's peak rates during one evaluation, which bound what its cases can reach."""

from harness.core.machine_records import Peaks
from harness.core.records import Failure, Held, Measured
from harness.kinds.op import peaks as op_peaks
from harness.kinds.op.calls import Calls
from harness.kinds.op.plan import OpPlan
from harness.machine import hardware


class CaseLimits:
    """`peaks` are the table's, or the best that were ever measured here; None until they are measured, where they have
    to be. Other work makes measured peaks low, so what seems faster than them is reason to measure them again, once."""

    def __init__(self, plan: OpPlan, device_model: str, load_per_core: float) -> None:
        self._model, self._load_per_core = device_model or plan.device, load_per_core
        self.peaks: Peaks | None = op_peaks.known(plan, self._model, load_per_core)
        self._may_be_low = hardware.match(self._model) is None

    def measure(self, calls: Calls) -> Peaks:
        """Measures the machine's peaks now."""
        self.peaks = op_peaks.measured(calls, self._model, self._load_per_core)
        return self.peaks

    def doubted_by(self, found: Measured | Failure) -> bool:
        """Whether this result exceeds measured peaks for the first time, so that the peaks have to be measured
        again."""
        is_beyond = isinstance(found, Held) and found.check == "roofline"
        is_reason = is_beyond and self._may_be_low
        self._may_be_low = self._may_be_low and not is_reason
        return is_reason
