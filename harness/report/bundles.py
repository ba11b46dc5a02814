"""What `bundle` made, checked or ran again, on a terminal and as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from harness.board.bundle_check import CheckedBundle
from harness.board.bundle_make import Made
from harness.board.bundles import Claim, Manifest, sha256_of
from harness.core.decode import encode
from harness.core.records import EvalReport
from harness.core.words import clean_line, count_text, plain_table, print_all, score_text, times_text
from harness.evaluation.verify import Decision, Ready
from harness.report import decision as decisions

JSON_SCHEMA = 1  # of --json; 1: first
WORDS = {"verified": "reproduced", "held": "not reproduced", "undecided": "undecided"}
STYLES = {"pass": "", "note": "yellow", "fail": "bold red"}


def show_made(made: Made, out: str, manifest: bytes, console: Console) -> None:
    """Prints where the bundle is, what it lacks, and what to do with it."""
    lines = [f"{out}: run {made.run_id}, {len(made.files)} files", f"sha256     {sha256_of(manifest)}"]
    if made.empty:
        lines.append(f"empty      in system.json: {', '.join(made.empty)}; --system FILE fills them")
    lines += [f"note       {note}" for note in made.notes]
    lines += [
        f"check      python -m harness bundle check {out}",
        f"reproduce  python -m harness bundle reproduce {out}",
    ]
    for line in lines:
        console.print(Text(clean_line(line)), soft_wrap=True)


def show_checked(found: CheckedBundle, console: Console) -> None:
    """Prints what the bundle claims and a row a finding."""
    table = plain_table("=part", "status", "=found")
    for one in found.findings:
        table.add_row(one.part, Text(one.status, style=STYLES[one.status]), Text(clean_line(one.text)))
    print_all(console, *_head(found.manifest), "", table, "")
    word = "whole" if found.is_whole else "not whole: something is missing or altered"
    console.print(Text(f"The bundle is {word}. Its sha256 is {found.sha256}."), soft_wrap=True)


def show_launches(ready: Ready, decision: Decision, reports: Sequence[EvalReport], console: Console) -> None:
    """Prints a row a launch, the Olympic mean, and what the bundle claims."""
    decisions.show_launches(ready.one, decision, reports, console)


def show_word(decision: Decision, console: Console) -> None:
    """Prints the decision alone."""
    console.print(Text(clean_line(f"{WORDS[decision.word]}: {decision.why}")), soft_wrap=True)


def made_json(made: Made, out: str, manifest: bytes) -> dict[str, Any]:
    """The object that --json writes of `bundle make`."""
    return {
        "schema": JSON_SCHEMA,
        "bundle": out,
        "sha256": sha256_of(manifest),
        "run_id": made.run_id,
        "files": sorted(made.files),
        "empty_fields": list(made.empty),
        "notes": list(made.notes),
    }


def checked_json(found: CheckedBundle) -> dict[str, Any]:
    """The object that --json writes of `bundle check`."""
    return {
        "schema": JSON_SCHEMA,
        "sha256": found.sha256,
        "whole": found.is_whole,
        "findings": encode(found.findings),
        "manifest": encode(found.manifest),
    }


def reproduced_json(
    found: CheckedBundle, ready: Ready, decision: Decision, reports: Sequence[EvalReport]
) -> dict[str, Any]:
    """The object that --json writes of `bundle reproduce`: that of `verify`, the bundle's sha256, and the word."""
    told = decisions.to_json(ready.one, decision, reports)
    return told | {"bundle_sha256": found.sha256, "word": WORDS[decision.word]}


def _head(manifest: Manifest) -> list[Text]:
    where = f"suite {manifest.suite}, {count_text(manifest.world_size, 'rank')} on {manifest.device}"
    return [
        Text(clean_line(f"{manifest.problem}  {manifest.file}, run {manifest.run_id} by {manifest.author}")),
        Text(clean_line(f"{where}, {manifest.started_at}; claims {_claim(manifest.claim)}")),
    ]


def _claim(claim: Claim) -> str:
    if claim.score is None:
        return f"nothing: status {claim.status}"
    ratio = f"{times_text(claim.ratio)} the reference, " if claim.ratio is not None else ""
    return f"{ratio}score {score_text(claim.score)}"
