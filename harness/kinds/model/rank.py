"""The trusted ranks' program for problems whose outputs are the logits of a generation. They are right by the strict
verdict, and if greedy tokens are those of exact logits.

A token that differs is right where the exact logits of both lie within the noise: the order of two logits that nearly
tie is rounding's. Later steps are judged by the tokens that the output itself led to, so that a tie spoils nothing.

Legend: B sequences, N steps, V vocabulary.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from harness.core.records import Verdict, Verdicts
from harness.judging.correctness import Expected, failed, limit, strict
from harness.ranks import strict_check, wire
from harness.ranks.trusted import Trusted, told


class LogitsTrusted(Trusted):
    """Judges an output by the problem's exact_kernel(data, output): right logits depend on the tokens before them."""

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
        verdict = judged(output, shape, exact)
        gpumode = Verdict(passed=True)
        if command.published:
            passed, message = told(self.reference.check_implementation(data, output, exact))
            gpumode = Verdict(passed=bool(passed), message="" if passed else str(message))
        return wire.Verified(verdicts=Verdicts(strict=verdict, gpumode=gpumode))


def judged(output: Tensor, shape: tuple[int, ...], exact: Callable[[], tuple[Expected, ...]]) -> Verdict:
    """Judges logits [B, N, V]. `exact` computes the expected logits of an output of the right shape: the exact ones
    first, then whatever else the output must be near to, each with a name."""
    if tuple(output.shape) != shape:
        return failed(f"the logits' shape is {list(output.shape)}; expected {list(shape)}")
    expected = exact()
    for one in expected:
        found = strict(output, one)
        if not found.passed:
            return replace(found, message=f"beside {one.name}: {found.message}") if one.name else found
    return greedy(output, expected[0])


def greedy(output_BNV: Tensor, expected: Expected) -> Verdict:
    """Whether each step's largest logit is that of the exact logits, or nearly ties with it: both have noise, whose
    difference may be sqrt(2) times as large as one element's."""
    token_BN1 = output_BNV.argmax(-1, keepdim=True)
    best_BN = expected.value.amax(-1)
    behind_BN = best_BN - expected.value.gather(-1, token_BN1)[..., 0]
    allowed_BN = math.sqrt(2) * limit(1) * expected.noise.gather(-1, token_BN1)[..., 0]
    far_BN = behind_BN > allowed_BN
    if not bool(far_BN.any()):
        return Verdict(passed=True)
    sequence, step = far_BN.nonzero()[0].tolist()
    return failed(
        f"step {step} of sequence {sequence}: token {int(token_BN1[sequence, step])} has the largest logit, "
        f"and it is {float(behind_BN[sequence, step]):.3g} below the right token's, where rounding explains "
        f"{float(allowed_BN[sequence, step]):.3g}",
    )
