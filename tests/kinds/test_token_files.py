"""--data: a user's token files, read strictly; what trusted ranks cut out of them; the target that is found there."""

import dataclasses
import importlib
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.board import bundle_make, judgements
from harness.board.entries import Board
from harness.core.checkout import ROOT, Checkout
from harness.core.errors import UsageError
from harness.kinds.kind import Order, Progress
from harness.kinds.registry import kind_of, read_submission
from harness.kinds.settings import Asked, setting
from harness.kinds.train import data as train_data
from harness.kinds.train.kind import TrainPlan, TrainSession
from harness.kinds.train.run import Runs
from harness.problems.token_files import read_folder
from tests.recorded import run

CHECKOUT = Checkout(ROOT)


def llm_c(tokens: Any, magic: int = 20240520, version: int = 1, count: int | None = None) -> bytes:
    header = struct.pack("<256i", magic, version, len(tokens) if count is None else count, *[0] * 253)
    return header + tokens.tobytes()


def u2(*tokens: int) -> Any:
    return np.array(tokens, "<u2")


def test_every_public_form_is_read(tmp_path: Path) -> None:
    u2(1, 2, 3).tofile(tmp_path / "train.bin")
    np.save(tmp_path / "more.npy", np.array([7, 8], "<u4"))
    (tmp_path / "fineweb_val_000000.bin").write_bytes(llm_c(u2(4, 5)))
    (tmp_path / "llama3.bin").write_bytes(llm_c(np.array([70000], "<u4"), 20240801, 7))
    (tmp_path / "meta.pkl").write_bytes(b"nanoGPT writes one")
    found = read_folder(tmp_path, None)
    assert [(Path(file.path).name, file.dtype, file.count, file.is_held_out) for file in found.files] == [
        ("fineweb_val_000000.bin", "<u2", 2, True),
        ("llama3.bin", "<u4", 1, False),
        ("more.npy", "<u4", 2, False),
        ("train.bin", "<u2", 3, False),
    ]
    assert (found.vocabulary, found.tokens) == (70001, 8)
    assert read_folder(tmp_path, 80000).vocabulary == 80000
    assert read_folder(tmp_path, None).sha256 == found.sha256
    u2(1, 2, 4).tofile(tmp_path / "train.bin")
    assert read_folder(tmp_path, None).sha256 != found.sha256


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.txt", b"text", "it has x.txt; token files end in .npy or .bin"),
        ("x.bin", b"", "x.bin: has no tokens"),
        ("x.bin", b"123", "x.bin: has 3 bytes: an odd number, so not uint16"),
        ("x.bin", llm_c(u2(1), version=2), "x.bin: is llm.c's, of version 2; version 1 can be read"),
        ("x.bin", llm_c(u2(1), count=2), "x.bin: its header says 2 tokens, which are not the 2 bytes behind it"),
        ("x.bin", u2(1, 900).tobytes(), "x.bin: has token 900, and --vocabulary is 300; declare 901 or more"),
        ("x.npy", b"no numpy", "x.npy: is no .npy file"),
        ("x.npy", np.ones(3), "x.npy: has float64 [3]; expected one dimension of uint16 or uint32"),
        ("x.npy", np.ones((2, 2), "<u2"), "x.npy: has uint16 [2, 2]"),
        ("x.npy", np.array([2**31], "<u4"), "has token 2147483648"),
    ],
)
def test_what_is_no_token_file_is_refused_with_its_name(tmp_path: Path, name: str, content: Any, words: str) -> None:
    if isinstance(content, bytes):
        (tmp_path / name).write_bytes(content)
    else:
        np.save(tmp_path / name, content)
    with pytest.raises(UsageError) as found:
        read_folder(tmp_path, 300)
    assert words in str(found.value)


def test_an_empty_folder_and_too_little_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--data .*: it is empty"):
        read_folder(tmp_path, None)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_folder(tmp_path / "none", None)
    u2(*range(200)).tofile(tmp_path / "train.bin")
    found = read_folder(tmp_path, None)
    found.check_room(15, 5, 10)
    with pytest.raises(UsageError, match="200 tokens to train on are 20 sequences of 10; the suite needs 21"):
        found.check_room(16, 5, 10)
    u2(*range(40)).tofile(tmp_path / "val.bin")
    read_folder(tmp_path, None).check_room(20, 4, 10)
    with pytest.raises(UsageError, match="40 tokens to hold out are 4 sequences"):
        read_folder(tmp_path, None).check_room(20, 5, 10)
    (tmp_path / "train.bin").unlink()
    with pytest.raises(UsageError, match=r"val.bin is held out by its name; add one to train on"):
        read_folder(tmp_path, None).check_room(1, 1, 10)


# ---- what trusted ranks make of it -----------------------------------------------------------------------------------
@pytest.fixture
def own_text(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "reference" / "llama_pretrain"))
    sys.modules.pop("own_text", None)
    yield importlib.import_module("own_text")
    sys.modules.pop("own_text", None)


