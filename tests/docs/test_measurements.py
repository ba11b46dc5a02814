"""docs/measurements.md is what its data files say; a bench's file becomes a section; README's plot is of its run."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from recorded import run, store

from harness.board import reports
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import BadFileError
from harness.core.records import EvalReport
from harness.judging import verdict
from harness.problems.shape_file import problem_names
from harness.report import plot

sys.path.append(str(ROOT / "bench"))

import figures
import measurements

PLOTTED = measurements.FOLDER / measurements.REPORTS / "20261126T002010-eb71a5.json"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of one machine, without sections."""
    folder = tmp_path / "measurements" / "1-here"
    folder.mkdir(parents=True)
    (folder.parent / "machines.yaml").write_text(
        "machines:\n  1-here:\n    title: Here\n    machine: a laptop\n    text: On a desk.\n"
    )
    return folder


def made(machine: Path) -> str:
    text = measurements.document(machine.parent)
    assert text.startswith(measurements.HEAD)
    return text.removeprefix(measurements.HEAD)


def test_the_committed_document_is_what_the_command_makes_of_the_data_files() -> None:
    assert (ROOT / "docs" / "measurements.md").read_text() == measurements.document(), "`make measurements` writes it"


def test_the_page_and_its_data_stay_small_and_every_folder_is_a_machines() -> None:
    assert len(measurements.document().splitlines()) <= 390
    assert len([path for path in measurements.FOLDER.rglob("*") if path.is_file()]) <= 21
    named = measurements.read_yaml(measurements.Machines, measurements.FOLDER / measurements.MACHINES, ROOT).machines
    folders = {path.name for path in measurements.FOLDER.iterdir() if path.is_dir()}
    assert folders == {*named, measurements.REPORTS}


def test_every_data_file_is_in_the_form_that_a_bench_writes() -> None:
    """So that a file that is measured anew differs in its figures only."""
    files = list(measurements.FOLDER.glob("*/*.yaml"))
    assert files
    for path in files:
        assert figures.dump(measurements.read_yaml(figures.Section, path, ROOT)) == path.read_text(), path


