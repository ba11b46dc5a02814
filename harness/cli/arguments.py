"""The parser of command lines: argparse's, with options anywhere and with hints where a word is not known."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from harness.core.decode import did_you_mean

BESIDE = (argparse.PARSER, argparse.REMAINDER)  # what follows such a positional is another parser's


class Parser(argparse.ArgumentParser):
    """Takes options before, between and behind the other arguments. An error shows the usage of the verb that it is
    about, and the known word that is near one that is not known."""

    is_within = False  # parse_known_intermixed_args, which calls parse_known_args itself before Python 3.12.7

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
