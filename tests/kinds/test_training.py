"""Problems whose submissions train: runs, what they may not do, the score, and what trusted ranks make of weights."""

import copy
import dataclasses
import functools
import importlib
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from factories import outcome_of
from replaying import replay_of
from rich.console import Console
from waiting import in_time

from harness.board import report_json
from harness.board.entries import Board
from harness.board.judgements import entry_of, with_judged
from harness.core import mllog
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import BadFileError, BadSubmissionError, UsageError
from harness.core.records import EvalReport, Held, Measured, Submission, TimedOut, Verdict, Verdicts, Wrong
from harness.evaluation import compare
from harness.evaluation.evaluate import evaluate
from harness.judging import verdict
from harness.judging.scoring import SCORINGS
from harness.kinds.kind import OpponentFailed, Order, Progress, SubmissionFailed
from harness.kinds.registry import kind_of, read_submission
from harness.kinds.settings import Asked, setting
from harness.kinds.train import rank as quality_trusted
from harness.kinds.train import rank_run as training
from harness.kinds.train import rules as train_rules
from harness.kinds.train.data import with_text
from harness.kinds.train.kind import TrainPlan, TrainSession
from harness.kinds.train.run import Evaluation, Runs, TrainingRun, idle_period, mllog_text
from harness.problems.problem import Problem
from harness.problems.shape_file import find
from harness.problems.token_files import read_folder
from harness.ranks import payload, wire
from harness.ranks.group import CallOrder
from harness.report import board_view, history, page_data
from harness.report.evaluation import document_of
from harness.report.render import terminal
from harness.report.summary import OnBoard

CHECKOUT = Checkout(ROOT)
PROBLEMS = ["llama_pretrain", "llama_lora"]
STAGED = ("reference", "model", "corpus", "train", "task", "params")
CASE = {"size": "tiny", "target": 20.0, "runs": 3, "samples": 1024, "every": 128}
SMALL = {"vocabulary": 32, "hidden": 16, "layers": 1, "heads": 2, "kv_heads": 1, "ffn": 24, "sequence": 16}


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """A problem's reference with a model that trains in no time; its folders are on sys.path meanwhile."""

    def stage(name: str = "llama_pretrain") -> ModuleType:
        for folder in ("llama_pretrain", name):
            monkeypatch.syspath_prepend(str(ROOT / "reference" / folder))
        model = importlib.import_module("model")
        monkeypatch.setitem(model.SIZES, "tiny", model.Size(**SMALL))
        return importlib.import_module("reference")

    for name in STAGED:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield stage
    for name in STAGED:
        sys.modules.pop(name, None)


class OneRank:
    """What Runs need of op_calls.Calls: one candidate rank, which is this process, and a trusted one."""

    has_files = True

    def __init__(self, kernel: Callable[[Any], Any], reference: ModuleType, params: dict[str, Any]) -> None:
        self.kernel, self.reference, self.params = kernel, reference, params
        self.candidate = SimpleNamespace()

    def make(self, case: Any, inputs: list[wire.InputSpec]) -> None:
        [spec] = inputs
        hidden = {"hidden_seed": spec.hidden_seed}
        whole = self.reference.generate_input(**self.params, rank=0, world_size=1, seed=spec.seed, **hidden)
        self.held_out = self.reference.held_out(**self.params, **hidden)
        every = self.params["every"]
        self.given = {"tokens": whole["tokens"][every * spec.period :][:every]}
        if not spec.period:
            self.run = self.given = whole | self.given
            self.before = whole["start"]

    def load(self, group: Any, indices: list[int]) -> None: ...
    def take(self, group: Any, called: Any) -> None: ...
    def rest(self, group: Any) -> None: ...
    def stop(self, group: Any) -> None: ...
    def regain(self, group: Any) -> None: ...

    def blamed(self, group: Any, case: Any, failure: Wrong | Held) -> SubmissionFailed:
        return SubmissionFailed(failure)

    def call(self, group: Any, order: CallOrder) -> list[Any]:
        self.output = self.kernel(self.given)
        weights = self.output["weights"]
        self.weights = {name: copy.deepcopy(value) for name, value in weights.items()}
        nowhere: Any = SimpleNamespace(write=lambda *_: None, place=lambda _: None)
        return [[SimpleNamespace(output=payload.write_output(nowhere, 0, self.output, 1 << 30))]]

    def judge(self, index: int) -> list[list[wire.Verified]]:
        expected = self.reference.expected(self.run)
        wrong = quality_trusted.unlike(self.weights, expected)
        quality, is_unchanged = None, False
        if not wrong:
            inputs, targets = self.held_out[:, :-1].long(), self.held_out[:, 1:].long()
            with torch.no_grad():
                loss = self.reference.summed_loss(self.run, self.weights, inputs, targets)
            quality = self.reference.quality(loss.item() / targets.numel()) if loss.isfinite() else None
            is_unchanged = all(torch.equal(self.weights[name], self.before[name]) for name in expected)
            self.before = self.weights
        found = Verdict(passed=not wrong, message=wrong)
        return [
            [wire.Verified(verdicts=Verdicts(strict=found, gpumode=found), quality=quality, is_unchanged=is_unchanged)]
        ]


