"""The trusted ranks' program for problems whose outputs are the logits of a generation."""

import functools
from typing import Any

import torch

from harness.core.records import Verdict, Verdicts
from harness.kinds.model import rank_logits as logits
from harness.ranks import strict_check, wire
from harness.ranks.trusted import Trusted


class LogitsTrusted(Trusted):
    """Judges an output by the problem's exact_kernel(data, output), because the right logits depend on the tokens
    before them, and so on the output itself."""

    def right_result(self, data: Any) -> Any:
        return data  # what is right is found with the output

    def nbytes_of(self, expected: Any) -> int:
        return int(self.reference.output_nbytes(expected))

    def verified(self, command: wire.Verify) -> wire.Verified:
        data = self.made[command.index]
        declared, values = self.taken[command.taken]
        shape, value = self.reference.output_shape(data), values[0] if values else None
        output = strict_check.tensor_of(declared, value, torch.float32, shape, self.device.kind)
        if isinstance(output, Verdict):
            return wire.Verified(verdicts=Verdicts(strict=output, gpumode=output))
        exact = functools.cache(functools.partial(self.reference.exact_kernel, data, output))
        strict = logits.judged(output, shape, exact)
        gpumode = Verdict(passed=True)
        if command.published:
            passed, message = self.reference.check_implementation(data, output, exact)
            gpumode = Verdict(passed=bool(passed), message="" if passed else str(message))
        return wire.Verified(verdicts=Verdicts(strict=strict, gpumode=gpumode))
