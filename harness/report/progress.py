"""Reports how far an evaluation is while it runs: to people, as a line on the terminal, and to programs, as events.

Both are a Progress (harness.kinds.kind); `Both` feeds the two at once.
"""

import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import BinaryIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from harness.core.events import CaseBegan, Event, PhaseBegan
from harness.core.json_file import line_of
from harness.core.words import clean, clean_line
from harness.evaluation.eta import Eta
from harness.kinds.kind import Plan, Progress

SPINNER = "|/-\\"


class ProgressLine(Progress):
    """Shows people how far an evaluation is: one live line on a terminal, elsewhere a short line for each phase and
    case, and nothing if `silent`. Used in a `with`, which removes the live line at its end, also after an error. Once
    it knows the plan (`expect`), it also shows about how much time is left."""

    def __init__(self, console: Console, silent: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._silent, self._clock = console, silent, clock
        self._began, self._eta = clock(), Eta(clock)
        self._phase = self._case = self._label = ""
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
        self._eta.expect(plan)
        self._case = ""

    def phase(self, name: str) -> None:
        self._eta.phase(name)
        self._phase, self._case, self._label = name, "", ""
        left = self._eta.text
        self._line(f"[{self._clock() - self._began:5.1f} s] {name}{left and ', '}{left}")

    def case(self, label: str, index: int, count: int) -> None:
        case, label = f"{index + 1}/{count}", clean_line(label)
        if (case, label) != (self._case, self._label):
            self._eta.case(label, index, count)
            self._case, self._label = case, label
            self._line(f"[{self._clock() - self._began:5.1f} s]   {case}  {label}")

    def case_left(self, seconds: float) -> None:
        self._eta.case_left(seconds)

    def note(self, text: str) -> None:
        if not self._silent:
            self._console.print(Text(clean(text)), soft_wrap=True)

    def __rich__(self) -> RenderableType:
        now = self._clock()
        left = self._eta.text
        times = f"{left}, {now - self._began:.0f} s so far" if left else f"{now - self._began:.0f} s"
        text = "  ".join(filter(None, (f"{self._phase} {self._case}".rstrip(), times, self._label)))
        return Text(clean_line(f"{SPINNER[int(8 * now) % len(SPINNER)]} {text}"), no_wrap=True, overflow="crop")

    def _line(self, text: str) -> None:
        if self._live is None and not self._silent:
            self._console.print(Text(text), soft_wrap=True)


class Events(Progress):
    """Passes what begins on to `tell`, with the seconds since the evaluation began."""

    def __init__(self, tell: Callable[[Event], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._tell, self._clock = tell, clock
        self._began_s = clock()

    def phase(self, name: str) -> None:
        self._tell(PhaseBegan(at_s=self._at_s(), name=name))

    def case(self, label: str, index: int, count: int) -> None:
        self._tell(CaseBegan(at_s=self._at_s(), label=label, index=index, count=count))

    def _at_s(self) -> float:
        return round(self._clock() - self._began_s, 3)


def event_log(out: BinaryIO, clock: Callable[[], float] = time.monotonic) -> Events:
    """Writes the events as JSON lines, each at once, for a program that follows the evaluation.

    `out` is unbuffered. An event that cannot be written (the disk is full, the reader is gone or does not read) is
    dropped, and the evaluation goes on.
    """

    def write(event: Event) -> None:
        with contextlib.suppress(OSError):
            out.write(line_of(event).encode())

    return Events(write, clock)


class Both(Progress):
    """Passes everything on to the first, then to the second."""

    def __init__(self, first: Progress, second: Progress) -> None:
        self._both = (first, second)

    def expect(self, plan: Plan) -> None:
        for one in self._both:
            one.expect(plan)

    def phase(self, name: str) -> None:
        for one in self._both:
            one.phase(name)

    def case(self, label: str, index: int, count: int) -> None:
        for one in self._both:
            one.case(label, index, count)

    def case_left(self, seconds: float) -> None:
        for one in self._both:
            one.case_left(seconds)

    def note(self, text: str) -> None:
        for one in self._both:
            one.note(text)
