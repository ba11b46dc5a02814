"""Every decoder that reads what a submission or a user wrote, and inputs to break them with.

A target is one line in TARGETS: valid samples, what they are made of, the call, and the exceptions that it may raise.
Inputs are samples that were cut, spliced and altered, byte by byte or, where a sample is a tree (JSON, YAML), node by
node. They follow from the target and a number alone, so any finding can be had again. tests/house/test_fuzz.py tries
a few thousand, bench/fuzz.py as many as are asked for.
"""

import contextlib
import copy
import dataclasses
import json
import os
import random
import signal
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, get_args
from unittest import mock

import factories
import launches
import recorded
import torch
import yaml
from places import FIXTURES

from harness.board import bundle_check, bundle_make, leaderboard, report_json, reports, runs
from harness.board.entries import Board
from harness.cli import popcorn
from harness.contest import rules
from harness.contest.log import ContestLog
from harness.contest.state import fold
from harness.core import checkout, mllog, words
from harness.core.checkout import Checkout
from harness.core.decode import DecodeError, decode, encode
from harness.core.errors import BadFileError, BadSubmissionError, HarnessError, UsageError
from harness.core.records import Verdict, Verdicts
from harness.evaluation import mlperf
from harness.gpumode import folder as folder_file
from harness.gpumode import result_lines
from harness.judging.correctness import Expected
from harness.judging.warnings import text_of
from harness.kinds.external.evaluator_run import EvalMode, EvaluatorRun
from harness.kinds.folder import rank_check as folder_check
from harness.kinds.trace.kind import TraceKind
from harness.kinds.train import rank as quality_trusted
from harness.machine import hardware, peaks_cache, tune
from harness.problems import merge, shape_file, submission
from harness.problems.problem import Problem
from harness.ranks import channel, exchange, payload, strict_check, trace, wire
from harness.ranks.output_bounds import MAX_RANK
from harness.ranks.shared_buffer import FileBuffer
from harness.ranks.trusted import bounded
from harness.report import mlperf as report_mlperf
from harness.report.render import FORMATS

ROOT = checkout.ROOT
DEADLINE_S = 2.0  # of this process's own time for one input; those that take longest need milliseconds
MAX_BYTES = 1 << 17
BUFFER_BYTES = 1 << 16

Form = Literal["bytes", "json", "yaml", "frames"]


class Hang(BaseException):  # no decoder may take it for one of its own
    """An input took longer than DEADLINE_S."""


@dataclass(frozen=True)
class Target:
    """`samples` are made when they are needed; `form` is what they are, so what inputs are made of."""

    name: str
    samples: Callable[[], Sequence[bytes]]
    form: Form
    call: Callable[[bytes], object]
    allowed: tuple[type[Exception], ...]
    share: int = 1  # of all inputs: more where they are quick, and where a submission wrote them


@dataclass(frozen=True)
class Finding:
    """What went wrong with one input."""

    target: str
    number: int
    data: bytes
    error: str


# ---- inputs --------------------------------------------------------------------------------------------------------

