"""The trusted ranks' program for problems whose outputs are the logits of a generation."""

from typing import Any

from harness.core.records import Verdict, Verdicts
from harness.judging import correctness, logits
from harness.ranks import wire
from harness.ranks.trusted import Trusted


class LogitsTrusted(Trusted):
    """Which logits are right depends on the tokens before them, and so on the output itself: an output is judged by the
    problem's exact_kernel(data, output)."""

    def right_result(self, data: Any) -> Any:
        return data  # what is right is found with the output

    def nbytes_of(self, expected: Any) -> int:
        return int(self.reference.output_nbytes(expected))

    def verified(self, command: wire.Verify) -> wire.Verified:
        data = self.made[command.index]
        declared, values = self.taken[command.taken]
        strict = correctness.strict_declared(declared.kind, declared.device, self.device.kind, declared.note)
        output = values[0] if strict.passed else None
        if strict.passed and output is None:
            strict = Verdict(passed=False, message="its bytes do not fit its dtype and shape")
        gpumode = strict
        if output is not None:
            shape = self.reference.output_shape(data)
            strict = logits.judged(output, shape, lambda: self.reference.exact_kernel(data, output))
            if command.published:
                passed, message = self.reference.check_implementation(data, output)
                gpumode = Verdict(passed=bool(passed), message="" if passed else str(message))
        return wire.Verified(verdicts=Verdicts(strict=strict, gpumode=gpumode))