@pytest.fixture
def runs(staged: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Runs]:
    """Runs of a train.py in this process, which is its only rank."""
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: None)

    def make(source: str, name: str = "llama_pretrain", **changes: Any) -> Runs:
        reference = staged(name)
        (tmp_path / "train.py").write_text(source)
        (tmp_path / "hyperparameters.json").write_text(
            json.dumps({"batch_size": 32, "learning_rate": 0.02, "warmup_samples": 64})
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        kernel = training.kernel("hyperparameters.json")
        params = CASE | changes
        case: Any = SimpleNamespace(params=params)
        return Runs(OneRank(kernel, reference, params), case)  # type: ignore[arg-type]

    return make


def one_run(runs: Runs, seed: int = 1) -> TrainingRun | Wrong | Held:
    runs.make(seed, f"hidden {seed}")
    return outcome_of(runs.run, "candidate")


def reference_text(name: str = "llama_pretrain") -> str:
    return (ROOT / "reference" / name / "train.py").read_text()


LOOP = """
def train(config, data, seed, target, log):
    weights = dict(config["start"])
    for done in range(32, config["samples"] + 1, 32):
        data.batch(32)
        weights["embedding"] = weights["embedding"] * 1.001
        {each}
        if done % {every} == 0:
            log.evaluate(weights, done)
    return weights
"""


# ---- runs ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("name", "target"), [("llama_pretrain", 20.0), ("llama_lora", 2.65)])
def test_a_run_ends_at_the_first_evaluation_that_reaches_the_target(runs: Any, name: str, target: float) -> None:
    found = one_run(runs(reference_text(name), name, target=target))
    assert isinstance(found, TrainingRun), found
    assert found.has_converged
    qualities = [one.quality for one in found.evaluations]
    assert qualities[-1] <= target < min(qualities[:-1])
    assert [one.samples for one in found.evaluations] == [128 * (at + 1) for at in range(len(qualities))]
    times = [one.seconds for one in found.evaluations]
    assert times[0] > 0
    assert times == sorted(times)


def test_the_clock_stands_while_weights_are_evaluated(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = runs(LOOP.format(each="pass", every=128))
    judge = made.calls.judge
    monkeypatch.setattr(made.calls, "judge", lambda index: (time.sleep(0.05), judge(index))[1])
    began = time.monotonic()
    found = one_run(made)
    took_s = time.monotonic() - began
    assert isinstance(found, TrainingRun)
    assert 8 * 0.05 <= found.evaluation_s <= took_s - found.seconds


def test_on_gpus_ranks_keep_their_input_until_a_run_is_over(runs: Any) -> None:
    """A group that rests gives back what it has on its device, its input too. Each period's data is loaded anew."""
    made = runs(LOOP.format(each="pass", every=128))
    made.calls.has_files = False
    events: list[str] = []
    made.calls.load = lambda group, indices: events.append("load")
    made.calls.rest = lambda group: events.append("rest")
    made.calls.regain = lambda group: events.append("regain")
    found = one_run(made)
    assert isinstance(found, TrainingRun)
    assert (len(found.evaluations), events) == (8, ["regain", *["load"] * 8, "rest"])


def test_runs_on_the_same_seed_get_the_same_and_others_get_others(staged: Any) -> None:
    reference = staged()
    first, same, other = (
        reference.generate_input(**CASE, rank=rank, world_size=2, seed=5, hidden_seed=hidden)
        for rank, hidden in ((0, "a"), (1, "a"), (0, "b"))
    )
    assert torch.equal(first["tokens"], same["tokens"])
    assert not torch.equal(first["tokens"], other["tokens"])


def test_no_sequence_that_weights_are_evaluated_on_is_handed_out(staged: Any) -> None:
    reference = staged()
    given = reference.generate_input(**CASE, rank=0, world_size=1, seed=3, hidden_seed="a")
    handed = {tuple(row) for row in given["tokens"].tolist()}
    held_out = {tuple(row) for row in reference.held_out(**CASE, hidden_seed="a").tolist()}
    assert not handed & held_out
    assert {name for name, value in given.items() if isinstance(value, torch.Tensor)} == {"tokens"}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def train(config, data, seed, target, log): return config['start']", "returned early: "),
        (LOOP.format(each="pass", every=128), "used all its data: "),
        (LOOP.format(each="weights['norm'] = weights['norm'] * float('nan')", every=128), "diverged: the loss on"),
        (LOOP.replace("range(32,", "range(32, 8 *").format(each="pass", every=128), "used all its data"),
    ],
)
def test_how_a_run_ended_that_did_not_converge(runs: Any, source: str, words: str) -> None:
    found = one_run(runs(source))
    assert isinstance(found, TrainingRun), found
    assert not found.has_converged
    assert words in found.ending


