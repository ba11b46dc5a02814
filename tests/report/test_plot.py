"""A run as a figure: every shape, readable text, the same file for the same run, and clear words where it cannot be."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from factories import WRONG_OUTCOME, failed_test
from recorded import SCRIPT, run, run_id, store

from harness.board import reports
from harness.core.checkout import ROOT
from harness.core.errors import UsageError
from harness.core.records import EvalReport
from harness.core.words import percent_text
from harness.report import plot
from harness.report.document import plain
from harness.report.summary import NOT_RECORDED, summary_of

Harness = Callable[..., "subprocess.CompletedProcess[str]"]


def read(root: Path, found: EvalReport) -> EvalReport:
    return reports.load(store(root, found), ROOT)


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"needs matplotlib, which is not installed: .* install -e '\.\[plot\]'"):
        plot.figure(read(tmp_path, run(3)))


def test_a_run_that_timed_nothing_has_no_figure(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"timed nothing \(mode leaderboard, fail\)"):
        plot.figure(read(tmp_path, failed_test(WRONG_OUTCOME)))


def test_what_cannot_be_plotted_has_its_exit_code(harness: Harness, tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    path = store(root, run(3))
    found = harness("plot", run_id(3), "-o", "x.pdf")
    assert (found.returncode, found.stderr) == (2, "error: --out x.pdf: its name ends in .svg or .png\n")
    assert harness("plot", "nothing", "-o", "x.svg").returncode == 2
    path.write_text("{")
    assert harness("plot", run_id(3), "-o", "x.svg").returncode == 113


class TestWithMatplotlib:
    """Where the extra `plot` is installed, which `dev` has in it."""

    @pytest.fixture(autouse=True)
    def _matplotlib(self) -> None:
        pytest.importorskip("matplotlib")

    def test_every_shape_has_a_row_with_its_speedup_and_how_near_the_limit_it_is(self, tmp_path: Path) -> None:
        (axes,) = plot.figure(read(tmp_path, run(3))).axes
        assert [label.get_text() for label in axes.get_yticklabels()] == [
            "m 64 n 7168 k 18432",
            "m 512 n 4096 k 12288 bias",
            "m 8192 n 29568 k 8192 bias",
        ]
        assert axes.texts[0].get_text() == "2.01x, 18.5% of limit"  # 120.5 us over the device clock's 0.8 * 812.5

    def test_the_title_of_one_rank_is_of_one(self, tmp_path: Path) -> None:
        made = plot.figure(read(tmp_path, replace(run(3), world_size=1)))
        assert ", 1 rank on " in made.get_suptitle()

    def test_the_title_has_the_figures_of_the_line_that_eval_prints(self, tmp_path: Path) -> None:
        """The interval too, which is wider than that of one launch's samples."""
        found = read(tmp_path, run(3))
        assert found.figures is not None
        assert found.figures.fraction is not None
        (ratio,) = (plain(words) for name, words in summary_of(found, NOT_RECORDED).rows if name == "speedup")
        assert "(95 % interval over launches " in ratio
        title = plot.figure(found).get_suptitle().split("\n")
        assert title[1] == f"{ratio}, {percent_text(found.figures.fraction.value)} of the limit"
        assert title[2] == f"suite {found.suite}, {found.started_at[:10]}"

    @pytest.mark.parametrize(("name", "begins"), [("a.svg", b"<?xml"), ("b.PNG", b"\x89PNG")])
    def test_the_command_writes_svg_and_png(self, harness: Harness, tmp_path: Path, name: str, begins: bytes) -> None:
        root = tmp_path / "checkout"
        store(root, run(3))
        found = harness("plot", run_id(3)[:8], "-o", name)
        assert (found.returncode, found.stdout) == (0, f"{name}: 3 shapes\n"), found.stderr
        assert (root / name).read_bytes().startswith(begins)
        again = harness("plot", run_id(3), "-o", "again" + name)
        assert again.returncode == 0
        assert (root / name).read_bytes() == (root / ("again" + name)).read_bytes()
        assert harness("plot", run_id(3), "-o", f"nowhere/{name}").returncode == 2

    def test_names_are_neither_markup_nor_mathematics(self, tmp_path: Path) -> None:
        hostile = f"{SCRIPT}$\\frac$"
        made = plot.figure(read(tmp_path, run(3, author=hostile)))
        made.savefig(tmp_path / "x.svg")
        text = (tmp_path / "x.svg").read_text()
        assert "<script" not in text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
