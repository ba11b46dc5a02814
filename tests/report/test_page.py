"""What is on the page, and that its file needs nothing else and runs nothing that somebody wrote.

How it looks and behaves is for test_page_in_browser.py, which needs Chromium.
"""

import base64
import hashlib
import html.parser
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import entry, report
from hypothesis import given
from hypothesis import strategies as st
from recorded import HOSTILE_FILE, SCRIPT, checkout, entry_for, of_points, run, run_id, store

from harness.board import judgements, leaderboard, reports
from harness.board.entries import Board, EntryCase, Verification
from harness.core.checkout import ROOT
from harness.core.records import Cost, Score
from harness.core.stats import geomean
from harness.report import page
from harness.report.page_data import EntryOnPage, Links, Page, RunOnPage, page_of

MADE_AT = "2026-05-20T12:00:00+00:00"


def made(root: Path, found: Board | None = None, folder: Path | None = None) -> Page:
    """The page of what is below `root`, as it would lie in root/build."""
    found = checkout(root) if found is None else found
    recorded, unreadable = reports.load_all(root)
    return page_of(found, recorded, unreadable, root, folder or root / "build", MADE_AT)


def entries(found: Page) -> dict[str, EntryOnPage]:
    return {f"{one.entry.problem} {one.entry.author}": one for board in found.boards for one in board.entries}


def costs(found: EntryOnPage) -> list[Cost | None]:
    return [one.cost for one in found.cases]


def links(found: RunOnPage | None) -> Links:
    assert found is not None
    assert found.links is not None
    return found.links


