"""Training on a user's own text: the suite's cases with it, and what trusted ranks are told of it.

Such cases have the text's sha256 (`data`) and `vocabulary` as parameters. Only trusted ranks learn where its files are.
"""

import dataclasses
import json
from dataclasses import replace

from harness.core.checkout import shown
from harness.core.errors import BadFileError
from harness.core.records import Case, Params, Warning
from harness.kinds.kind import Setting
from harness.kinds.train.rules import FILE, Rules
from harness.problems.problem import Suite
from harness.problems.token_files import TokenFolder

STAGED = "own_text.json"  # in a trusted rank's folder
AIM = 4  # a target that is not declared is what the reference reaches in a fourth of its samples


def with_text(setting: Setting, text: TokenFolder, target: float | None, rules: Rules) -> Setting:
    """The setting whose cases train on that text to `target`, if there is one yet. UsageError for too little text,
    BadFileError where the rules do not say how it is cut."""
    problem = setting.problem

    def moved(case: Case) -> Case:
        size = str(case.params["size"])
        if (form := rules.text.get(size)) is None:
            where = shown(problem.folder / FILE, problem.root)
            raise BadFileError(
                f"{where}: $.text: lacks '{size}', so a text cannot be cut for it; write `{size}: {{sequence: ..., "
                "held_out: ...}`"
            )
        text.check_room(int(case.params["samples"]), form.held_out, form.sequence + 1)  # type: ignore[arg-type]
        own: Params = {"data": text.sha256[:16], "vocabulary": text.vocabulary}
        others = {name: value for name, value in case.params.items() if name != "target"}
        return replace(case, params=others | own | ({} if target is None else {"target": target}))

    suite: Suite = replace(
        setting.suite,
        tests=tuple(map(moved, setting.suite.tests)),
        benchmarks=tuple(map(moved, setting.suite.benchmarks)),
    )
    note = Warning(
        code="own_data", values={"folder": str(text.folder), "tokens": text.tokens, "sha256": text.sha256[:16]}
    )
    return replace(setting, suite=suite, notes=(*setting.notes, note))


def aim(case: Case) -> int:
    """The number of the evaluation in which the reference's quality becomes the target."""
    every = int(case.params["every"])  # type: ignore[arg-type]
    return max(1, int(case.params["samples"]) // every // AIM)  # type: ignore[arg-type]


def staged(text: TokenFolder) -> dict[str, bytes]:
    """The files that tell trusted ranks of the data."""
    return {STAGED: json.dumps([dataclasses.asdict(file) for file in text.files]).encode()}