def test_a_run_that_returns_within_a_period_has_not_reached_the_target(runs: Any) -> None:
    """Else whoever guesses its own quality would end sooner than who has it evaluated."""
    found = one_run(runs("def train(config, data, seed, target, log): return config['start']", target=1e6))
    assert isinstance(found, TrainingRun)
    assert found.ending.startswith("returned early: ")


@pytest.mark.parametrize("loading_s", [-1.7e308, 1e308])
def test_a_claim_of_loading_that_no_run_can_have_is_wrong(runs: Any, loading_s: float) -> None:
    found = one_run(runs(LOOP.format(each=f"data._counts.loading_s = {loading_s}", every=128)))
    assert isinstance(found, Wrong), found
    assert "cannot be read: $.loading_s: expected seconds" in found.message


def test_the_clock_runs_until_a_group_has_stopped_and_from_when_it_goes_on(runs: Any, monkeypatch: Any) -> None:
    """What is owed of a period could be trained on then."""
    made = runs(LOOP.format(each="pass", every=128))
    call = made.calls.call
    monkeypatch.setattr(made.calls, "call", lambda *given: (time.sleep(0.02), call(*given), time.sleep(0.01))[1])
    monkeypatch.setattr(made.calls, "stop", lambda group: time.sleep(0.02))
    found = one_run(made)
    assert isinstance(found, TrainingRun)
    assert found.seconds > 8 * 0.05


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (LOOP.format(each="pass", every=64), "an evaluation after 64 sequences; the next is due after 128"),
        (LOOP.format(each="weights['layers.0.q'] = weights['norm']", every=128), "layers.0.q is torch.float32 [16]"),
        (LOOP.format(each="weights['more'] = weights['norm']", every=128), "the model has no more"),
        (LOOP.format(each="weights.pop('norm', None)", every=128), "the model has norm, which is missing"),
        (LOOP.format(each="weights['norm'] = weights['norm'].double()", every=128), "norm is torch.float64 [16]"),
        (LOOP.format(each="weights['norm'] = 1.0", every=128), "norm is no tensor"),
    ],
)
def test_a_run_that_breaks_a_rule_is_wrong_and_says_which(runs: Any, source: str, words: str) -> None:
    found = one_run(runs(source))
    assert isinstance(found, Wrong), found
    assert words in found.message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def train(config, data, seed, target, log): raise ValueError('no')", "no"),
        ("def train(config, data, seed, target, log): return 3", "train returned a int; it must return the weights"),
        ("def train(config, data, seed, target, log): data.batch(0)", r"data.batch\(0\): a multiple of"),
        ("def train(config, data, seed, target, log): data.batch(16)", "HYPERPARAMETERS say that batch_size is 32"),
        (
            LOOP.format(each="data.batch(32)", every=128),
            r"log.evaluate\(weights, 128\) is due, and the sequences behind it",
        ),
        ("def train(config): pass", r"train\(config\) cannot be called as train\(config, data, seed, target, log\)"),
        ("class train: pass", "train is a class"),
        ("x = 1", "the submission defines no train"),
    ],
)
def test_what_train_raises_is_raised(runs: Any, source: str, words: str) -> None:
    with pytest.raises((ValueError, TypeError, AttributeError), match=words):
        one_run(runs(source))


