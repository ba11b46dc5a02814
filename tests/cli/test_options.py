"""The command line's options, and the records that they become."""

import argparse
import ast
import errno
import functools
import json
import os
import re
import runpy
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from harness.cli import bundle, compare, declare, export, main, options
from harness.cli import eval as eval_verb
from harness.cli.result_files import ResultFile
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import Exit, UsageError
from harness.kinds.settings import Asked
from harness.nodes.meeting import TOKEN
from harness.problems.shape_file import problem_names


def imports(path: Path) -> set[str]:
    """The packages that a module imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


PARSER = functools.cache(main.parser)


@pytest.fixture(autouse=True)
def each_parser_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making one takes longer than all that is done with it here."""
    monkeypatch.setattr(main, "parser", PARSER)


def test_argparse_is_imported_by_the_command_line_alone() -> None:
    others = [path for path in (ROOT / "harness").rglob("*.py") if path.parent.name != "cli"]
    assert len(others) > 50
    assert [str(path) for path in others if "argparse" in imports(path)] == []


def options_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All that the parser takes, with the verbs behind it."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from options_of(below)
        else:
            yield action


@pytest.mark.parametrize("name", main.VERBS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    parser = argparse.ArgumentParser()
    declare.fill(parser, main.verb(name))
    assert [action.option_strings for action in options_of(parser) if action.option_strings and not action.help] == []


def test_every_verb_has_arguments_a_description_and_a_line_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in main.VERBS.items():
        module = main.verb(name)
        assert str(getattr(module, "DESCRIPTION", module.__doc__)).split(), name
        assert text, name
        with pytest.raises(SystemExit, match="0"):
            main.parse([name, "--help"])
        assert "exit codes:" in capsys.readouterr().out


def test_what_an_evaluation_was_asked_for_is_one_frozen_record() -> None:
    words = ["eval", "a2a", "mine.py", "--ranks=2", "--suite=quick", "--device=cpu", "--timeout=3", "--seconds=0.5"]
    order = main.parse([*words, "--eval=theirs", "--seed=7", "--unconfined"]).order
    asked = options.asked(order)
    assert asked == Asked(
        problem="a2a",
        file=Path("mine.py"),
        launches=None,
        suite="quick",
        ranks=2,
        device="cpu",
        timeout_s=3.0,
        seconds=0.5,
        evaluator="theirs",
        seed=7,
        confined=False,
        cpu_suite="cpu",
    )
    with pytest.raises(FrozenInstanceError):
        order.ranks = 4


def test_an_option_that_a_verb_does_not_have_keeps_its_default() -> None:
    asked = options.asked(main.parse(["check", "a2a"]).order)
    assert asked == Asked(problem="a2a", cpu_suite="quick")


def test_an_error_does_not_replace_a_result_that_was_written(tmp_path: Path) -> None:
    """Nor is one written where the result itself could not be."""
    file = ResultFile("json", str(tmp_path / "result.json"))
    assert not file.is_written
    file.write({"a": 1})
    assert file.is_written


def test_a_result_that_cannot_be_written_leaves_the_one_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ResultFile("json", str(tmp_path / "result.json"))
    file.write({"a": 1})

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"--json .*: cannot be written: No space left"):
        file.write({"a": 2})
    assert json.loads((tmp_path / "result.json").read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_result_goes_into_a_file_whose_folder_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ResultFile("json", str(tmp_path / "result.json"))
    file.write({"a": 1})

    def mounted(old: object, new: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    monkeypatch.setattr(os, "replace", mounted)
    file.write({"a": 2})
    assert json.loads((tmp_path / "result.json").read_text()) == {"a": 2}


def test_the_problem_is_an_argument_or_an_option_of_every_verb_that_has_one() -> None:

    def parse(words: list[str]) -> Any:
        return main.parse(words).order

    for verb in ("eval", "check", "merge", "new-submission"):
        for words in (["a2a", "my.py"], ["my.py", "--problem", "a2a"], ["--problem", "a2a", "my.py"]):
            found = parse([verb, *words])
            assert (found.problem, found.file) == ("a2a", Path("my.py"))
        assert parse([verb, "--problem", "a2a"]) == parse([verb, "a2a"])
        with pytest.raises(UsageError, match="two problems: gemm and --problem a2a"):
            parse([verb, "gemm", "my.py", "--problem", "a2a"])
    for verb in ("board", "history", "export", "roofline", "settle", "rejudge", "tune-kernel"):
        assert parse([verb, "a2a"]).problem == parse([verb, "--problem", "a2a"]).problem == "a2a"
    for words in (["a2a", "20260101"], ["20260101", "--problem", "a2a"]):
        found = parse(["verify", *words])
        assert (found.problem, found.entry) == ("a2a", "20260101")
    assert parse(["verify", "20260101"]).problem is None
    for option, names in ((None, ["a2a", "a.py", "b.py"]), ("a2a", ["a.py", "b.py"])):
        assert options.problem_and_files(option, names) == ("a2a", ("a.py", "b.py"))
    assert options.problem_and_files(None, ["20260101", "20260102"]) == (None, ("20260101", "20260102"))
    assert options.problem_and_files(None, ["20260101"]) == (None, ("20260101",))
    for verb in ("eval", "roofline", "settle", "new-submission"):
        with pytest.raises(UsageError, match="which problem"):
            parse([verb])
    with pytest.raises(UsageError, match="two problems: a2a and --problem gemm_rs"):
        parse(["board", "a2a", "--problem", "gemm_rs"])


@pytest.mark.parametrize("verb", ["eval", "check", "merge"])
def test_the_usage_says_that_the_problem_may_be_left_out(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.parse([verb, "--help"])
    assert "[PROBLEM] [file]" in capsys.readouterr().out


def test_a_file_of_no_known_format_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--out x.txt: 'txt' is no format; end the name in .csv"):
        export.format_of(None, Path("x.txt"))
    assert export.format_of("csv", Path("x.txt")) == "csv"


def leaves(parser: argparse.ArgumentParser) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    """The parsers of a command's verbs, with the words that lead to each; the command's own where it has no verbs."""
    verbs = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not verbs:
        yield [], parser
    for name, below in verbs[0].choices.items() if verbs else ():
        for words, leaf in leaves(below):
            yield [name, *words], leaf


def word_of(action: argparse.Action, name: str) -> str:
    """A word that the argument takes."""
    if action.choices:
        return str(next(iter(action.choices)))
    return "3" if action.type in (int, float) else name


def plain(namespace: argparse.Namespace) -> dict[str, object]:
    """What was asked for; a result file by its name."""
    return {key: value.name if isinstance(value, ResultFile) else value for key, value in vars(namespace).items()}


@pytest.mark.parametrize("command", main.VERBS)
def test_options_may_stand_before_between_and_behind_other_arguments(command: str) -> None:
    """Every verb, with every option that takes a value in every place."""
    mine = [(words, leaf) for words, leaf in leaves(main.parser(command)) if words[0] == command]
    assert mine
    for words, leaf in mine:
        positionals = [action for action in leaf._actions if not action.option_strings]
        takes = [word_of(action, f"word{index}") for index, action in enumerate(positionals)]
        valued = [one for one in leaf._actions if one.option_strings and one.nargs is None]
        required = [word for one in valued if one.required for word in (one.option_strings[-1], "x.svg")]
        for option in (one for one in valued if not one.required):
            given = [option.option_strings[-1], word_of(option, "value")]
            expected = plain(main.parse([*words, *takes, *required, *given]).values)
            for at in range(len(takes) + 1):
                found = main.parse([*words, *takes[:at], *given, *takes[at:], *required])
                assert plain(found.values) == expected, (words, given, at)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["bord"], "invalid choice: 'bord'; did you mean 'board'?"),
        (["contest", "shw"], "invalid choice: 'shw'; did you mean 'show'?"),
        (["bundle", "chekc", "x.tar.gz"], "invalid choice: 'chekc'; did you mean 'check'?"),
        (["check", "a2a", "--device", "cpu", "--rank", "2", "my.py"], "arguments: --rank; did you mean '--ranks'?"),
        (["board", "a2a", "b"], "unrecognized arguments: b ("),
        (["eval", "a2a", "--device", "cpo"], "argument --device: invalid choice: 'cpo'; did you mean 'cpu'?"),
        (["eval", "a2a", "--mode", "xyz"], "invalid choice: 'xyz' (choose from test, benchmark, leaderboard, profile)"),
    ],
)
def test_a_word_that_is_not_known_is_answered_by_the_near_one(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main.parse(words)
    error = capsys.readouterr().err
    assert says in error
    assert len(words) == 1 or error.startswith(f"python -m harness {words[0]}")
    assert error.count("\n") == 1


def test_what_stands_behind_two_dashes_is_a_file() -> None:
    assert main.parse(["check", "--suite", "cpu", "a2a", "--", "--odd.py"]).order.file == Path("--odd.py")


def test_no_shipped_problem_is_taken_for_a_verb_of_bundle() -> None:
    """`bundle PROBLEM` is an old name of `merge PROBLEM`."""
    for name in problem_names(Checkout(ROOT)):
        assert bundle.renamed(["bundle", name]) == ["merge", name]


def exits(arguments: list[str]) -> int:
    """The exit code of the command."""
    with pytest.raises(SystemExit) as ended:
        main.main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("words", [["eval", "a2a", "--suite="], ["roofline", "gemm", "--hardware", ""]])
def test_an_option_without_a_value_is_not_its_default(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exits(words) == Exit.USAGE
    assert "its value is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["board", "--json"],
        ["board", "--csv"],
        ["check", "a2a", "--suite", "quick", "--markdown"],
        ["eval", "a2a", "--no-record", "--junit"],
        ["page", "-o"],
        ["export", "--format", "csv", "-o"],
        ["merge", "a2a", "-o"],
    ],
)
@pytest.mark.parametrize("name", ["leaderboard.yaml", "shapes.yml"])
def test_no_result_is_written_over_a_python_or_yaml_file(
    words: list[str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor is the error."""
    file = tmp_path / name
    file.write_text("# mine")
    assert exits([*words, str(file)]) == Exit.USAGE
    assert f"{file}: this {file.suffix} file is there, and is no result" in capsys.readouterr().err
    assert file.read_text() == "# mine"


def test_a_merged_file_takes_the_place_of_an_earlier_one_but_of_no_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    merged, moe = tmp_path / "merged.py", ROOT / "submissions" / "moe" / "submission.py"
    assert [exits(["merge", "a2a", "-o", str(merged)]) for _ in range(2)] == [0, 0]
    before = moe.read_bytes()
    assert exits(["merge", "a2a", "-o", str(moe)]) == Exit.USAGE
    assert "a source of this checkout is there" in capsys.readouterr().err
    assert moe.read_bytes() == before
    with pytest.raises(UsageError, match=r"this \.py file is there"):
        ResultFile("json", str(merged)).check()


def test_two_results_are_not_written_to_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result"
    assert exits(["board", "--json", str(file), "--csv", f"{tmp_path}/./result"]) == Exit.USAGE
    assert f"--json {file} and --csv {file} are one file" in capsys.readouterr().err.replace("/./", "/")
    assert exits(["board", "--json", "-", "--csv", "-", "--markdown", "-"]) == Exit.USAGE
    printed = capsys.readouterr()
    assert "--json - and --markdown - and --csv -: only one of them" in printed.err
    assert printed.out == "", "no error in several formats on one stream"
    assert exits(["board", "--json", "/dev/null", "--csv", "/dev/null"]) == 0


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (["export", "--out"], b"submission_id,"),
        (["page", "--out"], b"<!doctype html>"),
        (["merge", "a2a", "--out"], b"#!POPCORN leaderboard amd-all2all"),
    ],
)
def test_a_dash_is_standard_output(
    words: list[str],
    begins: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """With nothing else there."""
    monkeypatch.chdir(tmp_path)
    assert exits([*words, "-"]) == 0
    printed = capfdbinary.readouterr().out
    assert printed.startswith(begins)
    assert b"\n-: " not in printed
    assert list(tmp_path.iterdir()) == []


def test_an_author_is_a_name_that_boards_can_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.parse(["eval", "a2a", "--author", " Ada L. "]).order.author == "Ada L."
    for verb in ("eval", "competition"):
        for name in ("", "  ", "a\nb", "a" * 65, "\x1b[1m"):
            with pytest.raises(SystemExit, match="2"):
                main.parse([verb, "a2a", "--author", name])
            assert "--author: expected 1 to 64 printable characters" in capsys.readouterr().err


def test_a_meeting_with_the_leader_is_not_both_asked_for_and_left_out(tmp_path: Path) -> None:
    order = main.parse(["eval", "a2a", "--until", "1", "--no-leader"]).order
    with pytest.raises(UsageError, match="--until 1 asks for what --no-leader leaves out"):
        eval_verb.run(order, Checkout(tmp_path))


def test_an_interrupt_while_modules_are_imported_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "main", interrupted)
    with pytest.raises(SystemExit, match="130"):
        runpy.run_module("harness", run_name="__main__")
    assert capsys.readouterr().err == "\ninterrupted: nothing was begun\n"


@pytest.mark.parametrize(
    ("sides", "says"),
    [
        (["gemm", "20260101", "20260102"], "gemm is a problem: recorded runs name theirs, so leave it out"),
        (["gemm", "20260101", "my.py"], "20260101 is a recorded run: name two runs without a problem, or its source"),
    ],
)
def test_runs_and_files_are_not_compared(sides: list[str], says: str, tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes" / "gemm.yaml").write_text("")
    (tmp_path / "runs" / "20260101").mkdir(parents=True)
    with pytest.raises(UsageError, match=re.escape(says)):
        compare.run(main.parse(["compare", *sides]).order, checkout)


@pytest.mark.parametrize("command", main.VERBS)
def test_every_verb_says_that_its_result_cannot_be_written_before_it_begins(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words, leaf in leaves(main.parser(command)):
        for option in ("--json", "--markdown", "--junit", "--csv"):
            if words[0] != command or option not in leaf._option_string_actions:
                continue
            positionals = [action for action in leaf._actions if not action.option_strings]
            takes = [word_of(action, f"word{index}") for index, action in enumerate(positionals)]
            assert exits([*words, *takes, option, "no/such/folder/x"]) == Exit.USAGE
            assert f"{option} no/such/folder/x: its folder does not exist" in capsys.readouterr().err


def test_a_problem_stands_before_files_whatever_these_are_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A problem may itself be a Python file, and submissions JSON files, programs or folders."""
    monkeypatch.chdir(tmp_path)
    problem = "class Model: ...\n\ndef get_inputs(): ...\n\ndef get_init_inputs(): ...\n"
    for name, text in (("1_x.py", problem), ("a.json", "{}"), ("b.json", "{}"), ("s/build.sh", "")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    for first, *others in (
        ["trace/one", "a.json", "b.json"],
        ["1_x.py", "mine.py", "a.json"],
        ["iopddl", "a.json", "s"],
    ):
        assert options.problem_and_files(None, [first, *others]) == (first, tuple(others))
    assert options.problem_and_files(None, ["a.json", "b.json"]) == (None, ("a.json", "b.json"))
    with pytest.raises(UsageError, match=r"a\.json is a file: say of which problem"):
        compare.check_sides(["a.json", "b.json"], files=False)


def test_an_agents_file_of_another_problem_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would tell an agent to work on another file."""
    for number, problem in enumerate(("rms_norm", "rms_norm", "gemm")):
        order = main.parse(["new-submission", problem, str(tmp_path / f"{number}.py")])
        assert order.carry_out(Checkout(ROOT)) == Exit.OK
        assert ("not of this problem" in capsys.readouterr().out) == (problem == "gemm")


def test_an_agents_variable_that_is_no_number_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "secret")
    monkeypatch.setenv("MASTER_PORT", "\u00b2")
    with pytest.raises(UsageError, match=r"--master-port is needed \(or MASTER_PORT, a number\)"):
        main.parse(["agent", "--master-addr", "here"]).carry_out(Checkout(tmp_path))