class Tags(html.parser.HTMLParser):
    """The tags of a document, each with its attributes and the text that follows it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self.found.append((f"/{tag}", {}, ""))

    def handle_data(self, data: str) -> None:
        if self.found:
            tag, attributes, text = self.found[-1]
            self.found[-1] = (tag, attributes, text + data)

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for name, attributes, text in self.found if name == tag]


# ---- what is on it ---------------------------------------------------------------------------------------------------


def test_each_board_has_its_entries_by_place(tmp_path: Path) -> None:
    found = made(tmp_path)
    named = [(one.entries[0].entry.problem, [each.entry.author for each in one.entries]) for one in found.boards]
    assert named == [
        ("a2a", ["dave"]),
        ("gemm_rs", ["alice", "bob", SCRIPT]),
        ("retired", ["erin"]),
    ]
    assert [(entry.place, entry.last_place) for entry in found.boards[1].entries] == [(1, 1), (2, 2), (3, 3)]
    assert (found.boards[1].by, found.boards[1].notes) == ("speedup", ())
    assert found.boards[1].id == "gemm-rs-cpu-2-cores-of-example-cpu-2-00ghz-8"


def test_places_that_are_ranges_and_sources_that_are_copies_are_said(tmp_path: Path) -> None:
    mine = entry_for(report())
    copy = replace(mine, author="copycat", date="2026-06-01T12:00:00+00:00", run_id=run_id(2))
    other = replace(mine, author="bob", sha256="b" * 64, run_id=run_id(3))
    (board,) = made(tmp_path, Board(entries=(copy, mine, other))).boards
    assert {(one.entry.author, one.place, one.last_place, one.copy_of) for one in board.entries} == {
        ("alice", 1, 3, None),
        ("bob", 1, 3, None),
        ("copycat", 1, 3, "alice's submission.py"),
    }
    of, note = board.notes
    assert of == f"submission.py by copycat is a copy of submission.py by alice, 2026-05-01, {mine.run_id}"
    assert "make settle PROBLEM=gemm_rs" in note


def test_a_report_adds_shapes_clocks_ranks_phases_and_costs(tmp_path: Path) -> None:
    found = entries(made(tmp_path))["gemm_rs alice"]
    assert found.run is not None
    first = found.cases[0]
    assert first.figures.label == "m 64 n 7168 k 18432"
    assert [one.metric for one in first.figures.series] == ["wall", "device", "gpumode"]
    own = first.figures.series[0]
    assert own.low is not None
    assert own.value is not None
    assert own.high is not None
    assert own.low < own.value < own.high
    assert [one.empty for one in first.figures.series] == [20.0, 2.05, 41.0]
    assert (first.figures.bounded, found.bounded) == ("device", "device")
    assert len(first.figures.rank_ends_us) == 8
    assert first.cost is not None
    assert first.cost.flops == 2 * 64 * 7168 * 18432 / 8
    assert found.entry.phases_s["ranked"] == 9.5


def test_the_figures_are_the_boards_and_those_of_the_report_where_an_older_board_has_none(tmp_path: Path) -> None:
    one = run(3)
    store(tmp_path, one)
    right = entry_for(one)
    other = replace(right, cases=tuple(replace(case, ratio=7.0, series=()) for case in right.cases))
    cases = entries(made(tmp_path, Board(entries=(other,))))["gemm_rs alice"].cases
    assert [case.figures.ratio for case in cases] == [7.0] * 3
    assert all(case.figures.series for case in cases)
    older = entries(made(tmp_path, Board(entries=(replace(right, cases=()),))))["gemm_rs alice"].cases
    assert tuple(case.figures for case in older) == right.cases


def test_an_entry_without_its_report_is_shown_with_what_the_board_knows(tmp_path: Path) -> None:
    found = entries(made(tmp_path))
    assert found["a2a dave"].run is None
    assert found["a2a dave"].entry.score.value == 0.00123456
    assert [one.run_id for one in found["a2a dave"].history] == [run_id(9)]
    assert found["retired erin"].entry.fraction is None
    assert found["retired erin"].cases == ()


def test_an_entry_without_its_report_has_the_shapes_that_the_board_keeps(tmp_path: Path) -> None:
    """Also one of an older harness, on a CPU, whose only clock the fraction is of, has the limit of each."""
    whole = entry_for(report())
    right = replace(whole, cases=tuple(replace(case, bound=None, series=()) for case in whole.cases))
    found = entries(made(tmp_path, Board(entries=(right,))))["gemm_rs alice"]
    assert found.run is None
    assert found.cases[0].figures.label == "m 64 n 7168 k 18432"
    assert tuple(case.figures for case in found.cases) == right.cases
    bounds = [result.bound.value for result in report().results if result.bound]
    assert [case.limit for case in found.cases] == pytest.approx(bounds, rel=1e-3)


def test_the_legend_names_the_letters_of_shapes_that_only_the_board_keeps(tmp_path: Path) -> None:
    checkout(tmp_path)
    case = entry_for(report()).cases[0]
    mine = entry(problem="a2a", cases=(replace(case, params={"num_experts": 8, "hidden_dim": 64}, label="E 8 H 64"),))
    found = page_of(Board(entries=(mine,)), (), (), tmp_path, tmp_path, MADE_AT)
    assert (found.boards[0].entries[0].cases[0].figures.label, found.legend) == (
        "E 8 H 64",
        "E num_experts, H hidden_dim",
    )


def test_the_entry_alone_has_all_that_the_charts_need(tmp_path: Path) -> None:
    """A fresh clone has no runs/: its page says what that of the machine that measured says."""
    found = checkout(tmp_path)
    with_reports = made(tmp_path, found)
    shutil.rmtree(tmp_path / "runs")
    alone = made(tmp_path, found)
    for board, bare in zip(with_reports.boards, alone.boards, strict=True):
        assert board.limit == bare.limit
        for one, other in zip(board.entries, bare.entries, strict=True):
            assert other.run is None
            assert (one.cases, one.bounded) == (other.cases, other.bounded)
            assert (one.entry.peaks, one.entry.phases_s) == (other.entry.peaks, other.entry.phases_s)


def test_the_limit_is_one_for_a_board_whatever_clock_the_fraction_is_of(tmp_path: Path) -> None:
    """On GPUs the fraction is of the device clock, and the score is not: 0.5 of the limit there is not twice the limit
    on the clock that ranks. Of an older harness's entries, which have no bounds, the limit is computed."""
    fast, slow = run(3, device="cuda"), run(4, 1.5, device="cuda", author="bob")
    bounds = [result.bound.value for result in fast.results if result.bound]
    (board,) = made(tmp_path, Board(entries=tuple(map(entry_for, (fast, slow))))).boards
    assert board.limit == pytest.approx(geomean(bounds) / 1e6)
    assert {one.bounded for one in board.entries} == {"device"}
    first = board.entries[0].entry
    assert first.fraction is not None
    assert board.limit != pytest.approx(first.score.value * first.fraction, rel=0.1)
    on_cpu = Board(entries=(entry(score_s=0.01, ratio=2.0, fraction=0.25),))
    (bare,) = made(tmp_path, on_cpu).boards
    assert (bare.limit, bare.entries[0].reference, bare.entries[0].bounded) == (0.0025, 0.02, "wall")


