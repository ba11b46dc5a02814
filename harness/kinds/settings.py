"""What an evaluation is asked for, made definite on this machine: problem, suite, device, ranks, file.

Decides from a record of what was asked for and from what the machine has. Runs nothing.
"""

import math
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from harness.core.checkout import Checkout
from harness.core.decode import part
from harness.core.errors import UsageError
from harness.core.records import Warning
from harness.kinds import registry
from harness.kinds.checkers import CHECKERS
from harness.kinds.kind import TORCH, Evaluator, OwnData, Setting
from harness.kinds.registry import find
from harness.machine import host
from harness.problems.problem import OFFICIAL, Problem, Suite
from harness.problems.submission import directives, read_submission
from harness.process.compile_cache import COMPILE_S
from harness.ranks.launch import START_S

MAX_RANKS = 1024
MAX_NODES = 250  # of one /24 network
DEVICES = ("cpu", "cuda", "rocm")
# In how many launches a ranked evaluation measures, each of fresh processes. On CPU cores their samples differ by more.
LAUNCHES = {"cpu": 1, "cuda": 4, "rocm": 1}
MOST_LAUNCHES = 64


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What an evaluation was asked for. `problem` is a name, a folder, or a submission that names its problem. None
    leaves a choice to the problem and the machine; `launches` are of a ranked evaluation; `cpu_suite` is what runs on
    CPU cores where no suite is named; `benchmark` is the number of the only one to be run, `launch_count` how many
    kernel launches of a call a profiler takes."""

    problem: str
    file: Path | None = None
    suite: str | None = None
    ranks: int | None = None
    device: str | None = None
    timeout_s: float | None = None
    seconds: float | None = None
    launches: int | None = 1
    evaluator: Evaluator | None = None
    seed: int | None = None
    tool: str = TORCH
    benchmark: int | None = None
    launch_count: int | None = None
    confined: bool = True
    nodes: int = 1
    cpu_suite: str = "cpu"
    data: Path | None = None
    target: float | None = None
    vocabulary: int | None = None


def setting(asked: Asked, checkout: Checkout, problem: Problem | None = None) -> Setting:
    """What was asked for, of `problem` or else of the one that `asked` names; UsageError where this machine or the
    problem cannot give it, BadFileError or BadSubmissionError for a file that does not say what it is for."""
    file = asked.file
    notes: tuple[Warning, ...] = ()
    gpus = host.gpus()
    if problem is None:
        problem, file, notes = named(asked, checkout)
    device = asked.device or problem.device or gpus.device
    if problem.device not in (None, device):
        raise UsageError(f"--device {device}: {problem.name} runs on {problem.device} only; leave --device out")
    if device != "cpu" and device != gpus.device:
        raise UsageError(f"--device {device}: this machine has {gpus.told}; --device {gpus.device} runs here")
    cpu_suite = next((name for name in (asked.cpu_suite, "cpu") if name in problem.suites), OFFICIAL)
    suite = problem.suite(asked.suite or (cpu_suite if device == "cpu" else OFFICIAL))
    if asked.timeout_s is not None:
        check_seconds("--timeout", asked.timeout_s)
        suite = replace(
            suite, test_timeout_s=asked.timeout_s, benchmark_timeout_s=asked.timeout_s, ranked_timeout_s=asked.timeout_s
        )
    if asked.seconds is not None:
        check_seconds("--seconds", asked.seconds)
        suite = replace(suite, benchmark_s=asked.seconds)
    launches = LAUNCHES[device] if asked.launches is None else asked.launches
    if not 1 <= launches <= MOST_LAUNCHES:
        raise UsageError(f"--launches {launches}: 1 to {MOST_LAUNCHES} can be asked for")
    most = MAX_RANKS if device == "cpu" else gpus.count * max(1, asked.nodes)
    world_size = min(most, suite.benchmarks[0].world_size)
    if asked.ranks is not None:
        if not 1 <= asked.ranks <= most:
            raise UsageError(f"--ranks {asked.ranks}: 1 to {most} ranks can be asked for on {device}")
        world_size = asked.ranks
    check_nodes(asked.nodes, world_size, problem)
    suite = problem.with_world_size(suite, world_size)
    evaluator: Evaluator = asked.evaluator or ("theirs" if problem.only_theirs else "ours")
    if asked.benchmark is not None:
        suite = with_benchmark(suite, asked.benchmark, evaluator)
    if asked.seed is not None and evaluator == "ours":
        raise UsageError(f"--seed {asked.seed}: only --eval theirs takes it; our ranks draw fresh seeds in every run")
    if asked.evaluator is None and problem.only_theirs:
        notes += (Warning(code="only_theirs", values={"why": problem.only_theirs}),)
    return part(
        asked,
        Setting,
        problem=problem,
        suite=suite,
        device=device,
        world_size=world_size,
        file=file,
        is_cpu_asked=asked.device == "cpu",
        evaluator=evaluator,
        evaluator_seed=asked.seed,
        data=own_data(asked, problem),
        launches=launches,
        notes=notes,
    )


def longest_s(setting: Setting) -> float:
    """How long an evaluation may take in seconds, start and compilers included."""
    suite = setting.suite
    limits_s = suite.test_timeout_s + max(suite.benchmark_timeout_s, suite.ranked_timeout_s)
    return START_S + COMPILE_S + limits_s * (1 + CHECKERS[setting.problem.checker].judges)


def with_benchmark(suite: Suite, number: int, evaluator: Evaluator) -> Suite:
    """The suite with that benchmark alone. Raises UsageError where there is none, or the evaluator takes all."""
    count = len(suite.benchmarks)
    if evaluator == "theirs":
        raise UsageError(f"--benchmark {number}: a folder's own eval.py runs all benchmarks; leave it out")
    if not 0 <= number < count:
        raise UsageError(f"--benchmark {number}: suite {suite.name} has the benchmarks 0 to {count - 1}")
    return replace(suite, benchmarks=(suite.benchmarks[number],))


def named(asked: Asked, checkout: Checkout) -> tuple[Problem, Path | None, tuple[Warning, ...]]:
    """The problem that is meant, its file (None: its default), and notes for the report; UsageError if it is none."""
    if asked.file is None and asked.problem.endswith(".py") and not registry.is_problem(Path(asked.problem)):
        file = Path(asked.problem)
        problem, notes = _named_by(file, checkout)
        return problem, file, notes
    return find(asked.problem, checkout), asked.file, ()


def _named_by(file: Path, checkout: Checkout) -> tuple[Problem, tuple[Warning, ...]]:
    """The problem that a submission's first lines name, and warnings about the GPUs that they name."""
    submission = read_submission(file, checkout.root)
    said = directives(submission.source, submission.name)
    folder = registry.beside(file, checkout)  # which the user has named by naming the file
    if said.leaderboard is None and folder is None:
        raise UsageError(
            f"{submission.name}: for which problem? Name it (`python -m harness eval a2a {shlex.quote(str(file))}`), "
            "or begin the file with `#!POPCORN leaderboard amd-all2all`"
        )
    try:
        # No path: whose code is trusted is not the submission's to say.
        problem = registry.named(said.leaderboard or "", checkout, folder)
    except UsageError as error:
        raise UsageError(f"{submission.name}: its `#!POPCORN leaderboard` line: {error}") from None
    gpus = host.gpus()
    lacking = [name for name in said.gpus if not gpus.has(name)]
    if not lacking:
        return problem, ()
    return problem, (Warning(code="other_gpus", values={"gpus": ", ".join(lacking), "here": gpus.told}),)


