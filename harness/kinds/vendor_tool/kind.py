"""A profile by a vendor's tool: each rank's process runs under the tool, which says what each kernel of a call did.

A tool does not work inside the sandbox, and it changes how kernels run. So such a run is neither confined nor timed,
and no trusted process judges it (harness/kinds/vendor_tool/rank.py).
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from harness.core.checkout import ROOT
from harness.core.errors import HarnessError, UsageError
from harness.core.files import write_files
from harness.core.json_file import file_if_any, line_of
from harness.core.records import (
    Case,
    Crashed,
    Failure,
    KernelFigures,
    OpTime,
    Profile,
    Raised,
    RankProfile,
    TimedOut,
    Warning,
    Wrong,
)
from harness.core.words import TAIL_CHARS
from harness.kinds import staging
from harness.kinds.kind import Kind, Order, Plan, Progress, SubmissionFailed
from harness.kinds.phases import planned
from harness.process import profilers
from harness.process.child import Ended, end_text, run_child
from harness.process.profiler_tool import Tool
from harness.process.profilers import TOOLS, ProfilerJob, Said
from harness.ranks.launch import free_port

MAX_FILE_BYTES = 256 << 20  # of a report file that is kept
WORK, REPORT = "work", "report"  # of a rank's folder: where it works, and where the tool leaves its report


@dataclass(frozen=True, kw_only=True)
class VendorPlan(Plan):
    """`program` is where the tool lies. It profiles the first `launch_count` launches of a call, or all."""

    program: str


class VendorSession(staging.StagedSession):
    """The profiled processes, new ones for each case."""

    plan: VendorPlan

    def __init__(self, plan: VendorPlan, progress: Progress) -> None:
        super().__init__(plan, progress)
        self.tool: Tool = TOOLS[plan.tool]
        self.cases = 0
        self.found = Profile(ranks=(), trace_json="")

    def check(self, case: Case) -> None:
        """Profiles the case on all ranks at once."""
        top = self.folder / str(self.cases)
        self.cases += 1
        runs, ended = self._run_all(case, top)
        for rank, one in enumerate(ended):
            self.logs[_log_name(self.cases - 1, rank)] = one.stdout + one.stderr
        for rank, (run, one) in enumerate(zip(runs, ended, strict=True)):
            if (failure := self._failure(rank, run, one)) is not None:
                raise SubmissionFailed(failure)
        self.found = self._profile(runs)
        profiled = max(sum(one.calls for one in self.found.kernels if one.rank == rank) for rank, _ in enumerate(runs))
        if self.plan.launch_count is not None and profiled >= self.plan.launch_count:
            self._warn(case, profiled, self._launches(case, top / "counted"))

    def profile(self, case: Case) -> Profile:
        return self.found

    def logs_of(self, case: Case) -> tuple[str, ...]:
        number = [case for phase in self.plan.phases for case in phase.cases].index(case)
        return tuple(_log_name(number, rank) for rank in range(self.plan.world_size))

    def _warn(self, case: Case, profiled: int, launches: int) -> None:
        """A warning that the tool left launches out; `launches` are the call's, 0 where they could not be counted."""
        if launches == profiled:
            return
        known: dict[str, str | int | float] = {"case": case.label, "tool": self.tool.program, "profiled": profiled}
        if launches < profiled:
            self.notes.append(Warning(code="launches_uncounted", values=known))
        else:
            self.notes.append(Warning(code="launches", values=known | {"left_out": launches - profiled}))

    def _launches(self, case: Case, top: Path) -> int:
        """How many kernels a call of the case launches, by a run without the tool; 0 where that does not say."""
        (run, *_), (ended, *_) = self._run_all(case, top, counts=True)
        said = None if ended.code else file_if_any(Said, run / WORK / profilers.RESULT)
        return said.launches if said else 0

    def _run_all(self, case: Case, top: Path, counts: bool = False) -> tuple[list[Path], list[Ended]]:
        """Runs the case on all ranks at once, each under the tool, or without it to count launches."""
        port = free_port()
        runs = [self._stage(case, rank, top, port, counts) for rank in range(self.plan.world_size)]
        inner = [sys.executable, "-P", "-m", "harness.kinds.vendor_tool.rank", profilers.JOB]
        plan, limit_s = self.plan, self.plan.suite.benchmark_timeout_s
        environ = staging.environ_of(self.cache) | {"PYTHONPATH": str(ROOT)}

        def ended(run: Path) -> Ended:
            under = self.tool.command(plan.program, run / REPORT, inner, plan.launch_count)
            return run_child(inner if counts else under, run / WORK, environ, limit_s)

        with ThreadPoolExecutor(len(runs)) as pool:
            return runs, list(pool.map(ended, runs))

    def _stage(self, case: Case, rank: int, top: Path, port: int, counts: bool) -> Path:
        plan, run = self.plan, top / str(rank)
        (run / REPORT).mkdir(parents=True)
        write_files(run / WORK, staging.files_of(plan.problem, plan.submission))
        job = ProfilerJob(
            rank=rank,
            world_size=plan.world_size,
            device=plan.device,
            sets_device=plan.checker == "strict",
            params=case.params,
            seed=case.seed,
            meeting=str(top / "meeting"),
            port=port,
            starts=self.tool.starts,
            counts=counts,
        )
        (run / WORK / profilers.JOB).write_text(line_of(job))
        return run

    def _failure(self, rank: int, run: Path, ended: Ended) -> Failure | None:
        """The submission's failure in a rank's process. Raises HarnessError for the tool's or the machine's."""
        plan, printed = self.plan, ended.stdout + ended.stderr
        if ended.code is None:
            limit_s = plan.suite.benchmark_timeout_s
            shorter = f", --launch-count N below {plan.launch_count} profiles less" if plan.launch_count else ""
            return TimedOut(
                message=f"rank {rank} timed out after {limit_s:g} s; under {plan.tool} calls take much longer: "
                f"--timeout S waits longer{shorter}",
                stacks=(),
            )
        said = file_if_any(Said, run / WORK / profilers.RESULT)
        if said is None:
            self._complain(printed)
            message = f"under {plan.tool} the process {end_text(ended.code)}"
            return Crashed(rank=rank, message=message, log_tail=printed[-TAIL_CHARS:])
        if said.raised:
            return Raised(rank=rank, message=said.raised, traceback=said.traceback)
        if said.wrong:
            return Wrong(message=f"rank {rank}: {said.wrong}")
        self._complain(printed)
        return None

    def _complain(self, printed: str) -> None:
        if (text := profilers.complaint(self.tool, printed)) is not None:
            raise HarnessError(f"{self.tool.program} did not profile: {text}")

    def _profile(self, runs: list[Path]) -> Profile:
        kernels: list[KernelFigures] = []
        files: dict[str, bytes] = {}
        ranks = []
        for rank, run in enumerate(runs):
            own = profilers.kernel_figures(rank, self.tool.dispatches(self.plan.program, run / REPORT))
            if not own:
                raise HarnessError(f"{self.tool.program} saw no kernel in the call of rank {rank}")
            total_us = sum(one.time_us for one in own) or 1.0
            ops = (OpTime(name=k.name, calls=k.calls, self_us=k.time_us, share=k.time_us / total_us) for k in own)
            ranks.append(RankProfile(rank=rank, call_us=total_us, of="device", top=tuple(ops)))
            kernels += own
            for path in sorted((run / REPORT).rglob("*")):
                if path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
                    files[f"rank-{rank}-{path.name}"] = path.read_bytes()
        return Profile(ranks=tuple(ranks), trace_json="", tool=self.tool.program, kernels=tuple(kernels), files=files)


