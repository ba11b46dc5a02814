"""The command line's options, and the records that they become."""

import argparse
import ast
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from harness.cli import contest, export, main, options
from harness.cli.result_files import JsonFile
from harness.core.checkout import ROOT
from harness.core.errors import UsageError
from harness.kinds.settings import Asked


def imports(path: Path) -> set[str]:
    """The packages that a module imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


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
    main.verb(name).add_arguments(parser)
    assert [action.option_strings for action in options_of(parser) if action.option_strings and not action.help] == []


@pytest.mark.parametrize("name", contest.VERBS)
def test_a_verb_of_a_contest_is_asked_for_exactly_what_its_record_has(name: str) -> None:
    """Neither a field that no argument fills, nor an argument that nothing reads. `engine` is where all of it runs."""
    verb, parser = contest.VERBS[name], argparse.ArgumentParser(add_help=False)
    for argument in verb.arguments:
        contest.ARGUMENTS[argument](parser)
    given = {action.dest for action in options_of(parser)} - {"engine"}
    assert {field.name for field in fields(verb.order)} == given


def test_every_verb_has_arguments_a_description_and_a_line_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in main.VERBS.items():
        assert main.verb(name).DESCRIPTION.split(), name
        assert text, name
        with pytest.raises(SystemExit, match="0"):
            main.parse([name, "--help"])
        assert "exit codes:" in capsys.readouterr().out


def test_what_an_evaluation_was_asked_for_is_one_frozen_record() -> None:
    words = ["eval", "a2a", "mine.py", "--ranks=2", "--suite=quick", "--device=cpu", "--timeout=3", "--seconds=0.5"]
    namespace = main.parse([*words, "--eval=theirs", "--seed=7", "--unconfined"])
    asked = options.asked(namespace)
    assert asked == Asked(
        problem="a2a",
        file=Path("mine.py"),
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
        asked.ranks = 4  # type: ignore[misc]


def test_an_option_that_a_verb_does_not_have_keeps_its_default() -> None:
    asked = options.asked(main.parse(["check", "a2a"]))
    assert asked == Asked(problem="a2a", cpu_suite="quick")


def test_an_error_does_not_replace_a_result_that_was_written(tmp_path: Path) -> None:
    """Nor is one written where the result itself could not be."""
    file = JsonFile(str(tmp_path / "result.json"))
    assert not file.is_written
    file.write({"a": 1})
    assert file.is_written


def test_the_problem_is_an_argument_or_an_option_of_every_verb_that_has_one() -> None:
    parse = main.parse
    for words in (["a2a", "my.py"], ["my.py", "--problem", "a2a"]):
        found = options.asked(parse(["eval", *words]))
        assert (found.problem, found.file) == ("a2a", Path("my.py"))
    assert options.asked(parse(["check", "--problem", "a2a"])) == options.asked(parse(["check", "a2a"]))
    for verb in ("board", "history", "export", "roofline", "settle", "rejudge"):
        assert (
            options.problem_of(parse([verb, "a2a"])) == options.problem_of(parse([verb, "--problem", "a2a"])) == "a2a"
        )
    for words in (["a2a", "mine.py"], ["mine.py", "--problem", "a2a"]):
        found = options.asked(parse(["new-submission", *words]))
        assert (found.problem, found.file) == ("a2a", Path("mine.py"))
    for words in (["a2a", "20260101"], ["20260101", "--problem", "a2a"]):
        namespace = parse(["verify", *words])
        assert (options.problem_of(namespace), namespace.entry) == ("a2a", "20260101")
    assert parse(["verify", "20260101"]).entry == "20260101"
    for option, names in ((None, ["a2a", "a.py", "b.py"]), ("a2a", ["a.py", "b.py"])):
        assert options.problem_and_files(option, names) == ("a2a", ("a.py", "b.py"))
    assert options.problem_and_files(None, ["20260101", "20260102"]) == (None, ("20260101", "20260102"))
    with pytest.raises(UsageError, match="which problem"):
        options.asked(parse(["eval"]))
    with pytest.raises(UsageError, match="two problems: a2a and --problem gemm_rs"):
        options.problem_of(parse(["board", "a2a", "--problem", "gemm_rs"]))


@pytest.mark.parametrize("verb", ["eval", "check", "merge"])
def test_the_usage_says_that_the_problem_may_be_left_out(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.parse([verb, "--help"])
    assert "[PROBLEM] [file]" in capsys.readouterr().out


def test_a_file_of_no_known_format_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--out x.txt: 'txt' is no format; end the name in .csv"):
        export.target(None, Path("x.txt"))
    assert export.target("csv", Path("x.txt")).form == "csv"
