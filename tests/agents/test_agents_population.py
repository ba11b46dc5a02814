"""Many candidates: stages, copies, what survives, what a kill leaves, who carries tasks out, and their score."""

import contextlib
import dataclasses
import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from factories import RAISED, failed_test, report
from waiting import until

from harness import Pool, evaluate, stream
from harness.agents import score_view
from harness.agents.candidates import Candidate, firsts, of_text, read_all
from harness.agents.harbor import rewards_of
from harness.agents.journal import Journal, read_results, results_so_far
from harness.agents.judge import SCREEN_S, Judge, Stage, Terms, screening_of
from harness.agents.made import refused, result_of
from harness.agents.many import How
from harness.agents.population import Cascade, Trial, judged, survivors
from harness.agents.result import Conditions, Result
from harness.agents.score import pass_at, score_of
from harness.agents.workers import Workers
from harness.cli import main
from harness.core.checkout import ROOT, Checkout
from harness.core.decode import encode
from harness.core.errors import BadFileError, HarnessError, UsageError
from harness.core.events import CaseBegan, PhaseBegan
from harness.core.json_file import line_of
from harness.core.records import Module, Submission, TimedOut
from harness.kinds.registry import find
from harness.kinds.settings import Asked, setting
from harness.report.render import FORMATS

HERE = Checkout.here()
PROBLEM = find("rms_norm", HERE)
RIGHT = "from reference import ref_kernel as custom_kernel\n"
WRONG = "import torch\n\n\ndef custom_kernel(data):\n    return torch.zeros_like(data[0]), data[0]\n"
RAISES = "def custom_kernel(data):\n    raise ValueError('not today')\n"
TWICE = RIGHT + "once = custom_kernel\n\n\ndef custom_kernel(data):\n    once(data)\n    return once(data)\n"
QUICK = {"suite": "quick", "ranks": 1, "device": "cpu", "seconds": 0.05, "timeout_s": 60.0}
ASKED = Asked(problem="rms_norm", **QUICK)


def candidates(**texts: str) -> list[Candidate]:
    return [of_text(text, name, PROBLEM, HERE) for name, text in texts.items()]


def passed(times: float = 1.0) -> Result:
    """A result that passes and is so many times as fast as another."""
    found = result_of(report())
    assert found.figures is not None
    assert found.figures.speedup is not None
    speedup = dataclasses.replace(found.figures.speedup, value=times)
    return dataclasses.replace(found, figures=dataclasses.replace(found.figures, speedup=speedup))


RMS_NORM = Conditions(problem="rms_norm")


def refuse(error: HarnessError, submission: Submission) -> Result:
    return refused(error, RMS_NORM, submission)


class Played:
    """Hands that run nothing: `results` has what each candidate comes to; `told` what was asked."""

    def __init__(self, **results: Result) -> None:
        self.results, self.told = results, list[tuple[str, str]]()

    def of(self, stage: Stage) -> contextlib.AbstractContextManager["Played"]:
        """Themselves, whatever the stage."""
        return contextlib.nullcontext(self)

    def run(self, tasks: Iterable[Trial]) -> Iterator[Result]:
        for task in tasks:
            self.told.append((task.id, task.stage))
            result = self.results[task.id]
            if task.stage != "full" and result.ranked:
                result = dataclasses.replace(result, ranked=False, reward=dataclasses.replace(result.reward, value=0.0))
            yield dataclasses.replace(result, id=task.id)


def test_copies_are_judged_once_and_files_that_are_none_never() -> None:
    hands = Played(a=passed(), c=result_of(failed_test(RAISED)))
    copy = "# another text\nfrom reference import ref_kernel as custom_kernel\n"
    found = {
        one.id: one
        for one in judged(
            candidates(a=RIGHT, b=copy, c=RAISES, d="def f(:"), hands.of, Cascade(keep=1), Journal(None), refuse
        )
    }
    assert hands.told == [("a", "full"), ("c", "full")]
    assert {name: one.verdict for name, one in found.items()} == {
        "a": "pass", "b": "pass", "c": "raised", "d": "rejected",
    }  # fmt: skip
    assert (found["b"].copy_of, found["b"].reward) == ("a", found["a"].reward)
    assert found["a"].sha256 != found["b"].sha256
    assert found["a"].code == found["b"].code


