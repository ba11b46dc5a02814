"""The entry that leads a board, as the A of `compare --against leader`."""

from harness.board import judgements, places, runs
from harness.board.entries import Board, Entry, Group
from harness.core.checkout import Checkout
from harness.core.errors import HarnessError, UsageError
from harness.core.records import Submission
from harness.core.words import count_text, make_text
from harness.kinds.kind import Setting
from harness.machine import host
from harness.machine.gpus import gpu_names

LEADER = "leader"


def leading(board: Board, setting: Setting, gpus: tuple[str, ...] | None = None) -> Entry:
    """The first of the board that an evaluation of `setting` on this machine is ranked on; `gpus` are the names of its
    GPUs (None: ask the driver). Raises UsageError where that board has no entry."""
    problem, suite, machine_class, ranks = group = group_here(setting, gpus)
    if rows := places.ranking(board, group):
        return rows[0].entry
    others = [other for other in places.groups(board) if other[0] == problem]
    there = "".join(f"\n  suite {name}, {count_text(count, 'rank')}, {where}" for _, name, where, count in others)
    what = f"there is{there}" if there else f"none is recorded; {make_text('eval', problem)} makes the first"
    raise UsageError(
        f"no entry of {problem} leads suite {suite} on {count_text(ranks, 'rank')} of this machine "
        f"({machine_class}): {what}"
    )


def group_here(setting: Setting, gpus: tuple[str, ...] | None = None) -> Group:
    """What an evaluation of `setting` on this machine is ranked within; `gpus` as for class_here."""
    machine_class = class_here(setting.device, setting.world_size, gpus)
    return (setting.problem.name, setting.suite.name, machine_class, setting.world_size)


def class_here(device: str, ranks: int, gpus: tuple[str, ...] | None = None) -> str:
    """The machine class of so many ranks on this machine; `gpus` are its GPUs' names (None: ask the driver)."""
    model = ""
    if device != "cpu":
        model = next(iter(gpu_names() if gpus is None else gpus), "a GPU that the driver does not name")
    return host.environment(model, ranks).machine_class


def leading_source(entry: Entry, setting: Setting, checkout: Checkout) -> Submission:
    """Its source, named so that it is not taken for the file as it is now. Raises UsageError where the source is not
    kept, or was judged under another version of the problem."""
    version = judgements.problem_version(setting.problem, setting.suite, setting.device)
    if entry.problem_version not in (None, version):
        raise UsageError(
            f"the leader {entry.run_id} was judged under another version of {entry.problem} than this checkout's: "
            f"`python -m harness rejudge --entry {entry.run_id} --apply` first"
        )
    try:
        return runs.load_source(entry.sha256, entry.file, checkout.root, entry.run_id)
    except HarnessError as error:
        raise UsageError(f"the leader {entry.run_id} cannot be run: {error}") from None