def test_what_a_bench_found_is_printed_and_becomes_a_section(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = machine / "10-calls.yaml"
    monkeypatch.setattr(sys, "argv", ["bench/calls.py", "--calls", "5", "--data", str(path)])
    found = figures.Figures("Calls", "a laptop")
    found.table(["shape", "us", "calls"], [["a|b", 2 / 3, 5], ["c", 1234.5678, 6]], "All", after="As expected.\n")
    found.write(path)
    rows = "| shape | us | calls |\n| --- | --- | --- |\n| a\\|b | 0.7 | 5 |\n| c | 1234.6 | 6 |\n"
    assert f"#### All\n\n{rows}\nAs expected.\n" in capsys.readouterr().out
    day = found.section.date
    assert made(machine) == (
        f"\n## Here\n\nOn a desk.\n\n### Calls\n\n{day}, `python bench/calls.py --calls 5`.\n\n#### All\n\n{rows}\n"
        "As expected.\n"
    )
    assert "  - [a|b, 0.666667, 5]\n" in path.read_text()


def test_another_machine_and_what_was_transcribed_are_said(machine: Path) -> None:
    text = "schema: 1\ntitle: Old\ndate: '2026-01-02'\nmachine: a desktop\nsource: transcribed\n"
    (machine / "10-old.yaml").write_text(text)
    assert made(machine).endswith("### Old\n\n2026-01-02, a desktop; *transcribed*.\n")


def test_a_table_of_turn_around_is_made_of_kept_runs(machine: Path) -> None:
    path = measurements.keep(str(PLOTTED), folder=machine.parent)
    assert reports.load(path, ROOT) == reports.load(PLOTTED, ROOT), "in today's schema, with nothing lost"
    text = f"schema: 1\ntitle: T\ndate: '2026-01-02'\nmachine: a laptop\nsource: recorded\nreports: [{PLOTTED.stem}]\n"
    (machine / "10-turnaround.yaml").write_text(text)
    kept = reports.load(PLOTTED, ROOT)
    (row,) = (line for line in made(machine).splitlines() if line.startswith("| a2a |"))
    cells = row.strip("| ").split(" | ")
    assert float(cells[1]) == pytest.approx(sum(kept.phases_s.values()), abs=0.05)
    assert cells[-1] == kept.run_id
    path.unlink()
    with pytest.raises(
        BadFileError, match=rf"\$.reports: no .*{PLOTTED.stem}.json; `python bench/measurements.py --keep"
    ):
        made(machine)


def test_a_kept_run_has_neither_logs_nor_the_secret_of_its_seeds(machine: Path) -> None:
    found = run(3, logs={"candidate rank 0": "mine"})
    made = measurements.keep(str(store(machine.parent, found)), folder=machine.parent)
    kept = reports.load(made, ROOT)
    assert (kept.logs, kept.secret_seed) == ({}, 0)
    assert (kept.results, kept.figures) == (found.results, found.figures)
    once = made.read_bytes()
    assert measurements.keep(str(made), folder=machine.parent).read_bytes() == once


def test_a_run_on_several_clocks_gets_a_table_of_what_each_says(machine: Path) -> None:
    kept = store(machine.parent, run(3)).rename(machine.parent / "kept.json")
    found = reports.load(kept, ROOT)
    one_clock = reports.load(PLOTTED, ROOT)
    table = measurements.by_clock([one_clock, found, found])
    assert table is not None
    assert table.columns == ("problem", "shape", "wall", "device", "gpumode")
    shapes = [*(result.case.title for result, _ in verdict.measured_cases(found)), "geometric mean"]
    assert [row[:2] for row in table.rows] == [(found.problem, shape) for shape in shapes * 2]
    wall, device, _ = ([float(time) for time in cell.split(" -> ")] for cell in map(str, table.rows[-1][2:]))
    assert device == pytest.approx([0.8 * time for time in wall], abs=0.1)
    assert measurements.by_clock([one_clock]) is None


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("schema: 2", r"10-x.yaml: \$.schema: expected 1, found 2"),
        ("tables: [{columns: [a, b], rows: [[1]]}]", r"\$.tables\[0\].rows\[0\]: 1 cells for 2 columns"),
        ("source: made up", r"\$.source: "),
        ("figures: 3", r"\$.figures: "),
    ],
)
def test_a_bad_data_file_is_answered_with_its_place(broken: str, says: str, machine: Path) -> None:
    values = {"schema": "1", "title": "T", "date": "'2026-01-02'", "machine": "m", "source": "recorded"}
    key, _, value = broken.partition(": ")
    lines = (values | {key: value}).items()
    (machine / "10-x.yaml").write_text("".join(f"{name}: {text}\n" for name, text in lines))
    with pytest.raises(BadFileError, match=says):
        made(machine)