def test_on_cpu_cores_each_shape_has_one_limit_by_the_best_peaks_of_any_entry(tmp_path: Path) -> None:
    """Peaks of a busy moment made a slow entry look nearer to its limit than a fast one."""
    fast = entry_for(report())

    def doubled(case: EntryCase) -> EntryCase:
        assert case.fraction
        assert case.fraction_ci
        assert case.bound
        low, high = case.fraction_ci
        bound = replace(case.bound, value=2 * case.bound.value)
        return replace(case, fraction=2 * case.fraction, fraction_ci=(2 * low, 2 * high), bound=bound)

    busy = tuple(map(doubled, fast.cases))
    assert len(busy) == 3
    slow = replace(fast, author="bob", run_id=run_id(2), sha256="b" * 64, cases=busy, fraction=0.9)
    found = entries(made(tmp_path, Board(entries=(fast, slow))))
    for one, other in zip(found["gemm_rs alice"].cases, found["gemm_rs bob"].cases, strict=True):
        assert other.limit == pytest.approx(one.limit)
        assert other.figures.fraction == pytest.approx(one.figures.fraction)
        assert other.figures.fraction_ci == pytest.approx(one.figures.fraction_ci)
    assert found["gemm_rs bob"].entry.fraction == pytest.approx(found["gemm_rs alice"].entry.fraction, rel=1e-3)


def test_the_limit_of_the_checked_in_gpu_entries_is_that_of_their_shapes() -> None:
    """On 2x H100 the products take 103.3 us at least, whichever way their rows go, and a2a 1.42 us."""
    shipped = leaderboard.load(ROOT / "leaderboard.yaml")
    # entries as older harnesses wrote them, without figures of shapes and with no report, have the same limit
    older = replace(shipped, entries=tuple(replace(entry, cases=()) for entry in shipped.entries))
    for board in (shipped, older):
        found = {one.id: one for one in page_of(board, (), (), ROOT, ROOT, MADE_AT).boards}
        for name, limit_s in (("gemm-rs", 103.3e-6), ("ag-gemm", 103.3e-6), ("a2a", 1.419e-6)):
            assert found[f"{name}-official-2x-nvidia-h100-80gb-hbm3-2"].limit == pytest.approx(limit_s, rel=0.01)
    assert not any(shape for entry in found["a2a-official-2x-nvidia-h100-80gb-hbm3-2"].entries for shape in entry.cases)


def test_a_score_that_is_no_time_has_neither_reference_nor_limit_on_its_scale(tmp_path: Path) -> None:
    points = entry(score=Score(value=87.5, unit="points", better="more"))
    found = made(tmp_path, Board(entries=(points,)))
    assert (found.boards[0].limit, found.boards[0].entries[0].reference) == (None, None)
    assert page.data(found)["boards"][0]["entries"][0]["entry"]["score"]["unit"] == "points"


def test_points_that_are_a_product_have_their_factors_where_the_report_is_there(tmp_path: Path) -> None:
    one = of_points(3)
    board = Board(entries=(entry_for(one),))
    bare = made(tmp_path, board).boards[0].entries[0]
    assert [case.product for case in bare.cases] == [None, None]
    store(tmp_path, one)
    whole = made(tmp_path, board).boards[0].entries[0]
    first, second = (case.product for case in whole.cases)
    assert first is not None
    assert second is not None
    assert first.factors == {
        "accuracy": 1.0,
        "first token": pytest.approx(10.0),
        "tokens/s": pytest.approx(2.0),
    }
    assert (first.value, second.value) == (pytest.approx(20.0), pytest.approx(15.0))
    assert whole.entry.score.value == pytest.approx((first.value + second.value) / 2)
    times = run(4)
    store(tmp_path, times)
    of_times = made(tmp_path, Board(entries=(entry_for(times),))).boards[0].entries[0]
    assert {case.product for case in of_times.cases} == {None}