def test_half_a_surrogate_pair_ends_no_population() -> None:
    bad, kept = candidates(a="\ud800 = 1\n", b=f"# cut: \ud83d\n{RIGHT}")
    assert bad.why is not None
    assert kept.why is None
    assert "cut: ?" in kept.submission.source


def test_another_import_makes_another_candidate_even_where_nothing_uses_it() -> None:
    texts = candidates(a="import no_such_module\n" + RIGHT, b=RIGHT, c=RIGHT + "# again\n")
    hands = Played(a=result_of(failed_test(RAISED)), b=passed())
    found = {one.id: one for one in judged(texts, hands.of, Cascade(keep=1), Journal(None), refuse)}
    assert {name: (one.verdict, one.copy_of) for name, one in found.items()} == {
        "a": ("raised", ""), "b": ("pass", ""), "c": ("pass", "b"),
    }  # fmt: skip


def test_another_import_of_a_module_makes_another_candidate() -> None:
    def of(name: str, text: str) -> Candidate:
        [one] = candidates(**{name: RIGHT})
        module = Module(name="tuning", file="tuning.py", source=text)
        return dataclasses.replace(one, submission=dataclasses.replace(one.submission, modules=(module,)))

    assert firsts([of("a", "X = 1\n"), of("b", "X = 1  # b\n"), of("c", "import absent\nX = 1\n")]) == {
        "a": "a",
        "b": "a",
        "c": "c",
    }


def test_the_best_on_the_quick_shapes_get_the_whole_suite() -> None:
    texts = {f"c{number}": RIGHT + f"x = {number}\n" for number in range(6)}
    hands = Played(**{name: passed(1 + number) for number, name in enumerate(texts)})
    found = list(judged(candidates(**texts), hands.of, Cascade(keep=0.5, least=1), Journal(None), refuse))
    assert [name for name, stage in hands.told if stage == "full"] == ["c3", "c4", "c5"]
    assert sorted(one.id for one in found if one.ranked) == ["c3", "c4", "c5"]
    left_out = [one for one in found if not one.ranked]
    assert all(one.verdict == "pass" and one.reward.value == 0 and "--keep 1" in one.next for one in left_out)
    assert len(survivors([dataclasses.replace(passed(), id=name) for name in texts], Cascade(keep=0.1, least=4))) == 4


def test_cpu_ranks_come_first_where_that_is_asked_for() -> None:
    hands = Played(a=passed(), b=result_of(failed_test(RAISED)))
    cascade = Cascade(keep=1, stages=("check", "full"))
    assert len(list(judged(candidates(a=RIGHT, b=RAISES), hands.of, cascade, Journal(None), refuse))) == 2
    assert hands.told == [("a", "check"), ("b", "check"), ("a", "full")]


def test_candidates_are_tested_before_any_is_timed_and_again_where_others_may_be_the_reason() -> None:
    """What is out of memory or slow beside others is judged again alone, as is what is held or an error there."""
    failures = {
        "b": RAISED,
        "c": dataclasses.replace(RAISED, message="out of the device's memory"),
        "d": TimedOut(message="rank 0 timed out", stacks=()),
        "e": TimedOut(message="rank 0 timed out: its processes did nothing at all for 3 s", stacks=()),
    }
    error = refused(HarnessError("busy"), RMS_NORM)
    hands = Played(a=passed(), f=error, **{name: result_of(failed_test(one)) for name, one in failures.items()})
    texts = candidates(a=RIGHT, **{name: f"{RAISES}x = {number}\n" for number, name in enumerate("bcdef")})
    found = list(judged(texts, hands.of, Cascade(stages=("test", "screen", "full")), Journal(None), refuse))
    tested = [(name, "test") for name in "abcdef"]
    screened = [("a", "time"), *((name, "screen") for name in "cdf")]  # "a" without its tests, which it passed
    assert hands.told == [*tested, *screened, ("a", "full")]
    assert [one.id for one in found] == ["b", "e", "c", "d", "f", "a"]


