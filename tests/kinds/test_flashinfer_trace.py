"""FlashInfer-Trace: a Definition with Workloads is a problem, a Solution a submission, a run a Trace."""

import json
import struct
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import factories
import pytest

from harness.agents.candidates import read_all
from harness.core.checkout import Checkout
from harness.core.errors import BadFileError, BadSubmissionError, UsageError
from harness.core.records import CaseResult, Wrong
from harness.kinds import registry
from harness.kinds.kind import Order
from harness.kinds.op.plan import OpPlan
from harness.kinds.settings import Asked, setting
from harness.kinds.trace import rank
from harness.report.traces import traces

Harness = Callable[..., subprocess.CompletedProcess[str]]
DEFINITION = {
    "name": "rmsnorm_d64",
    "description": "RMSNorm.",
    "op_type": "rmsnorm",
    "axes": {"rows": {"type": "var"}, "hidden": {"type": "const", "value": 64}},
    "inputs": {
        "x": {"shape": ["rows", "hidden"], "dtype": "bfloat16"},
        "weight": {"shape": ["hidden"], "dtype": "float32"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "y": {"shape": ["rows", "hidden"], "dtype": "bfloat16"},
        "scale": {"shape": ["rows"], "dtype": "float32"},
    },
    "reference": (
        "import torch\n\n\ndef run(x, weight, eps):\n"
        "    scale = torch.rsqrt(x.float().square().mean(-1) + eps)\n"
        "    return {'scale': scale, 'y': (x.float() * scale[:, None] * weight).to(torch.bfloat16)}\n"
    ),
}
FILLS = (
    "import torch\nfrom parts.scaling import scale_of\n\n\ndef norm(x, weight, eps, y, scale):\n"
    "    scale.copy_(scale_of(x, eps))\n    y.copy_(x.float() * scale[:, None] * weight)\n"
)
SCALING = "import torch\n\n\ndef scale_of(x, eps):\n    return 1 / (x.float().pow(2).mean(-1) + eps).sqrt()\n"


def solution(**spec: Any) -> dict[str, Any]:
    known = {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::norm"}
    sources = [{"path": "main.py", "content": FILLS}, {"path": "parts/scaling.py", "content": SCALING}]
    sources.append({"path": "README.md", "content": "How it works."})
    return {"name": "norm_v1", "definition": "rmsnorm_d64", "author": "me", "spec": known | spec, "sources": sources}


def safetensors(path: Path, **tensors: list[float]) -> None:
    """Writes float32 vectors in their format."""
    header: dict[str, Any] = {}
    data = b""
    for name, values in tensors.items():
        start = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [start, len(data)]}
    text = json.dumps(header).encode()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def workload(uuid: str, rows: int, weight: Mapping[str, str]) -> str:
    inputs = {"x": {"type": "random"}, "weight": weight, "eps": {"type": "scalar", "value": 1e-6}}
    found = {"uuid": uuid, "axes": {"rows": rows}, "inputs": inputs}
    return json.dumps({"definition": "rmsnorm_d64", "solution": None, "workload": found, "evaluation": None})


STORED = {"type": "safetensors", "path": "blob/weight.safetensors", "tensor_key": "weight"}


@pytest.fixture
def trace_set(tmp_path: Path) -> Path:
    """A set of one definition with two workloads, one of which is stored."""
    root = tmp_path / "set"
    (root / "definitions" / "rmsnorm").mkdir(parents=True)
    (root / "workloads" / "rmsnorm").mkdir(parents=True)
    (root / "definitions" / "rmsnorm" / "rmsnorm_d64.json").write_text(json.dumps(DEFINITION))
    lines = [workload("aaaa1111-1", 8, {"type": "random"}), workload("bbbb2222-2", 32, STORED)]
    (root / "workloads" / "rmsnorm" / "rmsnorm_d64.jsonl").write_text("\n".join(lines) + "\n")
    safetensors(root / "blob" / "weight.safetensors", weight=[1 + place / 64 for place in range(64)])
    return root


@pytest.fixture
def here(tmp_path: Path) -> Checkout:
    (tmp_path / "shapes").mkdir()
    return Checkout(tmp_path)


def definition_of(trace_set: Path) -> str:
    return str(trace_set / "definitions" / "rmsnorm" / "rmsnorm_d64.json")


def written(tmp_path: Path, made: object) -> str:
    path = tmp_path / "mine.json"
    path.write_text(made if isinstance(made, str) else json.dumps(made))
    return str(path)


def test_a_solution_is_evaluated_and_written_as_traces(
    harness: Harness, checkout: Path, trace_set: Path, tmp_path: Path
) -> None:
    """What schema and status ask for is there, and the workloads are as they were. Judges read stored inputs where the
    set lies in the checkout, too, which other ranks do not see."""
    trace_set = trace_set.rename(checkout / "set")
    file, mine = definition_of(trace_set), written(tmp_path, solution())
    found = harness("eval", file, mine, "--device", "cpu", "--seconds", "0.2")
    assert "verdict  pass" in found.stdout, found.stdout + found.stderr
    lines = harness("export", "--trace", file, "-o", "-").stdout.splitlines()
    found_traces = [json.loads(line) for line in lines]
    assert [one["workload"]["axes"]["rows"] for one in found_traces] == [8, 32]
    assert found_traces[1]["workload"]["inputs"]["weight"] == STORED
    for trace in found_traces:
        evaluation = trace["evaluation"]
        assert (trace["definition"], trace["solution"], evaluation["status"]) == ("rmsnorm_d64", "norm_v1", "PASSED")
        assert evaluation["performance"]["latency_ms"] > 0
        assert evaluation["correctness"]["max_absolute_error"] < 0.1
        assert evaluation["environment"]["hardware"]
        assert evaluation["timestamp"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda text: text.replace("* weight", ""), 112),
        (lambda text: text.replace("scale.copy_(scale_of(x, eps))", "scale.zero_()"), 112),
        (lambda text: text, 0),
    ],
)
def test_what_is_wrong_is_found(
    harness: Harness, trace_set: Path, tmp_path: Path, change: Callable[[str], str], code: int
) -> None:
    made = solution(destination_passing_style=True)
    made["sources"][0]["content"] = change(FILLS)
    found = harness("check", definition_of(trace_set), written(tmp_path, made), "--device", "cpu")
    assert found.returncode == code, found.stdout + found.stderr


