"""The command line of a verb, made of the record that the verb takes: its order.

    @dataclass(frozen=True, kw_only=True)
    class PlotOrder:
        recorded: str = argument("a run id", metavar="RUN")
        out: Path = option(REQUIRED, "where to", "-o", "--out")
        colour: bool = option(False, "draw it in colour")

A field's type says how words become its value: Path, int or another callable converts one word, bool is a switch, a
Literal has choices, a tuple takes several words. Other fields are none of the command line's. Options that several
verbs have are fields of a record that their orders inherit.
"""

import argparse
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

from harness.core.decode import did_you_mean
from harness.core.errors import UsageError

REQUIRED: Any = MISSING  # in place of a default
BESIDE = (argparse.PARSER, argparse.REMAINDER)  # what follows such a positional is another parser's


@dataclass(frozen=True, kw_only=True)
class Option:
    """What a field's type and default do not say: the help, the flags (none: the field's name), argparse's own words,
    and the group of options of which one can be given. An argument that has a flag too can be given either way;
    `missing` is said where it is given in neither and the order cannot do without it."""

    help: str
    flags: tuple[str, ...]
    is_argument: bool = False
    missing: str = ""
    group: str = ""
    words: dict[str, Any]


def option(default: Any, help: str, *flags: str, group: str = "", **words: Any) -> Any:
    """A field that is an option of the command line."""
    return field(default=default, metadata={Option: Option(help=help, flags=flags, group=group, words=words)})


def argument(help: str, *flags: str, default: Any = REQUIRED, missing: str = "", **words: Any) -> Any:
    """A field that is an argument, which needs no flag."""
    one = Option(help=help, flags=flags, is_argument=True, missing=missing, words=words)
    return field(default=default, metadata={Option: one})


def order_type(run: Callable[..., Any]) -> Any:
    """The record that a verb takes: the annotation of its first parameter."""
    return next(iter(inspect.signature(run).parameters.values())).annotation


def declared(order: Any) -> Iterator[tuple[Field[Any], Option]]:
    """The fields of an order, or of its type, that the command line fills."""
    return ((each, each.metadata[Option]) for each in fields(order) if Option in each.metadata)


def flags_of(each: Field[Any], one: Option) -> tuple[str, ...]:
    return one.flags or (f"--{each.name.replace('_', '-')}",)


def fill(parser: argparse.ArgumentParser, verb: Any) -> None:
    """Adds what a verb's module declares: the order of its `run`, or its SUB_VERBS, functions whose docstrings begin
    with what --help says of them, in a sentence. A verb with one of them describes that too."""
    sub_verbs: dict[str, Callable[..., Any]] = getattr(verb, "SUB_VERBS", {})
    if not sub_verbs:
        add(parser, verb.run)
        return
    commands = parser.add_subparsers(title="verbs", required=True, metavar="VERB", dest="sub_verb")
    for name, run in sub_verbs.items():
        sentence = " ".join((run.__doc__ or "").partition("\n\n")[0].split())
        text = sentence[0].lower() + sentence[1:].removesuffix(".")
        description = verb.__doc__ if len(sub_verbs) == 1 else sentence
        add(commands.add_parser(name, help=text, description=description), run)


def add(parser: argparse.ArgumentParser, run: Callable[..., Any]) -> None:
    groups: dict[str, Any] = {"": parser}
    for each, one in declared(order_type(run)):
        words = {"help": one.help} | _words(each, one)
        if not one.is_argument:
            if one.group not in groups:
                groups[one.group] = parser.add_mutually_exclusive_group()
            if each.default is MISSING:
                words["required"] = True
            groups[one.group].add_argument(*flags_of(each, one), dest=each.name, **words)
            continue
        if one.flags or (each.default is not MISSING and "nargs" not in words):
            words["nargs"] = "?"
        parser.add_argument(each.name, **words)
        if one.flags:
            parser.add_argument(
                *one.flags, dest=f"{each.name}_option", metavar=words["metavar"], help="the same, as an option"
            )
    parser.set_defaults(run=run)