def test_nothing_of_a_report_that_is_its_owners_is_on_the_page(tmp_path: Path) -> None:
    """Neither the seed nor what ranks printed: the live page is everybody's."""
    one = run(3, logs={"candidate rank 0": "my secret"}, secret_seed=123456789)
    store(tmp_path, one)
    text = page.html(made(tmp_path, Board(entries=(entry_for(one),))))
    assert "my secret" not in text
    assert "123456789" not in text


def test_a_report_of_other_source_or_another_board_is_not_taken_for_the_entrys(tmp_path: Path) -> None:
    one = run(3)
    store(tmp_path, one)
    right = entry_for(one)
    for wrong in (replace(right, sha256="0" * 64), replace(right, suite="quick"), replace(right, world_size=4)):
        assert entries(made(tmp_path, Board(entries=(wrong,))))["gemm_rs alice"].run is None
    # the problem's files are not below this root: the rest is shown all the same
    found = entries(made(tmp_path, Board(entries=(right,))))["gemm_rs alice"]
    assert found.run is not None
    assert costs(found) == [None] * 3


def test_shapes_of_an_earlier_form_of_a_problem_have_no_cost(tmp_path: Path) -> None:
    found = checkout(tmp_path)
    path = tmp_path / "runs" / run_id(3) / "report.json"
    text = path.read_text().replace('"has_bias"', '"bias"')
    path.write_text(text)
    alice = entries(made(tmp_path, found))["gemm_rs alice"]
    assert alice.run is not None
    assert costs(alice) == [None] * 3


def test_links_lead_from_where_the_page_lies_to_report_and_source(tmp_path: Path) -> None:
    found = links(entries(made(tmp_path, folder=tmp_path / "some where" / "else"))["gemm_rs alice"].run)
    assert found.report == f"../../runs/{run_id(3)}/report.json"
    assert found.source == f"../../runs/{run_id(3)}/submission.py"
    assert found.folder == f"../../runs/{run_id(3)}/"
    (tmp_path / "runs" / run_id(4) / "submission.py").unlink()
    recorded = reports.load_all(tmp_path)[0]
    bob = next(one for one in recorded if one.run_id == run_id(4))
    again = page_of(Board(entries=(entry_for(bob),)), recorded, (), tmp_path, tmp_path / "runs", MADE_AT)
    without = links(again.boards[0].entries[0].run)
    assert (without.report, without.source) == (f"{run_id(4)}/report.json", None)


def test_a_report_that_cannot_be_read_is_said_on_the_page(tmp_path: Path) -> None:
    board = checkout(tmp_path)
    (tmp_path / "runs" / run_id(3) / "report.json").write_text("{")
    found = made(tmp_path, board)
    assert entries(found)["gemm_rs alice"].run is None
    assert len(found.unreadable) == 1
    assert run_id(3) in found.unreadable[0]


def test_what_is_held_is_on_the_page_and_on_no_board(tmp_path: Path) -> None:
    found = checkout(tmp_path)
    bob = next(one for one in found.entries if one.author == "bob")
    hold = judgements.held(bob, "clock", f"700 us more passed around it {SCRIPT}", (bob.run_id,))
    verified = Verification(
        date=MADE_AT, launches=5, run_ids=("a",), score=0.1, score_ci=(0.1, 0.1), ratio=2.0, ratio_ci=(2.0, 2.0)
    )
    others = tuple(replace(one, verified=verified) for one in found.entries if one is not bob)
    page_made = made(tmp_path, Board(entries=others, held=(hold,)))
    assert [one.split(":")[0] for one in page_made.held] == ["gemm_rs, suite cpu"]
    assert {one.entry.status for one in entries(page_made).values()} == {"verified"}
    assert "gemm_rs bob" not in entries(page_made)
    assert SCRIPT not in page.html(page_made)


def test_boards_whose_names_look_alike_have_addresses_of_their_own(tmp_path: Path) -> None:
    alike = Board(entries=tuple(entry(machine_class=name) for name in ("2 x CPU", "2-x-cpu", "2 X CPU")))
    ids = [one.id for one in made(tmp_path, alike).boards]
    assert len(set(ids)) == 3


# ---- the file --------------------------------------------------------------------------------------------------------


@given(st.recursive(st.text() | st.sampled_from(["</script>", "<!--", "]]>"]), st.lists))
@pytest.mark.untraced
def test_no_text_ends_the_script_that_it_stands_in(value: Any) -> None:
    text = page.script_json(value)
    assert not re.search(r"[<>&\u2028\u2029]", text)
    assert json.loads(text) == value


