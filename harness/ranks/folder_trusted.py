"""The trusted ranks' program for a KernelBot problem folder."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from harness.core.records import Params, Verdicts
from harness.ranks import folder_check, payload, wire
from harness.ranks.generate import generated
from harness.ranks.trusted import Trusted


class FolderTrusted(Trusted):
    """Makes inputs and judges outputs by the folder's own functions: check_implementation, and ref_kernel, whose result
    shows what a result looks like. Inputs are as published, with other seeds."""

    def __init__(self, order: wire.RankOrder, fds: dict[str, int]) -> None:
        super().__init__(order, fds)
        self.trees: list[tuple[wire.Output, Any, str]] = []  # taken, and why it is no value

    def make_input(self, params: Params, spec: wire.InputSpec) -> Any:
        order = self.order
        return generated(self.reference.generate_input, params, order.rank, order.world_size, spec.seed)

    def make_inputs(self, command: wire.MakeInputs) -> wire.Reply:
        self.trees = []
        return super().make_inputs(command)

    def default_device(self) -> AbstractContextManager[object]:
        return nullcontext()  # such a folder names its devices itself

    def take_outputs(self, command: wire.TakeOutputs) -> wire.Reply:
        assert self.buffers is not None
        nbytes = self.buffers.outputs.nbytes
        taken = [(output, *payload.read_tree(self.output_buffer, output, nbytes)) for output in command.outputs]
        if command.judged:
            self.trees += taken
        return wire.Done()

    def verified(self, command: wire.Verify) -> wire.Verified:
        """Passes copies of the input on, because kernels and checks of such folders may write to what they get."""
        data = self.made[command.index]
        declared, output, lacking = self.trees[command.taken]
        expected = self.reference.ref_kernel(payload.copied(data))
        self.expected_nbytes = max(self.expected_nbytes, payload.nbytes_of(expected))
        strict = folder_check.declared(declared, output, lacking, expected, data)
        # It may be collective, so that no rank may leave it out: what cannot be checked is stood in for.
        checked = folder_check.checked(
            lambda: self.reference.check_implementation(payload.copied(data), output if strict.passed else expected)
        )
        verdict = checked if strict.passed else strict
        return wire.Verified(verdicts=Verdicts(strict=verdict, gpumode=verdict))