def test_a_kill_loses_no_result_and_repeats_none(tmp_path: Path) -> None:
    """Wherever it comes: after each line of the two files, and in the middle of one."""
    texts = {f"c{number}": RIGHT + f"x = {number}\n" for number in range(4)} | {"again": RIGHT + "x = 0 # y\n"}
    results = {name: passed(1 + number) for number, name in enumerate(texts)}
    out, told = tmp_path / "out.jsonl", []
    cascade = Cascade(keep=0.5, least=1, stages=("test", "screen", "full"))
    for stop in range(1, 8):
        hands = Played(**results)
        journal = Journal(out).__enter__()
        kept = [dict(journal.results), dict(journal.tested), dict(journal.screened)]
        steps = judged(candidates(**texts), hands.of, cascade, journal, refuse)
        try:
            next(steps)
        except StopIteration:
            journal.__exit__(None, None, None)
            break
        journal.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
        for stage, done in (("test", kept[1]), ("time", kept[2])):
            assert not {name for name, asked in hands.told if asked == stage} & done.keys(), stop
        assert not {name for name, _ in hands.told} & kept[0].keys(), stop
        told += hands.told
        with out.open("a") as file:
            file.write('{"id": "cut o')
    found = read_results([out])
    assert sorted(one.id for one in found) == sorted(texts)
    assert len(told) == len(set(told))
    assert [one.name for one in tmp_path.iterdir()] == ["out.jsonl"]


def test_a_cut_line_is_removed_but_no_whole_result_and_nothing_of_another_file(tmp_path: Path) -> None:
    out, line = tmp_path / "out.jsonl", line_of(dataclasses.replace(passed(), id="a"))
    for begun in (line[:-1], line + line[:40], line + '{"pro'):  # the first as an editor may leave it
        out.write_text(begun)
        assert [one.id for one in results_so_far(out)] == ["a"]
        with Journal(out) as journal:
            journal.results.add(dataclasses.replace(passed(), id="b"))
        assert [one.id for one in read_results([out])] == ["a", "b"]
    for other in ("notes", line + "notes", '{"id": "7"}'):
        out.write_text(other)
        with pytest.raises(BadFileError, match="name another file"), Journal(out):
            pass
        assert out.read_text() == other


def test_results_go_to_no_pipe_and_no_device(tmp_path: Path) -> None:
    """Reading what is there already would never end."""
    os.mkfifo(tmp_path / "pipe")
    for out in (Path("/dev/full"), tmp_path / "pipe"):
        with pytest.raises(UsageError, match="not an ordinary file"), Journal(out):
            pass


def test_results_of_another_population_are_not_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    meant = Conditions(problem="rms_norm", suite="quick", device="cpu", ranks=1)
    with Journal(out) as journal:
        journal.results.add(
            dataclasses.replace(passed(), id="a", problem="rms_norm", device="cpu", ranks=1, suite="quick")
        )
        with pytest.raises(UsageError, match="another text"):
            journal.check({"a": "0" * 64}, meant)
        sha256 = journal.results["a"].sha256
        unrun = refused(HarnessError("no machine"), RMS_NORM)
        journal.results.add(dataclasses.replace(unrun, id="b", sha256=sha256))
        journal.check({"a": sha256}, meant)
        for other in ({"suite": "cpu"}, {"device": "cuda"}, {"ranks": 2}):
            with pytest.raises(UsageError, match="name another"):
                journal.check({"a": sha256}, dataclasses.replace(meant, **other))
        for reward in ({"function": "sol_score"}, {"lower": True}):
            with pytest.raises(UsageError, match="rewards"):
                journal.check({"a": sha256}, dataclasses.replace(meant, **reward))
        with pytest.raises(UsageError, match="another process writes it"):
            Journal(out).__enter__()
    (tmp_path / "bad.jsonl").write_text("{}\n")
    with pytest.raises(BadFileError, match=r"bad\.jsonl:1"):
        Journal(tmp_path / "bad.jsonl").__enter__()


def test_what_failed_on_cpu_ranks_is_among_results_of_gpus() -> None:
    found = dataclasses.replace(result_of(failed_test(RAISED)), id="a", problem="rms_norm", device="cpu", ranks=1)
    meant = Conditions(problem="rms_norm", suite="official", device="cuda", ranks=2)
    journal = Journal(None)
    journal.results.add(found)
    journal.check({"a": found.sha256}, meant)
    for other in (dataclasses.replace(found, device="rocm"), dataclasses.replace(found, verdict="pass")):
        journal.results.add(other)
        with pytest.raises(UsageError, match="name another"):
            journal.check({"a": found.sha256}, meant)


