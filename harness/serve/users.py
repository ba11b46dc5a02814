"""The users of the queue: popcorn-cli's ids, by their hashes, and the names that results are recorded under."""

import sqlite3
from dataclasses import dataclass
from typing import cast

from harness.contest.acts import id_hash
from harness.contest.admission import NAME
from harness.core.errors import HarnessError
from harness.serve.queue_file import QueueFile, now

ID_CHARS = 200  # of an X-Popcorn-Cli-Id
MAX_USERS = 10_000


class UnknownUserError(HarnessError):
    """The id cannot be registered."""


class BannedError(HarnessError):
    """An organiser has banned the user."""


@dataclass(frozen=True, kw_only=True)
class User:
    """A user who submits. Only a hash of the secret is stored."""

    id: int
    name: str
    is_banned: bool = False


class Users:
    def __init__(self, file: QueueFile) -> None:
        self._file, self._db = file, file.db

    def known(self, secret: str) -> User | None:
        """The user with that id; None for an id that has not submitted anything yet."""
        return self._one("secret_sha256 = ?", id_hash(secret))

    def register(self, secret: str, login: str) -> User:
        """The user with that id, registered if it is new. `alice:...` is registered as alice; an id without a name gets
        `login`, or `login-2` and so on. Raises UnknownUserError where it cannot be registered, or BannedError."""
        name, colon, rest = secret.partition(":")
        named = bool(colon and rest and NAME.fullmatch(name))
        if not 1 <= len(secret) <= ID_CHARS or not secret.isprintable():
            raise UnknownUserError(f"expected an id of 1 to {ID_CHARS} printable characters")
        with self._file.transaction():
            if known := self.known(secret):
                if known.is_banned:
                    raise BannedError(f"{known.name} is banned from this server; ask its organisers")
                return known
            count = int(self._db.execute("SELECT count(*) FROM users").fetchone()[0])
            if count >= MAX_USERS:
                raise UnknownUserError(f"{MAX_USERS} users are registered already, which is the most; use a known id")
            chosen = name if named else self._free(login if NAME.fullmatch(login) else "anonymous")
            try:
                made = self._db.execute(
                    "INSERT INTO users (secret_sha256, name, created_at) VALUES (?, ?, ?)",
                    (id_hash(secret), chosen, now()),
                )
            except sqlite3.IntegrityError:
                raise UnknownUserError(f"the name '{name}' is taken by another id; choose another name") from None
            return User(id=cast(int, made.lastrowid), name=chosen)

    def named(self, name: str) -> User | None:
        """The user of that name, in any case."""
        return self._one("name = ?", name)

    def ban(self, name: str, is_banned: bool) -> User | None:
        """Bans the user of that name, or ends the ban. None if there is no such user."""
        with self._file.transaction():
            changed = "UPDATE users SET banned_at = ? WHERE name = ?"
            self._db.execute(changed, (now() if is_banned else None, name))
            return self._one("name = ?", name)

    def _one(self, where: str, value: str) -> User | None:
        with self._file.lock:
            row = self._db.execute(f"SELECT id, name, banned_at FROM users WHERE {where}", (value,)).fetchone()
        return User(id=row["id"], name=row["name"], is_banned=row["banned_at"] is not None) if row else None

    def _free(self, login: str) -> str:
        taken = {row["name"].lower() for row in self._db.execute("SELECT name FROM users")}
        names = (login if number == 1 else f"{login[:26]}-{number}" for number in range(1, MAX_USERS + 2))
        return next(name for name in names if name.lower() not in taken)
