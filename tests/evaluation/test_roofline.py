"""The verb `roofline`: bounds of the official shapes, beside what was published."""

import dataclasses
import io
import json

import pytest
from factories import PEAKS
from rich.console import Console

from harness.cli import main
from harness.core.checkout import Checkout
from harness.core.errors import Exit, UsageError
from harness.evaluation import roofline as computed
from harness.evaluation.roofline import Roofline, Shape, peaks_of
from harness.machine import hardware
from harness.problems.shape_file import find
from harness.report import roofline
from harness.report.render import terminal


def of(problem: str, name: str = "mi300x", ranks: int | None = None, suite: str = "official") -> Roofline:
    found = find(problem, Checkout.here())
    cases = found.suite(suite)
    cases = found.with_world_size(cases, ranks) if ranks else cases
    return computed.roofline(found, cases, *peaks_of(name))


def printed(found: Roofline, width: int = 80) -> str:
    text = io.StringIO()
    terminal.show(roofline.document_of(found), Console(file=text, width=width))
    return text.getvalue()


def run(*arguments: str) -> int:
    return main.parse(["roofline", *arguments]).carry_out(Checkout.here())


def test_the_bounds_of_gemm_rs_are_the_published_ones() -> None:
    """Every row, with what binds it; nothing to remark."""
    found = of("gemm_rs")
    assert [row.bound_us for row in found.rows] == pytest.approx([6.46, 8.19, 23.04, 65.54, 131.07, 379.43], rel=1e-3)
    assert [row.bound_by for row in found.rows] == ["hbm", "link", "link", "link", "link", "flops"]
    assert [row.published_us for row in found.rows] == pytest.approx([row.bound_us for row in found.rows], rel=1e-3)
    assert {row.note for row in found.rows} == {""}
    assert found.geomean_bound_us == pytest.approx(39.80, rel=1e-3)


def test_published_rows_of_ag_gemm_that_are_no_lower_bounds_are_marked() -> None:
    """Rows 2, 5 and 6 count m n for m k."""
    found = of("ag_gemm")
    assert [row.bound_us for row in found.rows] == pytest.approx([6.46, 8.19, 23.04, 65.54, 131.07, 379.43], rel=1e-3)
    assert [index for index, row in enumerate(found.rows) if row.note] == [1, 4, 5]
    assert found.rows[1].note.startswith("not a limit: 3.00 times ours")
    lines = printed(found).splitlines()
    assert [line.endswith(" *") for line in lines[2:8]] == [False, True, False, False, True, True]
    assert "* no limit: 3.00, 3.50, 2.49 times ours; a kernel can be faster." in lines


def test_the_published_model_of_a2a_is_marked_as_no_bound() -> None:
    """All five of its rows."""
    assert all(row.note and row.bound_by == "link" for row in of("a2a").rows)


def test_a_remark_is_about_the_machine_that_the_value_was_published_for() -> None:
    """A slower or faster GPU changes our bound, not what the published value is worth."""
    assert [row.note for row in of("gemm_rs", "b200").rows] == [""] * 6
    assert [bool(row.note) for row in of("ag_gemm", "h200").rows] == [False, True, False, False, True, True]


def test_other_rank_counts_have_no_published_value() -> None:
    """It is for 8."""
    found = of("gemm_rs", "h200", ranks=4)
    assert found.world_size == 4
    assert {row.published_us for row in found.rows} == {None}
    assert "published" not in printed(found)


def test_each_terms_time_and_the_intensity_follow_from_the_cost() -> None:
    """gemm_rs 4096^3 on 8 MI300X: 2 m n k / W flops over 2 (m k/W + n k/W + m n) bytes."""
    row = of("gemm_rs").rows[3]
    flops, nbytes = 2 * 4096**3 / 8, 2 * (2 * 4096**2 / 8 + 4096**2)
    assert row.flop_per_byte == pytest.approx(flops / nbytes)
    assert row.flops_us == pytest.approx(flops / 1307.4e12 * 1e6)
    assert row.hbm_us == pytest.approx(nbytes / 5.3e12 * 1e6)
    assert row.bound_us == max(row.flops_us, row.hbm_us, row.link_us)


@pytest.mark.parametrize("name", ["MI300X", "mi325x", "MI355X", "H100", "h100 sxm", "H200", "B200", "NVIDIA H200"])
def test_hardware_goes_by_the_tables_name_or_the_devices(name: str) -> None:
    """Case does not matter."""
    assert peaks_of(name)[1].flops_per_s > 9e14


def test_the_machines_own_gpu_is_the_default() -> None:
    """Where the table knows it; else the message lists what it knows."""
    assert peaks_of(None, names=["NVIDIA H200"] * 4) == ("NVIDIA H200", hardware.peaks("H200"))
    assert peaks_of(None, PEAKS, names=[]) == ("this machine", PEAKS)
    says = r"this machine has no GPU, and its peaks .* choose a GPU with --hardware \(known: MI300X, .*B200"
    with pytest.raises(UsageError, match=says):
        peaks_of(None, names=[])
    with pytest.raises(UsageError, match=r"this machine's NVIDIA L4 is not in hardware.yaml, and its peaks"):
        peaks_of(None, names=["NVIDIA L4"])
    with pytest.raises(UsageError, match=r"no GPU 'mi300' in hardware.yaml; did you mean 'MI300X'\?"):
        peaks_of("mi300")


def test_every_table_fits_80_columns() -> None:
    """Whole labels, no colour."""
    for problem in ("a2a", "moe", "gemm_rs", "ag_gemm"):
        for suite in ("official", "cpu", "quick"):
            text = printed(of(problem, suite=suite))
            assert all(len(line) <= 80 for line in text.splitlines())
            assert "\x1b" not in text
    assert "m 8192 n 14336 k 4096 bias" in printed(of("ag_gemm"))


def test_a_suite_of_one_shape_has_no_mean() -> None:
    """It would say the same twice."""
    found = of("gemm_rs")
    assert "geometric mean" not in printed(dataclasses.replace(found, rows=found.rows[:1]))


def test_the_verb_prints_a_table_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    """By GPU MODE's names too."""
    assert run("amd-gemm-rs", "--hardware", "mi300x") == Exit.OK
    assert capsys.readouterr().out.startswith("gemm_rs  suite official, 8 ranks on mi300x\n")
    assert run("gemm_rs", "--hardware", "H200", "--ranks", "4", "--json", "-") == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["world_size"], found["published_on"]) == (1, 4, "8x MI300X")
    assert len(found["rows"]) == 6
    assert found["rows"][0].keys() == {field.name for field in dataclasses.fields(Shape)}


def test_a_problem_without_a_cost_is_not_advised_to_measure_peaks() -> None:
    with pytest.raises(UsageError, match="has no roofline"):
        run("iopddl")


@pytest.mark.parametrize("ranks", ["0", "-1", "9999", "7"])
def test_rank_counts_that_cannot_be_are_refused(ranks: str) -> None:
    """Before anything is computed."""
    with pytest.raises(UsageError):
        run("gemm_rs", "--hardware", "h200", "--ranks", ranks)