def test_a_full_disk_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written of a line is taken back, so that the same command goes on once there is room."""
    out, one = tmp_path / "out.jsonl", dataclasses.replace(passed(), id="a")
    write, left = os.write, [100, 200]

    def short(fd: int, data: bytes) -> int:
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[: left.pop()])

    with Journal(out) as journal:
        journal.results.add(one)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", short)
            with pytest.raises(HarnessError, match="No space left on device; make room"):
                journal.results.add(dataclasses.replace(one, id="b"))
        assert sorted(journal.results) == ["a"]
        left += [10**6, 100]
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", short)
            journal.results.add(dataclasses.replace(one, id="b"))
    assert [found.id for found in read_results([out])] == ["a", "b"]


def test_results_are_read_as_they_may_lie_there(tmp_path: Path) -> None:
    """While they are being written, with a mark at the start, without escapes, and named twice."""
    out = tmp_path / "out.jsonl"
    line = json.dumps(encode(dataclasses.replace(passed(), next="one\u2028two\x85")), ensure_ascii=False)
    out.write_text(f"\ufeff{line}\n\n{line[:90]}")
    assert [one.next for one in read_results([out, out])] == ["one\u2028two\x85"]
    out.write_text(line)
    assert len(read_results([out])) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"suit": "quick"}, "no option 'suit'.*suite"),
        ({"mode": "fast"}, "mode 'fast': expected one of test"),
        ({"reward": "speed"}, "reward 'speed': expected one of log2_speedup"),
    ],
)
def test_a_misspelled_option_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Pool("rms_norm", **options)


def test_a_pool_that_has_ended_is_refused() -> None:
    with Pool("rms_norm", **QUICK) as pool:
        pass
    with pytest.raises(UsageError, match="the pool has ended"):
        pool.evaluate(RIGHT)


def test_two_sources_of_one_id_are_refused() -> None:
    with Pool("rms_norm", **QUICK) as pool, pytest.raises(UsageError, match="two candidates are called 'a'"):
        list(pool.map([("a", RIGHT), ("a", WRONG)]))


def test_what_is_no_source_is_refused_before_any_is_judged(tmp_path: Path) -> None:
    """A model's empty answer, say; and a number as an id would be read back as no result. A text names a file too."""
    with Pool("rms_norm", suite="quick", device="cpu") as pool:
        for wrong in (None, b"x = 1", ("a",), ("a", None), (1, "x = 1"), 7):
            with pytest.raises(UsageError, match="a source is a text"):
                list(pool.map([wrong], out=tmp_path / "out.jsonl"))  # type: ignore[list-item]
        assert not list(tmp_path.iterdir())
        assert [one.verdict for one in pool.map(["x = ("], out=str(tmp_path / "out.jsonl"))] == ["rejected"]
    assert len(read_results([tmp_path / "out.jsonl"])) == 1


