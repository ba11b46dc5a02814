"""By which rule outputs are judged, and what a report says of each rule: one entry of CHECKERS a rule."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from harness.core.records import Verdicts
from harness.ranks.wire import TRUSTED


@dataclass(frozen=True)
class Checker:
    """`note` says what the rule is, where that is not the strict one; `needs_path` whether the problem is named by the
    path of its folder. `trusted` is the program of the ranks that judge, as `module:class`, where ranks do; making
    inputs and judging outputs may take `judges` times a phase's limit, beside that limit. `unit` is that of the metric
    which ranks what they judge. `after_wrong` is what to try once a test has shown that an output is wrong, `right`
    what shows the right one. `published` is the published tolerance's name. `calls` says what a problem's adapter calls
    of what a submission defines, where that is the same for all problems of the rule."""

    name: str
    trusted: str = ""
    note: str = ""
    needs_path: bool = False
    unit: str = "us"
    published: str = "gpumode (published tolerance)"
    has_published: bool = False  # whether the published tolerance is judged beside it
    none: str = "none: no output was judged"
    judges: float = 1.0
    has_profile: bool = True  # whether mode profile can look at a call of what is judged
    right: str = "ref_kernel"
    calls: str = ""
    judges_baseline: bool = False  # whether what the reference, or the opponent, returns is judged too
    after_wrong: str = (
        "compare with `ref_kernel` on this shape in the problem's reference.py; --json FILE has every verdict."
    )

    def tally(self, verdicts: Sequence[Verdicts]) -> str:
        """How many outputs each verdict passed."""
        if not verdicts:
            return self.none
        text = f"{self.name} (the checker) {sum(one.strict.passed for one in verdicts)}/{len(verdicts)}"
        if not self.has_published:
            return text
        passed = sum(one.gpumode.passed for one in verdicts)
        return f"{text}, {self.published} {passed}/{len(verdicts)}"


BENCHMARK = Checker(
    name="strict",
    trusted=TRUSTED,
    has_published=True,
    published="the benchmark's own tolerance",
    right="the problem's own file",
    after_wrong="compare with the problem's own file on these inputs; --json FILE has every verdict.",
)
CHECKERS = {
    "strict": Checker(name="strict", trusted=TRUSTED, has_published=True),
    "benchmark": BENCHMARK,
    "choice": replace(BENCHMARK, trusted="harness.kinds.trace.rank_choice:ChoiceTrusted"),
    "folder": Checker(
        name="folder",
        trusted="harness.kinds.folder.rank:FolderTrusted",
        judges=3.0,  # limits are meant for one input and one check a case, as in a folder's own eval.py
        needs_path=True,
        right="the folder's ref_kernel, by its check_implementation,",
        after_wrong="the folder's check_implementation decides: compare with its ref_kernel on this shape, or ask its "
        "own eval.py (--eval theirs).",
        note="the folder's own check_implementation; looser than the strict checker: its tolerance, no hardened inputs",
    ),
    "theirs": Checker(
        name="theirs",
        judges=0.0,
        needs_path=True,
        note="the folder's own eval.py, which times as well; no reference is timed, so there is no speedup",
        none="eval.py's own",
        right="the folder's reference",
        after_wrong="compare with the folder's reference on this shape; --json FILE has all that eval.py printed.",
    ),
    "exact": Checker(
        name="exact",
        judges=0.0,
        unit="cost",
        has_profile=False,
        right="what the problem asks for",
        note="the problem's own checker: recomputes every answer's value from the instance, in whole numbers",
        after_wrong="run it by itself on the instance: what counts is the last line that it prints within the limit.",
    ),
    "quality": Checker(
        name="quality",
        trusted="harness.kinds.train.rank:QualityTrusted",
        unit="s",
        has_profile=False,
        right="the problem's reference.py",
        judges_baseline=True,
        note="trusted ranks evaluate the weights of every run on held-out data, which no submission gets",
        none="no test was run; every run's weights were evaluated",
        after_wrong="compare with the problem's train.py, which is the reference. docs/training.md has the rules.",
    ),
    "logits": Checker(
        name="logits",
        trusted="harness.kinds.model.rank:LogitsTrusted",
        unit="tokens/s",
        right="the problem's reference.py",
        calls="build(config, weights), and of the model that it returns prefill(tokens) and decode(token, cache), each "
        "of which returns (logits, cache)",
        has_published=True,
        note="logits of every step against a more precise model that follows the same tokens; greedy tokens",
        after_wrong="compare the logits with those of the problem's reference.py; --json FILE has every verdict.",
    ),
}
