"""A verb's command line comes from the fields of its order; the Makefile and the docs know the same options."""

import argparse
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from harness.cli import declare, main
from harness.cli.declare import REQUIRED, argument, option
from harness.core.checkout import ROOT, Checkout
from harness.core.decode import part
from harness.core.errors import Exit, UsageError

MAKEFILE = (ROOT / "Makefile").read_text()
USAGE = (ROOT / "docs" / "usage.md").read_text()


@dataclass(frozen=True, kw_only=True)
class SampleOrder:
    """One field of every form."""

    problem: str = argument("which", "--problem", metavar="PROBLEM", missing="which one?")
    file: Path | None = argument("a file", default=None)
    count: int = option(3, "how many (default: %(default)s)")
    seconds: float | None = option(None, "how long", "--time")
    mode: Literal["fast", "slow"] = option("fast", "how")
    confined: bool = option(True, "out", "--unconfined")
    loud: bool = option(False, "loudly")
    smoke: bool | None = option(None, "either way")
    only: tuple[str, ...] = option((), "several")
    pair: tuple[int, ...] = option((), "two", nargs=2, group="one")
    shown: bool = option(False, "or this", group="one")
    why: str = option(REQUIRED, "needed")
    now: int = 7  # not of the command line


def sample(order: SampleOrder, checkout: Checkout) -> Exit:
    """A verb."""
    raise AssertionError


def order_of(*words: str) -> SampleOrder:
    parser = declare.Parser(prog="x")
    declare.add(parser, sample)
    found: SampleOrder = declare.order_of(sample, parser.parse_args(words))
    return found


def test_fields_that_are_not_given_have_the_records_defaults() -> None:
    assert order_of("a2a", "--why", "x") == SampleOrder(problem="a2a", why="x")


def test_words_become_values_of_the_fields_types() -> None:
    words = ["--why=x", "--count", "5", "--time", "0.5", "--mode", "slow", "--unconfined", "--loud", "--no-smoke"]
    found = order_of("a2a", "mine.py", *words, "--only", "a", "--only", "b", "--pair", "1", "2")
    assert found == SampleOrder(
        problem="a2a",
        file=Path("mine.py"),
        count=5,
        seconds=0.5,
        mode="slow",
        confined=False,
        loud=True,
        smoke=False,
        only=("a", "b"),
        pair=(1, 2),
        why="x",
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a2a"], "the following arguments are required: --why"),
        (["a2a", "--why=x", "--mode", "sloe"], "invalid choice: 'sloe'; did you mean 'slow'?"),
        (["a2a", "--why=x", "--count", "many"], "argument --count: invalid int value: 'many'"),
        (["a2a", "--why=x", "--shown", "--pair", "1", "2"], "argument --pair: not allowed with argument --shown"),
        (["a2a", "--why=x", "--coun", "4"], "unrecognized arguments: --coun; did you mean '--count'?"),
        (["a2a", "--why=x", "--now", "4"], "unrecognized arguments: --now"),
    ],
)
def test_what_fits_no_field_is_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        order_of(*words)
    assert says in capsys.readouterr().err


def test_an_argument_that_is_also_an_option_is_taken_either_way() -> None:
    expected = SampleOrder(problem="a2a", file=Path("mine.py"), why="x")
    assert order_of("a2a", "mine.py", "--why=x") == expected
    assert order_of("mine.py", "--why=x", "--problem", "a2a") == expected
    with pytest.raises(UsageError, match="two problems: gemm and --problem a2a; name one"):
        order_of("gemm", "mine.py", "--why=x", "--problem", "a2a")
    with pytest.raises(UsageError, match=r"which one\?"):
        order_of("--why=x")


def test_a_part_of_an_order_is_a_record_of_the_fields_that_both_have() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wanted:
        count: int
        loud: bool = True
        elsewhere: str = "here"

    found = SampleOrder(problem="a2a", why="x", count=4)
    assert part(found, Wanted) == Wanted(count=4, loud=False)
    assert part(found, Wanted, count=9, elsewhere="there") == Wanted(count=9, loud=False, elsewhere="there")
    assert declare.given(found, "count", "seconds", "problem") == ["--count"]


