"""By which rule outputs are judged, and what a report says of each rule: one entry of CHECKERS a rule."""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.core.records import Verdicts


@dataclass(frozen=True)
class Checker:
    """`note` says what the rule is, where that is not the strict one; `needs_path` whether the problem is named by the
    path of its folder, `is_pure` whether a kernel must leave its inputs as they are, `longest` how many times its
    limit a phase may take: if it is more than 1, the time in which inputs are made and outputs judged does not count
    towards the limit. `tally` puts verdicts into words."""

    note: str = ""
    needs_path: bool = False
    name: str = "strict"
    is_pure: bool = True
    has_published: bool = False  # whether the published tolerance is judged beside it
    none: str = "none: no output was judged"
    longest: float = 1.0
    judges_baseline: bool = False  # whether what the reference, or the opponent, returns is judged too

    def tally(self, verdicts: Sequence[Verdicts]) -> str:
        """How many outputs each verdict passed."""
        if not verdicts:
            return self.none
        text = f"{self.name} (the checker) {sum(one.strict.passed for one in verdicts)}/{len(verdicts)}"
        if not self.has_published:
            return text
        passed = sum(one.gpumode.passed for one in verdicts)
        return f"{text}, gpumode (published tolerance) {passed}/{len(verdicts)}"


CHECKERS = {
    "strict": Checker(has_published=True),
    "folder": Checker(
        name="folder",
        is_pure=False,
        longest=4.0,
        needs_path=True,
        note="the folder's own check_implementation; looser than the strict checker: its tolerance, no hardened inputs",
    ),
    "theirs": Checker(
        name="theirs",
        needs_path=True,
        note="the folder's own eval.py, which times as well; no reference is timed, so there is no speedup",
        none="eval.py's own",
    ),
    "exact": Checker(
        name="exact",
        note="the problem's own checker: recomputes every answer's value from the instance, in whole numbers",
    ),
    "quality": Checker(
        name="quality",
        judges_baseline=True,
        note="trusted ranks evaluate the weights of every run on held-out data, which no submission gets",
        none="no test was run; every run's weights were evaluated",
    ),
    "logits": Checker(
        name="logits",
        has_published=True,
        note="logits of every step against a more precise model that follows the same tokens; greedy tokens",
    ),
}
