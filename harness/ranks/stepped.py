"""Stepped calls, as the parent makes them: a call's whole life on GPUs, step by step, each stamped by the parent.

    the trusted ranks' devices     write the input, flush the caches        switch back, copy the output
    the group's devices                              switch to it   the call
    the parent's stamps        began               .            let .       done      back            ended

All of it is queued on the devices beforehand, behind words that the parent sets (harness.ranks.steps), so no host but
the parent's lies between two stamps. From `let` to `done` is the call's time. From `began` to `back` everything has
passed that the call caused: a device that tells too early that it is done switches back only when it is, and one that
begins early works while the input is written. Work that is longer than a turn of a process on its device may go on
beside the copy, and is seen in that (docs/clocks.md has the measurements).

A call that cannot be queued ahead, because it waits for its device, is let go when its host makes no progress; its time
includes its host then. Never imports torch.
"""

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.ranks import failure, wire
from harness.ranks.group import LOOK_S, Group, Late
from harness.ranks.steps import BACK, CALL, COME, COPY, WRITE, Stamping

KERNEL: tuple[wire.Work, ...] = ("call",)
LOOK_NS = int(LOOK_S * 1e9)
PATIENCE_S = 0.25  # for a host to queue a call; a cold one takes a millisecond
BRIEF_PATIENCE_S = 0.03  # for one that has not queued such calls before
DRAIN_S, DRAIN_MORE, DRAIN_MORE_US = 2.0, 0.5, 100.0  # for a device to become idle; when it seems busy
FIRST_OF_ALL = -20  # the niceness that Linux gives a core first


@contextlib.contextmanager
def first_of_all() -> Iterator[None]:
    """Has this thread go before others on busy cores, where it may (as root, or by RLIMIT_NICE): a stamp is late by as
    long as it waits for a core. What it starts meanwhile would go before others as well."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, FIRST_OF_ALL)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One stepped call: the parent's stamps (CLOCK_MONOTONIC, ns), `done_ns` by rank. `is_ahead`: it was queued before
    it was let go. `gap_ns`: by how much `let_ns` and the last of `done_ns` may be wrong, because the parent was
    elsewhere. `host_us`: what the ranks' hosts needed to queue it, as they claim."""

    began_ns: int
    let_ns: int
    done_ns: tuple[int, ...]
    back_ns: int
    ended_ns: int
    is_ahead: bool
    gap_ns: int
    host_us: float

    @property
    def call_us(self) -> float:
        """From the word that lets the devices go to the last device's word that it is done."""
        return (max(self.done_ns) - self.let_ns) / 1000

    @property
    def around_us(self) -> float:
        """The time from `began` to `back` without the call itself, in us."""
        return (self.back_ns - self.began_ns) / 1000 - self.call_us

    @property
    def copy_us(self) -> float:
        """How long the output's copy took, in us."""
        return (self.ended_ns - self.back_ns) / 1000

    def ranks_us(self) -> tuple[float, ...]:
        """The time from the word that lets the devices go to each rank's word that it is done, in us."""
        return tuple((done_ns - self.let_ns) / 1000 for done_ns in self.done_ns)


@dataclass(frozen=True, kw_only=True)
class StepOrder:
    """Stepped calls on these inputs (-1: none), one after the other; `work` and `ahead` are as in wire.StepCalls (no
    work: the kernel each time). A call is let go when its host has not queued it for `patience_s`. The outputs of the
    kernel are kept for judging if they are `judged`. A late rank is let into call number `late.at` when it has been
    held."""

    indices: Sequence[int]
    work: Sequence[wire.Work] = ()
    ahead: bool = True
    patience_s: float = PATIENCE_S
    judged: bool = False
    late: Late | None = None


@dataclass(frozen=True, kw_only=True)
class _StepCall:
    """One of them, of a group; `late` is None where it is another one's."""

    group: Group
    index: int
    epoch: int
    deadline: float
    ahead: bool
    patience_s: float
    judged: bool
    late: Late | None


