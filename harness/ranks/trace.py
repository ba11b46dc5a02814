"""Merges the ranks' traces into one, and says what took the time in it.

Knows torch.profiler's JSON and the Chrome trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing
read. Does not import torch. A submission could have written a rank's file, so the file is read as plain JSON, at most
MAX_BYTES of it. Events with missing or mistyped fields are left out. A file that is no trace raises TraceError.

All ranks of a host share its clock, and torch gives each event's place on it: `baseTimeNanoseconds` + `ts`. In the
merged trace, time 0 is when the barrier opened: the moment at which the first rank left it.
"""

import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from harness.core.files import open_ordinary
from harness.core.records import OpTime, RankProfile

FILE = "trace.json"  # a rank's own trace, in its working folder
BARRIER_SPAN, CALL_SPAN = "harness: barrier", "custom_kernel"  # spans that a rank marks: its wait, and its call
MAX_BYTES = 16 << 20  # of one rank's trace; about 50,000 events
MAX_ARGS_CHARS = 4096  # of what torch tells about one event
MAX_NAME_CHARS = 1000
MAX_US = 1e16  # 317 years
SCALARS = (str, int, float, bool, type(None))
OUTSIDE = "(in no operator)"  # the calling thread's own Python, and its waiting
TOP = 10  # operators or kernels a rank that are kept
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")  # torch's categories: what a GPU did
ON_DEVICE = (*DEVICE_WORK, "gpu_user_annotation")
MARK = "user_annotation"  # a span of torch.profiler.record_function
HOST_WORK = ("cpu_op", MARK)  # what a host thread did; nested by their times
FLOWS = ("s", "t", "f")  # an arrow's start, steps and end: from a launch to its kernel
FIRST_PID = 1000  # Perfetto takes process 0 for the idle one
TRACKS_PER_RANK = 10_000
Track = tuple[str, str]  # process and thread, as the file names them


class TraceError(ValueError):
    """A rank's file is no trace of a call; the message continues "its trace "."""


@dataclass(frozen=True, kw_only=True)
class TraceEvent:
    """A span (`phase` X) or an end of an arrow; `flow` is the arrow's number in its own file."""

    phase: str
    name: str
    category: str
    track: Track
    start_ns: int
    duration_ns: int
    args: Mapping[str, Any]
    flow: str = ""

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


class _Piece(NamedTuple):
    """A time in which something of that name ran."""

    start_ns: int
    end_ns: int
    name: str


@dataclass(frozen=True, kw_only=True)
class Spent:
    """Where the time of a call went: `by_name` adds up each kernel's or operator's, which may overlap; `own` are the
    submission's; in `all_ns` anything ran, in `others_ns` anything that is not the submission's."""

    by_name: Mapping[str, int]
    own: frozenset[str]
    all_ns: int
    others_ns: int


@dataclass(frozen=True, kw_only=True)
class RankTrace:
    """One rank's call. `call` is its span, `released_ns` the time at which the rank left the barrier. `events` are
    those from there to the end of the call (device work may end later). Times are of the host's clock."""

    call: TraceEvent
    released_ns: int
    events: tuple[TraceEvent, ...]
    track_names: Mapping[Track, str]


def read(path: Path) -> bytes:
    """The file's bytes. Raises TraceError if it is no ordinary file of at most MAX_BYTES."""
    try:
        # A submission could have put a pipe there to hold us up, or a link to something endless.
        with open_ordinary(path, os.O_NOFOLLOW) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise TraceError(f"has more than {MAX_BYTES >> 20} MiB: too many operators in one call to show them")
    return data