def test_a_run_that_is_over_leaves_train_and_one_that_stays_is_named(runs: Any, monkeypatch: Any) -> None:
    left = "import builtins\nbuiltins.left = []\n" + LOOP.format(each="pass", every=128)
    left = left.replace(
        "log.evaluate(weights, done)", "try: log.evaluate(weights, done)\n            except BaseException: stay"
    )
    made = runs(left.replace("stay", "builtins.left.append(done); raise"), target=1e6)
    assert [isinstance(one_run(made, seed), TrainingRun) for seed in (1, 2)] == [True, True]
    import builtins

    assert builtins.left == [128]  # type: ignore[attr-defined]
    sys.modules.pop("train")
    monkeypatch.setattr(training, "STOP_S", 0.2)
    stays = runs(left.replace("stay", "__import__('time').sleep(3)"), target=1e6)
    one_run(stays, 1)
    with pytest.raises(RuntimeError, match=r"train had not ended 0.2 s after its run was over"):
        one_run(stays, 2)


def test_loading_is_counted(runs: Any) -> None:
    slow = "with log.loading(): __import__('time').sleep(0.02)"
    found = one_run(runs(LOOP.format(each=slow, every=128), target=1e6))
    assert isinstance(found, TrainingRun)
    assert 4 * 0.02 <= found.loading_s <= found.seconds


def test_mlperfs_lines_have_the_runs_own_clock() -> None:
    evaluations = (
        Evaluation(samples=128, seconds=1.5, quality=30.0),
        Evaluation(samples=256, seconds=2.75, quality=None),
    )
    run = TrainingRun(seed=7, evaluations=evaluations, loading_s=0.0, evaluation_s=9.0, ending="diverged")
    events = mllog.parse(mllog_text(run, "llama_pretrain", 64, lambda: 1000))
    by_key = {event.key: event for event in events}
    assert by_key["run_stop"].time_ms - by_key["run_start"].time_ms == 2750
    assert by_key["run_stop"].metadata["status"] == "aborted"
    assert by_key["seed"].value == 7
    assert [event.metadata["samples_count"] for event in events if event.key == "eval_accuracy"] == [128, 256]


# ---- the score -------------------------------------------------------------------------------------------------------
def session_of(name: str = "llama_pretrain", convergence: tuple[int, ...] = ()) -> TrainSession:
    made = setting(Asked(problem=name, suite="quick"), CHECKOUT)
    submission = read_submission(made.problem, None, CHECKOUT)
    plan = kind_of(made).plan(Order(setting=made, submission=submission, mode="leaderboard", author="me"))
    assert isinstance(plan, TrainPlan)
    case = plan.suite.benchmarks[0]
    known = train_rules.Convergence(
        size="tiny", target=float(case.params["target"]), batch_size=64, samples=convergence or (1024, 1280)
    )
    rules = dataclasses.replace(plan.rules, convergence=(known,))
    return TrainSession(dataclasses.replace(plan, rules=rules), Progress())


def test_a_submission_is_staged_under_the_name_that_tracebacks_tell_it_by() -> None:
    session = session_of()
    source = session.plan.submission.source.encode()
    assert session.files("candidate")["submission.py"] == session.files("candidate")["train.py"] == source
    assert session.files("baseline")["train.py"] != source


def run_of(seconds: float, samples: int = 1024, ending: str = "") -> TrainingRun:
    last = Evaluation(samples=samples, seconds=seconds, quality=1.0)
    return TrainingRun(seed=1, evaluations=(last,), loading_s=0.0, evaluation_s=0.0, ending=ending)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ([(3.0, 0.4)] * 3, ""),  # whoever prepares something at the start of each run
        ([(0.4, 0.4), (1.9, 0.4), (0.5, 0.4)], ""),  # a busy machine
        ([(0.1, 0.1)] * 3, ""),  # whoever is fast
        ([(0.01, 0.5)] * 3, "in run 1 the period to 256 sequences took 0.010 s, where one takes 0.255 s"),
        ([(0.5, 0.5), (0.5, 0.05)], "in run 2 the period to 512 sequences took 0.050 s"),
    ],
)
def test_a_period_that_is_too_short_is_found(own: list[tuple[float, ...]], words: str) -> None:
    def run(spans: tuple[float, ...]) -> TrainingRun:
        evaluations = tuple(Evaluation(samples=256 * (at + 1), seconds=1.0, quality=9.0) for at in range(len(spans)))
        return TrainingRun(seed=1, evaluations=evaluations, loading_s=0, evaluation_s=0, ending="", periods_s=spans)

    found = idle_period(list(map(run, own)), [run((0.6, 0.6))])
    assert words in found
    assert bool(words) == bool(found)


