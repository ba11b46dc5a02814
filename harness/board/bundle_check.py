"""Checks a bundle: is every part there and unaltered, and do its parts agree? Runs nothing of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from harness.board import bundles, runs
from harness.board.bundle_make import claim_of
from harness.board.bundles import MANIFEST, REPORT, SOURCE, SYSTEM, Claim, Manifest
from harness.board.judgements import problem_version
from harness.board.report_json import from_json
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, HarnessError
from harness.core.records import EvalReport, Submission
from harness.judging.figures import figured
from harness.machine.system_description import FIELDS
from harness.problems.shape_file import find

SAME = 1e-9  # what figures computed again may differ by, as a fraction: they are sums of floats
AGREE = ("run_id", "problem", "suite", "device", "world_size", "author", "started_at", "secret_seed")
Status = Literal["pass", "note", "fail"]
Said = tuple[Status, str]  # of a part


@dataclass(frozen=True, kw_only=True)
class BundleFinding:
    """A finding about one part. `fail` is a part that is missing or altered, `note` something to know."""

    part: str
    status: Status
    text: str


@dataclass(frozen=True, kw_only=True)
class CheckedBundle:
    """A bundle as read: its own sha256 (bundle.json's, which has all others), its manifest, and the findings."""

    sha256: str
    manifest: Manifest
    findings: tuple[BundleFinding, ...]
    report: EvalReport | None
    source: Submission | None

    @property
    def is_whole(self) -> bool:
        return all(finding.status != "fail" for finding in self.findings)


def check(files: Mapping[str, bytes], checkout: Checkout) -> CheckedBundle:
    """Looks at every part of a bundle that was read. Raises BadFileError where bundle.json itself does not decode."""
    manifest = bundles.decoded(Manifest, files, MANIFEST)
    said = {"files": _files(files, manifest)}
    source = report = None
    try:
        source = source_of(files, manifest)
        said["source"] = [("pass", f"sha256 {manifest.sha256}")]
    except HarnessError as error:
        said["source"] = [("fail", str(error))]
    try:
        report = from_json(bundles.loaded(files, REPORT))
        said["report"] = _report(report, manifest)
    except (BadFileError, ValueError) as error:
        said["report"] = [("fail", f"{REPORT} cannot be read: {error}")]
    said |= {"system": [_system(files)], "problem": [_problem(manifest, checkout)]}
    return CheckedBundle(
        sha256=bundles.sha256_of(files[MANIFEST]),
        manifest=manifest,
        findings=tuple(
            BundleFinding(part=part, status=status, text=text) for part in said for status, text in said[part]
        ),
        report=report,
        source=source,
    )


def source_of(files: Mapping[str, bytes], manifest: Manifest) -> Submission:
    """The submission in a bundle, held against its sha256. Raises SourceError."""

    def text(name: str) -> str:
        try:
            return files[f"{SOURCE}/{name}"].decode()
        except KeyError:
            raise ValueError(f"{SOURCE}/{name} is missing") from None

    return runs.source_from(text, manifest.sha256, manifest.file, SOURCE, "get the bundle again")


def _files(files: Mapping[str, bytes], manifest: Manifest) -> list[Said]:
    bad = []
    for path, sha256 in manifest.files.items():
        if path not in files:
            bad.append(f"{path} is missing")
        elif bundles.sha256_of(files[path]) != sha256:
            bad.append(f"{path} was altered: it has another sha256 than {MANIFEST} says")
    bad += [f"{path} is not in {MANIFEST}: it was added" for path in files if path not in (*manifest.files, MANIFEST)]
    return [("fail", text) for text in bad] or [("pass", f"{len(manifest.files)} files are as they were")]


def _report(report: EvalReport, manifest: Manifest) -> list[Said]:
    said = {name: getattr(report, name) for name in AGREE}
    said |= {"file": report.submission.name, "sha256": report.submission.sha256,
             "seeds": tuple(result.case.seed for result in report.results)}  # fmt: skip
    bad = [
        f"{REPORT} has the {name} {value!r}, {MANIFEST} {getattr(manifest, name)!r}"
        for name, value in said.items()
        if value != getattr(manifest, name)
    ]
    again = claim_of(figured(report))
    for whose, claim in ((MANIFEST, manifest.claim), (REPORT, claim_of(report))):
        bad += [f"{whose} claims {text}" for text in _differences(claim, again)]
    right = f"run {report.run_id}; its figures follow from its samples"
    return [("fail", text) for text in bad] or [("pass", right)]


def _differences(claim: Claim, again: Claim) -> list[str]:
    """How a claim differs from what its samples come to. The interval is drawn by chance, so it is not compared."""
    pairs = (
        ("the status", claim.status, again.status),
        ("the score", claim.score.value if claim.score else None, again.score.value if again.score else None),
        ("the ratio", claim.ratio, again.ratio),
    )
    return [f"{name} {said}, the samples give {now}" for name, said, now in pairs if not _same(said, now)]


def _same(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=SAME)
    return one == other


def _system(files: Mapping[str, bytes]) -> Said:
    try:
        found = bundles.decoded(dict[str, str], files, SYSTEM)
    except BadFileError as error:
        return "fail", str(error)
    if lacking := [name for name in FIELDS if name not in found]:
        return "fail", f"{SYSTEM} lacks the field {lacking[0]}"
    empty = [name for name in FIELDS if not found[name]]
    text = f"{len(FIELDS) - len(empty)} of {len(FIELDS)} fields are filled"
    return ("note", f"{text}; empty: {', '.join(empty)}") if empty else ("pass", text)


def _problem(manifest: Manifest, checkout: Checkout) -> Said:
    """Whether this checkout has the problem in the version that the run was judged under: `reproduce` needs that."""
    if manifest.problem_version is None:
        return "note", f"{manifest.problem}, in a version that was not recorded"
    named = f"{manifest.problem}, version {manifest.problem_version}"
    try:
        here = version_here(manifest, manifest.problem, checkout)
    except HarnessError as error:
        return "note", f"{named}; this checkout cannot run it: {error}"
    if here != manifest.problem_version:
        return "note", f"{named}; this checkout has {here}"
    return "pass", f"{named}, as this checkout has it"


def version_here(manifest: Manifest, problem: str, checkout: Checkout) -> str:
    """This checkout's version of the problem for the bundle's suite and ranks. UsageError without."""
    found = find(problem, checkout)
    return problem_version(
        found, found.with_world_size(found.suite(manifest.suite), manifest.world_size), manifest.device
    )