def parse(data: bytes) -> RankTrace:
    """The last call in a file of torch.profiler. Raises TraceError if there is none."""
    try:
        top = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"is not JSON: {str(error)[:200]}") from None
    found = top.get("traceEvents") if isinstance(top, dict) else None
    base_ns = top.get("baseTimeNanoseconds", 0) if isinstance(top, dict) else 0  # without it, `ts` tells all
    if not isinstance(found, list) or type(base_ns) is not int or not 0 <= base_ns < 2**63:
        raise TraceError("is not of torch.profiler: it has no traceEvents, or no time that they are counted from")
    items = [item for item in found if isinstance(item, dict)]
    events = [event for item in items if (event := _event(item, base_ns)) is not None]
    marks = sorted((event for event in events if event.category == MARK), key=lambda event: event.start_ns)
    barrier = next((event for event in reversed(marks) if event.name == BARRIER_SPAN), None)
    # The first one after the barrier: a submission may have spans of that name inside.
    after = (event for event in marks if barrier is not None and event.start_ns >= barrier.end_ns)
    call = next((event for event in after if event.name == CALL_SPAN), None)
    if barrier is None or call is None:
        raise TraceError(f"has no call in it: no span '{CALL_SPAN}' after a span '{BARRIER_SPAN}'")
    return RankTrace(
        call=call,
        released_ns=barrier.end_ns,
        events=tuple(event for event in events if barrier.end_ns <= event.start_ns <= call.end_ns),
        track_names=_track_names(items),
    )


def merge(ranks: Sequence[RankTrace], title: str) -> str:
    """All ranks' traces as one, JSON text: a process per rank, its threads first and its device's streams last."""
    zero_ns = min(rank.released_ns for rank in ranks)
    merged: list[dict[str, Any]] = []
    flows: dict[tuple[int, str], int] = {}
    for number, rank in enumerate(ranks):
        pid = FIRST_PID + number
        tids = _tids(number, rank)
        merged.append(_metadata("process_name", pid, 0, name=f"rank {number}"))
        merged.append(_metadata("process_sort_index", pid, 0, sort_index=number))
        for track, tid in tids.items():
            merged.append(_metadata("thread_name", pid, tid, name=_track_name(rank, track)))
            merged.append(_metadata("thread_sort_index", pid, tid, sort_index=tid))
        # Parents before children, which start no earlier and end no later.
        for event in sorted(rank.events, key=lambda event: (event.start_ns, -event.duration_ns)):
            shown: dict[str, Any] = {
                "ph": event.phase,
                "cat": event.category,
                "name": event.name,
                "pid": pid,
                "tid": tids[event.track],
                "ts": (event.start_ns - zero_ns) / 1000,
            }
            if event.phase == "X":
                shown |= {"dur": event.duration_ns / 1000, "args": event.args}
            else:
                shown["id"] = flows.setdefault((number, event.flow), len(flows) + 1)
                shown |= {"bp": "e"} if event.phase == "f" else {}
            merged.append(shown)
    main = TRACKS_PER_RANK  # rank 0's first thread
    merged.append({"ph": "i", "s": "g", "name": "barrier released", "pid": FIRST_PID, "tid": main, "ts": 0})
    content = {"displayTimeUnit": "ns", "otherData": {"title": title}, "traceEvents": merged}
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def profile(rank: int, trace: RankTrace) -> RankProfile:
    """The device's kernels in this rank's call with their times, or its operators if the profiler saw no kernel. The
    time of an operator excludes the operators that it called."""
    of, counted, pieces = _counted(trace)
    calls = Counter(OUTSIDE if event is trace.call else event.name for event in counted)
    total_ns = _total_ns(pieces)
    shares = _shares(pieces, trace.call)
    names = sorted(calls, key=lambda name: -total_ns[name])[:TOP]
    return RankProfile(
        rank=rank,
        call_us=trace.call.duration_ns / 1000,
        of=of,
        top=tuple(
            OpTime(name=name, calls=calls[name], self_us=total_ns[name] / 1000, share=shares.get(name, 0.0))
            for name in names
        ),
    )


def spent(trace: RankTrace, is_own: Callable[[str], bool]) -> Spent:
    """The time of every kernel of the device in the call, of every operator of the host where there was no kernel.
    Operators count without those that they called, and OUTSIDE is what no operator took. What a submission marks with
    record_function is no operator: its time is that of what runs inside. An operator that called one that is not own is
    not own itself."""
    without_marks = replace(
        trace, events=tuple(one for one in trace.events if one is trace.call or one.category != MARK)
    )
    _, events, pieces = _counted(without_marks)
    working = [piece for piece in pieces if piece.name != OUTSIDE]
    own = frozenset(filter(is_own, {piece.name for piece in working})) - _callers(events, is_own)
    all_ns = _union_ns(pieces)
    idle_ns = all_ns - _union_ns(working)  # a caller that only waits meanwhile takes none of it
    others_ns = idle_ns + _union_ns(piece for piece in working if piece.name not in own)
    return Spent(by_name=dict(_total_ns(pieces)), own=own, all_ns=all_ns, others_ns=others_ns)