# ---- the Makefile ----------------------------------------------------------------------------------------------------
def flags_of(verb: str) -> set[str]:
    """The options of a verb, without the dashes; not those that its help does not show."""
    parser = declare.Parser(add_help=False)
    declare.fill(parser, main.verb(verb))
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    return {flag[2:] for action in shown for flag in action.option_strings if flag.startswith("--")}


def recipes() -> dict[str, str]:
    """What the target of each verb calls, which is the first that calls it; with the variables of options in full."""
    text = MAKEFILE.replace("\\\n", "")
    macros = dict(re.findall(r"^([A-Z_]+) = (.*call flag.*)$", text, re.MULTILINE))
    found = {}
    for verb, rest in re.findall(r"-m harness ([a-z-]+) (.*)", text):
        for name, value in macros.items():
            rest = rest.replace(f"$({name})", value)
        found.setdefault(verb, rest)
    return found


KNOWN = set(re.search(r"^KNOWN := ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)[1].replace("\\", " ").split())  # type: ignore[index]


@pytest.mark.parametrize("verb", [verb for verb in recipes() if verb not in ("bundle", "contest")])
def test_a_variable_of_make_is_the_option_of_that_name(verb: str) -> None:
    """And every option of the verb that there is a variable for is passed on."""
    recipe, flags = recipes()[verb], flags_of(verb)
    passed = dict(re.findall(r"\$\(call flag,([a-z-]+),([A-Z_]+)\)", recipe))
    assert {flag: flag.upper().replace("-", "_") for flag in passed} == passed
    assert set(passed) <= flags
    words = set(re.findall(r"\$\(call quoted,([A-Z_]+)\)|\$\(if \$\((APPLY|FORMAT)\)", recipe))
    given = {*passed.values(), *(name for pair in words for name in pair if name)}
    assert {flag for flag in flags if flag.upper().replace("-", "_") in KNOWN - given} == set()


@pytest.mark.parametrize("text", ["a'b", 'a"b', "$(rm) `x`", "a b;c, d", 'O\'Hara "$HOME" \\ # !'])
def test_a_variable_of_make_reaches_python_unharmed(text: str, tmp_path: Path) -> None:
    printed = tmp_path / "python"
    printed.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    printed.chmod(0o755)
    command = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), f"PYTHON={printed}"]
    for words in (["eval", f"PROBLEM={text}", f"AUTHOR={text}"], ["compare", f"A={text}", f"B={text}"]):
        done = subprocess.run([*command, *words], cwd=tmp_path, capture_output=True, text=True, timeout=99, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines().count(text) == 2, done.stdout


# ---- the docs --------------------------------------------------------------------------------------------------------
def test_the_table_of_options_of_eval_is_complete() -> None:
    """With the variable of make beside each option that has one."""
    section = USAGE.partition("\n## eval\n")[2].partition("\n## ")[0]
    listed: dict[str, str] = {}
    for options, variables, _ in re.findall(r"^\| (`.*?`) \|(.*?)\| (.*) \|$", section, re.MULTILINE):
        flags = re.findall(r"`(?:--)?([a-z-]+)[^`]*`", options.replace("`-q`, ", "").replace("`-v`, ", ""))
        names = re.findall(r"`([A-Z_]+)`", variables)
        listed |= dict(zip(flags, [*names, *[""] * len(flags)], strict=False))
    passed = dict(re.findall(r"\$\(call flag,([a-z-]+),([A-Z_]+)\)", recipes()["eval"]))
    expected: dict[str, Any] = {flag: passed.get(flag, "") for flag in flags_of("eval") - {"problem"}}
    assert listed == expected | {"problem": "PROBLEM", "file": "SUBMISSION"}
