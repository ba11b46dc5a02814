"""Bundles: made in one checkout, checked and reproduced in another; what is missing or altered is named.

Evaluations are played, but for one test.
"""

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import failed_test
from launches import ENTRY_RUN, FEW, HERE, MINE, NAME, SOURCE, Launches, add_tiny, launch, played, prepared
from recorded import run_id

from harness.board import bundles, leaderboard, runs
from harness.board.bundle_check import check
from harness.cli import main
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import BadFileError, Exit, HarnessError, UsageError
from harness.core.records import Wrong
from harness.machine import host, system_description
from harness.machine.system_description import FIELDS
from harness.problems.submission import digest, read_submission


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    folder.mkdir()
    return prepared(folder)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A fresh clone: problems, but no runs and no board."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for part in ("reference", "shapes"):
        (folder / part).symlink_to(ROOT / part)
    return folder


def command(root: Path, *words: object) -> int:
    return main.parse(["bundle", *map(str, words)]).carry_out(Checkout(root))


def made(root: Path, out: Path) -> Path:
    assert command(root, "make", ENTRY_RUN, "--out", out) == Exit.OK
    return out


def failures(folder: Path, clone: Path) -> list[str]:
    found = check(bundles.read(folder), Checkout(clone))
    return [one.text for one in found.findings if one.status == "fail"]


def signed_again(folder: Path) -> None:
    """bundle.json with the hashes that its files have now, as somebody who cheats would write it."""
    manifest = json.loads((folder / "bundle.json").read_text())
    for name in manifest["files"]:
        manifest["files"][name] = bundles.sha256_of((folder / name).read_bytes())
    (folder / "bundle.json").write_text(json.dumps(manifest))