def test_results_that_are_called_as_the_definition_are_no_workloads(trace_set: Path, here: Checkout) -> None:
    """`eval-many` of a set calls its files so, and the set's folder is a likely place."""
    (trace_set / "rmsnorm_d64.jsonl").write_text('{"schema": 1, "id": "a.json"}\n')
    assert len(registry.find(definition_of(trace_set), here).suite("official").tests) == 2


def test_a_test_that_failed_is_a_trace(trace_set: Path, here: Checkout) -> None:
    """Nothing is timed then. A Python file has no Solution, so its name stands for one."""
    problem = registry.find(definition_of(trace_set), here)
    wrong = Wrong(message="y: the shape is [3]; expected [8, 64]")
    result = CaseResult(case=problem.suite("official").tests[0], outcome=wrong)
    report = factories.report((result,), problem=problem.name)
    [trace] = traces([factories.report(), report], problem)  # the first one is of another problem
    assert trace["solution"] == Path(report.submission.name).stem
    assert trace["evaluation"]["status"] == "INCORRECT_SHAPE"
    assert (trace["evaluation"]["correctness"], trace["evaluation"]["performance"]) == (None, None)


def test_a_python_file_is_a_solution_too(harness: Harness, trace_set: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(DEFINITION["reference"])
    found = harness("check", definition_of(trace_set), str(mine), "--device", "cpu")
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_folder_of_solutions_is_a_population(trace_set: Path, tmp_path: Path, here: Checkout) -> None:
    """What cannot be run here is one of it, with the reason."""
    (tmp_path / "all").mkdir()
    for name, made in (("one", solution()), ("two", solution(language="cuda"))):
        (tmp_path / "all" / f"{name}.json").write_text(json.dumps(made))
    found = read_all([tmp_path / "all"], registry.find(definition_of(trace_set), here), here)
    assert [(one.id, "its language is cuda" in str(one.why)) for one in found] == [
        ("one.json", False),
        ("two.json", True),
    ]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (solution(language="cuda"), "its language is cuda"),
        (solution() | {"definition": "other"}, "a solution of other"),
        (solution(entry_point="main.cu::norm"), "entry_point"),
        (solution(entry_point="main.py::other"), r"\$.spec.entry_point: main.py defines no other"),
        (solution() | {"sources": [{"path": "main.py", "content": "\ndef norm(x\n"}]}, r"main\.py:2: '\(' was never"),
        ({"name": "mine"}, "no Solution"),
        (solution() | {"name": ""}, r"\$\.name"),
        (solution() | {"sources": [{"path": "main.py", "content": "X = '\udcff'"}]}, "no Solution.*surrogates"),
        ("[" * 100_000, "no Solution.*RecursionError"),
    ],
    ids=lambda given: "" if isinstance(given, str) and len(given) > 100 else None,
)
def test_what_is_no_solution_is_refused(
    trace_set: Path, tmp_path: Path, here: Checkout, made: object, said: str
) -> None:
    found = registry.find(definition_of(trace_set), here)
    with pytest.raises(BadSubmissionError, match=said):
        registry.read_submission(found, Path(written(tmp_path, made)), here)


