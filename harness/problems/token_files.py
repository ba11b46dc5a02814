"""A user's folder of token files, for problems that train on text: read strictly, described for trusted ranks.

Formats, by ending and header:
  .npy  numpy's, one dimension of uint16 or uint32
  .bin  llm.c's, 256 int32 of header (magic, version, number of tokens) before uint16 or uint32
        (karpathy/llm.c, dev/data/data_common.py), or else nanoGPT's, uint16 and no header (karpathy/nanoGPT, data/)
Other files are passed over. Those whose names say val, valid, validation or test are held out.
"""

import hashlib
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UsageError

LLM_C = {20240520: (1, "<u2"), 20240801: (7, "<u4")}  # by magic: the version, and what tokens are
LLM_C_HEADER = 256 * 4  # bytes
MOST_VOCABULARY = 1 << 20  # of the largest public tokenizers, four times
HELD_OUT = re.compile(r"(?<![a-z])(val|valid|validation|test)(?![a-z])")
CHUNK = 1 << 24  # bytes that are read at a time


@dataclass(frozen=True, kw_only=True)
class TokenFile:
    """Where a file's tokens are: `count` numbers of numpy's `dtype` from byte `offset` on."""

    path: str
    dtype: str
    offset: int
    count: int
    is_held_out: bool


@dataclass(frozen=True, kw_only=True)
class TokenFolder:
    """The files of a folder. `sha256` is of their names and bytes. All tokens are below `vocabulary`."""

    folder: Path
    files: tuple[TokenFile, ...]
    vocabulary: int
    sha256: str

    @property
    def tokens(self) -> int:
        return sum(file.count for file in self.files)

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where the files are, whatever links lead there."""
        return tuple(dict.fromkeys((self.folder, *(Path(file.path).parent for file in self.files))))

    def check_room(self, sequences: int, held_out: int, length: int) -> None:
        """Raises UsageError where that many sequences of so many tokens, and those that are held out, are not there."""
        apart = [file for file in self.files if file.is_held_out]
        text = [file for file in self.files if not file.is_held_out]
        if not text:
            raise _error(self.folder, f"{Path(apart[0].path).name} is held out by its name; add one to train on")
        pairs = [(text, sequences + (0 if apart else held_out), "to train on")]
        if apart:
            pairs.append((apart, held_out, "to hold out"))
        for files, needed, what in pairs:
            found = sum(file.count // length for file in files)
            if found < needed:
                raise _error(
                    self.folder,
                    f"{sum(file.count for file in files):,} tokens {what} are {found:,} sequences of {length}; the "
                    f"suite needs {needed:,}, which are {needed * length:,} tokens; add text or choose another suite",
                )


def read_folder(folder: Path, vocabulary: int | None) -> TokenFolder:
    """The token files of a folder, all read once. `vocabulary` is declared; None: what the largest token needs. Raises
    UsageError, with the file, for what cannot be read."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in READERS and path.is_file())
        others = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise _error(folder, f"cannot be read: {error.strerror}; name a folder of token files") from None
    if not paths:
        has = f"has {', '.join(others[:3])}{' and more' if len(others) > 3 else ''}" if others else "is empty"
        raise _error(folder, f"it {has}; token files end in .npy or .bin (docs/training.md)")
    digest, files, most = hashlib.sha256(), [], -1
    for path in paths:
        try:
            file = READERS[path.suffix](path)
            largest, content = _scanned(file)
        except OSError as error:
            raise _error(path, f"cannot be read: {error.strerror}") from None
        if vocabulary is not None and largest >= vocabulary:
            raise _error(path, f"has token {largest}, and --vocabulary is {vocabulary}; declare {largest + 1} or more")
        if largest >= MOST_VOCABULARY:
            raise _error(path, f"has token {largest}; a vocabulary of {MOST_VOCABULARY} is the most: is it text?")
        digest.update(f"{path.name}\0{content}\0".encode())
        files.append(file)
        most = max(most, largest)
    return TokenFolder(
        folder=folder.resolve(), files=tuple(files), vocabulary=vocabulary or most + 1, sha256=digest.hexdigest()
    )


def _numpy_file(path: Path) -> TokenFile:
    import numpy as np  # here, since few commands need it

    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise _error(path, f"is no .npy file: {error}") from None
    if found.ndim != 1 or found.dtype.str not in ("<u2", "<u4"):
        raise _error(path, f"has {found.dtype} {list(found.shape)}; expected one dimension of uint16 or uint32")
    return _file(path, found.dtype.str, found.offset, len(found))


def _bin_file(path: Path) -> TokenFile:
    """llm.c's where it begins with its magic, which as nanoGPT's tokens would be 55432 or 55713, beyond GPT-2's."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(LLM_C_HEADER)
    magic, version, count = struct.unpack("<3i", header[:12].ljust(12, b"\0"))
    if magic not in LLM_C:
        if size % 2:
            raise _error(path, f"has {size} bytes: an odd number, so not uint16 tokens (nanoGPT), and no llm.c header")
        return _file(path, "<u2", 0, size // 2)
    known, dtype = LLM_C[magic]
    if version != known:
        raise _error(path, f"is llm.c's, of version {version}; version {known} can be read")
    if size != LLM_C_HEADER + count * int(dtype[2]):
        raise _error(path, f"its header says {count} tokens, which are not the {size - LLM_C_HEADER} bytes behind it")
    return _file(path, dtype, LLM_C_HEADER, count)


READERS: dict[str, Callable[[Path], TokenFile]] = {".npy": _numpy_file, ".bin": _bin_file}


def _file(path: Path, dtype: str, offset: int, count: int) -> TokenFile:
    if not count:
        raise _error(path, "has no tokens")
    is_held_out = HELD_OUT.search(path.stem.lower()) is not None
    return TokenFile(path=str(path.resolve()), dtype=dtype, offset=offset, count=count, is_held_out=is_held_out)


def _scanned(file: TokenFile) -> tuple[int, str]:
    import numpy as np

    digest, largest = hashlib.sha256(), 0
    with open(file.path, "rb") as opened:
        digest.update(opened.read(file.offset))
        while chunk := opened.read(CHUNK):
            digest.update(chunk)
            largest = max(largest, int(np.frombuffer(chunk, file.dtype).max()))
    return largest, digest.hexdigest()


def _error(path: Path, text: str) -> UsageError:
    return UsageError(f"--data {path}: {text}")
