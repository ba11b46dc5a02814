"""Files outside a checkout that no submission may see, such as the audit logs of contests: a list in the checkout's
cache, which every evaluation of the checkout reads. What lies inside the checkout is hidden without it."""

from pathlib import Path

from harness.core.checkout import Checkout
from harness.core.errors import HarnessError
from harness.core.files import replace_file
from harness.core.json_file import file_if_any, line_of

FILE = "unseen.json"


def unseen(checkout: Checkout) -> tuple[Path, ...]:
    """The files. None where the list is missing or damaged: the next command that runs a contest writes it again."""
    return tuple(map(Path, file_if_any(tuple[str, ...], checkout.cache / FILE) or ()))


def keep_unseen(file: Path, checkout: Checkout) -> None:
    """Adds the file to the list, and drops files that are gone. HarnessError if it cannot be written."""
    file, known = file.resolve(), unseen(checkout)
    if file in known or file.is_relative_to(checkout.root.resolve()):
        return
    texts = [str(one) for one in (*known, file) if one.exists() or one == file]
    try:
        checkout.cache.mkdir(parents=True, exist_ok=True)
        replace_file(checkout.cache / FILE, line_of(texts).encode(), mode=0o600)
    except OSError as error:
        where = checkout.cache / FILE
        raise HarnessError(f"{where}: cannot be written: {error.strerror}; submissions could read {file}") from None
