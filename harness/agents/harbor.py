"""Problems as Harbor tasks: folders that harbor, verifiers and inspect read. Each verifier has a container of its own.

    <problem>/instruction.md            what the agent is told
    <problem>/task.toml                 limits and resources; the agent's file goes to the verifier as an artifact
    <problem>/environment/Dockerfile    the agent's container: Python, torch, this harness without its submissions
    <problem>/tests/Dockerfile          the verifier's container, which the agent never enters
    <problem>/tests/test.sh             evaluates the file, writes reward.json and result.json

A problem of KernelBench is a file of its own, problem/ in both boxes.

`python -m harness.agents.harbor RESULT FOLDER` is what test.sh ends with: it writes reward.json from a result. A result
that is no fault of the agent's has no reward file: Harbor then counts the trial as an error, and not as a reward of 0.
"""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.agents.guide import instruction
from harness.agents.result import Result
from harness.agents.reward import Function
from harness.core.checkout import Checkout
from harness.core.errors import UsageError, os_error_as
from harness.core.files import archived, write_files
from harness.core.json_file import record_of
from harness.core.version import __version__
from harness.problems.problem import Problem

SCHEMA = "1.4"  # of task.toml, as harbor 0.25.0 (2026-10) has it
ORG = "kernel-eval"
FILE = "/app/submission.py"
PLACE = "/opt/problem"  # of a problem that is a file of its own, in both boxes
ARCHIVE = "kernel-eval.tar.gz"
PARTS = ("harness", "reference", "shapes", "submissions/common", "pyproject.toml", "README.md")
LEFT_OUT = "__pycache__"
AGENT_S = 7200.0
MORE_S = 900.0  # beside the phases' own limits: starting, compiling, importing
IMAGE = {"cpu": "python:3.11-slim", "cuda": "nvidia/cuda:13.0.1-devel-ubuntu24.04", "rocm": "rocm/pytorch:latest"}
TASK = """\
schema_version = "{schema}"
artifacts = ["{file}"]

[task]
name = "{org}/{name}"
version = "{version}"
description = {description}
keywords = ["kernels", "performance", "{device}"]

[metadata]
problem = {problem}
suite = "{suite}"
ranks = {ranks}
device = "{device}"
reward = "{reward}"
harness = "kernel-eval {version}"

[agent]
timeout_sec = {agent_s}

[environment]
{agents_image}cpus = {cpus}
memory_mb = {memory_mb}
gpus = {gpus}
workdir = "/app"

[verifier]
timeout_sec = {verifier_s}
environment_mode = "separate"

[verifier.environment]
{verifiers_image}cpus = {cpus}
memory_mb = {memory_mb}
gpus = {gpus}
network_mode = "no-network"
"""
DOCKERFILE = """\
FROM {image}
RUN {system}python3 -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
ADD {archive} /opt/kernel-eval/
RUN pip install --no-cache-dir -e /opt/kernel-eval
{more}"""
APT = "apt-get update && apt-get install -y --no-install-recommends python3 python3-venv python3-dev && "
ITS_FILE = f"COPY problem {PLACE}\n"
AGENTS_BOX = "COPY task /app\nWORKDIR /app\n"
VERIFIERS_BOX = "COPY test.sh /tests/test.sh\n"
TEST = """\
#!/bin/bash
# Evaluates the agent's file and writes reward.json and result.json. Variables name other places than the container's.
set -u
FILE="${{SUBMISSION:-{file}}}"
OUT="${{LOGS:-/logs/verifier}}"
CHECKOUT="${{KERNEL_EVAL:-/opt/kernel-eval}}"
PLACE="${{PROBLEM:-{place}}}"
PYTHON="${{PYTHON:-python3}}"
mkdir -p "$OUT"
rm -f "$OUT/reward.json" "$OUT/reward.txt" "$OUT/result.json"
cd "$CHECKOUT" || exit 1
if [ -f "$FILE" ] && [ ! -L "$FILE" ]; then
  "$PYTHON" -m harness eval {problem} "$FILE" {options} --no-record --quiet --result "$OUT/result.json"
else
  echo "there is no submission at $FILE"
  echo "def nothing(:" > "$OUT/nothing.py"  # which is rejected, as any file that is no Python
  "$PYTHON" -m harness eval {problem} "$OUT/nothing.py" {options} --no-record --quiet --result "$OUT/result.json"
  rm -f "$OUT/nothing.py"
fi
"$PYTHON" -m harness.agents.harbor "$OUT/result.json" "$OUT"
"""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Options of the tasks. `image`: the beginning of the names of images that were built of the two Dockerfiles, for
    readers that build none: `<image>-<problem>` and `<image>-<problem>-verifier`; or empty."""

    device: str
    reward: Function = "log2_speedup"
    image: str = ""


def write(folder: Path, problems: list[tuple[Problem, str]], wanted: Wanted, checkout: Checkout) -> None:
    """Writes a task for each problem and suite into a new folder. Raises UsageError where there is one, it cannot be
    written, a problem is neither this checkout's nor one file, or two would have one name as tasks."""
    of_task: dict[str, str] = {}
    for problem, _ in problems:
        if problem.is_upstream and not problem.is_one_file:
            raise UsageError(
                f"--harbor: {problem.name} needs more files than a task has; name a problem of this checkout, or a "
                "file of KernelBench's"
            )
        if (name := task_name(problem)) in of_task:
            raise UsageError(f"--harbor: {of_task[name]} and {problem.name} would both be the task {name}; rename one")
        of_task[name] = problem.name
    if folder.exists():
        raise UsageError(f"--harbor {folder}: it is there already; name a new folder")
    archive = _archive(checkout)
    with os_error_as(UsageError, f"--harbor {folder}: cannot be written", "name another folder"):
        for problem, suite in problems:
            files, task = dict(files_of(problem, suite, wanted, archive)), folder / task_name(problem)
            write_files(task, files)
            for name in files:
                (task / name).chmod(0o755 if name.endswith(".sh") else 0o644)


