"""Failures whose reason is this machine and not the submission: what a message says when a package, a compiler or a GPU
is missing, and the one line that the user gets instead.

Each rule of RULES is a pattern of the words that Python, torch, Triton or an eval.py use. Knows texts alone.
"""

import re
import sys
from dataclasses import dataclass

SHOWN_CHARS = 200  # of what was said


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`says` is looked for in a message, and its last match counts; `advice` continues "<who> ". `on_cpu_only`: a
    machine with a GPU has other reasons to say so."""

    says: re.Pattern[str]
    advice: str
    on_cpu_only: bool = True


HARD_WIRED = "hard-wires CUDA, which this machine does not have: DEVICE=cpu (--device cpu) puts the CPU in its place"
GPU_ONLY = "needs what only a GPU has: {line}"
NO_CUDA = re.compile(  # what torch says where it has no CUDA or the machine has none, and what eval.py's say
    r"not compiled with CUDA|without CUDA support|without ATen_cuda|requires CUDA support|_cuda_setDevice"
    r"|No CUDA GPUs? (?:are )?available|no NVIDIA driver|CUDA driver version is insufficient"
    r"|dummy base class (?:Event|Stream)|Cannot access accelerator device"
)
RULES = (
    Rule(
        says=re.compile(r"No module named '([\w.]+)'"),
        advice="imports {found}, which is neither among the problem's files nor installed here: install the package "
        "that has it for {python}, or evaluate another file",
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


def refusal(message: str, who: str, device: str, cuda_is_cpu: bool) -> str | None:
    """Why `who` cannot run on this machine, in one line; None if the message gives another reason. With `cuda_is_cpu`
    the CUDA shim was in place already."""
    rules = (*RULES, Rule(says=NO_CUDA, advice=GPU_ONLY if cuda_is_cpu else HARD_WIRED))
    for rule in rules:
        if rule.on_cpu_only and device != "cpu":
            continue
        matches = list(rule.says.finditer(message))
        if matches:
            last = matches[-1]
            found = last[1] if last.lastindex else ""
            return f"{who} " + rule.advice.format(found=found, python=sys.executable, line=_line(message, last.start()))
    return None


def _line(text: str, place: int) -> str:
    """The line of the text that has this place."""
    start = text.rfind("\n", 0, place) + 1
    return text[start:].partition("\n")[0].strip()[:SHOWN_CHARS]
