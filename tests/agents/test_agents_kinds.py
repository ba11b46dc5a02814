"""Every kind of problem has a pool: ranks are kept where that is known to be safe, and else each session is alone."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from factories import ordered, report
from replaying import replay_of

from harness.agents.guide import agents_text, instruction
from harness.core.checkout import Checkout
from harness.core.errors import UsageError
from harness.evaluation.evaluate import evaluate
from harness.kinds.kind import Kind, Order, Plan, Progress, Session
from harness.kinds.op.plan import make_plan
from harness.kinds.op.pool import OpPool
from harness.kinds.registry import KINDS, find, plan_of, pool_of, read_submission
from harness.kinds.settings import Asked, setting
from harness.problems.shape_file import problem_names

HERE = Checkout.here()


@pytest.mark.parametrize("name", problem_names(HERE))
def test_every_problem_has_a_pool_and_an_instruction(name: str) -> None:
    made = setting(Asked(problem=name, device="cpu"), HERE)
    with pool_of(made) as pool:  # nothing was started
        assert isinstance(pool, OpPool if made.problem.kind in ("op", "folder") else Kind)
    told = instruction(made.problem, "/app/submission.py")
    assert made.problem.name in told
    assert "/app/submission.py" in told
    assert all(case.label in told for case in made.problem.suite("official").benchmarks)
    assert f"check {name} my.py" in agents_text(made.problem, name, "my.py")


@pytest.mark.parametrize("name", problem_names(HERE))
def test_an_agent_is_told_no_command_that_the_problem_refuses(name: str) -> None:
    made = setting(Asked(problem=name, device="cpu", suite="quick"), HERE)
    asked = Order(setting=made, submission=read_submission(made.problem, None, HERE), mode="profile", author="me")
    try:
        has_profile = bool(plan_of(asked).phases)
    except UsageError:
        has_profile = False
    told = agents_text(made.problem, name, "my.py")
    assert ("--mode profile" in told) == has_profile
    assert (f"roofline {name}" in told) == (made.problem.cost_of is not None)
    assert "\n\nExit codes" in told


def test_a_kind_that_keeps_nothing_is_its_own_pool() -> None:
    plan = replay_of(report(), find("gemm_rs", HERE))
    found = [evaluate(plan, Progress(), KINDS[plan.kind]) for _ in range(2)]
    assert [one.results for one in found] == [report().results] * 2


def test_an_evaluation_is_carried_out_on_the_pool_that_it_is_given() -> None:
    plan, opened = replay_of(report(), find("gemm_rs", HERE)), []

    class Counting:
        @contextlib.contextmanager
        def session(self, plan: Plan, progress: Progress) -> Iterator[Session]:
            opened.append(plan)
            with KINDS[plan.kind].session(plan, progress) as session:
                yield session

    evaluate(plan, Progress(), Counting())
    assert opened == [plan]


def test_what_runs_on_several_nodes_has_no_pool() -> None:
    made = setting(Asked(problem="a2a", device="cpu", ranks=2, suite="quick"), HERE)
    submission = read_submission(made.problem, None, HERE)
    plan = make_plan(ordered(made.problem, made.suite, submission, "test", "cpu", 2))
    with (
        OpPool() as pool,
        pytest.raises(UsageError, match="one machine"),
        pool.session(replace(plan, nodes=2), Progress()),
    ):
        pass
