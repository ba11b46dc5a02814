"""A submission as the parent sees it: text. It is never imported here; that is for candidate ranks alone."""

import ast
import hashlib
from pathlib import Path

from harness.records import BadSubmissionError, Submission, UsageError

MAX_BYTES = 1_000_000  # GPU MODE's service takes no larger file


def read_submission(path: Path, root: Path) -> Submission:
    """The file at `path`. UsageError where there is none; BadSubmissionError where it is no Python."""
    shown = shown_path(path, root)
    if not path.exists():
        raise UsageError(f"no submission file {shown}; write one, or name another (SUBMISSION=path, or the argument)")
    if not path.is_file():
        raise UsageError(f"{shown} is not a file; a submission is one Python file with custom_kernel(data)")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise BadSubmissionError(f"{shown}: {len(data)} bytes; a submission has at most {MAX_BYTES}")
    try:
        source = data.decode()
        ast.parse(source)
    except SyntaxError as error:
        line = (error.text or "").rstrip()
        raise BadSubmissionError(f"{shown}:{error.lineno}: {error.msg}\n    {line.strip()}") from None
    except UnicodeDecodeError as error:
        raise BadSubmissionError(f"{shown}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise BadSubmissionError(f"{shown}: Python cannot read it: {error}") from None
    return Submission(path=str(path), name=shown, source=source, sha256=hashlib.sha256(data).hexdigest())


def shown_path(path: Path, root: Path) -> str:
    """The path from the checkout on where it lies inside, else whole."""
    full = path.resolve()
    return str(full.relative_to(root)) if full.is_relative_to(root) else str(full)