def test_cuda_in_any_of_a_solutions_files_is_the_cpu_where_there_is_no_gpu(trace_set: Path, tmp_path: Path) -> None:
    asked = Asked(problem=definition_of(trace_set), device="cpu")
    checkout = Checkout(tmp_path)
    (tmp_path / "shapes").mkdir()
    made = setting(asked, checkout)
    for scaling, is_cpu in ((SCALING, False), (SCALING + "# on cuda\n", True)):
        sources = [{"path": "main.py", "content": FILLS}, {"path": "parts/scaling.py", "content": scaling}]
        path = Path(written(tmp_path, solution() | {"sources": sources}))
        submission = registry.read_submission(made.problem, path, checkout)
        plan = registry.plan_of(Order(setting=made, submission=submission, mode="test", author="me"))
        assert isinstance(plan, OpPlan)
        assert (plan.cuda_is_cpu, submission.main) == (is_cpu, "main.py")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "No such file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
        (b"\0" * 40, "safetensors"),
        ([1.0] * 63, r"its 'weight' is float32 \[63\]; expected float32 \[64\]"),
    ],
)
def test_a_stored_input_that_cannot_be_read_is_named(
    trace_set: Path, here: Checkout, data: bytes | list[float] | None, said: str
) -> None:
    blob = trace_set / "blob" / "weight.safetensors"
    if data is None:
        blob.unlink()
    elif isinstance(data, list):
        safetensors(blob, weight=data)
    else:
        blob.write_bytes(data)
    with pytest.raises(UsageError, match=f"workload bbbb2222, input weight: .*{said}"):
        registry.find(definition_of(trace_set), here).check_runnable()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"axes": {"rows": {"type": "var"}, "hidden": {"type": "const"}}}, "axes.hidden.value"),
        ({"outputs": {"y": {"shape": ["cols"], "dtype": "bfloat16"}}}, "no axis 'cols'"),
        ({"reference": "def other(): ..."}, "defines run"),
        ({"name": "lonely"}, "no workload"),
    ],
)
def test_a_bad_definition_says_where(trace_set: Path, here: Checkout, change: dict[str, Any], said: str) -> None:
    Path(definition_of(trace_set)).write_text(json.dumps(DEFINITION | change))
    with pytest.raises(BadFileError, match=said):
        registry.find(definition_of(trace_set), here)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda x, weight, eps: None, False),
        (lambda x, weight, eps, y, scale: None, True),
        (lambda x, weight, eps, block=64, warps=4: None, False),
        (lambda *tensors: None, True),
    ],
)
def test_a_solution_that_does_not_say_fills_what_its_parameters_ask_for(
    monkeypatch: pytest.MonkeyPatch, run: Callable[..., None], expected: bool
) -> None:
    monkeypatch.setattr(rank, "definition", lambda: DEFINITION)
    assert rank.fills(run, None) is expected
    assert rank.fills(run, not expected) is not expected
