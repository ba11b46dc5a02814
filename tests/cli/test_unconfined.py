"""Submissions that run outside the sandbox: which verbs can, and who says so."""

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from factories import entry, report
from launches import ENTRY_RUN, Launches, alice, launch, loaded, played, prepared
from recorded import entry_for
from rich.console import Console

from harness.board import judgements, leaderboard, report_json
from harness.board.entries import Board, HeldEntry
from harness.cli import main, options
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.kinds.settings import Asked
from harness.report import board_view
from harness.report.render import terminal
from harness.serve.offers import ServeOptions, eval_command, offered
from harness.serve.store import Row
from harness.serve.worker import Files

RUNS_SUBMISSIONS = ("eval", "check", "compare", "competition", "verify", "settle", "rejudge", "serve")
Verb = Callable[..., int]


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    return played(monkeypatch)


@pytest.fixture
def verb(tmp_path: Path) -> Verb:
    """Runs a verb in a checkout whose entry by alice was evaluated outside the sandbox."""
    root = prepared(tmp_path)

    def unconfined(board: Board) -> Board:
        return Board(entries=tuple(replace(one, confined=one.author != "alice") for one in board.entries))

    leaderboard.change(root / "leaderboard.yaml", unconfined)

    def run(*arguments: str) -> int:
        return main.parse(arguments).carry_out(Checkout(root))

    return run


def shown(board: Board) -> str:
    console = Console(file=StringIO(), width=120)
    terminal.show(board_view.document_of(board), console)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", RUNS_SUBMISSIONS)
def test_every_verb_that_runs_a_submission_takes_unconfined(name: str) -> None:
    needed = {"eval": ["a2a"], "check": ["a2a"], "compare": ["a", "b"], "competition": ["c"], "verify": ["e"]}
    needed["settle"] = ["a2a"]
    words = [name, *needed.get(name, [])]
    assert main.parse(words).order.confined
    order = main.parse([*words, "--unconfined"]).order
    assert not order.confined
    assert not options.asked(order, problem="a2a").confined


def test_verbs_that_run_no_submission_do_not_take_it() -> None:
    names = set(main.VERBS)
    for name in names - set(RUNS_SUBMISSIONS):
        with pytest.raises(SystemExit):
            main.parse([name, "--unconfined"])


def test_a_server_passes_it_on_to_every_evaluation() -> None:
    row = Row(
        **dict.fromkeys(Row.__dataclass_fields__)  # type: ignore[arg-type]
        | {"problem": "a2a", "mode": "test", "user": "ada"}
    )
    for confined in (True, False):
        offers = offered(ServeOptions(asked=Asked(problem="", confined=confined)), Checkout.here())
        command = eval_command(offers)(row, Files(source=Path("mine.py")))
        assert ("--unconfined" in command) is not confined


def test_the_report_and_the_entry_record_it() -> None:
    for confined in (True, False):
        found = report(confined=confined)
        assert report_json.to_json(found)["confined"] is confined
        assert entry_for(found).confined is confined


def test_an_entry_without_the_field_was_confined(tmp_path: Path) -> None:
    path = tmp_path / "leaderboard.yaml"
    leaderboard.record(path, entry())
    path.write_text(path.read_text().replace("  confined: true\n", ""))
    assert leaderboard.load(path).entries[0].confined


def test_the_board_marks_such_an_entry_and_says_what_the_mark_means() -> None:
    text = shown(Board(entries=(entry(confined=False),)))
    assert "ranked^" in text
    assert "^ evaluated, verified or settled outside the sandbox" in text
    assert "^" not in shown(Board(entries=(entry(),)))


def test_what_is_held_of_it_keeps_it() -> None:
    one = judgements.held(entry(confined=False), "verify", "slower", ("run-1",))
    assert isinstance(one, HeldEntry)
    assert not one.confined


def test_verify_says_that_the_entry_was_evaluated_outside_the_sandbox(
    verb: Verb, launches: Launches, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launches.script = [launch(11), launch(12), launch(13)]
    assert verb("verify", ENTRY_RUN, "--launches=3", "--quiet") == Exit.OK
    assert "; the entry was evaluated outside the sandbox" in capsys.readouterr().out
    assert all(setting.confined for setting in launches.settings)
    found = alice(loaded(tmp_path))
    assert found.verified is not None
    assert (found.confined, found.verified.confined) == (False, True)


def test_launches_outside_the_sandbox_are_recorded_with_the_verification(
    verb: Verb, launches: Launches, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launches.script = [launch(number, confined=False) for number in (11, 12, 13)]
    assert verb("verify", ENTRY_RUN, "--launches=3", "--unconfined", "--json=-") == Exit.OK
    decision = json.loads(capsys.readouterr().out)["decision"]
    assert "3 of 3 launches ran outside the sandbox" in decision["why"]
    assert not any(setting.confined for setting in launches.settings)
    verified = alice(loaded(tmp_path)).verified
    assert verified is not None
    assert not verified.confined


def test_rejudge_says_so_and_a_run_in_the_sandbox_makes_it_a_confined_entry(
    verb: Verb, launches: Launches, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    launches.script = [launch(11)]
    assert verb("rejudge", "--entry", ENTRY_RUN, "--rerun", "--apply") == Exit.OK
    assert "the entry was evaluated outside the sandbox" in capsys.readouterr().out
    assert alice(loaded(tmp_path)).confined
    launches.script = [launch(12)] * 2
    verb("rejudge", "--entry", "20260511", "--rerun", "--apply", "--unconfined")
    assert launches.settings[-1].confined is False