def test_the_plot_in_the_readme_is_that_of_the_kept_run(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    assert "docs/a2a.svg" in (ROOT / "README.md").read_text()
    committed = (ROOT / "docs" / "a2a.svg").read_text()
    made = plot.figure(reports.load(PLOTTED, ROOT))
    made.savefig(tmp_path / "a2a.svg", metadata={"Date": None})
    if f"v{matplotlib.__version__}," in committed:  # another version draws the same otherwise
        assert (tmp_path / "a2a.svg").read_text() == committed
    for text in (*made.axes[0].texts, *made.axes[0].get_yticklabels()):
        assert f">{text.get_text()}<" in committed


def test_what_a_bench_of_gpus_has_when_it_is_interrupted_is_kept(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gpu

    told = [run(number, 1.0) for number in (3, 4)]

    def evaluate(*arguments: object) -> EvalReport:
        if not told:
            raise KeyboardInterrupt
        return told.pop()

    path = machine / "20-gpu.yaml"
    monkeypatch.setattr(gpu, "evaluate", evaluate)
    monkeypatch.setattr(gpu.gpus, "gpu_names", lambda: ("NVIDIA H200",) * 8)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--ranks", "8", "ordering", "repeats", "--data", str(path)])
    gpu.main()
    ordering, repeats = measurements.read_yaml(figures.Section, path, ROOT).tables
    assert str(ordering.rows[0][0]).endswith(" of 2")
    assert repeats.rows == ()


def test_a_bench_of_gpus_says_when_there_are_too_few(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import gpu

    monkeypatch.setattr(gpu.gpus, "gpu_names", lambda: ("NVIDIA H200",) * 2)
    monkeypatch.setattr(sys, "argv", ["gpu.py", "--ranks", "4", "ordering"])
    with pytest.raises(SystemExit, match="2"):
        gpu.main()
    assert "--ranks 4: every rank needs a GPU of its own; here are 2" in capsys.readouterr().err


def test_gpu_benches_make_a_section_of_their_evaluations(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without GPUs: the evaluations are recorded ones with a GPU's three clocks."""
    import gpu

    path = machine / "20-gpu.yaml"
    told = [run(number, times) for number, times in ((3, 1.0), (4, 1.02))] * 20
    monkeypatch.setattr(gpu, "evaluate", lambda *arguments: told.pop())
    monkeypatch.setattr(gpu, "problem_names", lambda checkout: ["gemm_rs"])
    monkeypatch.setattr(gpu.gpus, "gpu_names", lambda: ("NVIDIA H200",) * 8)
    arguments = ["gpu.py", "--ranks", "8", "--times", "2", "--duels", "2", "--problems", "gemm_rs", "--data", str(path)]
    monkeypatch.setattr(sys, "argv", [*arguments, "entries", "evaluations", "repeats", "ordering"])
    gpu.main()
    found = measurements.read_yaml(figures.Section, path, ROOT)
    assert found.title == "Entries, evaluations, repeats, ordering"
    assert [table.title.split(",")[0].split(":")[0] for table in found.tables] == [
        "gemm_rs", "gemm_rs", "Turn-around", "Repeatability", "Ordering"
    ]  # fmt: skip
    by_clock = found.tables[1]
    assert by_clock.columns[:4] == ("shape", "wall us", "device us", "gpumode us")
    assert [row[0] for row in by_clock.rows][-2:] == ["geometric mean", "an empty call"]
    device_us = [float(row[2]) for row in by_clock.rows[:3]]
    assert device_us == pytest.approx([0.8 * gpu.ref_us(case, "wall") for _, case in gpu.measured(run(3))], rel=1e-3)
    assert "2.0%" in made(machine), "the second evaluation is 2 % slower than the first"


def test_the_reference_is_evaluated_where_it_is_a_submission_and_phases_may_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """bench/run.py ended at the first problem without submissions/PROBLEM/reference.py, and at phases of another kind
    of problem."""
    spec = importlib.util.spec_from_file_location("bench_run", ROOT / "bench" / "run.py")
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    asked: list[str] = []

    def evaluate(problem: str, *arguments: str) -> tuple[dict[str, Any], float, int]:
        asked.append(" ".join((problem, *arguments)))
        phases = {"start": 1.0, "build" if problem == "iopddl" else "import": 2.0}
        ratio = {"value": 1.0, "ci": None if problem == "a2a" else [0.9, 1.1]}
        return {"phases_s": phases, "figures": {"ratio": ratio}}, 3.0, 1 << 30

    monkeypatch.setattr(bench, "evaluate", evaluate)
    for arguments in ([], ["--problem", "a2a", "--problem", "iopddl"]):
        monkeypatch.setattr(sys, "argv", ["bench/run.py", "turnaround", "aa", "--times", "1", *arguments])
        asked.clear()
        bench.main()
        known = arguments[1::2] or problem_names(Checkout.here())
        references = [name for name in known if (ROOT / "submissions" / name / "reference.py").exists()]
        assert references
        assert asked == [*known, *(f"{name} submissions/{name}/reference.py" for name in references)]
    assert "| a2a | 3.00 | 1.00 | 2.00 | - |" in capsys.readouterr().out