@pytest.mark.parametrize("apart", [False, True])
def test_no_run_trains_on_what_any_run_is_evaluated_on(
    tmp_path: Path, own_text: ModuleType, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    """Every token says where it stands, so that sequences can be told apart."""
    np.arange(300, dtype="<u2").tofile(tmp_path / "a.bin")
    np.save(tmp_path / ("val.npy" if apart else "b.npy"), np.arange(1000, 1204, dtype="<u4"))
    staged = train_data.staged(read_folder(tmp_path, None))[train_data.STAGED]
    monkeypatch.setattr(own_text, "FILE", tmp_path / "own_text.json")
    own_text.FILE.write_bytes(staged)
    first, other = (own_text.own_text("sha", 10, 6, seed) for seed in (1, 2))
    held = {tuple(row) for row in first.held_out().tolist()}
    assert first is other
    assert len(held) == 6
    assert all(row == tuple(range(row[0], row[0] + 10)) for row in held)
    runs = [first.text(24, seed).tolist() for seed in (1, 2)]
    assert runs[0] != runs[1]
    for rows in runs:
        drawn = {tuple(row) for row in rows}
        assert len(drawn) == 24
        assert not drawn & held
        assert not apart or max(map(max, rows)) < 300
    assert not apart or min(map(min, held)) >= 1000


def test_sizes_are_cut_as_the_rules_say(own_text: ModuleType) -> None:
    from harness.kinds.train import rules as train_rules
    from harness.problems.shape_file import find

    for name in ("model", "corpus", "reference"):
        sys.modules.pop(name, None)
    reference = importlib.import_module("reference")
    text = train_rules.read_rules(find("llama_pretrain", CHECKOUT)).text
    sizes = importlib.import_module("model").SIZES
    assert {name: (one.sequence, one.held_out) for name, one in text.items()} == {
        name: (size.sequence, reference.HELD_OUT[name]) for name, size in sizes.items()
    }
    for name in ("model", "corpus", "reference"):
        sys.modules.pop(name, None)


# ---- evaluations -----------------------------------------------------------------------------------------------------
def asked(folder: Path, **more: Any) -> Asked:
    return Asked(problem=more.pop("problem", "llama_pretrain"), suite="quick", device="cpu", data=folder, **more)


def session_of(folder: Path, **more: Any) -> TrainSession:
    made = setting(asked(folder, **more), CHECKOUT)
    submission = read_submission(made.problem, None, CHECKOUT)
    plan = kind_of(made).plan(Order(setting=made, submission=submission, mode="leaderboard", author="me"))
    assert isinstance(plan, TrainPlan)
    return TrainSession(plan, Progress())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text").mkdir()
    (np.arange(65 * 2400) % 251).astype("<u2").tofile(tmp_path / "text" / "train.bin")
    return tmp_path / "text"


def test_the_text_stands_in_the_cases_and_its_place_is_told_to_trusted_ranks_alone(folder: Path) -> None:
    session = session_of(folder, target=30.0)
    plan = session.plan
    case = plan.phases[1].cases[0]
    assert (case.params["data"], case.params["vocabulary"], case.params["target"]) == (plan.data_sha256[:16], 251, 30.0)
    assert plan.hidden == (folder,)
    assert [note.code for note in plan.notes][-1] == "own_data"
    [file] = json.loads(session.files("trusted")[train_data.STAGED])
    assert file["path"] == str(folder / "train.bin")
    assert not any(str(folder).encode() in data for data in session.files("candidate").values())


def test_a_target_that_is_not_declared_is_what_the_reference_reaches(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(folder)
    session.calls = SimpleNamespace(at=0)  # type: ignore[assignment]
    case = session.plan.phases[1].cases[0]
    assert "target" not in case.params
    monkeypatch.setattr(Runs, "make", lambda self, *seeds: None)
    seen: list[Any] = []
    monkeypatch.setattr(Runs, "quality_after", lambda self, *order: seen.append(order) or 41.5)
    assert [session._aimed(case).params["target"] for _ in range(2)] == [41.5, 41.5]
    assert seen == [("baseline", 2)], "2048 sequences, evaluated every 256: a fourth is the second evaluation"
    assert "the target is 41.5, which the reference reached in 512 sequences" in str(session.notes[-1].values["text"])


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"problem": "llama_lora"}, "llama_lora makes its own data"),
        ({"problem": "a2a"}, "a2a makes its own data"),
        ({"target": -1.0}, "--target -1.0: a number above 0"),
        ({"vocabulary": 0}, "--vocabulary 0: a whole number above 0"),
    ],
)
def test_data_that_a_problem_does_not_take_is_refused(folder: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        setting(asked(folder, **more), CHECKOUT)


def test_a_target_without_data_is_refused() -> None:
    with pytest.raises(UsageError, match="--target: only --data takes it"):
        setting(Asked(problem="llama_pretrain", target=3.0), CHECKOUT)


def test_a_run_on_own_data_is_not_ranked_and_makes_no_bundle() -> None:
    report = run(1)
    assert judgements.judged(report) is not None
    own = dataclasses.replace(report, data="ab" * 32)
    assert judgements.judged(own) is None
    with pytest.raises(UsageError, match="is on data of the user's own"):
        bundle_make.make(own, Board(), {}, CHECKOUT)
