"""Failures whose reason is not the submission: what a message says when a package, a compiler or a GPU is missing, and
the one line that the user gets instead; and whose code a traceback is from.

Each rule of RULES is a pattern of the words that Python, torch, Triton or an eval.py use. Knows texts alone.
"""

import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import PurePosixPath

SHOWN_CHARS = 200  # of what was said


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`says` is looked for in a message, and its last match counts; `advice` continues "<who> ", with the groups and
    the whole line of the match. `on_cpu_only`: a machine with a GPU has other reasons to say so."""

    says: re.Pattern[str]
    advice: str
    on_cpu_only: bool = True


HARD_WIRED = "hard-wires CUDA, which this machine does not have: DEVICE=cpu (--device cpu) puts the CPU in its place"
GPU_ONLY = "needs what only a GPU has: {line}"
NO_CUDA = re.compile(  # what torch says where it has no CUDA or the machine has none, and what eval.py's say
    r"not compiled with CUDA|without CUDA support|without ATen_cuda|requires CUDA support|_cuda_setDevice"
    r"|No (?:CUDA|HIP) GPUs? (?:are )?available|no NVIDIA driver|CUDA driver version is insufficient"
    r"|dummy base class (?:Event|Stream)|Cannot access accelerator device"
)
RULES = (
    Rule(
        says=re.compile(r"No module named '([\w.]+)'"),
        advice="imports {0}, which is neither among the problem's files nor installed here: install the package "
        "that has it for {python}, or evaluate another file",
        on_cpu_only=False,
    ),
    Rule(
        # By its place an installed package, and no file of the problem's
        says=re.compile(
            r"cannot import name '([\w.]+)' from '([\w.]+)'"
            r" \((?:unknown location|[^)\n]*(?:site|dist)-packages[^)\n]*)\)"
        ),
        advice="imports {0} from {1}, and the {1} that is installed here lacks it: install the version that has it for "
        "{python}, or evaluate another file",
        on_cpu_only=False,
    ),
    Rule(
        says=re.compile(r"\b(lib[\w.+-]+\.so[\w.]*): cannot open shared object file"),
        advice="needs the library {0}, which is not installed here: install the package that has it, or evaluate it "
        "on a machine that has it",
        on_cpu_only=False,
    ),
    Rule(
        says=re.compile(r"(CUDA_HOME|ROCM_HOME) environment variable is not set|nvcc: not found|'[^']*nvcc'"),
        advice="compiles CUDA or HIP code, which needs a GPU and its compiler (nvcc or hipcc): evaluate it on a "
        "machine that has them",
    ),
    Rule(
        says=re.compile(r"\b0 active drivers"),
        advice="runs Triton kernels, which need a GPU; TRITON_INTERPRET=1 in the environment runs simple ones on "
        "the CPU, slowly",
    ),
)


OTHER_GPU = Rule(
    says=re.compile(
        r"compute capability >=|no kernel image is available|expects arch to be one of|No HIP GPUs are available"
    ),
    advice="needs another GPU than this machine has: {line}",
    on_cpu_only=False,
)
FRAME = re.compile(r'^ *File "([^"\n]+)", line \d+, in (\S+)', re.MULTILINE)
REFERENCE_NAMES = ("ref_kernel", "generate_input", "<module>")  # what runs of reference.py beside its check
# Names of the submission's function and of the check in an evaluator's own lines, and ends of a process that a
# submission can cause from outside Python: an error of its kernels is raised by whatever waits for them next.
MAY_BE_SUBMISSIONS = re.compile(
    r"\bcustom_kernel\b|\bcheck_implementation\b|\b(?:CUDA|HIP|NCCL|RCCL)(?: driver)? error\b|AcceleratorError"
    r"|BrokenProcessPool|Process(?:Exited|Raised)Exception|EOFError|BrokenPipeError|Connection\w*Error"
)


def culprit(stderr: str, submission: Collection[str], reference: str = "reference.py") -> str:
    """Which part of a folder failed by itself, by the tracebacks of its evaluator: "reference" or "eval.py"; "" where
    the submission, whose files these are, may be the cause, or where there is no traceback."""
    frames = [(PurePosixPath(path).name, function) for path, function in FRAME.findall(stderr)]
    if not frames or any(name in submission for name, _ in frames):
        return ""
    if any(name == reference and function in REFERENCE_NAMES for name, function in frames):
        return "reference"
    return "" if MAY_BE_SUBMISSIONS.search(stderr) or any(name == reference for name, _ in frames) else "eval.py"


def refusal(message: str, who: str, device: str, cuda_is_cpu: bool) -> str | None:
    """Why `who` cannot run on this machine, in one line; None if the message gives another reason. With `cuda_is_cpu`
    the CUDA shim was in place already."""
    rules = (*RULES, Rule(says=NO_CUDA, advice=GPU_ONLY if cuda_is_cpu else HARD_WIRED), OTHER_GPU)
    for rule in rules:
        if rule.on_cpu_only and device != "cpu":
            continue
        matches = list(rule.says.finditer(message))
        if matches:
            last = matches[-1]
            line = _line(message, last.start())
            return f"{who} " + rule.advice.format(*last.groups(""), python=sys.executable, line=line)
    return None


def _line(text: str, place: int) -> str:
    """The line of the text that has this place."""
    start = text.rfind("\n", 0, place) + 1
    return text[start:].partition("\n")[0].strip()[:SHOWN_CHARS]
