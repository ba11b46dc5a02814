"""How long compile caches are kept, and how much room they get, whatever a submission does to its own."""

import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.process import compile_cache

FUTURE_S = 1e9


def use(root: Path, name: str, nbytes: int) -> Path:
    """An evaluation that leaves a file of that size in its cache, dated in the future."""
    cache = compile_cache.folder(root, name)
    assert cache is not None
    with compile_cache.held(cache):
        (cache / "kernel").write_bytes(bytes(nbytes))
        for path in (cache / "kernel", cache):
            os.utime(path, (time.time() + FUTURE_S,) * 2)
    return cache


def last_used(cache: Path, ago_s: float) -> None:
    os.utime(cache.with_name(f"{cache.name}.lock"), (time.time() - ago_s,) * 2)


def test_a_date_in_the_future_keeps_no_cache(tmp_path: Path) -> None:
    old, new = use(tmp_path, "old", 1), use(tmp_path, "new", 1)
    last_used(old, compile_cache.KEPT_S + 60)
    compile_cache.folder(tmp_path, "mine")
    assert not old.exists()
    assert not old.with_name("old.lock").exists()
    assert new.exists()


def test_a_cache_from_before_there_were_locks_goes_by_its_folders_date(tmp_path: Path) -> None:
    old = compile_cache.folder(tmp_path, "old")
    assert old is not None
    os.utime(old, (1.0, 1.0))
    compile_cache.folder(tmp_path, "mine")
    assert not old.exists()


def test_the_caches_used_longest_ago_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache, "ALL_BYTES", 5 << 20)
    caches = [use(tmp_path, name, 2 << 20) for name in ("first", "second", "third")]
    for age_s, cache in zip((30, 20, 10), caches, strict=True):
        last_used(cache, age_s)
    compile_cache.folder(tmp_path, "mine")
    assert [cache.exists() for cache in caches] == [False, True, True]


def test_a_cache_that_is_too_large_is_gone_after_its_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_cache, "ONE_BYTES", 1 << 20)
    assert use(tmp_path, "small", 1 << 19).exists()
    assert not use(tmp_path, "large", 2 << 20).exists()


def test_a_cache_that_has_filled_the_disk_is_gone_after_its_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    assert use(tmp_path, "small", 1 << 19).exists()
    assert not use(tmp_path, "large", 2 << 20).exists()


def test_a_cache_in_use_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache, "ALL_BYTES", 0)
    cache = compile_cache.folder(tmp_path, "used")
    assert cache is not None
    with compile_cache.held(cache):
        (cache / "kernel").touch()
        last_used(cache, compile_cache.KEPT_S + 60)
        compile_cache.folder(tmp_path, "mine")
        assert cache.exists()
    compile_cache.folder(tmp_path, "mine")
    assert not cache.exists()


def test_its_own_cache_is_never_what_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cache, "ALL_BYTES", 0)
    mine = use(tmp_path, "mine", 1 << 20)
    assert compile_cache.folder(tmp_path, "mine") == mine
    assert (mine / "kernel").exists()


def test_links_in_a_cache_lead_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its size nor its end is that of what it points to."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "large").write_bytes(bytes(1 << 20))
    monkeypatch.setattr(compile_cache, "ALL_BYTES", 0)
    cache = compile_cache.folder(tmp_path, "links")
    assert cache is not None
    with compile_cache.held(cache):
        (cache / "out").symlink_to(tmp_path / "elsewhere")
    assert int(cache.with_name("links.lock").read_text()) < 1 << 20
    compile_cache.folder(tmp_path, "mine")
    assert not cache.exists()
    assert (tmp_path / "elsewhere" / "large").exists()


def test_the_size_of_a_cache_counts_anew_where_its_last_evaluation_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was noted after an earlier one says nothing of what the killed one left."""
    monkeypatch.setattr(compile_cache, "ALL_BYTES", 1 << 20)
    large = use(tmp_path, "large", 1)
    if (child := os.fork()) == 0:
        with compile_cache.held(large):
            (large / "kernel").write_bytes(bytes(2 << 20))
            os._exit(0)
    os.waitpid(child, 0)
    last_used(large, 60)
    compile_cache.folder(tmp_path, "mine")
    assert not large.exists()


def test_whoever_uses_a_cache_last_notes_its_size(tmp_path: Path) -> None:
    cache = compile_cache.folder(tmp_path, "shared")
    assert cache is not None
    lock = cache.with_name("shared.lock")
    with compile_cache.held(cache):
        with compile_cache.held(cache):
            pass
        assert lock.read_bytes() == b""
        (cache / "kernel").write_bytes(bytes(1 << 20))
    assert int(lock.read_bytes()) >= 1 << 20


def test_a_cache_that_can_be_read_only_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a checkout on a file system that has become read-only."""
    assert compile_cache.folder(tmp_path, "a") is not None
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert compile_cache.folder(tmp_path, "a") is None