def changed_json(path: Path, change: Callable[[Any], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


# ---- made ------------------------------------------------------------------------------------------------------------
def test_a_bundle_has_all_that_an_auditor_needs(root: Path, tmp_path: Path) -> None:
    (root / "runs" / ENTRY_RUN / "candidate-rank-0.log").write_text("hello\n")
    files = bundles.read(made(root, tmp_path / "b"))
    assert sorted(files) == [
        "README.md",
        "bundle.json",
        "logs/candidate-rank-0.log",
        "report.json",
        "source/modules.json",
        "source/submission.py",
        "stack.json",
        "system.json",
    ]
    manifest = bundles.decoded(bundles.Manifest, files, bundles.MANIFEST)
    assert (manifest.run_id, manifest.problem, manifest.sha256) == (ENTRY_RUN, "gemm_rs", MINE.sha256)
    assert manifest.command == (
        f"python -m harness eval gemm_rs {NAME} --suite cpu --ranks 8 --device cpu --mode leaderboard"
    )
    assert len(manifest.seeds) == len(launch(1).results)
    assert manifest.claim.ratio == launch(1).figures.ratio.value  # type: ignore[union-attr]
    assert files["source/submission.py"].decode() == SOURCE
    assert ENTRY_RUN in files["README.md"].decode()
    assert json.loads(files["stack.json"])["torch"] == HERE.torch


def test_an_archive_is_the_same_bundle(root: Path, tmp_path: Path) -> None:
    folder, archive = bundles.read(made(root, tmp_path / "b")), bundles.read(made(root, tmp_path / "b.tar.gz"))
    for files in (folder, archive):
        del files["bundle.json"]  # it says when it was made
    assert folder == archive


def test_a_bundle_that_is_there_is_not_written_over(root: Path, tmp_path: Path) -> None:
    out = made(root, tmp_path / "b")
    with pytest.raises(UsageError, match="it exists already"):
        command(root, "make", ENTRY_RUN, "--out", out)
    with pytest.raises(UsageError, match="cannot be written"):
        command(root, "make", ENTRY_RUN, "--out", out / "README.md" / "x.tar.gz")


def test_the_result_is_an_entry_or_a_run(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs.store(launch(7), root)  # on no board
    assert command(root, "make", run_id(7)[:9], "--json", "-", "--out", tmp_path / "b") == Exit.OK
    told = json.loads(capsys.readouterr().out)
    assert (told["run_id"], "version of the problem was not recorded" in told["notes"][-1]) == (run_id(7), True)
    with pytest.raises(UsageError, match="no entry 'nothing' on the leaderboard"):
        command(root, "make", "nothing")
    (root / "runs" / ENTRY_RUN / "report.json").unlink()
    with pytest.raises(UsageError, match=f"the report of {ENTRY_RUN} is not kept"):
        command(root, "make", ENTRY_RUN)
    assert not (root / "build").exists()


def test_a_run_whose_source_is_not_kept_makes_no_bundle(root: Path) -> None:
    other = digest("other", ())
    runs.store(launch(8, submission=runs.load_source(MINE.sha256, NAME, root)), root)
    changed_json(root / "runs" / run_id(8) / "report.json", lambda one: one["submission"].update(sha256=other))
    with pytest.raises(HarnessError, match="is not kept"):
        command(root, "make", run_id(8))


# ---- the system description ------------------------------------------------------------------------------------------
def test_the_description_has_mlperfs_fields_and_leaves_empty_what_is_not_known(root: Path, tmp_path: Path) -> None:
    (tmp_path / "fields.json").write_text('{"cooling": "air", "host_networking": "none"}')
    assert command(root, "make", ENTRY_RUN, "--out", tmp_path / "b", "--system", tmp_path / "fields.json") == Exit.OK
    system = json.loads((tmp_path / "b" / "system.json").read_text())
    assert len(FIELDS) == 33
    assert tuple(system) == FIELDS
    assert (system["cooling"], system["framework"], system["accelerators_per_node"]) == ("air", "torch 2.13.0", "0")
    # the entry is of another machine than this one, so nothing is read here
    assert system["host_processor_caches"] == system["accelerator_model_name"] == ""
    (tmp_path / "fields.json").write_text('{"coolling": "air"}')
    with pytest.raises(UsageError, match="no field 'coolling'; did you mean 'cooling'"):
        command(root, "make", ENTRY_RUN, "--system", tmp_path / "fields.json")


def test_a_run_of_this_machine_is_described_by_what_is_read_here(root: Path, tmp_path: Path) -> None:
    runs.store(launch(7, environment=host.environment("", 8)), root)
    assert command(root, "make", run_id(7), "--out", tmp_path / "b") == Exit.OK
    system = json.loads((tmp_path / "b" / "system.json").read_text())
    assert int(system["host_processor_vcpu_count"]) >= host.cores()
    assert json.loads((tmp_path / "b" / "stack.json").read_text())["scipy"]


def test_a_processor_is_described_from_sys(tmp_path: Path) -> None:
    cpu = tmp_path / "sys/devices/system/cpu"
    for number, (package, core) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1), (0, 0), (0, 1), (1, 0), (1, 1)]):
        topology = cpu / f"cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
        (topology / "core_id").write_text(f"{core}\n")
    for index, (level, kind, size) in enumerate([(1, "Data", "32K"), (2, "Unified", "1024K")]):
        cache = cpu / f"cpu0/cache/index{index}"
        cache.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (cache / name).write_text(f"{text}\n")
    assert system_description.of_this_machine(tmp_path) == {
        "host_processors_per_node": "2",
        "host_processor_core_count": "2",
        "host_processor_vcpu_count": "8",
        "host_processor_caches": "L1 data 32K, L2 1024K",
    }
    assert system_description.of_this_machine(tmp_path / "none") == {}


# ---- checked ---------------------------------------------------------------------------------------------------------
def test_a_whole_bundle_passes(root: Path, clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("b", "b.tar.gz"):
        made(root, tmp_path / name)
        assert command(clone, "check", tmp_path / name) == Exit.OK
    shown = capsys.readouterr().out
    assert "its figures follow from its samples" in shown
    assert "cooling" in shown
    assert bundles.sha256_of((tmp_path / "b" / "bundle.json").read_bytes()) in shown


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda b: (b / "report.json").unlink(), "report.json is missing"),
        (lambda b: (b / "source/submission.py").write_text(SOURCE + "#\n"), "source/submission.py was altered"),
        (lambda b: (b / "system.json").write_text("{}"), "system.json was altered"),
        (lambda b: (b / "logs").mkdir() or (b / "logs/more.log").write_text(""), "logs/more.log is not in bundle.json"),
    ],
)
def test_a_part_that_is_missing_altered_or_added_is_named(
    root: Path, clone: Path, tmp_path: Path, change: Callable[[Path], object], says: str
) -> None:
    change(made(root, tmp_path / "b"))
    assert any(says in text for text in failures(tmp_path / "b", clone))
    assert command(clone, "check", tmp_path / "b") == Exit.BAD_FILE


