"""The trusted ranks' program for a KernelBot problem folder."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from harness.core.records import Params, Verdict, Verdicts
from harness.kinds.folder import rank_check
from harness.ranks import payload, wire
from harness.ranks.shared_buffer import Source
from harness.ranks.trusted import Trusted

SLOW_S = 0.2  # a check that takes as long as digests of most outputs do


class FolderTrusted(Trusted):
    """Makes inputs and judges outputs by the folder's own functions: check_implementation, and ref_kernel, whose result
    shows what a result looks like. Inputs are as published, with other seeds."""

    def __init__(self, order: wire.RankOrder, fds: dict[str, int]) -> None:
        super().__init__(order, fds)
        self.seeds: list[int] = []  # of the inputs made
        self.stand_in: Any = None  # of the make of a right result
        self.is_slow = False  # the check
        self.known_verdict: tuple[int, str, Verdict] | None = None  # input, output and verdict of the last slow check

    def make_input(self, params: Params, spec: wire.InputSpec) -> Any:
        order = self.order
        return rank_check.generated(self.reference.generate_input, params, order.rank, order.world_size, spec.seed)

    def make_inputs(self, command: wire.MakeInputs) -> wire.Reply:
        self.seeds = [spec.seed for spec in command.inputs]
        self.known_verdict = None
        return super().make_inputs(command)

    def default_device(self) -> AbstractContextManager[object]:
        return nullcontext()  # such a folder names its devices itself

    def take(self, source: Source, output: wire.Output) -> Any:
        """The output as it is declared, its value, and why it has none."""
        return output, *payload.read_tree(source, output, self.limit)

    def own_failure(self, index: int) -> Verdict | None:
        """The verdict on the reference's own result for this input if that fails, too; None where it passes."""
        data, own = self.made[index], self.right_result(self.made[index])
        found = rank_check.checked(lambda: self.reference.check_implementation(payload.copied(data), own))
        if found.passed:
            return None
        told = f"the folder's own ref_kernel fails the folder's check, too, on seed {self.seeds[index]}"
        return replace(found, message=f"{told}: {found.message}")

    def right_result(self, data: Any) -> Any:
        # Copied, since a result that autograd made holds on to everything that it was made of.
        return payload.copied(self.reference.ref_kernel(payload.copied(data)))

    def nbytes_of(self, expected: Any) -> int:
        return payload.nbytes_of(expected)

    def verified(self, command: wire.Verify) -> wire.Verified:
        """Judges by the folder's check_implementation, on copies of the input, because kernels and checks of such
        folders may write to what they get. The first output for a case's published input is also compared with the
        type, dtype and shape of the reference's result."""
        declared, output, lacking = self.taken[command.taken]
        if command.published:
            expected = self.expected(command.index)
            self.stand_in = rank_check.stand_in(expected)
            note = "" if lacking else rank_check.unlike(declared, output, expected)
            self.known = expected = None  # memory for the check
        else:
            note = ""
        checked = self.checked(command.index, self.stand_in if lacking else output)
        self.taken[command.taken] = (declared, None, lacking)
        if not checked.passed and not lacking and self.order.world_size == 1:
            checked = self.own_failure(command.index) or checked
        verdict = Verdict(passed=False, message=f"the result cannot be judged: {lacking}") if lacking else checked
        if verdict.passed:
            verdict = replace(verdict, note=note)
        elif note:  # a check may only say what it stumbled over
            verdict = replace(verdict, message=f"{verdict.message}; {note}")
        return wire.Verified(verdicts=Verdicts(strict=verdict, gpumode=verdict))

    def checked(self, index: int, output: Any) -> Verdict:
        """The verdict of the folder's check on that output. A slow check runs once for the same output and input: in
        the calls that look for cached results each input comes twice."""
        made = ""
        if self.is_slow and self.order.world_size == 1:  # else it may be collective, so that no rank may leave it out
            made = payload.digest(output)  # first, since the check may write to it
            if made and self.known_verdict is not None and self.known_verdict[:2] == (index, made):
                return self.known_verdict[2]
        began = time.monotonic()
        found = rank_check.checked(
            lambda: self.reference.check_implementation(payload.copied(self.made[index]), output)
        )
        self.is_slow = time.monotonic() - began > SLOW_S
        self.known_verdict = (index, made, found) if made else None
        return found
