"""GPU MODE's front door: what it refuses is said before a file is handed in, and a merged file is one that it takes."""

import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from places import SINGLE

from harness.core.checkout import Checkout
from harness.core.errors import Exit
from harness.gpumode import folder
from harness.gpumode.front_door import findings, rewritten
from harness.gpumode.plain_words import lines_with_word, without_word
from harness.problems.shape_file import find

Harness = Callable[..., subprocess.CompletedProcess[str]]
A2A = find("a2a", Checkout.here())
HEADER = "#!POPCORN leaderboard amd-all2all\n#!POPCORN gpus MI300x8\n"
KERNEL = "def custom_kernel(data):\n    return data\n"


def theirs(source: str, gpus: tuple[str, ...] = ("MI300x8",), leaderboard: str = "amd-all2all") -> str | None:
    """Why GPU MODE's service refuses a file, after its api_utils.py and submission.py as read in 2026-11; None if it
    takes the file."""
    if not source:
        return "empty"
    if len(source.encode()) > 1_000_000:
        return "too large"
    if "stream" in source.lower():
        return "work on another stream"
    said: dict[str, list[str]] = {}
    for line in source.splitlines():
        if not line.startswith(("//", "#")):
            break
        words = line.split()
        if words[0] in ("//!POPCORN", "#!POPCORN"):
            key = {"gpu": "gpus"}.get(words[1].lower(), words[1].lower()) if len(words) > 1 else ""
            if len(words) < 3 or key not in ("gpus", "leaderboard") or key in said:
                return f"directive {line}"
            said[key] = words[2:]
    if said.get("leaderboard", [leaderboard])[0] != leaderboard:
        return "another leaderboard"
    return next((f"GPU {gpu}" for gpu in said.get("gpus", ()) if gpu not in gpus), None)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (HEADER + KERNEL, None),
        (KERNEL, None),
        (HEADER.replace("x8", "") + KERNEL, "the leaderboard takes MI300x8: write `#!POPCORN gpus MI300x8`"),
        (HEADER.replace("MI300x8", "H100") + KERNEL, "the leaderboard takes MI300x8: choose one of them"),
        (HEADER.replace("amd-all2all", "amd-gemm-rs") + KERNEL, "write `#!POPCORN leaderboard amd-all2all`"),
        (HEADER + HEADER + KERNEL, "a second line `#!POPCORN leaderboard`; remove one"),
        ("#!POPCORN speed 3\n" + KERNEL, "expected `#!POPCORN leaderboard NAME`"),
        (HEADER + "# upStream\n" + KERNEL, "the word `stream` stands in 1 line (3)"),
        (HEADER + KERNEL + "# stream\n" * 8, "stands in 8 lines (5, 6, 7, 8, 9, 10, ...)"),
        (HEADER + KERNEL + "#" * 1_000_000, "bytes; at most 1000000 are taken"),
        ("", "the file is empty"),
    ],
)  # fmt: skip
def test_what_their_service_refuses_is_said_and_nothing_else_is(source: str, says: str | None) -> None:
    found = [one.text for one in findings(source, "a.py", A2A) if one.refused]
    assert (theirs(source) is not None) == (says is not None)
    assert any(says in text for text in found) if says else found == []


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("from task import MoEConfig\n" + KERNEL, 1, "task.py of this problem has no MoEConfig; write `from reference"),
        ("from task import speed\n" + KERNEL, 1, "has no speed; it defines TestSpec, input_t, output_t"),
        ("import os\nfrom common.heap import Heap\n" + KERNEL, 2, "one file is taken; `make merge` writes it"),
        ("from .a import b\n" + KERNEL, 1, "one file is taken"),
        ("x = 1\n", None, "no custom_kernel at its top level"),
        ("def custom_kernel(data:\n", 1, "Python cannot read it"),
        (KERNEL + "\n#!POPCORN gpus B200\n", 4, "popcorn-cli reads it, the service does not"),
    ],
)
def test_what_would_fail_behind_the_door_is_said_with_its_line(source: str, line: int | None, says: str) -> None:
    (found,) = [one for one in findings(source, "a.py", A2A) if one.refused]
    assert (found.line, says in found.text) == (line, True), found.text


@pytest.mark.parametrize(
    "source",
    [
        "from task import input_t, output_t\nfrom reference import MoEConfig, ref_kernel\nfrom utils import set_seed\n",
        "try:\n    from task import MoEConfig\nexcept ImportError:\n    from reference import MoEConfig\n",
        "import numpy\nimport torch\nfrom task import *\n",
    ],
)
def test_imports_that_work_there_are_not_refused(source: str) -> None:
    assert not [one for one in findings(source + KERNEL, "a.py", A2A) if one.refused]


