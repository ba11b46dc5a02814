"""How words and numbers are shown, and how text of a submission is made safe to show.

What a submission wrote (messages, tracebacks, logs, its own path) passes through `clean` before it is printed. It can
then neither style a terminal nor be mistaken for the harness's own words.
"""

import re
import shlex
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
TAIL_CHARS = 4000  # of what a process printed, in an outcome
IDLE = "did nothing at all"  # of processes, by which a timeout is known that other work has no part in
SHOWN_CHARS = 16_384  # of what is printed, as KernelBot keeps
EXCERPT_LINES = 24
LINE_CHARS = 400
# What terminals take as one sequence (ECMA-48, 5.3 to 5.6), in two forms: ESC and a letter, or one character of C1. A
# sequence that is cut off ends where the next one, or the line, begins.
ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # control sequences: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # strings: titles, links
    r"|\x1b[ -/]*[0-~]?"  # character sets, and what has no parameters
)
IGNORED = re.compile(r"[\0-\x06\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")  # terminals skip these, within a sequence too


def clean(text: str) -> str:
    """Text from anywhere, made safe to print: escape sequences, control characters and characters that change the
    direction of writing are removed, and line ends of all kinds become \\n."""
    text = ESCAPES.sub("", IGNORED.sub("", text)).replace("\r\n", "\n").replace("\r", "\n").expandtabs(8)
    return "".join(char for char in text if char == "\n" or char.isprintable())


def clean_line(text: str) -> str:
    """The same, on one line."""
    return clean(text).replace("\n", " ")


def excerpt(text: str, head: int = 0) -> list[str]:
    """The first `head` and the last lines of a text, EXCERPT_LINES in all, none longer than LINE_CHARS."""
    lines = [cut_line(line, LINE_CHARS) for line in clean(text).splitlines()]
    if len(lines) <= EXCERPT_LINES:
        return lines
    left_out = f"({len(lines) - EXCERPT_LINES} lines left out; --json FILE keeps them)"
    return [*lines[:head], left_out, *lines[len(lines) - EXCERPT_LINES + head :]]


def cut_line(text: str, chars: int) -> str:
    """The text on one line, cut to that many characters."""
    line = clean_line(text)
    return line if len(line) <= chars else line[: max(0, chars - 3)] + "..."


def make_text(verb: str, problem: str) -> str:
    return f"`make {verb} PROBLEM={shlex.quote(problem)}`"


def name_lines(text: str, chars: int) -> str:
    """A name in lines of at most that many characters, which end behind a `/`, `_`, `-` or `.` where there is one."""
    lines, rest = [], clean_line(text)
    while len(rest) > chars:
        ends = max(rest.rfind(mark, 0, chars) for mark in "/_-.") + 1 or chars
        lines.append(rest[:ends])
        rest = rest[ends:]
    return "\n".join([*lines, rest])


def us_text(value_us: float) -> str:
    """Microseconds to about three digits: 9.87, 98.7, 987, 98,765."""
    return f"{value_us:.2f}" if value_us < 9.995 else f"{value_us:.1f}" if value_us < 99.95 else f"{value_us:,.0f}"


def seconds_text(value_s: float) -> str:
    """Seconds to four digits, in us, ms or s: `3.775 ms`."""
    for unit, scale in (("us", 1e-6), ("ms", 1e-3)):
        if value_s < scale * 1e3:
            return f"{value_s / scale:.4g} {unit}"
    return f"{value_s:.4g} s"


def percent_text(fraction: float) -> str:
    """A fraction of 1 as `12.3%`, small ones to two digits."""
    return f"{100 * fraction:.1f}%" if fraction >= 0.001 else f"{100 * fraction:.2g}%"


def times_text(value: float) -> str:
    """A ratio to about three digits: `1.60x`."""
    return f"{us_text(value)}x"


def rate_text(value: float) -> str:
    """A rate to three digits with its prefix, for a unit to follow: `1.31 T`, `448 G`."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 0.9995 * scale:  # which is 1000 of the next smaller unit, to three digits
            return f"{value / scale:.3g} {unit}"
    return f"{value:.3g} "


def speedup_text(value: float | None) -> str:
    """A ratio, or `-` where there is none."""
    return or_dash(times_text, value)


def or_dash(text: Callable[[T], str], value: T | None) -> str:
    return "-" if value is None else text(value)


def interval_text(ends: tuple[float, float]) -> str:
    """The ends of an interval to four digits: `0.981 to 1.07`."""
    return f"{ends[0]:.4g} to {ends[1]:.4g}"


def size_text(nbytes: float) -> str:
    """Bytes as `1.2 GiB`, `12 MiB`, `640 KiB` or `96 B`."""
    for unit, scale, digits in (("GiB", 1 << 30, 1), ("MiB", 1 << 20, 0), ("KiB", 1 << 10, 0)):
        if nbytes >= scale:
            return f"{nbytes / scale:.{digits}f} {unit}"
    return f"{nbytes:.0f} B"


def count_text(number: int, what: str, several: str = "") -> str:
    """A number with its noun: `1 rank`, `8 ranks`; `several` is the plural where it takes more than an s."""
    return f"{number} {what}" if number == 1 else f"{number} {several or what + 's'}"


def numbered_text(what: str, numbers: Iterable[int]) -> str:
    """A noun with its numbers: `rank 2`, `ranks 0, 2-7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"{what}{'' if sum(map(len, runs)) == 1 else 's'} {', '.join(texts)}"


def literal(text: str) -> str:
    """The text on one line of Markdown, with the marks of Markdown and HTML taken literally."""
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", clean_line(text))


def both_ends(text: str, chars: int) -> str:
    """The text, or its first and last characters where it is longer: an error says what it is at its start, and a
    compiler's log what went wrong at its end. At most `chars` characters."""
    if len(text) <= chars:
        return text
    gap = f" [... {len(text)} characters in all ...] "
    head = (chars - len(gap)) // 2
    return f"{text[:head]}{gap}{text[len(text) - (chars - len(gap) - head) :]}"


def cut(text: str) -> str:
    """The text, cut to what KernelBot keeps."""
    more = len(text) - SHOWN_CHARS
    return text if more <= 0 else f"{text[:SHOWN_CHARS]}\n[...] {more} more characters"