def test_a_run_that_hands_over_the_same_weights_again_is_held(runs: Any) -> None:
    found = one_run(runs("def train(config, data, seed, target, log):\n    log.evaluate(config['start'], 128)"))
    assert isinstance(found, Held)
    assert (found.check, "after 128 sequences a run had the weights of 0" in found.evidence) == ("training", True)


def judged(own: list[TrainingRun], convergence: tuple[int, ...] = ()) -> Any:
    session = session_of(convergence=convergence)
    case = session.plan.suite.benchmarks[0]
    return outcome_of(session._judged, case, {"candidate": own, "baseline": [run_of(9.0)] * len(own)})


def test_one_run_that_does_not_converge_is_the_slowest_and_two_have_no_score() -> None:
    failed = run_of(0.5, ending="returned early: 99")
    measured = judged([run_of(2.0), failed, run_of(4.0), run_of(3.0), run_of(1.0)])
    assert isinstance(measured, Measured)
    assert measured.ranked.own == (2.0, 4.0, 4.0, 3.0, 1.0)
    assert SCORINGS["olympic"].case(measured) == pytest.approx(3.0)
    wrong = judged([run_of(2.0), failed, failed, run_of(3.0), run_of(1.0)])
    assert isinstance(wrong, Wrong)
    assert "2 of 5 runs did not converge; the last returned early: 99" in wrong.message


def test_head_to_head_an_opponent_is_judged_as_the_submission_is() -> None:
    """Runs that return early count as the slowest, and are short: of an opponent nobody would look at, all could."""
    session = session_of(convergence=(1024, 1280, 1024))
    case = session.plan.suite.benchmarks[0]
    session.plan = dataclasses.replace(session.plan, opponent=session.plan.submission)
    right, early = [run_of(9.0)] * 3, [run_of(0.1, ending="returned early: 99")] * 3
    fewer = [run_of(1.0, samples) for samples in (512, 512, 256)]
    for bad, words in ((early, "3 of 3 runs did not converge"), (fewer, "needed 427 sequences on average")):
        with pytest.raises(OpponentFailed, match=words):
            session._judged(case, {"candidate": right, "baseline": bad})
        with pytest.raises(SubmissionFailed, match=words):
            session._judged(case, {"candidate": bad, "baseline": right})
    assert isinstance(outcome_of(session._judged, case, {"candidate": right, "baseline": right}), Measured)


def test_who_begins_head_to_head_is_drawn_and_changes_from_run_to_run() -> None:
    """A file could tell its role from how long it was stopped between two runs."""
    session = session_of()
    session.calls = SimpleNamespace(at=0)  # type: ignore[assignment]
    assert [session._in_turn(number)[0] for number in range(4)] == ["candidate", "baseline"] * 2
    session.plan = dataclasses.replace(session.plan, opponent=session.plan.submission)
    begun = set()
    for secret in range(32):
        session.plan = dataclasses.replace(session.plan, secret=secret)
        begun.add(tuple(session._in_turn(number)[0] for number in range(3)))
    assert begun == {("candidate", "baseline", "candidate"), ("baseline", "candidate", "baseline")}


def test_convergence_that_chance_does_not_explain_is_held() -> None:
    reference = (1024, 1280, 1024, 1280, 1024, 1280)
    assert isinstance(judged([run_of(1.0, samples) for samples in (1024, 1024, 1280)], reference), Measured)
    held = judged([run_of(1.0, samples) for samples in (512, 512, 256)], reference)
    assert isinstance(held, Held)
    assert "3 runs needed 427 sequences on average to the target, 6 runs of the reference 1152" in held.evidence


def test_without_known_runs_those_of_the_same_evaluation_count() -> None:
    session = session_of()
    case = session.plan.suite.benchmarks[0]
    other = dataclasses.replace(case, params=case.params | {"target": 55.0})
    own, reference = [[run_of(1.0, samples) for samples in runs] for runs in ((512, 512, 256), (1024, 1280, 1024))]
    held = outcome_of(session._judged, other, {"candidate": own, "baseline": reference})
    assert isinstance(held, Held)
    assert "3 runs of the reference 1109" in held.evidence
    session.plan.hyperparameters["candidate"] = session.plan.hyperparameters["candidate"] | {"batch_size": 128}
    assert isinstance(outcome_of(session._judged, other, {"candidate": own, "baseline": reference}), Measured)
    assert "no convergence of the reference is known" in str(session.notes[-1].values["text"])