def _callers(events: Iterable[TraceEvent], is_own: Callable[[str], bool]) -> set[str]:
    """The names of operators within which, on the same thread, another one ran that is not own."""
    found: set[str] = set()
    open_spans: dict[Track, list[TraceEvent]] = {}  # a thread's spans, outermost first
    for event in sorted(events, key=lambda event: (event.start_ns, -event.duration_ns)):
        if event.category in DEVICE_WORK:
            continue  # kernels do not call each other, and some run beside others of their stream
        stack = open_spans.setdefault(event.track, [])
        while stack and stack[-1].end_ns <= event.start_ns:
            stack.pop()
        if not is_own(event.name):
            found.update(one.name for one in stack)
        stack.append(event)
    return found


def _union_ns(pieces: Iterable[_Piece]) -> int:
    """In how much time at least one of them ran."""
    total_ns, reached_ns = 0, -math.inf
    for piece in sorted(pieces):
        if piece.end_ns > reached_ns:
            total_ns += piece.end_ns - int(max(piece.start_ns, reached_ns))
            reached_ns = piece.end_ns
    return total_ns


def _counted(trace: RankTrace) -> tuple[Literal["device", "host"], list[TraceEvent], list[_Piece]]:
    """The kernels or operators that did the work of a call, and when."""
    device = [event for event in trace.events if event.category in DEVICE_WORK and event.phase == "X"]
    host = [event for event in trace.events if event.category in HOST_WORK and event.phase == "X"]
    if device:
        return "device", device, [_Piece(event.start_ns, event.end_ns, event.name) for event in device]
    return "host", host, _self_pieces(host, trace.call)


def _total_ns(pieces: Iterable[_Piece]) -> Counter[str]:
    total_ns: Counter[str] = Counter()
    for piece in pieces:
        total_ns[piece.name] += piece.end_ns - piece.start_ns
    return total_ns


def _self_pieces(spans: Iterable[TraceEvent], call: TraceEvent) -> list[_Piece]:
    """The times at which each host span was the innermost of its thread."""
    pieces: list[_Piece] = []
    open_spans: dict[Track, list[tuple[str, int]]] = {}  # a thread's spans, outermost first: name and end
    reached: dict[Track, int] = {}  # up to where a thread's time is given to a span

    def close(track: Track, until_ns: float) -> None:
        stack = open_spans.setdefault(track, [])
        while stack and stack[-1][1] <= until_ns:
            give(track, *stack.pop())

    def give(track: Track, name: str, end_ns: int) -> None:
        start_ns = reached[track]
        if start_ns < end_ns:
            pieces.append(_Piece(start_ns, end_ns, name))
            reached[track] = end_ns

    for event in sorted(spans, key=lambda event: (event.start_ns, -event.duration_ns)):
        close(event.track, event.start_ns)
        stack = open_spans[event.track]
        if stack:
            give(event.track, stack[-1][0], event.start_ns)
        reached[event.track] = max(event.start_ns, reached.get(event.track, event.start_ns))
        stack.append((OUTSIDE if event is call else event.name, event.end_ns))
    for track in list(open_spans):
        close(track, math.inf)
    return pieces


def _shares(pieces: Sequence[_Piece], call: TraceEvent) -> dict[str, float]:
    """The part of the call that each name took; 1 at most in all. Work at the same time on several threads or streams
    shares it equally, and a caller that only waits meanwhile takes none of it. Device work may end after the call: then
    the parts are of the time up to its end."""
    ends = [
        edge
        for index, piece in enumerate(pieces)
        if piece.end_ns > max(piece.start_ns, call.start_ns)
        for edge in ((max(piece.start_ns, call.start_ns), True, index), (piece.end_ns, False, index))
    ]
    last_ns = max(call.end_ns, *(end_ns for end_ns, _, _ in ends), call.start_ns + 1)
    taken_ns: dict[str, float] = {}
    working: set[int] = set()
    now_ns = call.start_ns
    for at_ns, begins, index in sorted(ends):
        busy = [pieces[one].name for one in working if pieces[one].name != OUTSIDE] or [OUTSIDE] * bool(working)
        for name in busy:
            taken_ns[name] = taken_ns.get(name, 0.0) + (at_ns - now_ns) / len(busy)
        now_ns = at_ns
        if begins:
            working.add(index)
        else:
            working.discard(index)
    return {name: taken / (last_ns - call.start_ns) for name, taken in taken_ns.items()}