def test_markup_in_names_is_text(tmp_path: Path) -> None:
    """The author is <script>alert(1)</script>, and a file is an image whose error is a script."""
    text = page.html(made(tmp_path))
    tags = Tags(text)
    assert len(tags.all("script")) == 1 + len(page.SCRIPTS)
    assert tags.all("img") == []
    assert "alert(1)</script>" not in text
    (data,) = [json.loads(text) for attributes, text in tags.all("script") if attributes.get("id") == "data"]
    evil = data["boards"][1]["entries"][2]
    assert (evil["entry"]["author"], evil["file"]) == (SCRIPT, HOSTILE_FILE.removeprefix("submissions/gemm_rs/"))


def test_the_page_needs_nothing_and_may_fetch_nothing(tmp_path: Path) -> None:
    tags = Tags(page.html(made(tmp_path)))
    for tag, attributes, _ in tags.found:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
        assert not [name for name in attributes if name.startswith("on")]
    policies = [attributes["content"] for attributes, _ in tags.all("meta") if "http-equiv" in attributes]
    (policy,) = policies
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    scripts = [text for attributes, text in tags.all("script") if "type" not in attributes]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert re.findall(r"'sha256-(.*?)'", policy) == hashes
    assert "'unsafe-inline'" not in policy.partition("script-src")[2]


def test_what_looks_like_a_place_of_the_template_stays_as_it_is(tmp_path: Path) -> None:
    found = Board(entries=(entry(author="{{data}} {{nothing}} \\1"),))
    assert "{{data}} {{nothing}} \\\\1" in page.html(made(tmp_path, found))


def test_an_empty_board_is_a_page_too(tmp_path: Path) -> None:
    found = made(tmp_path, Board())
    assert found.boards == ()
    assert '"boards":[]' in page.html(found)


def test_embedded_packages_are_as_the_table_beside_them_says() -> None:
    rows = re.findall(
        r"^\| `(\S+)` \| .*\| `([0-9a-f]{64})` \|$", (page.ASSETS / "README.md").read_text(), re.MULTILINE
    )
    assert [name for name, _ in rows] == [name for name in page.SCRIPTS if ".min." in name]
    for name, sha256 in rows:
        assert hashlib.sha256((page.ASSETS / name).read_bytes()).hexdigest() == sha256


def test_marks_stand_out_from_every_ground_in_both_themes() -> None:
    """WCAG 2.2, 1.4.11: 3 to 1 for graphics. Texts, 4.5 to 1, are measured in a browser."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    themes = re.findall(r"\{([^{}]*--ground:[^{}]*)\}", (page.ASSETS / "page.css").read_text())
    colours = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", theme)) for theme in themes]
    assert len(colours) == 3
    assert colours[1] == colours[2]  # dark by the system, dark by choice
    for theme in colours:
        for mark in ("limit", "ref", "own", "c1", "c2", "c3", "c4", "c5", "c6"):
            for ground in ("ground", "raised"):
                dark, bright = sorted((light(theme[mark]), light(theme[ground])))
                assert (bright + 0.05) / (dark + 0.05) >= 3, (mark, ground, theme[mark])


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_writes_the_file_and_says_what_is_on_it(
    harness: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    root = tmp_path / "checkout"
    store(root, run(3))
    store(root, run(4)).write_text("{")
    done = harness("page")
    assert done.returncode == 0, done.stderr
    assert "page.html: 0 boards, 0 entries, 0 of them with all charts, 0 with their report in runs/" in done.stdout
    assert f"left out: runs/{run_id(4)}/report.json: " in done.stdout
    assert (root / "build" / "page.html").is_file()
    assert harness("page", "-o", "there/deep.html").returncode == 0
    assert (root / "there" / "deep.html").is_file()


def test_what_the_command_cannot_do_has_its_exit_code(
    harness: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> None:
    root = tmp_path / "checkout"
    done = harness("page", "-o", "harness")
    says = "error: --out harness: cannot be written: Is a directory; name another file\n"
    assert (done.returncode, done.stderr) == (2, says)
    (root / "leaderboard.yaml").write_text("schema: 1\nentries: 3\n")
    done = harness("page")
    assert done.returncode == 113
    assert "$.entries: expected a list" in done.stderr
