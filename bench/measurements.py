"""docs/measurements.md, made of the data files in docs/measurements/, which benches write.

    make measurements                                  writes the document anew
    python bench/measurements.py --check               exits with 1 if it is not what the data files say
    python bench/measurements.py --keep RUN            keeps a run of runs/ in docs/measurements/reports/

A folder in docs/measurements/ is a machine: `machines.yaml` has its heading (`title`), its name in sections (`machine`)
and words (`text`); every file in it is a section, in the order of their names. To add one, put a file there: a bench
writes it (`--data FILE`), or write it as bench/figures.py says. A section may name kept runs (`reports`), of which its
table of turn-around is made, and, of runs on several clocks, one of what each clock says of each shape.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from figures import ROOT, Section, Table, markdown

from harness.board import report_json, reports
from harness.core.checkout import shown
from harness.core.errors import BadFileError, HarnessError
from harness.core.records import EvalReport
from harness.core.stats import geomean, median
from harness.core.yaml_file import read_yaml
from harness.judging import verdict

FOLDER = ROOT / "docs" / "measurements"
DOCUMENT = ROOT / "docs" / "measurements.md"
REPORTS = "reports"  # below FOLDER
MACHINES = "machines.yaml"
HEAD = """\
<!-- Made by `make measurements` (bench/measurements.py) of the files in docs/measurements/: change those. -->

# Measurements

This page has the newest figures of each machine: how long an evaluation takes, how exact it is, how fast the shipped
kernels are. Each section names the day, the machine and the command. Ratios and medians of one run can be compared with
each other, absolute times of different runs on the device clock only. Figures marked *transcribed* were copied by hand.
"""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What heads a machine's sections; one that was made on `machine` need not say so."""

    title: str
    machine: str
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Machines:
    """By the names of their folders."""

    machines: dict[str, Machine]


def document(folder: Path = FOLDER) -> str:
    """The whole document. Raises BadFileError, which names the place, for a data file that does not decode."""
    parts = [HEAD]
    for name, machine in sorted(read_yaml(Machines, folder / MACHINES, ROOT).machines.items()):
        parts += _machine(machine, folder / name, folder / REPORTS)
    return "\n".join(parts)


def _machine(head: Machine, folder: Path, kept: Path) -> Iterator[str]:
    yield f"## {head.title}\n"
    if head.text:
        yield _paragraph(head.text)
    for path in sorted(folder.glob("*.yaml")):
        section = read_yaml(Section, path, ROOT)
        yield from _section(section, [_kept(kept / f"{run}.json", path) for run in section.reports], head.machine)


def _section(section: Section, runs: list[EvalReport], machine: str) -> Iterator[str]:
    yield f"### {section.title}\n"
    made = [section.date] + ([section.machine] if section.machine != machine else [])
    made += [f"`{section.command}`"] if section.command else []
    yield f"{', '.join(made)}{'; *transcribed*' if section.source == 'transcribed' else ''}.\n"
    if section.text:
        yield _paragraph(section.text)
    if runs:
        yield markdown(turnaround(runs))
    if (table := by_clock(runs)) is not None:
        yield f"#### {table.title}\n"
        yield markdown(table)
    for table in section.tables:
        if table.title:
            yield f"#### {table.title}\n"
        if table.text:
            yield _paragraph(table.text)
        yield markdown(table)
        if table.after:
            yield _paragraph(table.after)
    if section.after:
        yield _paragraph(section.after)


def turnaround(runs: list[EvalReport]) -> Table:
    """Seconds of each run, whole and by phase, and its speedup."""
    phases = list(dict.fromkeys(phase for run in runs for phase in run.phases_s))
    rows = []
    for run in runs:
        seconds = [run.phases_s.get(phase, 0.0) for phase in phases]
        ratio = run.figures.ratio if run.figures else None
        speedup = f"{ratio.value:.2f}" if ratio else "-"
        if ratio and ratio.ci is not None:
            speedup += " ({:.2f} to {:.2f})".format(*ratio.ci)
        rows.append((run.problem, sum(seconds), *seconds, speedup, run.run_id))
    return Table(columns=("problem", "whole", *phases, "speedup (95 % interval)", "run"), rows=tuple(rows))


def by_clock(runs: Sequence[EvalReport]) -> Table | None:
    """What each clock says of reference and submission, a shape of a run a row; None where there is one clock."""
    rows, clocks = [], []
    for run in runs:
        measured = [(result, case) for result, case in verdict.measured_cases(run) if len(case.series) > 1]
        if not measured:
            continue
        clocks = list(measured[0][1].by_name)
        pairs = [  # a row for each shape: reference and submission by clock
            [(median(case.by_name[clock].baseline), median(case.by_name[clock].own)) for clock in clocks]
            for _, case in measured
        ]
        for_all = [tuple(zip(*column, strict=True)) for column in zip(*pairs, strict=True)]
        pairs.append([(geomean(baseline), geomean(own)) for baseline, own in for_all])
        labels = [*(result.case.title for result, _ in measured), "geometric mean"]
        for label, row in zip(labels, pairs, strict=True):
            rows.append((run.problem, label, *(f"{ref_us:.1f} -> {own_us:.1f}" for ref_us, own_us in row)))
    if not rows:
        return None
    return Table(columns=("problem", "shape", *clocks), rows=tuple(rows), title="Reference us -> submission us")


def keep(run: str, root: Path = ROOT, folder: Path = FOLDER) -> Path:
    """Writes what `plot` and this document need of a run of runs/ to reports/<run id>.json; the path."""
    found = reports.find(run, root)
    path = folder / REPORTS / f"{found.run_id}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    shown_only = replace(found, logs={}, secret_seed=0, gpu_sampling=None)
    path.write_text(json.dumps(report_json.to_json(shown_only)) + "\n", encoding="utf-8")
    return path


def _kept(path: Path, named_in: Path) -> EvalReport:
    if not path.is_file():
        raise BadFileError(
            f"{shown(named_in)}: $.reports: no {shown(path)}; "
            f"`python bench/measurements.py --keep {path.stem}` makes it of a run in runs/"
        )
    return reports.load(path, ROOT)


def _paragraph(text: str) -> str:
    return text.rstrip("\n") + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the document is not it")
    parser.add_argument("--keep", metavar="RUN", nargs="+", default=[], help="run ids, or the beginnings of such")
    options = parser.parse_args()
    try:
        for run in options.keep:
            print(keep(run).relative_to(ROOT))
        if options.keep:
            return
        made = document()
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(int(error.exit_code))
    if not options.check:
        DOCUMENT.write_text(made, encoding="utf-8")
        print(f"{DOCUMENT.relative_to(ROOT)}: {made.count(chr(10))} lines")
    elif made != DOCUMENT.read_text(encoding="utf-8"):
        sys.exit(f"{DOCUMENT.relative_to(ROOT)} is not what docs/measurements/ says: `make measurements` writes it")


if __name__ == "__main__":
    main()
