"""Problem folders by their own evaluator, as `--eval theirs` asks for: what is planned. No folder is of this kind by
itself. session.py runs the evaluator as KernelBot does, programs.py builds it, evaluator_run.py reads what it tells."""

from dataclasses import replace

from harness.core.errors import UsageError
from harness.core.records import Warning
from harness.gpumode.folder import TaskProblem
from harness.kinds.external.programs import LANGUAGES
from harness.kinds.external.session import ExternalPlan, ExternalSession
from harness.kinds.kind import Kind, Order, Plan
from harness.kinds.phases import conditions, planned


class ExternalKind(Kind):
    """Asked for by `--eval theirs`."""

    session_type = ExternalSession

    def plan(self, order: Order) -> Plan:
        """The runs of eval.py that make up the mode. Raises UsageError for a problem without an eval.py."""
        setting = order.setting
        problem = setting.problem
        if not isinstance(problem, TaskProblem):
            raise UsageError(f"--eval theirs: {problem.name} is no problem folder with an eval.py; leave it out")
        LANGUAGES[problem.lang].check(problem, setting.is_cpu_asked)
        cuda_is_cpu, notes = conditions(setting, order.submission)
        task = problem.task
        # Where the last shape ranks, KernelBot runs no other.
        kept = 1 if task.ranking_by == "last" else len(task.benchmarks)
        suite = replace(setting.suite, benchmarks=setting.suite.benchmarks[-kept:])
        seed = task.seed if setting.evaluator_seed is None else setting.evaluator_seed
        return planned(
            ExternalPlan,
            order,
            kind="external",
            suite=problem.with_world_size(suite, setting.world_size),
            checker="theirs",
            secret=seed or 0,
            opponent=None,
            confined=False,
            nodes=1,
            notes=(Warning(code="theirs"), *notes),
            evaluator_seed=seed,
            cuda_is_cpu=cuda_is_cpu,
        )