def _words(each: Field[Any], one: Option) -> dict[str, Any]:
    """argparse's words for a field: action, nargs, type, choices and default, as its type and its default say."""
    hint: Any = each.type
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    (kind,) = (hint for hint in kinds if hint is not NoneType)
    words: dict[str, Any] = {} if each.default is MISSING else {"default": each.default}
    if kind is bool:
        switch = "store_false" if each.default else "store_true"
        words["action"] = switch if len(kinds) == 1 else argparse.BooleanOptionalAction
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
        if one.is_argument:
            words["nargs"] = "+" if each.default is MISSING else "*"
        elif "nargs" not in one.words:
            words |= {"action": "append", "default": None}  # which argparse would append to
    if kind is str and each.default is None and not one.is_argument:
        words["type"] = _not_empty
    if get_origin(kind) is Literal:
        words["choices"] = get_args(kind)
    elif kind not in (str, bool):
        words["type"] = kind
        words |= {"metavar": "N"} if kind is int else {} if kind is float else {"metavar": "FILE"}
    return words | one.words


def _not_empty(text: str) -> str:
    if not text:  # `--suite=$UNSET` must not mean the default
        raise argparse.ArgumentTypeError("its value is empty; write one, or leave the option out")
    return text


def order_of(run: Callable[..., Any], values: argparse.Namespace) -> Any:
    """The order that a command line gives. Raises UsageError where an argument is missing, or is given twice."""
    kind, words = order_type(run), dict(vars(values))
    arguments = [(each, one) for each, one in declared(kind) if one.is_argument]
    for at, (each, one) in enumerate(arguments):
        named = words.get(f"{each.name}_option")
        if named is not None:  # then a word in this argument's place is the next one's that may be left out
            places = [(each, one), *(other for other in arguments[at + 1 :] if other[0].default is None)]
            found = [words[other.name] for other, _ in places if words[other.name] is not None]
            if len(found) == len(places):
                raise UsageError(f"two {each.name}s: {found[0]} and {one.flags[0]} {named}; name one")
            for place, word in zip(places, [named, *found], strict=False):
                words[place[0].name] = _words(*place).get("type", str)(word)
        if one.missing and words[each.name] is None:
            raise UsageError(one.missing)
    given = {each.name: words[each.name] for each, _ in declared(kind) if words[each.name] is not None}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def given(order: Any, *names: str) -> list[str]:
    """The flags of these fields' options, where they are not as they are by default."""
    found = [(each, one) for each, one in declared(order) if each.name in names and not one.is_argument]
    return [flags_of(*each)[-1] for each in found if getattr(order, each[0].name) != each[0].default]


class Parser(argparse.ArgumentParser):
    """Takes options before, between and behind the other arguments, by their whole names. An error names the verb that
    it is about, and the known word that is near one that is not known."""

    is_within = False  # parse_known_intermixed_args, which calls parse_known_args itself before Python 3.12.7

    def __init__(self, **words: Any) -> None:
        super().__init__(allow_abbrev=False, **words)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """What argparse finds. A parser of options and files ends with an error where words are left."""
        if self.is_within or any(action.nargs in BESIDE for action in self._actions):
            return super().parse_known_args(args, namespace)
        if args is not None and "--" in args:  # what follows is no option; argparse loses that where they are mixed
            found, left = super().parse_known_args(args, namespace)
        else:
            self.is_within = True
            try:
                found, left = self.parse_known_intermixed_args(args, namespace)
            finally:
                self.is_within = False
        if left:
            self.unknown(left)
        return found, left

    def error(self, message: str) -> NoReturn:
        """Ends with the message alone: the usage of `eval` is 15 lines, below which nobody looks for it."""
        self.exit(2, f"{self.prog}: error: {message} (see --help)\n")

    def unknown(self, words: Sequence[str]) -> NoReturn:
        """Ends with the words that nothing takes, and what the first of them may have meant."""
        unknown = [word for word in words if word.startswith("-")]
        hint = did_you_mean(unknown[0].partition("=")[0], self._option_string_actions) if unknown else ""
        self.error(f"unrecognized arguments: {' '.join(unknown or words)}{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        known = [str(one) for one in action.choices]
        hint = did_you_mean(str(value), known) or f" (choose from {', '.join(known)})"
        raise argparse.ArgumentError(action, f"invalid choice: '{value}'{hint}")
