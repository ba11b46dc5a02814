"""Who carries out the tasks of a population: this process, or worker processes, one for each GPU.

A worker is `python -m harness.agents.workers`: it gets its terms and then tasks as lines of JSON, and answers each with
a line. It ends when its standard input does, also in the middle of a task and where this process was killed. A worker
that dies is started anew, and its task tried once more.
"""

import contextlib
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from harness.agents.judge import Judge, Terms
from harness.agents.made import refused
from harness.agents.population import Trial
from harness.agents.result import Conditions, Result
from harness.core import processes
from harness.core.checkout import ROOT, Checkout
from harness.core.decode import decode
from harness.core.errors import HarnessError
from harness.core.json_file import line_of, record_of
from harness.machine import host

TRIES = 2


class Here:
    def __init__(self, judge: Judge) -> None:
        self.judge = judge

    def run(self, tasks: Iterable[Trial]) -> Iterator[Result]:
        for task in tasks:
            yield replace(self.judge.judge(task.submission, task.stage), id=task.id)


@dataclass(eq=False)
class Worker:
    process: "subprocess.Popen[bytes]"
    environ: Mapping[str, str]
    task: Trial | None = None
    tries: int = 0
    unread: bytearray = field(default_factory=bytearray)

    @property
    def ends(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        return self.process.stdin, self.process.stdout

    def tell(self, value: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # which reading will find
            self.ends[0].write(line_of(value).encode())
            self.ends[0].flush()


class Workers:
    """Several processes, a context: leaving it ends them. `environs` has what each one's environment has more."""

    def __init__(self, terms: Terms, checkout: Checkout, environs: Iterable[Mapping[str, str]]) -> None:
        self._terms, self._checkout, self._environs = terms, checkout, list(environs)
        self._workers: list[Worker] = []

    def __enter__(self) -> "Workers":
        self._workers = [self._started(environ) for environ in self._environs]
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            worker.ends[0].close()
        for worker in self._workers:
            worker.process.wait()
            worker.ends[1].close()

    def run(self, tasks: Iterable[Trial]) -> Iterator[Result]:
        waiting = deque(tasks)
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.ends[1], selectors.EVENT_READ, worker)
            while waiting or any(worker.task for worker in self._workers):
                for worker in self._workers:
                    if worker.task is None and waiting:
                        worker.task, worker.tries = waiting.popleft(), 0
                        self._tell(worker)
                for key, _ in selector.select():
                    worker = key.data
                    data = os.read(worker.ends[1].fileno(), 1 << 20)
                    worker.unread += data
                    if not data:
                        selector.unregister(worker.ends[1])
                        yield from self._again(worker)
                        selector.register(worker.ends[1], selectors.EVENT_READ, worker)
                    elif worker.unread.endswith(b"\n"):
                        found = record_of(Result, worker.unread)
                        worker.unread.clear()
                        worker.task = None
                        yield found

    def _again(self, worker: Worker) -> Iterator[Result]:
        """The worker has ended: another takes its place, and its task if that was not tried too often."""
        code, task = worker.process.wait(), worker.task
        for end in worker.ends:
            with contextlib.suppress(OSError):  # what was not read by it
                end.close()
        worker.process, worker.unread = self._started(worker.environ).process, bytearray()
        if task is None:
            return
        if worker.tries < TRIES:
            self._tell(worker)
            return
        worker.task = None
        error = HarnessError(f"the process that judged it ended with code {code}, twice")
        terms = self._terms
        conditions = Conditions(problem=terms.asked.problem, function=terms.reward, lower=terms.lower)
        result = refused(error, conditions, task.submission)
        yield replace(result, id=task.id)

    def _tell(self, worker: Worker) -> None:
        worker.tries += 1
        worker.tell(worker.task)

    def _started(self, environ: Mapping[str, str]) -> Worker:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness.agents.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **environ},
            start_new_session=True,  # Ctrl-C is this process's to handle
        )
        worker = Worker(process, environ)
        worker.tell({"root": str(self._checkout.root), "terms": self._terms})
        return worker


def environs_of(device: str, ranks: int, jobs: int | None) -> list[dict[str, str]]:
    """The additional environment of each worker: a GPU of its own, where the problem takes one and there are several.
    Problems of several ranks and on CPU cores have one worker, because candidates beside each other would spoil
    times."""
    if device == "cpu" or ranks > 1:
        return [{}]
    count, variable = host.gpus().count, host.VISIBLE_DEVICES[device][0]
    visible = [name for name in os.environ.get(variable, "").split(",") if name] or list(map(str, range(count)))
    return [{variable: name} for name in visible[: min(count, jobs or count)]]


def _read(lines: "queue.SimpleQueue[bytes]") -> None:
    """Hands over the lines of standard input. At its end the main thread is interrupted, whatever it does: a task may
    take minutes, and nobody waits for its result."""
    with open(0, "rb", closefd=False) as told:  # not sys.stdin, whose lock a thread must not hold when Python ends
        for line in told:
            lines.put(line)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)


def main() -> None:
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also where it was ignored: _read sends it
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    first = json.loads(lines.get())
    with Judge(decode(Terms, first["terms"]), Checkout(Path(first["root"]))) as judge:
        while True:
            task = record_of(Trial, lines.get())
            result = judge.judge(task.submission, task.stage)
            out.write(line_of(replace(result, id=task.id)).encode())
            out.flush()


if __name__ == "__main__":
    processes.interrupt_on_signals()
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        main()
