"""How far an evaluation is, said while it runs."""

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from harness.core.words import clean, clean_line
from harness.evaluation import eta
from harness.evaluation.eta import Remaining
from harness.kinds.plan import Plan

SPINNER = "|/-\\"


class ProgressLine:
    """Says how far an evaluation is: one live line on a terminal, a short line a phase and case elsewhere, or
    nothing where `silent`. For use in a `with`; the live line is gone afterwards, whatever happened. What is left of
    the time is said of an evaluation whose plan it knows (`expect`)."""

    def __init__(self, console: Console, silent: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._silent, self._clock = console, silent, clock
        self._began = self._expected = self._case_began = clock()
        self._phase = self._case = self._label = ""
        self._index = 0
        self._took_s: dict[str, list[float]] = {}
        self._remaining: Remaining | None = None
        self._live: Live | None = None

    def __enter__(self) -> "ProgressLine":
        if self._console.is_terminal and not self._silent:
            self._live = Live(self, console=self._console, transient=True, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._live:
            self._live.stop()

    def expect(self, plan: Plan) -> None:
        """What begins now is this plan's evaluation."""
        self._remaining, self._took_s = eta.of(plan), {}
        self._expected, self._case = self._clock(), ""

    def phase(self, name: str) -> None:
        """Another phase begins."""
        self._case_is_done()
        self._phase, self._case, self._label, self._index = name, "", "", 0
        left = self._left()
        self._line(f"[{self._clock() - self._began:5.1f} s] {name}{left and ', '}{left}")

    def case(self, label: str, index: int, count: int) -> None:
        """The case `index` (from 0) of the phase's `count` begins."""
        case, label = f"{index + 1}/{count}", clean_line(label)
        if (case, label) != (self._case, self._label):
            self._case_is_done()
            self._case, self._label, self._index = case, label, index
            self._line(f"[{self._clock() - self._began:5.1f} s]   {case}  {label}")

    def note(self, text: str) -> None:
        """Something worth a line of its own that stays."""
        if not self._silent:
            self._console.print(Text(clean(text)), soft_wrap=True)

    def __rich__(self) -> RenderableType:
        now = self._clock()
        left = self._left()
        times = f"{left}, {now - self._began:.0f} s so far" if left else f"{now - self._began:.0f} s"
        text = "  ".join(filter(None, (f"{self._phase} {self._case}".rstrip(), times, self._label)))
        return Text(clean_line(f"{SPINNER[int(8 * now) % len(SPINNER)]} {text}"), no_wrap=True, overflow="crop")

    def _case_is_done(self) -> None:
        now = self._clock()
        if self._case:
            self._took_s.setdefault(self._phase, []).append(now - self._case_began)
        self._case_began = now

    def _left(self) -> str:
        """`about 20 s left`, or nothing where the plan is not known."""
        if self._remaining is None:
            return ""
        now = self._clock()
        times_s = (now - self._expected, now - self._case_began)
        left_s = self._remaining.left_s(self._phase, self._index, *times_s, self._took_s)
        return "longer than expected" if left_s is None else f"{eta.told(left_s)} left"

    def _line(self, text: str) -> None:
        if self._live is None and not self._silent:
            self._console.print(Text(text), soft_wrap=True)