def test_candidates_are_read_from_files_folders_and_lines(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.py").write_text(RIGHT)
    (tmp_path / "more" / "notes.md").write_text("nothing")
    (tmp_path / "b.py").write_text(WRONG)
    lines = [{"id": 7, "source": RAISES}, {"code": RIGHT + "text = '\u2028\x85'\n"}]
    (tmp_path / "c.jsonl").write_text("\ufeff" + "\r\n\n".join(json.dumps(one, ensure_ascii=False) for one in lines))
    places = [tmp_path / "more", tmp_path / "b.py", tmp_path / "c.jsonl"]
    assert [one.id for one in read_all(places, PROBLEM, HERE)] == ["a.py", str(tmp_path / "b.py"), "7", "3"]
    with pytest.raises(UsageError, match="two candidates"):
        read_all([tmp_path / "b.py", tmp_path / "b.py"], PROBLEM, HERE)
    with pytest.raises(UsageError, match="no submission there"):
        read_all([tmp_path / "empty"], PROBLEM, HERE)


@pytest.mark.parametrize(
    "line", ["7", "{", '{"id": "x"}', '{"id": "\\u0007", "source": ""}', '{"id": true, "source": ""}']
)
def test_a_line_that_is_no_candidate_is_refused_with_its_place(line: str, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(json.dumps({"source": RIGHT}) + "\n" + line + "\n")
    with pytest.raises(BadFileError, match=r"c\.jsonl:2"):
        read_all([tmp_path / "c.jsonl"], PROBLEM, HERE)


def test_pass_at_k_is_the_unbiased_estimator() -> None:
    assert pass_at(4, 0, 2) == 0
    assert pass_at(4, 4, 1) == 1
    assert pass_at(4, 2, 2) == pytest.approx(1 - 1 / 6)
    assert pass_at(10, 3, 1) == pytest.approx(0.3)


def test_the_score_of_two_problems_has_intervals_over_them() -> None:
    fast = [dataclasses.replace(passed(3.0), id=str(number), problem="a") for number in range(4)]
    slow = [dataclasses.replace(result_of(failed_test(RAISED)), id=str(number), problem="b") for number in range(4)]
    both = score_of([*fast, *slow])
    assert [(one.at, one.figure.value) for one in both.pass_at] == [(1, 0.5), (2, 0.5), (4, 0.5)]
    curve = {one.at: one.figure.value for one in both.fast}
    assert (curve[0.0], curve[2.0], curve[3.0]) == (0.5, 0.5, 0.0)
    assert (both.fast[0].figure.low, both.fast[0].figure.high) == (0.0, 1.0)
    assert both.best_of_n is not None
    assert both.best_of_n.value == pytest.approx(3**0.5)
    assert score_of(fast).fast[0].figure.low is None
    hostile = score_of([dataclasses.replace(fast[0], id="<b>\x1b[2J|x", problem="<i>|")])
    for text in (FORMATS[name](score_view.document_of(hostile)) for name in ("markdown", "html")):
        assert "<b>" not in text
        assert "<i>" not in text
        assert "\x1b" not in text
    assert "polyline" in FORMATS["html"](score_view.document_of(both))


def test_the_reference_is_as_fast_as_itself_whatever_was_measured() -> None:
    """On CPU cores it often reads 1.1x, and would be the best of a population."""
    found = dataclasses.replace(passed(1.3), is_reference=True)
    score = score_of([found])
    assert [one.figure.value for one in score.fast if one.at in (0.8, 1.0)] == [1.0, 0.0]
    assert (score.problems[0].best, score.sol and score.sol.value) == (1.0, pytest.approx(0.5))
    assert (score.best_of_n and score.best_of_n.value, rewards_of(found)["speedup"]) == (1.0, 1.0)


def test_problems_without_a_limit_have_no_sol_score() -> None:
    """Those of other benchmarks have none, and 0 would say that their candidates are slow."""
    found = passed(3.0)
    assert found.figures is not None
    cases = tuple(dataclasses.replace(case, limit=None) for case in found.figures.cases)
    bare = dataclasses.replace(found, problem="bare", figures=dataclasses.replace(found.figures, cases=cases))
    failed = dataclasses.replace(result_of(failed_test(RAISED)), problem="failed")
    score = score_of([bare, failed])
    assert score.sol is None
    assert "There is no SOL score" in FORMATS["markdown"](score_view.document_of(score))
    one, both, all_three = (score_of(group).sol for group in ([found], [found, bare], [found, bare, failed]))
    assert one is not None
    assert both == one
    assert all_three is not None
    assert all_three.value == pytest.approx(one.value / 2)


def test_what_the_machine_failed_at_counts_neither_as_passed_nor_as_failed() -> None:
    right = [dataclasses.replace(passed(3.0), id=str(number), problem="a") for number in range(2)]
    broken = refused(HarnessError("the disk is full"), Conditions(problem="a"))
    score = score_of([*right, dataclasses.replace(broken, id="2"), dataclasses.replace(broken, id="3", problem="b")])
    assert [(one.candidates, one.errors, one.verdicts) for one in score.problems] == [
        (2, 1, {"pass": 2, "error": 1}),
        (0, 1, {"error": 1}),
    ]
    assert [(one.at, one.figure.value) for one in score.pass_at] == [(1, 1.0), (2, 1.0)]
    assert (score.fast[0].figure.value, score.best_of_n and score.best_of_n.value) == (1.0, pytest.approx(3.0))
    assert any("2 candidates" in note and "judges them again" in note for note in score_view.notes(score))
    nothing = score_of([broken])
    assert (nothing.pass_at, nothing.fast, nothing.sol, nothing.mean_reward) == ((), (), None, None)
    assert "judges them again" in FORMATS["html"](score_view.document_of(nothing))


def test_what_cannot_be_asked_is_refused() -> None:
    for wrong in ({"keep": 0.0}, {"keep": 1.5}, {"least": 0}, {"jobs": 0}, {"lanes": 0}):
        with pytest.raises(UsageError):
            How(**wrong)
    with pytest.raises(UsageError):
        evaluate("no_such_problem", RIGHT)
    with pytest.raises(UsageError):
        evaluate("rms_norm", Path("no_such_file.py"), suite="quick")


def test_importing_the_package_imports_nothing_else() -> None:
    code = (
        "import sys, harness; print([name for name in sys.modules if name.startswith(('harness.', 'torch', 'numpy'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.stdout.strip() == "['harness.core', 'harness.core.version']"


def test_one_evaluation_in_python(nothing_left: None) -> None:
    events = list(stream("rms_norm", RIGHT, **QUICK))
    assert isinstance(events[-1], Result)
    assert (events[-1].verdict, events[-1].ranked) == ("pass", True)
    assert {"test", "benchmark"} <= {one.name for one in events if isinstance(one, PhaseBegan)}
    assert any(isinstance(one, CaseBegan) for one in events)
    assert evaluate("rms_norm", "x = (", **QUICK).verdict == "rejected"


def test_a_pool_judges_a_population(nothing_left: None, tmp_path: Path) -> None:
    """Verdicts as alone; nothing is judged again, and nothing is left."""
    texts = {"right": RIGHT, "wrong": WRONG, "raises": RAISES, "copy": "# x\n" + RIGHT}
    with Pool("rms_norm", **QUICK) as pool:
        out = tmp_path / "out.jsonl"
        found = {one.id: one for one in pool.map(list(texts.items()), out=out)}
        again = list(pool.map(list(texts.items()), out=out))
    verdicts = {"right": "pass", "wrong": "wrong", "raises": "raised", "copy": "pass"}
    assert {name: one.verdict for name, one in found.items()} == verdicts
    assert found["right"].ranked
    assert again == []
    assert {one.id for one in read_results([out])} == texts.keys()


@pytest.mark.parametrize(
    ("problem", "shapes"),
    [("rms_norm", "cpu"), ("llama", "quick")],
    ids=["of calls", "of a model, which takes its time"],
)
def test_a_screening_has_the_suites_tests_and_takes_little_time(problem: str, shapes: str) -> None:
    made = setting(Asked(problem=problem, suite="cpu", ranks=1, device="cpu"), HERE)
    found = screening_of(made)
    assert found is not None
    assert found.suite.tests == made.suite.tests
    assert found.suite.benchmarks == made.problem.suite(shapes).benchmarks
    limits = [(one.suite.test_timeout_s, one.suite.ranked_timeout_s) for one in (found, made)]
    assert limits[0] == limits[1]  # a candidate that has to compile has as long as in an evaluation by itself
    assert (found.suite.benchmark_s, found.suite.drawn) == (SCREEN_S, 0)
    assert screening_of(found) is None


def test_a_candidate_that_passed_its_tests_is_screened_without_them() -> None:
    asked = Asked(problem="rms_norm", suite="quick", ranks=1, device="cpu", seconds=0.6, timeout_s=60.0)
    with Judge(Terms(asked=asked), HERE) as judge:
        one = candidates(a=RIGHT)[0].submission
        found = [judge.judge(one, "time"), judge.judge(one, "screen")]
    tests, benchmarks = len(judge.setting.suite.tests), len(judge.setting.suite.benchmarks)
    assert [one.stages.correct.done for one in found] == [benchmarks, tests + benchmarks]
    assert [one.verdict for one in found] == ["pass", "pass"]
    assert not any(one.ranked or one.speedup is None for one in found)


@pytest.mark.slow
def test_workers_go_on_when_one_is_killed(nothing_left: None) -> None:
    """Its task is tried once more, by another."""
    terms = Terms(asked=ASKED, patient=True)
    tasks = [Trial(id=str(number), stage="full", submission=one.submission) for number, one in
             enumerate(candidates(a=WRONG, b=RAISES, c=RIGHT))]  # fmt: skip
    with Workers(terms, HERE, [{}]) as workers:
        found = []
        for done in workers.run(tasks):
            found.append((done.id, done.verdict))
            if len(found) == 1:
                for pid in _children(os.getpid()):
                    if "harness.agents.workers" in Path(f"/proc/{pid}/cmdline").read_text():
                        os.kill(pid, signal.SIGKILL)
    assert found == [("0", "wrong"), ("1", "raised"), ("2", "pass")]


@pytest.mark.slow
def test_workers_end_at_once_in_the_middle_of_a_task(nothing_left: None) -> None:
    """As after Ctrl-C: the task by itself would go on for as long as an import may take, 40 s."""
    busy, wrong = candidates(a="while True: pass\n", b=WRONG)
    tasks = [Trial(id=one.id, stage="full", submission=one.submission) for one in (busy, wrong)]
    with Workers(Terms(asked=ASKED), HERE, [{}, {}]) as workers:
        assert next(iter(workers.run(tasks))).id == "b"
        left_s = time.monotonic()
    assert time.monotonic() - left_s < 15


def test_a_reference_that_fails_ends_the_population(monkeypatch: pytest.MonkeyPatch, nothing_left: None) -> None:
    monkeypatch.setattr("harness.agents.judge.submission_text", lambda problem: RAISES + "# ref_kernel\n")
    terms = Terms(asked=ASKED)
    with Judge(terms, HERE) as judge, pytest.raises(HarnessError, match="the reference of rms_norm fails here"):
        judge.judge_or_raise(candidates(a=RIGHT)[0].submission)


MODEL = """import torch


class {}(torch.nn.Module):
    def forward(self, x):
        {}


n = 64


def get_inputs():
    return [torch.rand(n, n)]


def get_init_inputs():
    return []
"""


def test_a_busy_candidate_has_no_more_time_than_the_reference_gives_it_on_another_benchmarks_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, nothing_left: None
) -> None:
    monkeypatch.setattr("harness.agents.judge.LEAST_S", 1.0)
    monkeypatch.setattr("harness.agents.judge.TIMES_REFERENCE", 0.01)
    (tmp_path / "1_exp.py").write_text(MODEL.format("Model", "return x.exp()"))
    terms = Terms(asked=Asked(problem=str(tmp_path / "1_exp.py"), device="cpu", timeout_s=90.0))
    with Judge(terms, HERE) as judge:
        busy = of_text(MODEL.format("ModelNew", "while True: pass"), "a", judge.setting.problem, HERE)
        found = judge.judge(busy.submission)
    assert found.verdict == "timed_out"
    assert found.seconds < 60


@pytest.mark.slow
def test_a_population_on_the_command_line_goes_on_after_a_kill(
    harness: Callable[..., "subprocess.CompletedProcess[str]"], checkout: Path, temporary: Path
) -> None:
    lines = [{"id": name, "source": text} for name, text in {"a": WRONG, "b": RAISES, "c": RIGHT, "d": TWICE}.items()]
    (checkout / "c.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = [
        "eval-many",
        "rms_norm",
        "c.jsonl",
        "--suite",
        "quick",
        "--ranks",
        "1",
        "--seconds",
        "0.05",
        "--timeout",
        "60",
        "--lanes",
        "2",
    ]
    command = [sys.executable, "-m", "harness", *words]  # the process itself, which is killed
    environ = {**os.environ, "PYTHONPATH": str(checkout), "TMPDIR": str(temporary)}
    running = subprocess.Popen(command, cwd=checkout, env=environ, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    assert "1/4" in running.stderr.readline()  # of those that fail their tests, whichever is first
    running.kill()
    running.wait()
    running.stderr.close()
    until(lambda: not list(temporary.glob("kernel-eval-*")))  # which its zygotes remove
    before = (checkout / "results.jsonl").read_text()
    done = harness(*words, "--json", "out.json")
    assert done.returncode == 0, done.stderr
    after = (checkout / "results.jsonl").read_text()
    assert after.startswith(before)
    found = {one.id: one.verdict for one in read_results([checkout / "results.jsonl"])}
    assert found == {"a": "wrong", "b": "raised", "c": "pass", "d": "pass"}
    assert json.loads((checkout / "out.json").read_text())["candidates"] == 4
    scored = harness("score", "results.jsonl", "--markdown", "-")
    assert "| pass@1 | 50.0% |" in scored.stdout


@pytest.mark.parametrize(
    ("words", "told"), [(["--page", "-"], "`--html -`"), (["--page", "a.html", "--json", "./a.html"], "are one file")]
)
def test_the_page_of_scores_is_a_file_of_its_own(words: list[str], told: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=told):
        main.parse(["score", "results.jsonl", *words]).carry_out(Checkout(tmp_path))


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
def test_the_python_of_the_page_runs(checkout: Path) -> None:
    """Of docs/agents.md, as it stands there."""
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "agents.md").read_text(), re.DOTALL)
    (checkout / "my.py").write_text(RIGHT)
    command = [sys.executable, "-c", code]
    environ = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("pass ")
    assert any(line.startswith("PhaseBegan(") for line in lines)
    assert lines[-2].startswith("a raised 0.0")
    assert lines[-1].startswith("b raised 0.0")