def test_a_run_whose_loading_starves_compute_is_warned_of(runs: Any) -> None:
    """By a loader that is really slow, and one that is not."""
    session = session_of()
    session.calls = SimpleNamespace(at=0)  # type: ignore[assignment]
    case = session.plan.suite.benchmarks[0]
    for number, loads in enumerate(("pass", "__import__('time').sleep(0.05)")):
        sys.modules.pop("train", None)
        slow = f"with log.loading(): {loads}"
        found = one_run(runs(LOOP.format(each=slow + "\n        sum(range(10**6))", every=128), target=1e6))
        assert isinstance(found, TrainingRun)
        session._log(case, "candidate", number, found)
    [note] = [note for note in session.notes if "starves" in str(note.values["text"])]
    assert "run 2 spent" in str(note.values["text"])


# ---- rules -----------------------------------------------------------------------------------------------------------
RULES = train_rules.read_rules(find("llama_pretrain", CHECKOUT))


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_case_of_the_small_model_has_the_references_convergence(name: str) -> None:
    """By batch size. Cases of larger ones are held against the reference's runs in the same evaluation."""
    problem = find(name, CHECKOUT)
    rules = train_rules.read_rules(problem)
    for suite in problem.suites.values():
        for case in (one for one in suite.benchmarks if one.params["size"] == "tiny"):
            for batch_size in rules.hyperparameters["batch_size"].values:
                assert len(rules.reference_samples(case.params, batch_size)) >= 5, (suite.name, batch_size)


def test_hyperparameters_are_read_and_not_run() -> None:
    source = "HYPERPARAMETERS: dict = {'learning_rate': 0.005}\nraise SystemExit"
    found = train_rules.hyperparameters(source, "mine.py", RULES, {"batch_size": 64, "learning_rate": 0.01})
    assert found == {"batch_size": 64, "learning_rate": 0.005}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("{'batch_size': 96}", "mine.py:2: HYPERPARAMETERS: batch_size is 96; it has to be one of 64, 128"),
        ("{'learning_rate': 9.0}", "learning_rate is 9.0; it has to be a number from 0.0001 to 0.05"),
        ("{'learning_rate': 1e999}", "learning_rate is inf"),
        (f"{{'learning_rate': 1{'0' * 400}}}", "000...; it has to be"),  # no float is as large
        (f"{{'{'a' * 900_000}': 1}}", "aaa...' to choose (known"),
        ("{'warmup_samples': 64.5}", "warmup_samples is 64.5; it has to be a whole number from 1 to 4096"),
        ("{'batch_size': True}", "batch_size is True"),
        ("{'batch_size': 64.0}", "batch_size is 64.0; it has to be one of 64, 128"),  # no range or split takes it
        ("{'batchsize': 64}", "there is no 'batchsize' to choose; did you mean 'batch_size'?"),
        ("dict(batch_size=64)", "expected a dict of names and plain numbers"),
    ],
)
def test_a_hyperparameter_out_of_range_is_refused(table: str, words: str) -> None:
    with pytest.raises(BadSubmissionError) as found:
        train_rules.hyperparameters(f"\nHYPERPARAMETERS = {table}", "mine.py", RULES, {})
    assert words in str(found.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hyperparameters: {}", "$.hyperparameters: the key 'batch_size' is missing"),
        ("hyperparameters: {batch_size: {least: 2, most: 1}}", "$.hyperparameters.batch_size.most: expected `values"),
        (
            "hyperparameters: {batch_size: {least: 1, most: 2}}",
            "$.hyperparameters.batch_size: expected `values: [...]`",
        ),
        (
            "hyperparameters: {batch_size: {values: [64]}}\n"
            "convergence: [{size: tiny, target: 9.0, batch_size: 64, samples: [1]}]",
            "$.convergence[0].samples: expected two runs or more, found 1",
        ),
    ],
)
def test_rules_that_do_not_fit_are_refused_with_the_place(tmp_path: Path, text: str, words: str) -> None:
    problem: Problem = dataclasses.replace(find("llama_pretrain", CHECKOUT), folder=tmp_path)
    (tmp_path / "rules.yaml").write_text(text)
    with pytest.raises(BadFileError) as found:
        train_rules.read_rules(problem)
    assert words in str(found.value)


