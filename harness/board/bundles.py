"""Bundles: a result that somebody else can audit and run again, as one folder or one archive (.tar.gz).

    bundle.json     what was claimed, of which source and problem version, with which seeds and command; and the sha256
                    of every other file
    report.json     the whole report, with every sample
    source/         the submission and its local modules, as runs/sources/ has them
    logs/           what the ranks printed
    system.json     MLPerf's system description: 33 fields, those that are not known empty
    stack.json      versions of the software that ran
    README.md       how to check it and run it again

A bundle is read into memory and never unpacked, so no archive can write anywhere. Hashes find what was damaged or
changed by mistake; who rewrites all of them makes another bundle, whose own sha256 differs from the one published.
"""

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from harness.core.checkout import shown
from harness.core.decode import DecodeError, as_bad_file, decode, encode
from harness.core.errors import BadFileError, UsageError, os_error_as
from harness.core.files import archived, open_ordinary, replace_file, write_files
from harness.core.records import Score

T = TypeVar("T")
SCHEMA = 1
MANIFEST, REPORT, SYSTEM, STACK, README = "bundle.json", "report.json", "system.json", "stack.json", "README.md"
SOURCE, LOGS = "source", "logs"
ARCHIVES = (".tar.gz", ".tgz")
MOST_BYTES = 1 << 28  # of all files together, unpacked: what a report with logs is far below
MOST_FILES = 10_000


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The result's claim: the verdict's word, and the figures of one that passed."""

    status: str
    score: Score | None
    ratio: float | None
    ratio_ci: tuple[float, float] | None


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """bundle.json. `problem_version` is null where the board does not have the run, so that it was not recorded.
    `seeds` are the cases' own, in the report's order. `files` has the sha256 of every other file by its path."""

    schema: int
    run_id: str
    problem: str
    problem_version: str | None
    suite: str
    device: str
    world_size: int
    author: str
    file: str
    sha256: str
    started_at: str
    made_at: str
    harness: str
    command: str
    secret_seed: int
    seeds: tuple[int, ...]
    claim: Claim
    files: dict[str, str]

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise DecodeError(".schema", f"expected {SCHEMA}, found {self.schema}: another harness wrote it")


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def json_bytes(value: object) -> bytes:
    return (json.dumps(encode(value), indent=2) + "\n").encode()


# ---- written ---------------------------------------------------------------------------------------------------------
def write(files: Mapping[str, bytes], name: str, out: Path) -> None:
    """Writes the files as an archive where `out` ends in .tar.gz or .tgz, below a folder `name`, or else as the folder
    `out`. There is a whole bundle afterwards, or none. Raises UsageError where it cannot be written or is there."""
    with os_error_as(UsageError, f"--out {out}: cannot be written", "name another"):
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.name.endswith(ARCHIVES):
            replace_file(out, archived({f"{name}/{path}": data for path, data in files.items()}))
        else:
            _write_folder(files, out)


def _write_folder(files: Mapping[str, bytes], out: Path) -> None:
    if out.exists():
        raise UsageError(f"--out {out}: it exists already; name a new folder, or remove it")
    scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        scratch.chmod(0o755)
        write_files(scratch, files)
        os.rename(scratch, out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


# ---- read ------------------------------------------------------------------------------------------------------------
def read(path: Path) -> dict[str, bytes]:
    """All files of a bundle by their path in it. Raises UsageError where there is none, BadFileError for an archive
    that is damaged, and for what no bundle has: links, devices, paths that lead out of it, more than MOST_BYTES."""
    if not path.exists():
        raise UsageError(f"no bundle {path}; `python -m harness bundle make` writes one")
    try:
        files = _read_folder(path) if path.is_dir() else _read_archive(path)
    except OSError as error:
        raise BadFileError(f"{shown(path)}: cannot be read: {error.strerror or error}") from None
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BadFileError(f"{shown(path)}: not a readable archive: {error}; download it again") from None
    if MANIFEST not in files:
        raise BadFileError(f"{shown(path)}: {MANIFEST} is missing, so this is no bundle")
    return files


def _read_folder(path: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    total = 0
    for file in sorted(path.rglob("*")):
        if file.is_dir() and not file.is_symlink():
            continue
        if file.is_symlink():
            raise BadFileError(f"{shown(file)}: is a link; a bundle may contain only plain files")
        with open_ordinary(file) as opened:
            data = opened.read(MOST_BYTES - total + 1)
        total += len(data)
        files[file.relative_to(path).as_posix()] = data
        _check_size(path, total, len(files))
    return files


def _read_archive(path: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    total = 0
    with open_ordinary(path) as opened, tarfile.open(fileobj=opened, mode="r:gz") as archive:
        for member in archive:
            parts = PurePosixPath(member.name).parts
            if member.isdir():
                continue
            if not member.isfile() or len(parts) < 2 or ".." in parts or parts[0] == "/":
                raise BadFileError(
                    f"{shown(path)}: {member.name!r} is no plain file in one folder, so this is no bundle"
                )
            total += member.size
            _check_size(path, total, len(files) + 1)
            content = archive.extractfile(member)
            assert content is not None, "a plain file has content"
            files["/".join(parts[1:])] = content.read()
    return files


def _check_size(path: Path, nbytes: int, count: int) -> None:
    if nbytes > MOST_BYTES or count > MOST_FILES:
        raise BadFileError(f"{shown(path)}: larger than a bundle may be ({MOST_BYTES >> 20} MiB, {MOST_FILES} files)")


def decoded(kind: type[T], files: Mapping[str, bytes], name: str) -> T:
    """A JSON file of the bundle as a `kind`. Raises BadFileError."""
    with as_bad_file(name):
        return decode(kind, loaded(files, name))


def loaded(files: Mapping[str, bytes], name: str) -> object:
    """A JSON file of the bundle. Raises BadFileError."""
    try:
        value: object = json.loads(files[name])
    except KeyError:
        raise BadFileError(f"{name} is missing") from None
    except (ValueError, RecursionError) as error:
        raise BadFileError(f"{name}: not JSON: {error}") from None
    return value
