"""What several test files need: an evaluation in one call, and the certainty that it left nothing behind."""

import compileall
import contextlib
import dataclasses
import functools
import gc
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import prefork
import preloaded
import pytest
from factories import ordered
from hypothesis import HealthCheck, settings

from harness.core import files
from harness.core.checkout import ROOT, Checkout
from harness.core.machine_records import Peaks
from harness.core.processes import descendants
from harness.core.records import EvalReport, Mode, Submission
from harness.core.words import count_text
from harness.evaluation.evaluate import evaluate
from harness.kinds.kind import Progress
from harness.kinds.op import peaks as op_peaks
from harness.kinds.op.plan import OpPlan, make_plan
from harness.kinds.registry import find
from harness.machine import peaks_cache
from harness.machine.host import gpus
from harness.process import child, sandbox
from harness.ranks import zygotes as zygotes_module

TIMEOUT_S = 30.0
RANKS = 2  # two have all that is tried, and start in a quarter of the time of eight
OTHERS_S, DYING_S = 300.0, 10.0  # for other tests to end what they do here; for processes that were killed to be gone
COMMAND = [sys.executable, "-I", "-S", preloaded.__file__]  # then a module and its arguments
gc.disable()  # until all is imported: none of that is garbage, and looking for it takes a quarter of a second
# Properties hold on a busy machine too, however long an example takes there.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
# Hundreds of processes import the harness. Without bytecode on the disk each would compile it, for a second.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# What `make test` was given (ARGS, say) is meant for it alone, and not for every make that a test calls.
for given in os.environ.pop("MAKEFLAGS", "").split():
    os.environ.pop(given.partition("=")[0], None)
# As many workers as cores run at a time. Threads of torch would wait for each other, and burn cores while they do.
os.environ["OMP_NUM_THREADS"] = "1"


def heed_signals() -> None:
    """For preexec_fn. Whoever runs the tests in the background, or behind nohup, has these ignored, and that is
    inherited."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def submission_of(source: str) -> Submission:
    return Submission(path="submission.py", name="submission.py", source=source, sha256="0" * 64)


def left_behind(temporary: Path) -> dict[str, list[str]]:
    """Whatever an evaluation could leave: processes, shared memory, folders."""
    processes = []
    for pid in descendants(os.getpid()):
        with contextlib.suppress(FileNotFoundError):  # it ended meanwhile
            if command := Path(f"/proc/{pid}/cmdline").read_text():  # one that is ending has no memory to read it from
                processes.append(command)
    return {
        "processes": processes,
        "/dev/shm": sorted(os.listdir("/dev/shm")),
        "temporary": sorted(os.listdir(temporary)),
    }


def in_use(name: str) -> bool:
    """Whether some process has this file of /dev/shm mapped: another test's evaluation, say."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if f"/dev/shm/{name}" in maps.read_text():
                return True
    return False


def pytest_configure(config: pytest.Config) -> None:
    """Ranks may not write bytecode: what they alone import would be compiled in each of them, in a fresh clone."""
    if not hasattr(config, "workerinput"):  # pytest-xdist's processes come later
        compileall.compile_dir(ROOT / "harness", quiet=2)


@pytest.fixture(scope="session", autouse=True)
def harness_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What copies of the checkout have in common, copied once: see copy_checkout."""
    global HARNESS_FILES
    HARNESS_FILES = tmp_path_factory.mktemp("shared") / "harness"
    shutil.copytree(ROOT / "harness", HARNESS_FILES)


@pytest.fixture(scope="session", autouse=True)
def zygotes() -> Iterator[None]:
    """Zygotes come from a process that has imported torch: those of evaluations in this process, and those of
    commands that are started through prefork.py."""
    server = prefork.Server({**sandbox.environment(os.environ), **zygotes_module.MALLOC, "PATH": child.search_path(),
                             "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"})  # fmt: skip
    commands = prefork.Server(os.environ, preloaded.__file__, preloaded.SOCKET)
    with pytest.MonkeyPatch.context() as patch:
        prefork.hasten(patch.setattr)
        with files.locked(Path(tempfile.gettempdir()) / f"peaks-{os.getuid()}.lock", OTHERS_S):
            measure_peaks()
        yield
    commands.close()
    server.close()


def measure_peaks() -> None:
    """In a fresh clone, once: every copy of the checkout would measure them again, for seconds."""
    for problem, ranks in (("a2a", RANKS), ("rms_norm", 1)):
        if not peaks_cache.path(ROOT, "cpu", ranks).exists():
            words = f"harness check {problem} --suite quick --ranks {ranks} --device cpu --quiet"
            command = [*COMMAND, *words.split()]
            subprocess.run(command, cwd=ROOT, capture_output=True, timeout=OTHERS_S, check=True)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A temporary folder with a shorter name than pytest's, which are too long for sockets."""
    with tempfile.TemporaryDirectory(prefix="tests-") as folder:
        yield Path(folder)


