"""Show what of the kernel's settings changes results and what it should be; with --apply change it, with
--restore take that back, also after a crash. Both need root. Values before the change are on the disk before the first
change. GPUs are left alone: no clock, power limit or MIG mode is touched. --worth shows what a change was worth: it
sets two recorded runs of one file side by side, one before the change and one after it."""

import os
from dataclasses import dataclass
from pathlib import Path

from harness.board import reports
from harness.cli import result_files
from harness.cli.declare import option
from harness.core.checkout import Checkout
from harness.core.decode import encode, part
from harness.core.errors import Exit
from harness.judging.worth import worth
from harness.machine import tune
from harness.machine.tune import CACHES, DROP_CACHES, NAMES, Aslr, Choice, HugePages
from harness.report.tune import changes_document, document_of, worth_document

JSON_SCHEMA = 1  # of --json; 1: first. `now` is the value before a change


@dataclass(frozen=True, kw_only=True)
class TuneHostOrder(result_files.WithFiles):
    """What is done, with which settings; `worth` are two runs. As whom and below which root folder, tests say."""

    print: bool = option(False, "show the settings, and what would change (the default)", group="act")
    apply: bool = option(False, "change them, as root", group="act")
    restore: bool = option(False, "write back what they were before, as root", group="act")
    worth: tuple[str, ...] = option(
        (),
        "show what empty calls and each shape took in two recorded runs (run ids or report files), and how they spread",
        nargs=2,
        metavar=("BEFORE", "AFTER"),
        group="act",
    )
    only: tuple[str, ...] = option((), "only this setting; may be given several times", choices=[*NAMES, CACHES])
    aslr: Aslr = option(
        Choice.aslr,
        "address randomisation (default: %(default)s, as pyperf advises; AMD's and Google Benchmark's: off)",
    )
    huge_pages: HugePages = option(
        Choice.huge_pages, "transparent huge pages (default: %(default)s, as doctor advises; AMD's: always)"
    )
    root: Path = Path("/")
    uid: int | None = None  # None: who runs this


def run(order: TuneHostOrder, checkout: Checkout) -> Exit:
    """Prints, applies or restores. Raises UsageError where that needs root or a file cannot be written."""
    choice = part(order, Choice)
    if order.worth:
        found = worth(*(reports.find(run, checkout.root) for run in order.worth))
        document = worth_document(found)
        return result_files.tell(order, document, json=lambda: {"schema": JSON_SCHEMA, "worth": encode(found)})
    if not (order.apply or order.restore):
        readings = tune.read(order.root, choice, order.only)
        are_asked = not order.only or CACHES in order.only
        blocked = tune.unwritable(order.root / DROP_CACHES) if are_asked else None
        applied = tune.load_snapshot(order.root) is not None
        told = {"settings": readings, "caches_blocked": blocked, "applied": applied}
        document = document_of(readings, blocked, applied)
        return result_files.tell(order, document, json=lambda: {"schema": JSON_SCHEMA} | encode(told))
    act = "apply" if order.apply else "restore"
    tune.check_root(os.geteuid() if order.uid is None else order.uid, f"--{act}")
    if order.apply:
        changes, what = tune.apply(order.root, choice, order.only), "changed; tune --restore takes it back"
    else:
        changes, what = tune.restore(order.root), "restored"
    document = changes_document(changes, what)
    return result_files.tell(order, document, json=lambda: {"schema": JSON_SCHEMA, act: encode(changes)})