def test_a_text_that_the_rules_do_not_cut_for_a_model_is_refused(tmp_path: Path) -> None:
    """It had been a KeyError; `text` may be left out where a problem makes its own data."""
    made = setting(Asked(problem="llama_pretrain", suite="quick"), CHECKOUT)
    (tmp_path / "a.bin").write_bytes(b"12" * 9)
    rules = dataclasses.replace(train_rules.read_rules(made.problem), text={})
    with pytest.raises(BadFileError, match=r"^reference/llama_pretrain/rules.yaml: \$.text: lacks 'tiny', so"):
        with_text(made, read_folder(tmp_path, None), None, rules)


def test_no_case_is_evaluated_in_the_middle_of_a_batch() -> None:
    made = setting(Asked(problem="llama_pretrain", suite="quick"), CHECKOUT)
    rules = train_rules.read_rules(made.problem)
    train_rules.check_cases(made.problem, made.suite.benchmarks, rules)
    odd = train_rules.Range(values=(64, 96))
    unfit = dataclasses.replace(rules, hyperparameters=rules.hyperparameters | {"batch_size": odd})
    with pytest.raises(BadFileError, match=r"shapes/llama_pretrain.yaml: .*every is 256, which batch_size 96 of"):
        train_rules.check_cases(made.problem, made.suite.benchmarks, unfit)


def test_there_is_nothing_to_profile() -> None:
    made = setting(Asked(problem="llama_pretrain", suite="quick"), CHECKOUT)
    submission = read_submission(made.problem, None, CHECKOUT)
    with pytest.raises(UsageError, match="llama_pretrain has no profile"):
        kind_of(made).plan(Order(setting=made, submission=submission, mode="profile", author="me"))


# ---- the shipped submissions -----------------------------------------------------------------------------------------
def _keep(kept: list[dict[str, torch.Tensor]], weights: dict[str, torch.Tensor], samples: int) -> None:
    kept.append({name: weight.detach().clone() for name, weight in weights.items()})


