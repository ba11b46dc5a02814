"""What is run as a problem folder's own evaluator: a script in Python, or a program that nvcc compiles; one entry of
LANGUAGES a language (after gpu-mode/kernelbot src/libkernelbot/run_eval.py and consts.py, read 2026-11).

Differs from KernelBot's runner: a CUDA program is compiled once and not for each mode, and `libraries` and
`compile_flags` of task.yml are used, which that runner leaves out.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.core.checkout import shown
from harness.core.errors import UsageError
from harness.core.records import Crashed, Submission
from harness.core.words import TAIL_CHARS
from harness.gpumode.folder import CudaConfig, PythonConfig, TaskProblem
from harness.kinds.kind import SubmissionFailed
from harness.process import compile_cache
from harness.process.child import Ended, end_text, search_path

NVCC_FOLDERS = ("/usr/local/cuda",)  # where toolkits lie that are not on PATH
NVCC_FLAGS = (  # KernelBot's, 2026-11
    *("--std=c++20", "-DNDEBUG", "-O3", "-Xcompiler=-Wno-psabi", "-Xcompiler=-fno-strict-aliasing"),
    *("--expt-extended-lambda", "--expt-relaxed-constexpr", "-forward-unknown-to-host-compiler"),
    *("-Xnvlink=--verbose", "-Xptxas=--verbose", "-Xptxas=--warn-on-spills"),
)
BINARY = "eval.out"
ERROR = re.compile(r"^.*\b(?:error|undefined reference)\b.*$", re.MULTILINE)
FATAL = re.compile(r"^nvcc fatal *: *(.*)$", re.MULTILINE)  # it never came to the source

Run = Callable[[list[str]], Ended]  # a compiler, in the folder where a program is built, with a deadline


@dataclass(frozen=True, kw_only=True)
class EvaluatorProgram:
    """What one run of the evaluator needs: its files, staged anew for each run, and its command without the mode."""

    files: Mapping[str, bytes]
    command: tuple[str, ...]


class Python:
    """How evaluators are built, here eval.py, which imports the submission. Code that the submission compiles at its
    import is compiled ahead, by running the submission alone."""

    def check(self, problem: TaskProblem, is_cpu_asked: bool) -> None:
        """Raises UsageError where this machine cannot build or run them. Python runs wherever this does."""

    def build(
        self, problem: TaskProblem, files: Mapping[str, bytes], submission: Submission, run: Run
    ) -> EvaluatorProgram:
        """Builds it of the staged `files`, which lie in the folder that `run` runs in. Raises SubmissionFailed. Here
        nothing is built; a submission that fails here fails in its first run too."""
        assert isinstance(problem.task.config, PythonConfig)
        if compile_cache.compiles(submission):
            run([sys.executable, problem.entries[0]])
        return EvaluatorProgram(files=files, command=(sys.executable, problem.task.config.main))


class Cuda(Python):
    """A program of CUDA C++. It runs in a folder without its sources, as KernelBot's."""

    def check(self, problem: TaskProblem, is_cpu_asked: bool) -> None:
        """Raises UsageError without nvcc, the include folders, or a GPU."""
        assert isinstance(problem.task.config, CudaConfig)
        where = shown(problem.folder)
        if is_cpu_asked:
            raise UsageError(f"{where} is a CUDA C++ problem: no CPU can stand in for its GPU; leave DEVICE=cpu out")
        if nvcc() is None:
            places = ", ".join(("PATH", "$CUDA_HOME/bin", *(f"{folder}/bin" for folder in NVCC_FOLDERS)))
            raise UsageError(
                f"{where} is a CUDA C++ problem, which nvcc compiles, and there is no nvcc here (looked in {places}): "
                "install the CUDA toolkit, or evaluate it where it is"
            )

    def build(
        self, problem: TaskProblem, files: Mapping[str, bytes], submission: Submission, run: Run
    ) -> EvaluatorProgram:
        """Compiles all sources into one program. Raises UsageError where nvcc does not come to them."""
        ended = run([nvcc() or "nvcc", *nvcc_arguments(problem)])
        binary = Path(ended.folder) / BINARY
        if ended.code == 0 and binary.is_file():
            return EvaluatorProgram(files={BINARY: binary.read_bytes()}, command=(f"./{BINARY}",))
        if (fatal := FATAL.search(ended.stderr)) is not None:
            raise UsageError(f"{shown(problem.folder)}: nvcc cannot compile here: {fatal[1]}")
        printed = f"{ended.stdout}\n{ended.stderr}"
        why = f": {error[0].strip()}" if (error := ERROR.search(printed)) else ""
        how = "was not done in time" if ended.code is None else end_text(ended.code)
        message = f"does not compile: nvcc {how}{why}"
        raise SubmissionFailed(Crashed(rank=0, message=message, log_tail=printed[-TAIL_CHARS:]))


LANGUAGES: dict[str, Python] = {"py": Python(), "cu": Cuda()}


def nvcc() -> str | None:
    """The path of nvcc; None if there is none."""
    homes = (os.environ.get("CUDA_HOME"), *NVCC_FOLDERS)
    places = os.pathsep.join([search_path(), *(f"{home}/bin" for home in homes if home)])
    return shutil.which("nvcc", path=places)


def nvcc_arguments(problem: TaskProblem) -> list[str]:
    """nvcc's arguments for the problem's sources, in the folder where they are staged."""
    config = problem.task.config
    assert isinstance(config, CudaConfig)
    defines = (f"-D{name}" if value is None else f"-D{name}={value}" for name, value in config.defines.items())
    return [
        *NVCC_FLAGS,
        *config.compile_flags,
        *(f"-I{folder}" for folder in config.include_dirs),
        *defines,
        *config.sources,
        *(f"-l{library}" for library in problem.task.libraries),
        "-arch=native",
        "-o",
        BINARY,
    ]