def own_data(asked: Asked, problem: Problem) -> OwnData | None:
    """The user's data that was asked for. Raises UsageError for a problem that takes none."""
    if asked.data is None:
        for name in ("target", "vocabulary"):
            if getattr(asked, name) is not None:
                raise UsageError(f"--{name}: only --data takes it; add that, or leave --{name} out")
        return None
    if not problem.takes_data:
        raise UsageError(f"--data {asked.data}: {problem.name} makes its own data; leave --data out")
    if asked.target is not None and not 0 < asked.target < math.inf:
        raise UsageError(f"--target {asked.target}: a number above 0 is needed")
    if asked.vocabulary is not None and asked.vocabulary < 1:
        raise UsageError(f"--vocabulary {asked.vocabulary}: a whole number above 0 is needed")
    return OwnData(folder=asked.data, target=asked.target, vocabulary=asked.vocabulary)


def check_nodes(nodes: int, world_size: int, problem: Problem) -> None:
    """Raises UsageError where the problem's ranks cannot be spread over so many nodes."""
    if not 1 <= nodes <= MAX_NODES:
        raise UsageError(f"--nodes {nodes}: 1 to {MAX_NODES} nodes can be asked for")
    if nodes > 1 and not (problem.kind == "op" and problem.multi_gpu):
        raise UsageError(f"--nodes {nodes}: {problem.name} runs on one machine; leave --nodes out")
    if world_size % nodes:
        raise UsageError(f"--nodes {nodes}: {world_size} ranks do not divide into {nodes} equal shares; name --ranks")


def check_seconds(name: str, seconds: float | None) -> None:
    """Raises UsageError if the option's value is not a number above 0."""
    if seconds is not None and not 0 < seconds < math.inf:
        raise UsageError(f"{name} {seconds}: a number of seconds above 0 is needed")