def _shipped(path: str) -> Callable[..., Any]:
    """The file's train()."""
    spec = importlib.util.spec_from_file_location(f"_{path.partition('/')[0]}", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.train  # type: ignore[no-any-return]


def _config(given: dict[str, Any]) -> dict[str, Any]:
    return training.config_of(given, {"batch_size": 32, "learning_rate": 0.01, "warmup_samples": 64})


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_shipped_submission_trains_as_the_reference_does(
    staged: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The same weights after the same sequences, but for rounding."""
    reference = staged(name)
    monkeypatch.syspath_prepend(str(ROOT / "submissions"))
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: None)
    given = reference.generate_input(**CASE, rank=0, world_size=1, seed=3, hidden_seed="a")
    found = []
    for path in (f"reference/{name}/train.py", f"submissions/{name}/submission.py"):
        train, config = _shipped(path), _config(given)
        kept: list[dict[str, torch.Tensor]] = []
        log = SimpleNamespace(evaluate=functools.partial(_keep, kept))
        data = training.Data(given["tokens"][:256], torch.device("cpu"), training.Counts(), 32, 256)
        with pytest.raises(training.RunOver):
            train(config, data, given["seed"], 1.0, log)
        found.append(kept)
    assert len(found[0]) == len(found[1]) == 2
    for theirs, own in zip(*found, strict=True):
        assert own.keys() == theirs.keys()
        for key, weight in theirs.items():
            torch.testing.assert_close(own[key], weight, rtol=2e-3, atol=2e-4, msg=key)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_shipped_submission_does_not_wait_for_its_gpu_between_evaluations(
    staged: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """torch raises an error for a call that waits, from the first evaluation on."""
    reference = staged(name)
    monkeypatch.syspath_prepend(str(ROOT / "submissions"))
    given = reference.generate_input(**CASE, rank=0, world_size=1, seed=3, hidden_seed="a")
    gpu = torch.device("cuda:0")
    for key in {"start", "base"} & given.keys():
        given[key] = {of: weight.to(gpu) for of, weight in given[key].items()}
    evaluations: list[int] = []

    def evaluate(weights: dict[str, torch.Tensor], samples: int) -> None:
        evaluations.append(samples)
        torch.cuda.set_sync_debug_mode("error")

    data = training.Data(given["tokens"][:256], gpu, training.Counts(), 32, 256)
    try:
        with pytest.raises(training.RunOver):
            _shipped(f"submissions/{name}/submission.py")(
                _config(given), data, given["seed"], 1.0, SimpleNamespace(evaluate=evaluate)
            )
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert evaluations == [128, 256]


@pytest.mark.gpu
def test_a_batch_is_loaded_while_the_gpu_is_busy() -> None:
    """So what counts as loading is not the time of earlier steps."""
    tokens = torch.randint(1 << 14, (96, 513), dtype=torch.int16)
    data = training.Data(tokens, torch.device("cuda:0"), training.Counts(), 32, 96)
    data.batch(32)  # allocates the memory that further batches use
    torch.cuda.synchronize()
    torch.cuda._sleep(1 << 31)  # cycles: about a second
    inputs, targets = data.batch(32)
    assert not torch.cuda.current_stream().query(), "it waited"
    assert torch.equal(inputs.cpu(), tokens[32:64, :-1].long())
    assert torch.equal(targets.cpu(), tokens[32:64, 1:].long())


# ---- with ranks ------------------------------------------------------------------------------------------------------
def evaluated(source: str | None, mode: str, tmp_path: Path, **asked: Any) -> EvalReport:
    made = setting(Asked(problem="llama_pretrain", suite="quick", device="cpu", **asked), CHECKOUT)
    path = None
    if source is not None:
        path = tmp_path / "mine.py"
        path.write_text(source)
    easy = {"target": 200.0, "samples": 512}
    suite = dataclasses.replace(
        made.suite,
        **{
            name: tuple(dataclasses.replace(one, params=one.params | easy) for one in getattr(made.suite, name))
            for name in ("tests", "benchmarks")
        },
    )
    made = dataclasses.replace(made, suite=suite)
    submission: Submission = read_submission(made.problem, path, CHECKOUT)
    order = Order(setting=made, submission=submission, mode=mode, author="me")  # type: ignore[arg-type]
    return evaluate(kind_of(made).plan(order), Progress())


def test_a_real_evaluation_and_what_boards_and_pages_make_of_it(tmp_path: Path) -> None:
    report = evaluated(None, "leaderboard", tmp_path)
    assert verdict.status(report) == "pass", report.results
    measured = report.results[-1].outcome
    assert isinstance(measured, Measured)
    time_s, samples = measured.series
    assert (len(time_s.own), len(time_s.baseline), time_s.metric.unit) == (3, 3, "s")
    assert samples.own == samples.baseline, "the same function on the same data"
    assert {"training", "evaluation", "loading", "data"} <= report.phases_s.keys()
    assert sum(name.startswith("mllog submission") for name in report.logs) == 3
    assert report.cpu_use is not None, "what others used of the cores was seen"
    seeds = {event.value for text in report.logs.values() for event in mllog.parse(text) if event.key == "seed"}
    assert len(seeds) == 3

    again = report_json.from_json(json.loads(json.dumps(report_json.to_json(report))))
    assert again.results == report.results
    replayed = evaluate(replay_of(report, find("llama_pretrain", CHECKOUT)), Progress())
    assert (replayed.results, replayed.figures) == (report.results, report.figures)
    assert report.figures is not None
    assert report.figures.score.value == pytest.approx(sorted(time_s.own)[1])

    entry = entry_of(report)
    assert entry is not None
    board = with_judged(Board(), entry)
    console = Console(width=120, file=io.StringIO())
    terminal.show(document_of(report, OnBoard(board=board)), console)
    terminal.show(board_view.document_of(board), console)
    [lines] = history.lines(board, [])
    terminal.show(history.document_of([lines]), console)
    assert isinstance(console.file, io.StringIO)
    text = " ".join(console.file.getvalue().split())
    assert "Times to the target are medians over runs" in text
    assert "as MLPerf Training scores: mean time to the target without the fastest and the slowest run" in text
    [shown] = page_data.page_of(board, [report], [], ROOT, tmp_path, "").boards
    assert [one.entry.author for one in shown.entries] == ["me"]
    row = compare.CaseRow(
        label="tiny", params={}, a=time_s.baseline, b=time_s.own, difference=compare.against_baseline(time_s)
    )
    assert row.difference is not None


def test_a_submission_that_hangs_is_ended_and_named(tmp_path: Path) -> None:
    hangs = "import time\ndef train(config, data, seed, target, log):\n    time.sleep(600)\n"

    def check(limit_s: float) -> None:
        [result] = evaluated(hangs, "test", tmp_path, timeout_s=limit_s).results
        assert isinstance(result.outcome, TimedOut)
        assert "ranks 0, 1 timed out" in result.outcome.message
        assert "mine.py" in result.outcome.stacks[0]

    in_time(check, 2.0, 10.0)