def _event(item: Mapping[str, Any], base_ns: int) -> TraceEvent | None:
    """One event; None if it is of another kind, or malformed."""
    phase, name, category = item.get("ph"), item.get("name"), item.get("cat")
    start_ns, duration_ns = _ns(item.get("ts")), _ns(item.get("dur", 0))
    texts = isinstance(name, str) and isinstance(category, str)
    if phase not in ("X", *FLOWS) or not texts or start_ns is None or duration_ns is None or duration_ns < 0:
        return None
    flow = item.get("id", "")
    if phase in FLOWS and (isinstance(flow, bool) or not isinstance(flow, int | str)):
        return None
    return TraceEvent(
        phase=phase,
        name=_label(name),
        category=_label(category),
        track=_track(item),
        start_ns=base_ns + start_ns,
        duration_ns=duration_ns if phase == "X" else 0,
        args=_args(item) if phase == "X" else {},
        flow=_label(flow) if phase in FLOWS else "",
    )


def _ns(us: object) -> int | None:
    """Microseconds as whole nanoseconds; None if it is no number, or outside plus or minus 317 years."""
    if isinstance(us, bool) or not isinstance(us, int | float) or abs(us) > MAX_US or math.isnan(us):
        return None
    return round(us * 1000)


def _args(item: Mapping[str, Any]) -> dict[str, Any]:
    """torch's details of an event, each value a number or a text. Empty if they are too long, or not JSON."""
    found = item.get("args")
    if not isinstance(found, dict):
        return {}
    try:
        args = {
            key: value if isinstance(value, SCALARS) else json.dumps(value, allow_nan=False)
            for key, value in found.items()
        }
        return args if len(json.dumps(args, allow_nan=False)) <= MAX_ARGS_CHARS else {}
    except (ValueError, RecursionError):
        return {}


def _track(item: Mapping[str, Any]) -> Track:
    return _label(item.get("pid")), _label(item.get("tid"))


def _label(value: object) -> str:
    return str(value)[:MAX_NAME_CHARS] if isinstance(value, int | str) else ""


def _device_tracks(rank: RankTrace) -> set[Track]:
    """The tracks that stand for streams."""
    return {event.track for event in rank.events if event.category in ON_DEVICE}


def _tids(number: int, rank: RankTrace) -> dict[Track, int]:
    """A number for each track, unique over all ranks. The calling thread comes first, streams come last."""
    streams = _device_tracks(rank)
    others = {event.track for event in rank.events} - {rank.call.track}
    tracks = [rank.call.track, *sorted(others, key=lambda track: (track in streams, _number(track[1]), track))]
    return {track: TRACKS_PER_RANK * (number + 1) + index for index, track in enumerate(tracks)}


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 20 else 0


def _track_names(items: Iterable[Mapping[str, Any]]) -> dict[Track, str]:
    """The names that the file gives its threads; of several for one, one that says more than `python` wins."""
    names: dict[Track, str] = {}
    for item in items:
        args = item.get("args")
        if item.get("ph") == "M" and item.get("name") == "thread_name" and isinstance(args, dict):
            name, track = _label(args.get("name")), _track(item)
            if name and "(python)" in names.get(track, "(python)"):
                names[track] = name
    return names


def _track_name(rank: RankTrace, track: Track) -> str:
    if track == rank.call.track:
        return "calling thread"
    if track in _device_tracks(rank):
        return f"GPU stream {track[1]}"
    return rank.track_names.get(track, f"thread {track[1]}")


def _metadata(kind: str, pid: int, tid: int, /, **args: object) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": args}