def test_a_problem_folders_own_files_say_what_can_be_imported() -> None:
    problem = folder.read(SINGLE / "scale", Checkout.here())
    problem = replace(problem, gpus=("B200", "H100"))
    source = "#!POPCORN leaderboard scale_v2\n#!POPCORN gpu b200\nfrom task import input_t, speed\n" + KERNEL
    found = [one.text for one in findings(source, "a.py", problem) if one.refused]
    assert len(found) == 2, found
    assert "write `#!POPCORN gpus B200`" in found[0]
    assert "task.py of this problem has no speed" in found[1]


def test_work_on_a_queue_of_ones_own_is_a_warning_also_where_the_word_is_in_parts() -> None:
    plain = "import torch\n\n\ndef custom_kernel(data):\n    side = torch.cuda.Stream()\n    return data, side\n"
    for source in (plain, rewritten(plain, A2A)[0]):
        (found,) = [one for one in findings(source, "a.py", A2A) if "disqualified" in one.text]
        assert not found.refused
    assert "It makes a GPU queue of its own" in source


def test_check_for_gpumode_runs_nothing_and_exits_with_112_if_it_would_be_refused(
    harness: Harness, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("raise SystemExit('it was run')\n")
    refused = harness("check", "--for", "gpumode", "a2a", str(file))
    assert refused.returncode == Exit.INVALID
    assert "refused            no custom_kernel at its top level" in refused.stdout
    file.write_text(HEADER + "raise SystemExit('it was run')\n" + KERNEL)
    taken = harness("check", "--for", "gpumode", str(file))
    assert (taken.returncode, taken.stdout) == (0, f"{file}: GPU MODE (amd-all2all) takes it\n")


def test_of_cuda_the_text_alone_is_looked_at_and_it_is_one_file_already(harness: Harness, tmp_path: Path) -> None:
    place = SINGLE / "cuda"
    source = "//!POPCORN leaderboard cuda\n#include <cuda.h>\n"
    problem = folder.read(place, Checkout.here())
    assert not [one for one in findings(source, "submission.cuh", problem) if one.refused]
    (word,) = [one for one in findings(source + "// a stream\n", "a.cu", problem) if one.refused]
    assert (word.line, word.text.endswith("write it in another way")) == (3, True)
    (name,) = [one for one in findings(source, "submission.py", problem) if one.refused]
    assert name.text == "its name does not end with .cu or .cuh or .cpp; rename it"
    file = tmp_path / "mine.cu"
    file.write_text(source)
    assert harness("check", "--for", "gpumode", str(place), str(file)).returncode == Exit.OK
    refused = harness("merge", str(place), str(file))
    assert (refused.returncode, "a single file already" in refused.stderr) == (Exit.USAGE, True)


# ---- without the word ------------------------------------------------------------------------------------------------

USES = '''"""Streams of data."""
import functools
import types

Stream = 1
cuda = types.SimpleNamespace(Stream=lambda *a, **k: types.SimpleNamespace(wait_stream=lambda s: s, **k), stream=2)


def current_stream(number=7, *, stream=3):
    """The current stream."""
    global last_stream
    last_stream = stream  # of this stream
    return number + stream


class Engine:
    def __init__(self, stream):
        self.stream = stream
        self.streams, count = [stream], 0
        (self).other_stream = stream, 2

    def waits(self):
        return self.stream.wait_stream(cuda.stream), (self . other_stream), "stream" + 'upSTREAM', f"a stream {1 + 1}"


def outer():
    stream = 5
    def inner():
        nonlocal stream
        stream += 1
        return stream
    return inner(), [stream for stream in (1, 2)], (lambda stream: -stream)(4)


def result():
    engine = Engine(stream=cuda.Stream(1, stream=9))
    keys = functools.partial(dict, stream=1)()
    source = """
    kernel<<<1, 2, 0, stream>>>();
    """
    raw = r"\\d stream"
    return engine.waits(), outer(), current_stream(stream=4), last_stream, keys, source, raw, Stream, "é", cuda.stream
'''


def test_a_program_without_the_word_does_what_it_did() -> None:
    """But for `self.streams, count = ...`, which is left with its line."""
    changed = without_word(USES)
    tuple_line = next(number for number, line in enumerate(USES.split("\n"), 1) if "self.streams, count" in line)
    assert lines_with_word(changed.text) == (tuple_line,)
    changed = without_word(USES.replace("        self.streams, count = [stream], 0\n", ""))
    assert lines_with_word(changed.text) == ()
    assert "stream" not in changed.text.lower()
    assert changed.text.startswith('"""Queues of data."""\n')
    results = []
    for text in (USES, changed.text):
        names: dict[str, object] = {}
        exec(compile(text, "uses.py", "exec"), names)
        results.append(re.sub("0x[0-9a-f]+", "", repr(names["result"]())))  # type: ignore[operator]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("from torch.cuda import Stream\n", 1),
        ("class A:\n    stream: int = 0\n", 2),
        ("class A:\n    def stream(self): ...\n", 2),
        ("stream = 1\nprint(globals()['stream'])\n", 1),
        ("stream = 1\nprint(f'{stream} is it')\n", 2),
        ("class A:\n    def f(self):\n        return self.__stream\n", 3),
        ("import triton\n\n\n@triton.jit\ndef k(x):\n    return x.stream\n", 6),
        ("def f(stream): ...\ndef g(do):\n    do.f(stream=1)\n", 3),
        ("def f(stream): ...\ndef g(call):\n    call(f, stream=1)\n", 3),
    ],
)
def test_what_cannot_be_changed_safely_stays_and_is_named(source: str, line: int) -> None:
    changed = without_word(source)
    assert line in lines_with_word(changed.text)
    assert [one for one in findings(changed.text + KERNEL, "a.py", A2A) if one.refused]