def better(found: Any) -> None:
    """A report's figures, twice as good as its samples."""
    found["figures"]["ratio"]["value"] *= 2


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("report.json", better, "report.json claims the ratio"),
        ("bundle.json", lambda one: one["claim"].update(ratio=99.0), "bundle.json claims the ratio 99.0, the samples"),
        ("bundle.json", lambda one: one["claim"]["score"].update(value=1e-9), "bundle.json claims the score 1e-09"),
        ("report.json", lambda one: one.update(author="eve"), "report.json has the author 'eve', bundle.json 'alice'"),
        ("bundle.json", lambda one: one.update(secret_seed=7), "the secret_seed"),
        ("report.json", lambda one: one["cases"][0].update(seed=7), "the seeds"),
        ("system.json", lambda one: one.pop("cooling"), "system.json lacks the field cooling"),
        ("bundle.json", lambda one: one.update(sha256="0" * 64), "source was altered"),
        ("report.json", lambda one: one.pop("cases"), "report.json cannot be read: .*the key 'cases' is missing"),
    ],
)
def test_parts_that_do_not_agree_are_named_whoever_signed_them(
    root: Path, clone: Path, tmp_path: Path, file: str, change: Callable[[Any], object], says: str
) -> None:
    folder = made(root, tmp_path / "b")
    changed_json(folder / file, change)
    signed_again(folder)
    found = failures(folder, clone)
    assert any(says.split(".*")[0] in text and says.split(".*")[-1] in text for text in found), found


def test_a_source_that_was_changed_and_signed_again_is_another_source(root: Path, clone: Path, tmp_path: Path) -> None:
    folder = made(root, tmp_path / "b")
    (folder / "source/submission.py").write_text(SOURCE.replace("data\n", "data + 1\n"))
    signed_again(folder)
    (text,) = failures(folder, clone)
    assert text.startswith("source was altered")


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "bundle.json: not JSON"), ('{"schema": 2}', r"bundle.json: \$: the key 'run_id' is missing")],
)
def test_a_bad_manifest_is_an_error(root: Path, clone: Path, tmp_path: Path, content: str, says: str) -> None:
    folder = made(root, tmp_path / "b")
    (folder / "bundle.json").write_text(content)
    with pytest.raises(BadFileError, match=says):
        command(clone, "check", folder)


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for member, data in members:
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type = kind
    found.linkname = "/etc/passwd"
    return found


def test_archives_that_are_none_of_ours_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("../bundle.json", "/bundle.json", "bundle.json", "b/../../bundle.json"):
        with pytest.raises(BadFileError, match="is no plain file in one folder"):
            bundles.read(archive(tmp_path / "a.tar.gz", (member(name), b"{}")))
    with pytest.raises(BadFileError, match="is no plain file in one folder"):
        bundles.read(archive(tmp_path / "a.tar.gz", (member("b/bundle.json", tarfile.SYMTYPE), b"")))
    with pytest.raises(BadFileError, match="this is no bundle"):
        bundles.read(archive(tmp_path / "a.tar.gz", (member("b/x"), b"")))
    whole = archive(tmp_path / "a.tar.gz", (member("b/bundle.json"), bytes(range(256)) * 64)).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"no archive", whole[:40] + b"\0" * 40 + whole[80:]):
        (tmp_path / "a.tar.gz").write_bytes(damaged)
        with pytest.raises(BadFileError, match=r"a.tar.gz: "):
            bundles.read(tmp_path / "a.tar.gz")
    monkeypatch.setattr(bundles, "MOST_BYTES", 1000)
    with pytest.raises(BadFileError, match="larger than a bundle may be"):
        bundles.read(archive(tmp_path / "a.tar.gz", (member("b/bundle.json"), bytes(1001))))
    folder = tmp_path / "b"
    folder.mkdir()
    (folder / "bundle.json").symlink_to("/etc/passwd")
    with pytest.raises(BadFileError, match="is a link; a bundle may contain only plain files"):
        bundles.read(folder)
    with pytest.raises(UsageError, match="no bundle"):
        bundles.read(tmp_path / "nothing")


def test_another_version_of_the_problem_is_noted_and_not_run(root: Path, clone: Path, tmp_path: Path) -> None:
    folder = made(root, tmp_path / "b")
    changed_json(folder / "bundle.json", lambda one: one.update(problem_version="0" * 16))
    found = check(bundles.read(folder), Checkout(clone))
    assert found.is_whole
    assert any(one.status == "note" and "version 0000000000000000; this checkout has" in one.text
               for one in found.findings)  # fmt: skip
    with pytest.raises(UsageError, match="was judged under version 0000000000000000 of gemm_rs, this checkout has"):
        command(clone, "reproduce", folder)


# ---- reproduced ------------------------------------------------------------------------------------------------------
@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    return played(monkeypatch)


