"""What `bundle` made, checked or ran again, as a document and as JSON."""

import shlex
from collections.abc import Sequence
from typing import Any

from harness.board.bundle_check import CheckedBundle
from harness.board.bundle_make import Made
from harness.board.bundles import Claim, Manifest, sha256_of
from harness.core.records import EvalReport
from harness.core.words import count_text, times_text
from harness.evaluation.verify import Decision, Ready
from harness.report import decision as decisions
from harness.report.document import Document, Facts, Styled, Table, UntrustedText, Words, prose

JSON_SCHEMA = 1  # of --json; 1: first
WORDS = {"verified": "reproduced", "held": "not reproduced", "undecided": "undecided"}
STYLES = {"pass": "", "note": "yellow", "fail": "bold red"}


def made_document(made: Made, out: str, manifest: bytes) -> Document:
    rows: list[tuple[Words, Words]] = [("sha256", sha256_of(manifest))]
    if made.empty:
        rows.append(("empty", f"in system.json: {', '.join(made.empty)}; --system FILE fills them"))
    rows += [("note", UntrustedText(note)) for note in made.notes]
    rows += [
        (verb, UntrustedText(f"python -m harness bundle {verb} {shlex.quote(out)}")) for verb in ("check", "reproduce")
    ]
    title = UntrustedText(f"{out}: run {made.run_id}, {len(made.files)} files")
    return Document(blocks=(prose(title, whole=True), Facts(tuple(rows), whole=True, close=True)))


def checked_document(found: CheckedBundle) -> Document:
    rows = [(one.part, Styled(one.status, STYLES[one.status]), UntrustedText(one.text)) for one in found.findings]
    word = "whole" if found.is_whole else "not whole: something is missing or altered"
    last = prose(f"The bundle is {word}. Its sha256 is {found.sha256}.", whole=True)
    return Document(blocks=(prose(*_head(found.manifest)), Table(("=part", "status", "=found"), rows), last))


def reproduced_document(ready: Ready, decision: Decision, reports: Sequence[EvalReport]) -> Document:
    word = prose(UntrustedText(f"{WORDS[decision.word]}: {decision.why}"), whole=True)
    return Document(blocks=decisions.launch_blocks(ready.one, decision, reports), summary=word)


def made_json(made: Made, out: str, manifest: bytes) -> dict[str, Any]:
    return {
        "schema": JSON_SCHEMA,
        "bundle": out,
        "sha256": sha256_of(manifest),
        "run_id": made.run_id,
        "files": sorted(made.files),
        "empty_fields": list(made.empty),
        "notes": list(made.notes),
    }


def _head(manifest: Manifest) -> list[Words]:
    where = f"suite {manifest.suite}, {count_text(manifest.world_size, 'rank')} on {manifest.device}"
    return [
        UntrustedText(f"{manifest.problem}  {manifest.file}, run {manifest.run_id} by {manifest.author}"),
        UntrustedText(f"{where}, {manifest.started_at}; claims {_claim(manifest.claim)}"),
    ]


def _claim(claim: Claim) -> str:
    if claim.score is None:
        return f"nothing: status {claim.status}"
    ratio = f"{times_text(claim.ratio)} the reference, " if claim.ratio is not None else ""
    return f"{ratio}score {claim.score.text}"
