"""The verb `tune`: applies what `doctor` finds in the kernel's settings, and takes it back."""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from rich.console import Console

from harness.board import reports
from harness.cli import result_files
from harness.cli.result_files import JsonFile
from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.judging.worth import worth
from harness.machine import tune
from harness.machine.tune import CACHES, DROP_CACHES, NAMES, Choice
from harness.report.console import new_console
from harness.report.render import terminal
from harness.report.tune import changes_document, changes_json, document_of, to_json, worth_document, worth_json

DESCRIPTION = """Show what of the kernel's settings changes results and what it should be; with --apply change it, with
--restore take that back, also after a crash. Both need root. Values before the change are on the disk before the first
change. GPUs are left alone: no clock, power limit or MIG mode is touched. --worth shows what a change was worth: it
sets two recorded runs of one file side by side, one before the change and one after it."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is done, with which settings, as whom and below which root folder; `worth` are two runs."""

    act: Literal["print", "apply", "restore"]
    choice: Choice
    only: tuple[str, ...]
    json: JsonFile | None
    root: Path
    uid: int
    worth: tuple[str, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `tune`."""
    acts = parser.add_mutually_exclusive_group()
    for act, text in (
        ("print", "show the settings, and what would change (the default)"),
        ("apply", "change them, as root"),
        ("restore", "write back what they were before, as root"),
    ):
        acts.add_argument(f"--{act}", dest="act", action="store_const", const=act, default="print", help=text)
    acts.add_argument(
        "--worth",
        nargs=2,
        default=[],
        metavar=("BEFORE", "AFTER"),
        help="show what empty calls and each shape took in two recorded runs (run ids or report files), and how they "
        "spread",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        choices=[*NAMES, CACHES],
        help="only this setting; may be given several times",
    )
    parser.add_argument(
        "--aslr",
        choices=get_args(tune.Aslr),
        default=Choice.aslr,
        help="address randomisation (default: %(default)s, as pyperf advises; AMD's and Google Benchmark's: off)",
    )
    parser.add_argument(
        "--huge-pages",
        choices=get_args(tune.HugePages),
        default=Choice.huge_pages,
        help="transparent huge pages (default: %(default)s, as doctor advises; AMD's: always)",
    )
    result_files.add_json(parser)


def run(namespace: argparse.Namespace, checkout: Checkout) -> Exit:
    """`tune` on this machine."""
    choice = Choice(aslr=namespace.aslr, huge_pages=namespace.huge_pages)
    asked = Options(
        act=namespace.act,
        choice=choice,
        only=tuple(namespace.only),
        json=namespace.json,
        root=Path("/"),
        uid=os.geteuid(),
        worth=tuple(namespace.worth),
    )
    return carry_out(asked, checkout, new_console())


def carry_out(order: Options, checkout: Checkout, console: Console) -> Exit:
    """Prints, applies or restores. Raises UsageError where that needs root or a file cannot be written."""
    if order.worth:
        found = worth(*(reports.find(run, checkout.root) for run in order.worth))
        if order.json:
            order.json.write(worth_json(found))
        if not (order.json and order.json.is_stdout):
            terminal.show(worth_document(found), console)
        return Exit.OK
    if order.act == "print":
        readings = tune.read(order.root, order.choice, order.only)
        are_asked = not order.only or CACHES in order.only
        blocked = tune.unwritable(order.root / DROP_CACHES) if are_asked else None
        applied = tune.load_snapshot(order.root) is not None
        if order.json:
            order.json.write(to_json(readings, blocked, applied))
        if not (order.json and order.json.is_stdout):
            terminal.show(document_of(readings, blocked, applied), console)
        return Exit.OK
    tune.check_root(order.uid, f"--{order.act}")
    if order.act == "apply":
        changes, what = tune.apply(order.root, order.choice, order.only), "changed; tune --restore takes it back"
    else:
        changes, what = tune.restore(order.root), "restored"
    if order.json:
        order.json.write(changes_json(changes, order.act))
    if not (order.json and order.json.is_stdout):
        terminal.show(changes_document(changes, what), console)
    return Exit.OK