@pytest.mark.parametrize(
    "call",
    [
        "g = run\nresult = g(1, stream=4)",
        "result = {'x': run}['x'](1, stream=4)",
        "result = run(1, **{'stream': 3})",
        "get = lambda stream=None: stream\nresult = get(stream=5)",
        "import functools\nresult = functools.partial(run, stream=4)(1)",
        "class A:\n    take = run\nresult = A.take(1, stream=4)",
        "def twice(f, **k):\n    return f(1, **k), f(2, **k)\nresult = twice(run, stream=4)",
    ],
)
def test_a_parameter_that_a_keyword_reaches_unseen_keeps_its_name_and_the_file_is_refused(call: str) -> None:
    source = f"def run(x, stream=None):\n    return x, stream\n{call}\n"
    changed = without_word(source)
    assert lines_with_word(changed.text)
    results = []
    for text in (source, changed.text):
        names: dict[str, object] = {}
        exec(compile(text, "uses.py", "exec"), names)
        results.append(names["result"])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("from reference import input_t", "from task import input_t"),
        (
            "from reference import (\n    ref_kernel,\n    input_t,\n)",
            "from task import input_t\nfrom reference import ref_kernel",
        ),
        ("import torch; from reference import input_t", "import torch; from task import input_t"),
        (
            "name = 'é'; from reference import input_t, ref_kernel; x = 1  # kept",
            "name = 'é'; from task import input_t; from reference import ref_kernel; x = 1  # kept",
        ),
    ],
)
def test_imports_name_the_file_that_has_it_there_and_what_shares_their_line_stays(line: str, becomes: str) -> None:
    assert rewritten(f"{HEADER}{line}\n{KERNEL}", A2A)[0] == f"{HEADER}{becomes}\n{KERNEL}"


@pytest.mark.parametrize(
    "source",
    [
        "result = f'{1.5:.2f} streams, {7:>3} in all'\n",
        "import datetime\nresult = f'{datetime.date(2026, 1, 1):%Y streams}'\n",
        "result = f\"{f'{1} stream'} {2} streams\"\n",
        "stream = 3\nresult = f'{1:{stream}}'\n",
        "class Kinds:\n    stream = 1\nmatch 1:\n    case Kinds.stream:\n        result = 'it'\n",
    ],
)
def test_f_strings_and_patterns_mean_what_they_meant(source: str) -> None:
    results = []
    for text in (source, without_word(source).text):
        names: dict[str, object] = {}
        exec(compile(text, "uses.py", "exec"), names)
        results.append(names["result"])
    assert results[0] == results[1]


def test_a_text_without_the_word_stays_as_it_is() -> None:
    source = "'''odd'''; import os\r\n\r\nfrom math import *\r\n"
    assert without_word(source).text == source
    assert rewritten(source, A2A) == (source, ())


@pytest.mark.parametrize(  # those that GPU MODE has
    "name", ["a2a", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gemm_rs", "ag_gemm"))]
)
def test_the_merged_files_of_shipped_submissions_are_taken(name: str, harness: Harness, tmp_path: Path) -> None:
    out = tmp_path / "merged.py"
    made = harness("merge", name, "--out", str(out))
    assert made.returncode == Exit.OK, made.stdout + made.stderr
    assert "GPUs: MI300 is MI300x8" in made.stdout
    assert theirs(out.read_text(), leaderboard=find(name, Checkout.here()).leaderboard) is None
    checked = harness("check", "--for", "gpumode", str(out))
    assert checked.returncode == Exit.OK, checked.stdout
    assert "from task import MoEConfig" not in out.read_text()


def test_a_merged_file_that_would_be_refused_is_written_and_says_why(harness: Harness, tmp_path: Path) -> None:
    file, out = tmp_path / "mine.py", tmp_path / "out.py"
    file.write_text("from torch.cuda import Stream\n" + KERNEL)
    made = harness("merge", "a2a", str(file), "--out", str(out))
    assert made.returncode == Exit.INVALID
    assert "refused            line 2: the word `stream` stands in 1 line (2)" in made.stdout
    assert "hand it in" not in made.stdout
    assert out.exists()