class VendorKind(Kind):
    """Asked for by `--tool`; no folder is of this kind by itself."""

    session_type = VendorSession
    takes_tools = True

    def plan(self, order: Order) -> Plan:
        """One call of each benchmark shape. Raises UsageError where the tool is not here, or cannot profile this."""
        setting = order.setting
        name, problem, device = setting.tool, setting.problem, setting.device
        tool = TOOLS[name]
        if setting.evaluator == "theirs":
            why = problem.only_theirs or "leave --eval theirs out"
            raise UsageError(f"--tool {name} profiles calls by our own process, not a folder's own evaluator: {why}")
        problem.check_runnable()
        program = profilers.find(tool)
        if program is None:
            raise UsageError(
                f"--tool {name}: there is no {tool.program} here (looked in PATH, {', '.join(tool.places)}); install "
                "it, or leave --tool out for torch's profiler"
            )
        if device not in tool.devices:
            raise UsageError(
                f"--tool {name} profiles {' and '.join(tool.devices)} devices, and this would run on {device}; leave "
                "--tool out for torch's profiler"
            )
        if tool.most_ranks is not None and setting.world_size > tool.most_ranks:
            raise UsageError(
                f"--tool {name} runs one kernel at a time, so kernels that wait for other ranks would hang: it "
                f"profiles {tool.most_ranks} rank, not {setting.world_size} (--ranks 1, or leave --tool out)"
            )
        if setting.launch_count is not None and tool.launch_count is None:
            raise UsageError(f"--launch-count: --tool {name} runs no kernel twice and profiles all; leave it out")
        if setting.launch_count is not None and setting.launch_count < 1:
            raise UsageError(f"--launch-count {setting.launch_count}: 1 or more kernel launches can be profiled")
        return planned(
            VendorPlan,
            order,
            kind="vendor",
            secret=0,
            opponent=None,
            confined=False,
            nodes=1,
            notes=(*setting.notes, Warning(code="vendor", values={"tool": tool.program})),
            program=program,
            launch_count=setting.launch_count or tool.launch_count,
        )


def _log_name(number: int, rank: int) -> str:
    return f"profile {number} rank {rank}"
