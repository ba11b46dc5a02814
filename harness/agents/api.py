"""The package's public face: `from harness import evaluate`. Stable: what is here changes only with a new version.

Nothing here prints, reads the command line or handles signals. All of it may be called from any thread, one evaluation
at a time on the same devices. docs/agents.md shows how to use it.
"""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack, get_args

from harness.agents import candidates as reading
from harness.agents.candidates import Candidate
from harness.agents.judge import Judge, Terms
from harness.agents.many import How, many
from harness.agents.result import Result
from harness.agents.reward import NAMES, Function
from harness.core.checkout import Checkout
from harness.core.decode import did_you_mean
from harness.core.errors import UsageError
from harness.core.events import Event
from harness.core.records import Mode
from harness.kinds.settings import Asked
from harness.report.progress import Events

OnEvent = Callable[[Event], object]


class EvaluateOptions(TypedDict, total=False):
    """What an evaluation may be asked for. `suite`, `ranks` and `device` are as of `eval`: left out, the official suite
    and a rank on each GPU, or the suite `cpu` on CPU cores. `mode` "test" times nothing. `seconds` is about how long
    each benchmark is measured, `timeout_s` the limit of each phase. Not `confined`, nothing is ranked. `reward` names
    the function, `lower` takes the lower end of the speedup's interval. `root` is the checkout (default: this one)."""

    suite: str | None
    ranks: int | None
    device: str | None
    mode: Mode
    seconds: float | None
    timeout_s: float | None
    confined: bool
    reward: Function
    lower: bool
    root: Path | None


def evaluate(
    problem: str | Path, source: str | Path, *, on_event: OnEvent | None = None, **options: Unpack[EvaluateOptions]
) -> Result:
    """Evaluates one submission: `source` is its text, or a Path to its file. `problem` is a name, or a folder of GPU
    MODE's. Records nothing. `on_event` is called with each event, in this thread.

    Whatever the submission does wrong is in the result. Raises UsageError where the request cannot be met here,
    BadFileError where a file of the problem is bad, and HarnessError where the harness or the machine fails.
    """
    with Pool(problem, on_event=on_event, patient=True, **options) as pool:
        return pool.evaluate(source)


def stream(problem: str | Path, source: str | Path, **options: Unpack[EvaluateOptions]) -> Iterator[Event | Result]:
    """Evaluates as `evaluate` does, and yields events as they come, then the result. The evaluation goes on to its end
    if the iterator is given up. Raises what `evaluate` does."""
    found: queue.SimpleQueue[Event | Result | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            found.put(evaluate(problem, source, on_event=found.put, **options))
        except BaseException as error:  # raised below, in the caller's thread
            found.put(error)

    threading.Thread(target=work, daemon=True, name="evaluation").start()
    while True:
        one = found.get()
        if isinstance(one, BaseException):
            raise one
        yield one
        if isinstance(one, Result):
            return


def _check(options: Mapping[str, object]) -> None:
    """Raises UsageError for an option or a value that there is not: a misspelled one must not mean its default."""
    known = EvaluateOptions.__annotations__
    for name in options.keys() - known.keys():
        raise UsageError(f"no option '{name}'{did_you_mean(name, known)} (known: {', '.join(known)})")
    for name, values in (("mode", get_args(Mode)), ("reward", NAMES)):
        if name in options and options[name] not in values:
            raise UsageError(f"{name} {options[name]!r}: expected one of {', '.join(values)}")


def _those(options: Mapping[str, Any], kind: type) -> dict[str, Any]:
    return {field.name: options[field.name] for field in fields(kind) if field.name in options}


class Pool:
    """Evaluates many submissions to one problem on processes that are kept: a context, whose end ends them.

    After a candidate that passes or is wrong only its own processes are replaced; each candidate runs in processes, a
    sandbox and a folder of its own. `patient`: a candidate may hang as long as in an evaluation by itself, and else 50
    times as long as the reference takes for the tests, at least 10 s. Raises what `evaluate` does.
    """

    def __init__(
        self,
        problem: str | Path,
        *,
        on_event: OnEvent | None = None,
        patient: bool = False,
        **options: Unpack[EvaluateOptions],
    ) -> None:
        _check(options)
        self._is_over = False
        root = options.get("root")
        self._checkout = Checkout(Path(root)) if root else Checkout.here()
        asked = Asked(problem=str(problem), **_those(options, Asked))
        self.terms = Terms(asked=asked, patient=patient, **_those(options, Terms))
        self._judge = Judge(self.terms, self._checkout, Events(on_event) if on_event else None)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over = True
        self._judge.close()

    def evaluate(self, source: str | Path, id: str = "") -> Result:
        """The result of one candidate, on the whole suite. Raises what `evaluate` does."""
        one = self._candidate(source, id or "submission")
        judge = self._judge
        found = judge.refuse(one.why, one.submission) if one.why else judge.judge_or_raise(one.submission)
        return replace(found, id=id, code=one.code)

    def map(
        self,
        sources: Iterable[str | Path | tuple[str, str]],
        *,
        keep: float = 1.0,
        least: int = 4,
        jobs: int | None = None,
        out: str | Path | None = None,
    ) -> Iterator[Result]:
        """The results of a population, in any order, as they come. A source is a text, a Path, or a pair of id and
        text; without an id it has its number. `keep` below 1: only that part of the candidates that pass, and at least
        `least`, is measured on the whole suite, after all were screened in little time; the others are not ranked.
        `jobs`: on how many GPUs candidates are judged side by side (default: all, for problems of one GPU). `out`: the
        file that results are written to at once; one that is there is gone on with. Errors that are no candidate's
        fault are results of verdict "error". Raises UsageError for what is no source, for two sources of one id, and
        where `out` is another population's or cannot be written."""
        found = [self._numbered(source, number) for number, source in enumerate(sources)]
        reading.check_ids(found)
        yield from many(self._judge, found, How(keep=keep, least=least, jobs=jobs, out=Path(out) if out else None))

    def _numbered(self, source: str | Path | tuple[str, str], number: int) -> Candidate:
        match source:
            case tuple((name, text)):
                return self._candidate(text, name)
            case Path():
                return self._candidate(source, str(source))
        return self._candidate(source, str(number))

    def _candidate(self, source: object, name: object) -> Candidate:
        if self._is_over:
            raise UsageError("the pool has ended: evaluate within its `with`, or make another")
        if not isinstance(source, str | Path) or not isinstance(name, str):
            found = f"{source!r:.60} under the id {name!r:.60}"
            raise UsageError(f"a source is a text, a Path, or a pair of id and text; found {found}")
        problem = self._judge.setting.problem
        if isinstance(source, Path):
            return reading.of_file(source, name, problem, self._checkout)
        return reading.of_text(source, name, problem, self._checkout)