@pytest.mark.parametrize(
    ("times", "code", "word"), [(1.0, Exit.OK, "reproduced"), (3.0, Exit.INVALID, "not reproduced")]
)
def test_a_clone_says_whether_the_claim_lies_within_the_noise(
    root: Path,
    clone: Path,
    tmp_path: Path,
    launches: Launches,
    capsys: pytest.CaptureFixture[str],
    times: float,
    code: Exit,
    word: str,
) -> None:
    bundle = made(root, tmp_path / "b.tar.gz")
    launches.script = [launch(number, times) for number in range(10, 13)]
    capsys.readouterr()
    assert command(clone, "reproduce", bundle, "--launches", 3, "--json", tmp_path / "out.json") == code
    shown = capsys.readouterr().out
    assert f"\n{word}: 3 launches reach" in shown
    told = json.loads((tmp_path / "out.json").read_text())
    assert (told["word"], len(told["launches"]), len(told["bundle_sha256"])) == (word, 3, 64)
    assert {submission.source for submission in launches.ran} == {SOURCE}
    assert leaderboard.load(clone / "leaderboard.yaml") == leaderboard.load(clone / "nothing.yaml")


def test_a_bundle_that_is_not_whole_is_not_run(root: Path, clone: Path, tmp_path: Path, launches: Launches) -> None:
    folder = made(root, tmp_path / "b")
    (folder / "system.json").unlink()
    with pytest.raises(BadFileError, match=r"nothing is run: system.json is missing"):
        command(clone, "reproduce", folder)
    assert (launches.ran, (clone / "runs").exists()) == ([], False)


def test_a_run_that_failed_can_be_bundled_and_claims_nothing(
    root: Path, clone: Path, tmp_path: Path, launches: Launches
) -> None:
    failed = replace(failed_test(Wrong(message="off")), run_id=run_id(9), environment=HERE, submission=MINE)
    runs.store(failed, root)
    assert command(root, "make", run_id(9), "--out", tmp_path / "b") == Exit.OK
    assert check(bundles.read(tmp_path / "b"), Checkout(clone)).is_whole
    with pytest.raises(UsageError, match="claims nothing: its status is fail"):
        command(clone, "reproduce", tmp_path / "b")


def test_a_real_evaluation_goes_round_on_another_clone(
    harness: Callable[..., Any], checkout: Path, tmp_path: Path
) -> None:
    """A submission of two files, evaluated, bundled, and run again from the bundle alone."""
    folder = checkout / "submissions" / "gemm_rs"
    (folder / "helper.py").write_text(
        "from reference import ref_kernel\n\n\ndef helped(data):\n    return ref_kernel(data)\n"
    )
    (folder / "mine.py").write_text(
        "from helper import helped\n\n\ndef custom_kernel(data):\n    return helped(data)\n"
    )
    add_tiny(checkout)
    assert harness("eval", "gemm_rs", "submissions/gemm_rs/mine.py", "--suite", "tiny", *FEW).returncode == 0
    made = harness("bundle", "make", "submissions/gemm_rs/mine.py", "-o", str(tmp_path / "b.tar.gz"))
    assert made.returncode == 0, made.stderr
    for left in ("helper.py", "mine.py"):
        (folder / left).unlink()
    for path in (checkout / "runs").iterdir():
        path.rename(tmp_path / path.name)
    (checkout / "leaderboard.yaml").unlink()
    again = harness("bundle", "reproduce", str(tmp_path / "b.tar.gz"), "--launches", "3", *FEW)
    assert again.returncode in (Exit.OK, Exit.ERROR, Exit.INVALID), again.stderr
    assert "3 launches reach" in again.stdout, again.stderr
    assert "the entry's claim" in again.stdout


# ---- the name --------------------------------------------------------------------------------------------------------
def test_what_was_bundle_is_merge_and_still_works(capsys: pytest.CaptureFixture[str]) -> None:
    old = main.parse(["bundle", "a2a", "mine.py", "-o", "x.py"])
    assert (old.run.__module__, old.order.problem, str(old.order.file)) == ("harness.cli.merge", "a2a", "mine.py")
    assert "`bundle PROBLEM` is `merge PROBLEM` now" in capsys.readouterr().err
    assert main.parse(["bundle", "check", "x"]).run.__module__ == "harness.cli.bundle"
    assert capsys.readouterr().err == ""
    with pytest.raises(SystemExit):
        main.parse(["bundle"])


def test_the_source_in_a_bundle_is_what_was_submitted(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(SOURCE)
    files = runs.source_files(read_submission(file, root))
    assert runs.source_from(lambda name: files[name].decode(), MINE.sha256, NAME, "source", "").source == SOURCE