@pytest.fixture
def nothing_left(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails a test after which there is more than before."""
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = left_behind(temporary)
    yield
    began = time.monotonic()
    while True:
        after = left_behind(temporary)
        left = {place: [item for item in found if item not in before[place]] for place, found in after.items()}
        left["/dev/shm"] = [name for name in left["/dev/shm"] if not in_use(name)]
        # /dev/shm is everybody's: what another test's evaluation has there goes when it ends
        wait_s = DYING_S if left["processes"] or left["temporary"] else OTHERS_S
        if not any(left.values()) or time.monotonic() > began + wait_s:
            break
        time.sleep(0.1)
    assert left == {place: [] for place in left}


@pytest.fixture
def evaluated(nothing_left: None) -> Callable[..., EvalReport]:
    """evaluated(source, problem=..., suite=..., mode=..., timeout_s=...) runs a whole evaluation in this process;
    `benchmarks` are how many of the suite's, where not all, and `benchmark_s` how long each is timed; `drawn`, how many
    shapes are drawn near them."""

    def run(
        source: str,
        problem: str = "a2a",
        suite: str = "quick",
        mode: Mode = "test",
        timeout_s: float = TIMEOUT_S,
        ranks: int | None = None,
        device: str = "cpu",
        burst: bool = False,
        benchmarks: int | None = None,
        launches: int = 1,
        opponent: Submission | None = None,
        controls: bool = False,
        drawn: int = 0,
        benchmark_s: float = 0.1,
    ) -> EvalReport:
        found = find(problem, Checkout.here())
        cases = found.suite(suite if suite in found.suites else "official")
        ranks = (ranks or (RANKS if device == "cpu" else min(RANKS, gpus().count))) if found.multi_gpu else 1
        few = cases.benchmarks[:benchmarks]
        cases = dataclasses.replace(cases, benchmarks=few, drawn=drawn, benchmark_s=benchmark_s)
        cases = dataclasses.replace(
            found.with_world_size(cases, ranks),
            test_timeout_s=timeout_s,
            benchmark_timeout_s=timeout_s,
            ranked_timeout_s=timeout_s,
        )
        plan = make_plan(
            ordered(found, cases, submission_of(source), mode, device, ranks, opponent=opponent, launches=launches)
        )
        plan = dataclasses.replace(plan, has_controls=plan.has_controls or controls)
        if burst:  # as on GPUs, but for the device's clock
            budget = dataclasses.replace(plan.budget, burst=True)
            plan = dataclasses.replace(plan, budget=budget, clocks=("wall", "gpumode"))
        # Other tests keep a core busy whenever peaks are measured: they would be measured again and again.
        with mock.patch.object(op_peaks, "known", functools.partial(known_to_the_busy, op_peaks.known)):
            return evaluate(plan, Progress())

    return run


def known_to_the_busy(known: Callable[..., Peaks | None], plan: OpPlan, model: str, _: float) -> Peaks | None:
    """The peaks that are kept, as where other work is too much for a measurement."""
    return known(plan, model, math.inf)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`@pytest.mark.gpu` needs a GPU, `@pytest.mark.gpu(2)` two."""
    count = gpus().count
    for item in items:
        if marker := item.get_closest_marker("gpu"):
            needed = marker.args[0] if marker.args else 1
            if count < needed:
                item.add_marker(pytest.mark.skip(reason=f"needs {count_text(needed, 'GPU')}, there are {count}"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """pytest-xdist's groups, and what is done of them forgotten: it counts all that a process was ever given whenever a
    test ends, which of thousands of tests takes as long as running the short ones."""
    from xdist.scheduler import LoadGroupScheduling

    class Forgetting(LoadGroupScheduling):
        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            super().mark_test_complete(node, item_index, duration)
            group = self._split_scope(self.registered_collections[node][item_index])
            if all(self.assigned_work[node][group].values()):
                del self.assigned_work[node][group]

    return Forgetting(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_collection_finish() -> None:
    """What was imported by now stays: a collection of garbage need not look at it each time."""
    gc.enable()
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # else extensions tell at the end that their objects were never freed


def copy_checkout(folder: Path) -> Path:
    """The checkout, without its leaderboard and runs. With its bytecode, which is most of what starting it costs.

    The 800 files of harness/ are links to one copy: a test that changes one writes a new file in its place.
    """
    for part in ("reference", "shapes", "submissions"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(HARNESS_FILES, folder / "harness", copy_function=os.link)
    copy_peaks(folder)
    return folder


def copy_peaks(folder: Path) -> None:
    """What is kept of this machine, so that a copy of the checkout need not measure it again, which takes seconds."""
    if (ROOT / ".cache").is_dir():
        shutil.copytree(ROOT / ".cache", folder / ".cache", ignore=shutil.ignore_patterns("compiled"))
        today = time.strftime("%Y-%m-%d", time.gmtime())
        for file in (folder / ".cache").glob("peaks-*.json"):
            quiet = {"load": 0.0, "last": today, "quiet": [today] * peaks_cache.QUIET_DAYS}
            file.write_text(json.dumps(json.loads(file.read_text()) | quiet))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout, without its leaderboard and runs, to run the command line in."""
    return copy_checkout(tmp_path / "checkout")


@pytest.fixture
def harness(checkout: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """harness("eval", "a2a", ...) runs `python -m harness` in the checkout's copy."""

    def run(*arguments: str, timeout_s: float = 600) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, "harness", *arguments]
        environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100"}
        return subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    return run