WORDS = (
    *(b"0", b"-1", b"1e999", b"NaN", b"-Infinity", b"null", b"true", b"[]", b"{}", b'""', b"0x10", b"1_000", b"~"),
    *(b"9" * 5000, b"1" * 19, b"[" * 2000, b"{" * 500, b'{"a":' * 500, b"- " * 500, b"(" * 300, b"\xff\xfe", b"\x00"),
    *(b"\r\n", b"\n\n", b"\t", b"\x85", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x1b[2J", b"%n", b"\\"),
    *(b"&a", b"*a", b"<<: *a", b"!!python/object:os.system", b"!!binary x", b"? x", b"---\n", b"...\n", b"2026-13-99"),
    *(b"2026-01-01", b"12:30:45", b"lambda: ", b"from common.heap import Heap\n", b"import submission\n", b"\\N{x}"),
    *(b"#!POPCORN gpus A B\n", b"#!POPCORN leaderboard x\n", b"#!POPCORN\n", b"//!POPCORN gpu\n", b": ", b"; ", b"="),
)
VALUES = (
    *(None, True, False, 0, 1, -1, 2**31, 2**53, 2**63, 2**64, -(2**63), 2**200, 10**400, 0.0, -0.0, 1e308, 5e-324),
    *(float("nan"), float("inf"), "", "x", "1", "False", "None", "torch.float32", "torch.Tensor", "\x00", "\ud800"),
    *("9" * 5000, "a\nb", "../../etc/passwd", "\u202e", [], {}, [[]], [0], {"": 0}, {"type": "done"}, [None] * 300),
    *([2**62, 0], [0, 2**63], [1] * 200, {"a": {"a": {"a": {}}}}, "2026-11-21", "dict", "tuple"),
)


def inputs(target: Target, start: int, count: int) -> Iterator[tuple[int, bytes]]:
    """The target's inputs number `start` to `start + count`, each from nothing but its number."""
    for number in range(start, start + count):
        yield number, _input(target, random.Random(f"{target.name}/{number}"))


def _input(target: Target, luck: random.Random) -> bytes:
    samples = _samples(target)
    if target.form == "frames" and luck.random() < 0.8:  # JSON behind a true length, or it is seldom reached
        body = _tree_bytes(luck, target.form, [sample[4:] for sample in samples])
        return struct.pack(">I", len(body)) + body
    if target.form in ("json", "yaml") and luck.random() < 0.7:
        return _tree_bytes(luck, target.form, samples)
    return _altered(luck, samples)


@cache
def _samples(target: Target) -> Sequence[bytes]:
    return target.samples()


@cache
def _tree(sample: bytes, form: Form) -> str:
    return json.dumps(yaml.safe_load(sample) if form == "yaml" else json.loads(sample), default=str)


def _tree_bytes(luck: random.Random, form: Form, samples: Sequence[bytes]) -> bytes:
    tree = json.loads(_tree(luck.choice(samples), form))
    for _ in range(_few(luck)):
        tree = _grown(luck, tree)
    # JSON is YAML too, nearly, and much faster to write.
    return json.dumps(tree, indent=luck.choice((None, 0))).encode("utf-8", "surrogatepass")


def _grown(luck: random.Random, tree: Any) -> Any:
    """The tree with one node altered: another value, another node's, left out, twice, under another key."""
    places: list[tuple[Any, Any]] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, item in items:
            places.append((node, key))
            stack.append(item)
    if not places or luck.random() < 0.01:
        return copy.deepcopy(luck.choice(VALUES))
    node, key = luck.choice(places)
    how = luck.randrange(8)
    if how < 4:
        node[key] = copy.deepcopy(luck.choice(VALUES))
    elif how == 4:
        del node[key]
    elif how == 5:
        other, at = luck.choice(places)
        with contextlib.suppress(KeyError, IndexError):
            node[key] = json.loads(json.dumps(other[at]))
    elif how == 6 and isinstance(node, list):
        node += [node[key]] * luck.choice((1, 2, 300))
    elif how == 6:
        node[luck.choice(("", "x", "type", f"{key} ", str(key).upper(), "é"))] = node.pop(key)
    elif isinstance(node[key], int | float) and not isinstance(node[key], bool):
        node[key] = luck.choice((-node[key], node[key] + 1, node[key] * 2 ** luck.randrange(64), str(node[key])))
    elif isinstance(node[key], str):
        node[key] = _altered(luck, [node[key].encode("utf-8", "surrogatepass")]).decode("utf-8", "replace")
    return tree


def _altered(luck: random.Random, samples: Sequence[bytes]) -> bytes:
    """A sample with a few of its bytes altered, left out, repeated, or replaced by a word or a part of another."""
    data = bytearray(luck.choice(samples))
    for _ in range(_few(luck)):
        at = luck.randrange(len(data) + 1)
        end = min(len(data), at + luck.choice((0, 1, 2, 8, 64, 1000)))
        how = luck.randrange(7)
        if how == 0 and data:
            data[at % len(data)] ^= 1 << luck.randrange(8)
        elif how == 1:
            data[at:end] = luck.choice(WORDS)
        elif how == 2:
            data[at:end] = b""
        elif how == 3:
            data[at:at] = data[at:end] * luck.choice((1, 2, 50))
        elif how == 4:
            data[at:end] = luck.randbytes(luck.randrange(9))
        elif how == 5:
            other = luck.choice(samples)
            begin = luck.randrange(len(other) + 1)
            data[at:end] = other[begin : begin + luck.choice((1, 10, 200))]
        else:
            lines = bytes(data).split(b"\n")
            luck.shuffle(lines) if luck.random() < 0.2 else lines.insert(luck.randrange(len(lines)), luck.choice(lines))
            data = bytearray(b"\n".join(lines))
    return bytes(data[:MAX_BYTES])


def _few(luck: random.Random) -> int:
    return min(20, 1 + int(luck.expovariate(0.6)))


# ---- trying them ---------------------------------------------------------------------------------------------------


def tried(target: Target, data: bytes) -> str:
    """What went wrong with this input, or an empty text. For one thread, the main one."""

    def over(signum: int, frame: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, DEADLINE_S)
    try:
        target.call(data)
    except target.allowed:
        pass
    except Hang:
        return f"took more than {DEADLINE_S:g} s"
    except BaseException as error:  # that is what is looked for
        return f"{type(error).__name__}: {str(error)[:300]} at {_place(error)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return ""


def search(target: Target, start: int, count: int, told: Callable[[int], None] = lambda number: None) -> list[Finding]:
    """The first input, by number, of each thing that goes wrong with these."""
    found: dict[str, Finding] = {}
    with ours_once():
        for number, data in inputs(target, start, count):
            told(number)
            if error := tried(target, data):
                found.setdefault(error.rpartition(" at ")[2], Finding(target.name, number, data, error))
    return list(found.values())


@contextlib.contextmanager
def ours_once() -> Iterator[None]:
    """This checkout's own problems and their params.py are no inputs, and reading them anew takes most of the time."""
    with contextlib.ExitStack() as stack:
        for module, name in ((shape_file, "_load_params"), (shape_file, "_file_type"), (popcorn, "find")):
            stack.enter_context(mock.patch.object(module, name, cache(getattr(module, name))))
        yield


def _place(error: BaseException) -> str:
    frame, place = error.__traceback__, "?"
    while frame is not None:
        if "/harness/" in (name := frame.tb_frame.f_code.co_filename):
            place = f"{Path(name).name}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place


# ---- the calls -----------------------------------------------------------------------------------------------------


@cache
def folder() -> Path:
    """A checkout of our own, for decoders that read files; its problems are this one's."""
    kept = tempfile.TemporaryDirectory(prefix="fuzz-")
    _KEPT.append(kept)
    root = Path(kept.name)
    (root / "reference").symlink_to(ROOT / "reference")
    (root / "shapes").mkdir()
    (root / "submissions" / "a2a").mkdir(parents=True)
    (root / "submissions" / "common").symlink_to(ROOT / "submissions" / "common")
    (root / "submissions" / "a2a" / "tuning.py").write_text("TABLE = {}\n")
    (root / "task").mkdir()
    for name in ("reference.py", "task.py", "eval.py"):
        (root / "task" / name).write_text("def generate_input(): ...\n")
    return root


_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def clean() -> None:
    """Removes `folder`, for a process that ends without Python's own goodbye."""
    for kept in _KEPT:
        kept.cleanup()


def of_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """The decoder of a file of that name in `folder`."""

    def call(data: bytes) -> object:
        path = folder() / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return read(path)

    return call


@cache
def _buffer() -> FileBuffer:
    fd = os.memfd_create("outputs")
    os.ftruncate(fd, BUFFER_BYTES)
    return FileBuffer(fd)


def outputs_of(data: bytes) -> None:
    """A rank's replies, and the outputs that they declare, as a trusted rank takes them."""
    for reply in channel.MessageParser().feed(data):
        for sample in reply.samples if isinstance(reply, wire.Called) else ():
            if sample.output is not None:
                payload.viewed(sample.output, _buffer().read(sample.output.offset, sample.output.nbytes))
                payload.read_tree(_buffer(), sample.output, BUFFER_BYTES)


def described_output(data: bytes) -> None:
    """What a rank says in an output's own file that the output is."""
    buffer = FileBuffer(os.memfd_create("output"))
    try:
        buffer.append(data)
        found = exchange.described(buffer)
        payload.viewed(found, buffer.read(found.offset, found.nbytes))
        payload.read_tree(buffer, found, BUFFER_BYTES)
    finally:
        os.close(buffer.fd)


def judged_output(data: bytes) -> None:
    """A tensor of any dtype, sizes and strides as a rank hands it over, and then with anything else said of it, as
    trusted ranks of every kind read and judge it. What they say of it fits a reply, and what becomes a tensor is of a
    make that results have, and no larger."""
    luck = random.Random(data)
    file = FileBuffer(os.memfd_create("output"))
    try:
        result = tensor_by(luck)
        nested = (result, {"weights": [result, 1.5]})
        exchange.write_described(file, nested if luck.random() < 0.2 else result, BUFFER_BYTES)
        declared = exchange.described(file)
        judged(file, declared)
        with contextlib.suppress(DecodeError):  # then the description is none
            judged(file, decode(wire.Output, encode(declared) | lie_by(luck, declared)))
    finally:
        os.close(file.fd)


SIZES = (0, 1, 1, 2, 3, 4, 8, 8, 31, 1 << 20, 1 << 31, 1 << 62)
STRIDES = (0, 1, 1, 2, 8, 8, 31, 1 << 31)
RANKS = (0, 1, 2, 2, 2, 3, 4, MAX_RANK, MAX_RANK + 1, 65, 4000)


def tensor_by(luck: random.Random) -> torch.Tensor:
    """Any that torch lets a submission make of a few bytes."""
    dtype = torch.float32 if luck.random() < 0.2 else luck.choice(list(payload.DTYPES.values()))
    rank = luck.choice(RANKS)
    size = [luck.choice(SIZES[: 9 if luck.random() < 0.8 else None]) if rank < 5 else 1 for _ in range(rank)]
    stride = [luck.choice(STRIDES) for _ in range(rank)]
    storage = torch.UntypedStorage(1024)
    storage.copy_(torch.frombuffer(bytearray(luck.randbytes(1024)), dtype=torch.uint8).untyped_storage())
    for sized in (size, [4, 8] + [1] * (rank if rank > 4 else 0), [4, 8]):
        with contextlib.suppress(RuntimeError, NotImplementedError):
            if "q" in str(dtype).removeprefix("torch."):
                return torch._empty_affine_quantized(sized, scale=0.1, zero_point=3, dtype=dtype)  # type: ignore[attr-defined]
            lies = stride if len(stride) == len(sized) and luck.random() < 0.5 else [1] * len(sized)
            return torch.empty(0, dtype=dtype).set_(storage, luck.choice((0, 0, 1, 16)), sized, lies)  # type: ignore[call-overload]
    return torch.ones(4, 8)


def lie_by(luck: random.Random, declared: wire.Output) -> dict[str, Any]:
    """Some of what a description has, made up."""
    sizes = (*SIZES, -1, -(1 << 62), 1 << 64, 10**400)
    rank = luck.choice(RANKS)
    made: dict[str, Callable[[], Any]] = {
        "dtype": lambda: luck.choice(list(payload.DTYPES)),
        "shape": lambda: [luck.choice(sizes) for _ in range(rank)],
        "nbytes": lambda: luck.choice((*sizes, 128, 64, 32, 16, 256)),
        "offset": lambda: luck.choice((*sizes, 64)),
        "kind": lambda: luck.choice(("torch.Tensor", "tuple", "list", "dict", "int", "str", "None", "x" * 400)),
        "device": lambda: luck.choice(("cpu", "cuda", "x" * 300)),
        "note": lambda: luck.choice(("", "", "none", "x" * 300)),
        "items": lambda: [encode(declared)] * luck.choice((0, 1, 2, 256, 257)),
        "keys": lambda: [luck.choice(("weights", "x", "y" * 300))] * luck.choice((0, 1, 2)),
        "plain": lambda: luck.choice((None, 1, True, 0.5, 10**400, "nan", "x" * 2000)),
    }
    return {name: make() for name, make in made.items() if luck.random() < 0.25}


def judged(file: FileBuffer, declared: wire.Output) -> None:
    value, expected = torch.zeros(4, 8), torch.ones(4, 8)
    values = strict_check.read(file, declared, BUFFER_BYTES)
    verdicts = []
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        one = Expected(value=value, noise=expected, dtype=dtype)
        for right in (one, (one, one)):
            verdicts.append(strict_check.judged(declared, values, right, "cpu"))
            strict_check.for_check(declared, values, right, "cpu")
    tree, lacking = payload.read_tree(file, declared, BUFFER_BYTES)
    if not lacking:
        verdicts.append(folder_check.checked(lambda: (bool((tree - value).abs().sum() < 1), "off")))
        verdicts.append(Verdict(passed=True, note=folder_check.unlike(declared, tree, [value, {"weights": value}])))
        verdicts.append(Verdict(passed=True, note=quality_trusted.unlike(tree, {"weights": value})))
        for each in tensors_in(tree):
            assert str(each.dtype) in payload.RESULT_DTYPES
            assert each.dim() <= MAX_RANK
            assert each.untyped_storage().nbytes() <= BUFFER_BYTES
            bytes(each.flatten().view(torch.uint8).tolist())
    reply = wire.Verified(verdicts=Verdicts(strict=verdicts[0], gpumode=verdicts[0]))
    for verdict in verdicts:
        both = Verdicts(strict=bounded(verdict), gpumode=bounded(verdict))
        assert len(channel.frame(dataclasses.replace(reply, verdicts=both))) < wire.MAX_FRAME_BYTES // 16


def tensors_in(tree: object) -> Iterator[torch.Tensor]:
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    if isinstance(tree, torch.Tensor):
        yield tree
    for item in items:
        yield from tensors_in(item)


def shapes(path: Path) -> None:
    """All that is asked of a shape file before anything runs."""
    found = shape_file.find("a2a", Checkout(folder()))
    for suite in found.suites.values():
        for case in (*suite.tests, *suite.benchmarks):
            found.cost(case)
            if case.world_size <= 64:
                found.depends_on(case, 0)
        with contextlib.suppress(UsageError):
            found.with_world_size(suite, 2)


def cases(data: bytes) -> None:
    """A cases file, as each of the evaluator's modes reads it."""
    lines = result_lines.parse_cases(data.decode("utf-8", "replace"))
    found = popcorn.recognise(lines, (ROOT / GEMM_REFERENCE).read_text(), Checkout.here())
    popcorn.cases_of(found, lines, "test", None, words_are_true=True)
    popcorn.cases_of(found, lines, "leaderboard", 2**20, words_are_true=False)


DEFINITION = """{"name": "tiny", "description": "a product", "op_type": "gemm", "tags": [],
  "axes": {"M": {"type": "var"}, "N": {"type": "const", "value": 64}},
  "inputs": {"A": {"shape": ["M", "N"], "dtype": "float16"}, "s": {"shape": null, "dtype": "float32"}},
  "outputs": {"C": {"shape": ["M", "N"], "dtype": "float16"}}, "reference": "def run(A, s):\\n    return A * s\\n"}"""
WORKLOADS = """{"workload": {"uuid": "280860e6-08f0", "axes": {"M": 8}, "inputs":
 {"A": {"type": "safetensors", "path": "a", "tensor_key": "k"}, "s": {"type": "scalar", "value": 2.0}}}}""".replace(
    "\n", ""
)
SOLUTION = """{"name": "mine", "definition": "tiny", "author": "a", "spec": {"language": "python",
  "entry_point": "a/main.py::run", "dependencies": [], "destination_passing_style": false},
  "sources": [{"path": "a/main.py", "content": "from .b import run"}, {"path": "a/b.py", "content": "def run(): 0"}]}"""


def trace_of(name: str, read: Callable[[Problem, Path], object]) -> Callable[[bytes], object]:
    """The decoder of that file of a FlashInfer-Trace set, with what `read` makes of the set's problem."""

    def whole(path: Path) -> object:
        for other, text in (("definitions/tiny.json", DEFINITION), ("workloads/tiny.jsonl", WORKLOADS)):
            if other != name:
                (folder() / other).parent.mkdir(exist_ok=True)
                (folder() / other).write_text(text)
        kind, place = TraceKind(), folder() / "definitions/tiny.json"
        return read(kind.read(place, Checkout(ROOT)), path) if kind.claims(place) else None

    return of_file(name, whole)


def solution_of(problem: Problem, path: Path) -> object:
    """The submission that a Solution's file is."""
    return TraceKind().submission(path, problem, Checkout(ROOT))


def staged_reference(data: bytes) -> None:
    popcorn.recognise(result_lines.parse_cases(CASES), data.decode("utf-8", "replace"), Checkout.here())


def profiles(data: bytes) -> None:
    found = trace.parse(data)
    json.loads(trace.merge([found, found], "title"))
    trace.profile(0, found)


def sources(path: Path) -> None:
    """A submission, its directives, and the one file that it becomes."""
    found = submission.read_submission(path, folder())
    with contextlib.suppress(BadSubmissionError):  # read further, whatever it says
        submission.directives(found.source)
    with contextlib.suppress(BadSubmissionError):
        merge.addressed(found.source, "amd-all2all", found.name)
    joined = merge.merged(found)
    with contextlib.suppress(SyntaxError, ValueError):  # not all that parses compiles
        compile(found.source, "submission", "exec", dont_inherit=True)
        assert compiles(joined), "the submission compiles and its merged file does not"


def compiles(text: str) -> bool:
    try:
        compile(text, "merged", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def task_folder(path: Path) -> None:
    folder_file.read(path.parent, Checkout(folder()))


def directives(data: bytes) -> None:
    submission.directives(data.decode("utf-8", "replace"))


def told_by_eval(data: bytes) -> None:
    told = result_lines.parse(data)
    for mode in get_args(EvalMode):
        _ = EvaluatorRun(mode=mode, count=2, limit_s=1.0, code=0, told=told, stdout="", stderr="").outcomes


def shown(data: bytes) -> None:
    """Whatever a rank says can be shown, and is no command to a terminal."""
    shown = words.clean(data.decode("utf-8", "surrogateescape"))
    assert not any((ord(char) < 32 and char not in "\n\t") or 0x7F <= ord(char) < 0xA0 for char in shown), shown
    shown.encode()


# ---- the samples ---------------------------------------------------------------------------------------------------

OUTPUT = wire.Output(kind="torch.Tensor", dtype="torch.float32", shape=(4, 8), device="cpu", offset=256, nbytes=128)
TREE = wire.Output(
    kind="dict",
    dtype="",
    shape=(),
    device="",
    offset=0,
    nbytes=384,
    note="not a tensor",
    items=(OUTPUT, OUTPUT),
    keys=("a", "b"),
)
EMPTY = wire.Output(kind="torch.Tensor", dtype="torch.float32", shape=(0, 8), device="cpu", offset=0, nbytes=0)
SAMPLE = wire.CallSample(start_ns=10**15, end_ns=10**15 + 5000, device_us=4.5, output=OUTPUT)
BUFFER = wire.BufferHandle(nbytes=4096, handle="")
BUFFERS = wire.Buffers(inputs=BUFFER, outputs=BUFFER)
GEMM_REFERENCE = "reference/gemm_rs/reference.py"
CASES = """\
world_size: 8; m: 64; n: 2880; k: 2880; has_bias: True; seed: 2035
world_size: 8; m: 64; n: 3584; k: 14336; has_bias: false; seed: 13
"""
REFERENCE = """\
import torch.distributed as dist
from task import input_t, output_t


def generate_input(rank: int, world_size: int, m: int, n: int, k: int, has_bias: bool, seed: int) -> input_t:
    return {f"{rank!r:>{n}}": [x for x in range(m) if (y := x)]}


def ref_kernel(data: input_t) -> output_t:
    dist.reduce_scatter_tensor(*data, **{"op": lambda a, /, *, b=1: (yield a)})
"""
SHAPES = """\
problem: a2a
leaderboard: amd-all2all
description: of tests
multi_gpu: true
ranking_by: geom
test_timeout: 640
benchmark_timeout: 640
ranked_timeout: 640
tests:
  - {world_size: 8, num_experts: 8, experts_per_token: 2, hidden_dim: 64, max_num_tokens: 4, seed: 1}
benchmarks:
  - {world_size: 8, num_experts: 64, experts_per_token: 6, hidden_dim: 72, max_num_tokens: 16, seed: 2}
published_us: [6.33]
published_on: MI300X
published_by: its maker
suites:
  quick:
    description: tiny
    test_timeout: 20
    benchmark_timeout: 20
    ranked_timeout: 20
    benchmark_seconds: 0.5
    tests: [{world_size: 8, num_experts: 8, experts_per_token: 2, hidden_dim: 64, max_num_tokens: 4, seed: 4}]
    benchmarks: [{world_size: 8, num_experts: 8, experts_per_token: 2, hidden_dim: 96, max_num_tokens: 8, seed: 3}]
"""
TABLE = """\
gpus:
  H200:
    device_names: [NVIDIA H200, H200 SXM]
    flops_per_s: 989.0e+12
    hbm_bytes_per_s: 4.8e+12
    link_bytes_per_s: 450.0e+9
    source: a data sheet
    date: 2026-11-01
""".replace("2026-11-01", "'2026-11-01'")
TASK = """\
files:
  - {name: submission.py, source: "@SUBMISSION@"}
  - {name: reference.py, source: reference.py}
  - {name: eval.py, source: eval.py}
lang: py
description: of tests
config: {main: eval.py}
templates: {Python: task.py}
tests:
  - {world_size: 2, m: 64, flag: true, names: [1, 2], seed: 3}
benchmarks:
  - {world_size: 2, m: 128, flag: false, names: [1, 2], seed: 4}
test_timeout: 60
ranking_by: geom
seed: 7
multi_gpu: true
gpus: [MI300x8]
"""
CONTEST = """\
name: class
opens: 2027-01-11 09:00:00+02:00
deadline: 2027-01-29 18:00
registration: {opens: 2027-01-04, closes: "2027-01-08 18:00 UTC"}
freeze: 2027-01-28 18:00
private: true
teams: {members: 3, participants: [ada, ben]}
quota: {per_day: 3}
setting: {suite: cpu, ranks: 8, device: cpu, seconds: 0.5}
reproduce: {launches: 5, top: 2}
organisers: [grace]
problems:
  - {directory: a, name: a, opens: 2027-01-18, targets: [{shape: {m: 64}, speedup: 1.5, time_us: 9.5, limit: 0.1}]}
awards:
  - {name: first, place: 1, problem: a, targets: true, shared: false}
"""
LOG = """\
{"n":1,"at":"2027-01-04T09:00:00+00:00","by":"ada","event":{"type":"registered","team":"owls","members":\
[{"name":"ada","id_sha256":"5e"}]}}
{"n":2,"at":"2027-01-11T09:00:00+00:00","by":"ada","event":{"entry":1,"type":"submitted","team":"owls",\
"member":"ada","problem":"a","file":"a.py","sha256":"5e","via":"serve"}}
{"n":3,"at":"2027-01-11T09:01:00+00:00","by":"serve","event":{"entry":1,"type":"failed","kind":"wrong","why":"no",\
"counts":true}}
{"n":4,"at":"2027-01-12T09:01:00+00:00","by":"grace","event":{"type":"frozen"}}
{"n":5,"at":"2027
"""[:-1]
COMPETITION = """\
name: a competition
deadline: 2026-11-30 23:59
description: of tests
problems:
  - {directory: amd/all2all, name: amd-all2all, deadline: "2026-11-29", gpus: [MI300x8]}
  - {directory: amd/gemm, name: amd-gemm-rs}
"""
SUBMISSION = """\
#!POPCORN leaderboard amd-all2all
#!POPCORN gpus MI300x8

\"\"\"What it does.\"\"\"

import os
import torch.distributed as dist

from common.heap import Heap
from tuning import TABLE


class Kernel:
    def run(self, data):
        global calls
        calls = [x for x in data if (y := x)]
        return lambda: (yield calls)


async def custom_kernel(data, *, n: int = 0) -> None:
    async with data as f:
        return f"{n!r:>{n}}" % TABLE[Heap]
"""
TOLD = """\
test-count: 2
test.0.spec: m: 64
test.0.status: pass
test.1.status: fail
test.1.error: no
benchmark-count: 2
benchmark.0.runs: 3
benchmark.0.mean: 1200.5
benchmark.0.std: 3.5
benchmark.0.err: 1
benchmark.0.best: 1190
benchmark.0.worst: 1300
benchmark.1.report: aGVsbG8*
check: pass
"""


def replies() -> list[bytes]:
    return [
        channel.frame(reply)
        for reply in (
            wire.Done(),
            wire.Imported(device="NVIDIA H200"),
            wire.InputsMade(
                inputs=(wire.Input(tree="gAQu", nbytes=512, masked=False),),
                buffers=BUFFERS,
                output_limit=64 << 20,
                spare_bytes=1 << 37,
            ),
            wire.AtBarrier(epoch=3),
            wire.Called(samples=(SAMPLE, SAMPLE)),
            wire.Called(samples=(wire.CallSample(start_ns=1, end_ns=2, device_us=None, output=TREE),)),
            wire.Called(samples=(wire.CallSample(start_ns=1, end_ns=2, device_us=None, output=EMPTY),)),
            wire.Verified(verdicts=factories.WRONG),
            wire.PeaksMeasured(flops_per_s=1e12, memory_bytes_per_s=1e11, link_bytes_per_s=1e10),
            wire.Failed(message="no", traceback="Traceback ..."),
        )
    ]


def descriptions() -> list[bytes]:
    return [json.dumps(encode(output)).encode() for output in (SAMPLE.output, TREE, EMPTY)]


def boards() -> list[bytes]:
    path = folder() / "made.yaml"
    for author in ("alice", "bob"):
        leaderboard.record(path, factories.entry(author=author))
    leaderboard.record(path, factories.entry(sha256="77" * 32, run_id="20260502T080000-def456"))
    return [path.read_bytes(), *((FIXTURES / f"leaderboard-{schema}.yaml").read_bytes() for schema in (1, 2, 4))]


def made_reports() -> list[bytes]:
    found = recorded.run(1), factories.failed_test(factories.RAISED)
    made = [json.dumps(report_json.to_json(one)).encode() for one in found]
    return [*made, *(path.read_bytes() for path in sorted(FIXTURES.glob("report-1*.json")))]


def report_of(path: Path) -> None:
    """What it warns of can be shown, whatever its warnings are."""
    for one in reports.load(path, ROOT).warnings:
        text_of(one)


def bundle_with(name: str) -> Callable[[bytes], object]:
    """All that `bundle check` does with a bundle in which that file was replaced."""
    return lambda data: bundle_check.check(made_bundle() | {name: data}, Checkout(folder()))


@cache
def made_bundle() -> dict[str, bytes]:
    """A whole one, of a run in a checkout of its own."""
    root = folder() / "theirs"
    found = launches.launch(1)
    runs.store(found, root)
    return dict(bundle_make.make(found, Board(), {}, Checkout(root)).files)


def mllogs() -> list[bytes]:
    """A run's log with all that is read of it."""
    points = {"submission_benchmark": "mine", "submission_org": "us", "seed": 7, "global_batch_size": 8}
    count = {"samples_count": 3072, "status": "success"}
    events = [mllog.LogEvent(time_ms=1, event_type="POINT_IN_TIME", key=key, value=one) for key, one in points.items()]
    events += [
        mllog.LogEvent(time_ms=10**12, event_type="INTERVAL_START", key="run_start"),
        mllog.LogEvent(time_ms=10**12 + 5, event_type="POINT_IN_TIME", key="eval_accuracy", value=0.9, metadata=count),
        mllog.LogEvent(time_ms=10**12 + 9, event_type="INTERVAL_END", key="run_stop", metadata=count),
    ]
    return ["".join(mllog.line(event) + "\n" for event in events).encode()]


def scored(path: Path) -> None:
    """Three runs, of which the log is one: read, scored, shown. The score is JSON that everybody can read."""
    for number in (1, 2):
        text = mllogs()[0].replace(b'"value": 7', f'"value": {number}'.encode())
        (path.parent / f"result_{number}.txt").write_bytes(text)
    found = mlperf.score(path.parent, path.parent / "rcps.json" if (path.parent / "rcps.json").exists() else None)
    json.dumps(report_mlperf.to_json(found), allow_nan=False)
    FORMATS["markdown"](report_mlperf.document_of(found))


def log_state(path: Path) -> object:
    """What a contest is by its log."""
    return fold(ContestLog(path).records())


def snapshot_of(path: Path) -> object:
    """As `tune --restore` reads it."""
    return tune.load_snapshot(folder())


def traces() -> list[bytes]:
    def span(name: str, start: float, length: float, category: str) -> dict[str, Any]:
        where = {"ph": "X", "name": name, "cat": category, "pid": 7, "tid": 8}
        return where | {"ts": start, "dur": length, "args": {"External id": 3, "Input Dims": [[4, 8]]}}

    arrow = {"ph": "s", "id": 1, "pid": 7, "tid": 8, "ts": 12.5, "cat": "ac2g", "name": "ac2g"}
    named = {"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "args": {"name": "thread 8 (python)"}}
    events = [
        span(trace.BARRIER_SPAN, 0, 10, trace.MARK),
        span(trace.CALL_SPAN, 11, 40, trace.MARK),
        span("aten::mm", 12, 20, "cpu_op"),
        span("aten::empty", 13, 2, "cpu_op"),
        span("gemm_kernel", 20, 15, "kernel"),
        *(arrow, arrow | {"ph": "f", "ts": 20.0, "tid": 9}, named),
    ]
    return [json.dumps({"baseTimeNanoseconds": 10**18, "traceEvents": events}).encode()]


def texts(*found: str) -> Callable[[], list[bytes]]:
    return lambda: [words.encode() for words in found]


RATES = {"flops_per_s": 1e12, "hbm_bytes_per_s": 1e11, "link_bytes_per_s": 1e10, "source": "measured"}
WHEN = {"first": "2026-05-01", "last": "2026-05-01", "quiet": ["2026-05-01"]}
PEAKS = json.dumps({"peaks": RATES, "count": 1, "load": 0.1} | WHEN)
RCPS = '{"a": {"Benchmark": "mine", "BS": 8, "samples to converge": [3072, 3000, 3100, 3072]}}'
SNAPSHOT = '{"boot_id": "4711", "values": {}}'
A2A_FILE = "submissions/a2a/fuzzed.py"

BAD, REFUSED = (BadFileError,), (BadSubmissionError,)
TARGETS = [
    Target("replies", replies, "frames", outputs_of, (channel.ProtocolError,), 12),
    Target("outputs' descriptions", descriptions, "json", described_output, (), 10),
    Target("outputs", texts("a seed", "another"), "bytes", judged_output, (), 20),
    Target("shape files", texts(SHAPES), "yaml", of_file("shapes/a2a.yaml", shapes), BAD, 2),
    Target("leaderboard.yaml", boards, "yaml", of_file("leaderboard.yaml", leaderboard.load), BAD, 2),
    Target("hardware.yaml", texts(TABLE), "yaml", of_file("t.yaml", partial(hardware.match, "h200")), BAD, 4),
    Target("task.yml", texts(TASK), "yaml", of_file("task/task.yml", task_folder), (BadFileError, UsageError), 2),
    Target("competitions", texts(COMPETITION, CONTEST), "yaml", of_file("c.yaml", rules.read), BAD, 4),
    Target("audit logs", texts(LOG), "bytes", of_file("c.log.jsonl", log_state), BAD, 6),
    Target("report.json", made_reports, "json", of_file("report.json", report_of), BAD, 3),
    Target("bundles", lambda: [made_bundle()["bundle.json"]], "json", bundle_with("bundle.json"), BAD),
    Target("bundles' reports", lambda: [made_bundle()["report.json"]], "json", bundle_with("report.json"), BAD),
    Target("MLPerf's logs", mllogs, "bytes", of_file("mlperf/result_0.txt", scored), BAD, 4),
    Target("MLPerf's references", texts(RCPS), "json", of_file("rcps.json", mlperf.read_reference), BAD, 4),
    Target("tune's snapshot", texts(SNAPSHOT), "json", of_file(tune.SNAPSHOT, snapshot_of), (HarnessError,), 4),
    Target("peaks cache", texts(PEAKS), "json", of_file("peaks.json", peaks_cache.load), (), 10),
    Target("traces", traces, "json", profiles, (trace.TraceError,), 10),
    Target("cases files", texts(CASES), "bytes", cases, (DecodeError, BadFileError), 6),
    Target("staged references", texts(REFERENCE), "bytes", staged_reference, BAD),
    Target("eval.py's results", texts(TOLD), "bytes", told_by_eval, (), 15),
    Target("definitions", texts(DEFINITION), "json", trace_of("definitions/tiny.json", lambda *_: None), BAD, 2),
    Target("workloads", texts(WORKLOADS), "json", trace_of("workloads/tiny.jsonl", lambda *_: None), BAD, 2),
    Target("Solutions", texts(SOLUTION), "json", trace_of("mine.json", solution_of), REFUSED, 2),
    Target("submissions", texts(SUBMISSION), "bytes", of_file(A2A_FILE, sources), REFUSED),
    Target("directives", texts(SUBMISSION[:80]), "bytes", directives, REFUSED, 20),
    Target("texts of ranks", texts(factories.HOSTILE, factories.TRACEBACK), "bytes", shown, (), 8),
]