class Stepper:
    """Makes stepped calls of any group, with the trusted one around them."""

    def __init__(self, trusted: Group) -> None:
        self.trusted = trusted
        self.epoch = 0  # of the trusted ranks' steps
        self.flush_us = 0.0  # how long an idle device needs to flush its caches

    def calls(self, group: Group, order: StepOrder, deadline: float) -> list[Seen]:
        """Makes these calls of the group."""
        indices = tuple(order.indices)
        work = tuple(order.work) or KERNEL * len(indices)
        epoch, ahead = group.epoch + 1, order.ahead
        group.epoch += wire.STEP_EPOCHS * len(indices)
        group.early = ()
        group.send(wire.StepCalls(indices=indices, work=work, epoch=epoch, ahead=ahead))
        seen = []
        with first_of_all():
            for at, (index, kind) in enumerate(zip(indices, work, strict=True)):
                call = _StepCall(
                    group=group,
                    index=index,
                    epoch=epoch + wire.STEP_EPOCHS * at,
                    deadline=deadline,
                    ahead=ahead,
                    patience_s=order.patience_s,
                    judged=order.judged and kind == "call",
                    late=order.late if order.late is not None and order.late.at == at else None,
                )
                seen.append(self._call(call))
                ahead = ahead and seen[-1].is_ahead
        group.excess_bytes = max(reply.excess_bytes for reply in group.gather(wire.Called, deadline))
        return seen

    def drain(self, deadline: float) -> bool:
        """Waits until the devices work on nothing: until a flush takes no longer than it does. Whether they came to
        that; the least that a flush has taken is how long it takes."""
        until = min(deadline, time.monotonic() + DRAIN_S)
        while True:
            took_us = self._flushed_us(deadline)
            self.flush_us = min(self.flush_us or took_us, took_us)
            if took_us <= (1 + DRAIN_MORE) * self.flush_us + DRAIN_MORE_US:
                return True
            if time.monotonic() > until:
                return False

    def _flushed_us(self, deadline: float) -> float:
        self.epoch += 1
        self.trusted.ask(wire.Serve(epoch=self.epoch, put=-1), wire.Done, deadline)
        flushed = Stamping(self.trusted.barrier.steps, WRITE, self.epoch)
        began_ns, _ = self.trusted.barrier.steps.let(WRITE, self.epoch)
        _await(self.trusted, flushed, deadline)
        return (flushed.last_ns - began_ns) / 1000

    def _call(self, call: _StepCall) -> Seen:
        self.epoch += 1
        # What can be is made ready first: nothing may take time between a word that is seen and the next one, or the
        # first look for the end of the call.
        group, epoch, deadline, ahead, late = call.group, call.epoch, call.deadline, call.ahead, call.late
        steps, ours = group.barrier.steps, self.trusted.barrier.steps
        others = None if late is None else [rank.rank for rank in group.members if rank.rank != late.rank]
        come, go, copy = steps.letting(COME, epoch), steps.letting(CALL, epoch, others), ours.letting(COPY, self.epoch)
        called = Stamping(steps, CALL, epoch, then=copy)
        went: list[tuple[int, int]] = []

        def begin() -> None:
            went.append(go())
            called.looked_ns = went[0][0]
            if ahead and late is None:
                called.look(LOOK_NS)

        has_come = Stamping(steps, COME, epoch, then=begin)
        written = Stamping(ours, WRITE, self.epoch, then=come)
        back, copied = Stamping(ours, BACK, self.epoch), Stamping(ours, COPY, self.epoch)
        replies = self._queued(call, call.patience_s) if ahead else None
        is_ahead = replies is not None
        self._serve(call, [None] * len(group.members) if replies is None else replies, call.index)
        began_ns, _ = ours.let(WRITE, self.epoch)
        _await(self.trusted, written, deadline)
        _await(group, has_come, deadline)
        if not ahead:
            group.barrier.tell([rank.rank for rank in group.members] if others is None else others, epoch, 0)
        if late is not None:
            self._hold(call, late)
        _await(group, called, deadline)
        if replies is None:
            replies = self._queued(call)
            assert replies is not None
            self._serve(call, replies, None)
        _await(self.trusted, back, deadline)
        _await(self.trusted, copied, deadline)
        group.barrier.release(epoch + 1)
        [(let_ns, let_gap_ns)] = went
        return Seen(
            began_ns=began_ns,
            let_ns=let_ns,
            done_ns=tuple(called.stamps_ns),
            back_ns=back.last_ns,
            ended_ns=copied.last_ns,
            is_ahead=is_ahead,
            gap_ns=let_gap_ns + (called.gap_ns or 0),
            host_us=max(reply.host_us for reply in replies),
        )

    def _serve(self, call: _StepCall, replies: Sequence[wire.Stepped | None], put: int | None) -> None:
        """Has the trusted ranks queue what surrounds the call."""
        takes = [None if reply is None else reply.output for reply in replies]
        commands = [wire.Serve(epoch=self.epoch, put=put, take=take, judged=call.judged) for take in takes]
        self.trusted.ask(commands, wire.Done, call.deadline)

    def _queued(self, call: _StepCall, patience_s: float | None = None) -> list[wire.Stepped] | None:
        """Every rank's reply once the call is queued, or None if that takes longer than `patience_s`."""
        group, deadline = call.group, call.deadline
        until = deadline if patience_s is None else time.monotonic() + patience_s
        with group.watch.waiting():
            while patience_s is not None and not all(rank.inbox for rank in group.members):
                if (now := time.monotonic()) > until:
                    return None
                group.processes.poll(min(until - now, LOOK_S))
                group.watch.check_all(deadline, group.members)
        replies = group.gather(wire.Stepped, deadline)
        for rank, reply in zip(group.members, replies, strict=True):
            if reply.epoch != call.epoch:
                raise failure.crashed(rank, f"told of call {reply.epoch} in call {call.epoch}")
        return replies

    def _hold(self, call: _StepCall, late: Late) -> None:
        """Lets the late rank go when it has been held. `early` are the ranks whose devices were done before."""
        group, epoch = call.group, call.epoch
        group.watch.wait(late.hold_s, call.deadline, group.members)
        group.early = [rank for rank in group.barrier.steps.done_by(CALL, epoch) if rank != late.rank]
        group.barrier.steps.let(CALL, epoch, [late.rank])
        if not call.ahead:
            group.barrier.tell([late.rank], epoch, 0)


def _await(group: Group, stamping: Stamping, deadline: float) -> None:
    """Waits until the group's devices have done the step. Raises as `gather` does."""
    began_s = time.monotonic()
    try:  # and not `group.watch.waiting()`, which takes 0.5 us before the first look
        while not stamping.look(LOOK_NS):
            group.processes.poll(0)
            group.watch.check_all(deadline, group.members)
    finally:
        group.watch.waited_s += time.monotonic() - began_s