def task_name(problem: Problem) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", problem.name)


def files_of(problem: Problem, suite_name: str, wanted: Wanted, archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The files of one task, by their paths in its folder."""
    suite, device, reward = problem.suite(suite_name), wanted.device, wanted.reward
    ranks = suite.benchmarks[0].world_size if problem.multi_gpu else 1
    options = f"--suite {suite_name} --device {device} --ranks {ranks} --reward {reward}"
    gpus = ranks if device != "cpu" else 0
    limits_s = suite.test_timeout_s + suite.ranked_timeout_s + MORE_S
    told = instruction(problem, FILE, suite_name) + _commands(problem, suite_name, device, ranks)
    yield "instruction.md", told.encode()
    task = TASK.format(
        schema=SCHEMA,
        file=FILE,
        org=ORG,
        name=task_name(problem),
        problem=json.dumps(problem.name),
        version=__version__,
        description=json.dumps(" ".join(problem.description.split())),
        device=device,
        suite=suite_name,
        ranks=ranks,
        reward=reward,
        agent_s=AGENT_S,
        verifier_s=limits_s,
        cpus=max(4, ranks),
        memory_mb=16384 + 4096 * ranks,
        gpus=gpus,
        agents_image=_image(wanted, problem, ""),
        verifiers_image=_image(wanted, problem, "-verifier"),
    )
    yield "task.toml", task.encode()
    image = IMAGE[device]
    system = "" if image.startswith("python") else APT
    own = ITS_FILE if problem.is_one_file else ""
    for box, more in (("environment", own + AGENTS_BOX), ("tests", own + VERIFIERS_BOX)):
        yield f"{box}/Dockerfile", DOCKERFILE.format(image=image, system=system, archive=ARCHIVE, more=more).encode()
        yield f"{box}/{ARCHIVE}", archive
        if own:
            yield f"{box}/problem/{problem.name}.py", problem.folder.read_bytes()
    for path in [problem.folder] if own else sorted(problem.folder.glob("*.py")):
        yield f"environment/task/{path.name}", path.read_bytes()
    called = f'"$PLACE"/{shlex.quote(f"{problem.name}.py")}' if own else problem.name
    yield "tests/test.sh", TEST.format(file=FILE, place=PLACE, problem=called, options=options).encode()


def _image(wanted: Wanted, problem: Problem, end: str) -> str:
    return f"docker_image = {json.dumps(f'{wanted.image}-{task_name(problem)}{end}')}\n" if wanted.image else ""


def _commands(problem: Problem, suite: str, device: str, ranks: int) -> str:
    where = f"--suite {suite} --device {device} --ranks {ranks}"
    called = shlex.quote(f"{PLACE}/{problem.name}.py") if problem.is_one_file else problem.name
    return (
        "\n## Commands\n\nThe problem's files are in `/app`, the harness in `/opt/kernel-eval`, where these run:\n\n"
        f"- `python -m harness check {called} {FILE} --device {device} --ranks {ranks}`: is it right?\n"
        f"- `python -m harness eval {called} {FILE} {where} --no-record --result -`: the result as JSON, with a "
        "hint under `next`\n\nOnly the file is judged, in another container: nothing else that you change counts.\n"
    )


def _archive(checkout: Checkout) -> bytes:
    """The harness and the problems, without submissions, as tests and agents need it."""
    tops = [checkout.root / part for part in PARTS]
    found = (path for top in tops for path in ([top] if top.is_file() else top.rglob("*")))
    kept = (path for path in found if path.is_file() and LEFT_OUT not in path.parts)
    return archived({str(path.relative_to(checkout.root)): path.read_bytes() for path in kept})


def rewards_of(result: Result) -> dict[str, float]:
    return {
        "reward": result.reward.value,
        "compiles": float(result.stages.compile.status == "pass"),
        "correct": result.stages.correct.done / max(1, result.stages.correct.total),
        "ranked": float(result.ranked),
        "speedup": (result.speedup or 0.0) if result.ranked else 0.0,
    }


def main(arguments: list[str]) -> int:
    """Writes reward.json; the exit code."""
    source, folder = map(Path, arguments)
    try:
        result = record_of(Result, source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"no result: {error}", file=sys.stderr)
        return 1
    if result.verdict == "error":
        print(f"the harness or the machine failed: {result.evidence}", file=sys.stderr)
        return 1
    (folder / "reward.json").write_text(json.dumps(rewards_of(result)) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
