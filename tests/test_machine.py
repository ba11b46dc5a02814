"""What the harness reads of the machine that other tests do not see."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.machine import host

WORKS_S = 0.2
WORKS = f"import time\nuntil = time.process_time() + {WORKS_S}\nwhile time.process_time() < until: pass\n"
# Works in a child that it waits for, in a thread that ends, and itself; then waits.
PROGRAM = f"""
import subprocess, sys, threading
work = {WORKS!r}
subprocess.run([sys.executable, "-c", work], check=True)
thread = threading.Thread(target=exec, args=(work.replace("process_time", "thread_time"),))
thread.start()
thread.join()
exec(work)
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("text", "count"),
    [("0,1", 2), ("-1", 0), ("", 0), ("1,-1,0", 1), ("7", 0), (" 3 ", 1), ("GPU-8f2e,GPU-71aa", 2), ("0,0,0,0,0", 4)],
)
def test_hidden_gpus_are_not_counted(text: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listdir", lambda path: ["null", "nvidiactl", *(f"nvidia{number}" for number in range(4))])
    monkeypatch.setattr(host, "_version", lambda package: "2.13.0")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    assert host.gpus().count == count


def test_cpu_time_counts_children_and_threads_that_have_ended_and_no_waiting() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert host.parent_of(process.pid) == os.getpid()
        busy_us = host.busy_us(process.pid)
        assert 3 * WORKS_S * 1e6 * 0.9 < busy_us < 3 * WORKS_S * 1e6 + 2e6, "and what it takes to start"
        assert host.busy_us(process.pid) - busy_us < 1e5
        process.communicate()
    assert host.parent_of(process.pid) == 0


def test_a_machine_has_a_stable_id_that_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "machine-id"
    file.write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr(host, "MACHINE_IDS", (str(tmp_path / "none"), str(file)))
    first = host.machine_id()
    assert (len(first), first, "01234567" in first) == (12, host.machine_id(), False)
    file.write_text("1123456789abcdef0123456789abcdef\n")
    assert host.machine_id() != first
    file.write_text("")
    assert host.machine_id() == ""
