"""Accounts of the operating system, by their numbers: a variable of the environment is no proof of who somebody is."""

import getpass
import os
import pwd
from pathlib import Path


def account(uid: int | None = None) -> str:
    """The name of the account of that number, or of this process; the number where it has no name."""
    number = os.getuid() if uid is None else uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def owner(file: Path) -> str:
    return account(file.stat().st_uid)


def login() -> str:
    """The name entries are recorded under when nobody says another."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return "anonymous"
