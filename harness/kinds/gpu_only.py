"""Whether a submission failed on CPU cores because it has code that only a GPU runs: the machine's lack, not its fault.

Two things must agree: the submission's text has such code, which the parent reads, and the exception comes out of what
starts that code: Triton's search for a driver, or torch's for a CUDA toolkit. What the exception says does not count. A
submission could stage both, and gains only that it is refused without a result. Nobody asks once it was timed
(kinds.op.failures): it could choose then which of its figures count. `verify` and `settle`, whose entries have passed
on such a machine, count a refusal against the file (GpuOnlyError).
"""

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.core.errors import UsageError
from harness.core.records import Submission
from harness.core.words import cut_line
from harness.problems.python_text import nodes_of

START = "Traceback (most recent call last):"
FRAME = re.compile(r'^[ |]*File "([^"]+)", line \d+, in (\S+)', re.MULTILINE)
CUDA_ARGUMENTS = {"cuda_sources", "with_cuda"}  # of load_inline and load
REASON_CHARS = 300
INTERPRET = "TRITON_INTERPRET"


@dataclass(frozen=True, kw_only=True)
class GpuCode:
    """Code that only a GPU runs. Exceptions from these functions of the file (none: any) say that there is no GPU."""

    name: str
    file: str
    functions: frozenset[str] = frozenset()
    advice: str = ""


TRITON = GpuCode(
    name="Triton kernels",
    file="triton/runtime/driver.py",
    advice=f" ({INTERPRET}=1 runs them on CPU cores, slowly)",
)
CUDA = GpuCode(
    name="CUDA code",
    file="torch/utils/cpp_extension.py",
    functions=frozenset({"_join_cuda_home", "_get_cuda_arch_flags"}),
)


class GpuOnlyError(UsageError):
    """The submission has code that only a GPU runs. `may_run`: with Triton's interpreter it may run here, too."""

    def __init__(self, text: str, may_run: bool) -> None:
        super().__init__(text)
        self.may_run = may_run


def refuse_gpu_only(submission: Submission, text: str, message: str) -> None:
    """Raises GpuOnlyError if it failed on CPU cores, with these tracebacks (`text`), for a GPU's code."""
    last = [frames[-1] for block in text.split(START)[1:] if (frames := FRAME.findall(block))]
    for part in _parts(submission):
        if any(file.endswith(part.file) and (not part.functions or name in part.functions) for file, name in last):
            why = f"{submission.name} needs a GPU for its {part.name}, and this evaluation runs on CPU cores"
            advice = f"evaluate it on a machine that has a GPU{part.advice}"
            text = f"{why}: {cut_line(message, REASON_CHARS).rstrip('.')}. Next: {advice}"
            raise GpuOnlyError(text, may_run=part is TRITON and os.environ.get(INTERPRET, "0") in ("", "0"))


def _parts(submission: Submission) -> Iterator[GpuCode]:
    sources = (submission.source, *(module.source for module in submission.modules))
    nodes = [node for source in sources for node in nodes_of(source)]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    if any(name.partition(".")[0] == "triton" for name in imported):
        yield TRITON
    named = {keyword.arg for node in nodes if isinstance(node, ast.Call) for keyword in node.keywords}
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    if named & CUDA_ARGUMENTS or any("__global__" in text or text.endswith(".cu") for text in texts):
        yield CUDA
