"""The file of a durable task store: one SQLite database, its shape, and what is refused of it.

Plain and blocking, and one thread's. Whoever has it open has it alone, for as long as the program lives and no longer: the lock is
the system's, and goes with a program that is killed. Session ids are tickets, so only their hashes are written.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .task_record import TaskRecord, belongs_to_session
from .task_store import TaskStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MARK: Final = 0x67726E72
"""What the header of each such file says that it is: "grnr"."""
VERSION: Final = 1
"""Of the table. A file that is older is brought to it, one that is newer is refused."""
COLUMNS: Final = TaskRecord.__struct_fields__
_MODE: Final = 0o600
_HASHED: Final = "sha256:"
_SHORTEST: Final = 512
_FOREIGN: Final = "is no file of tasks: name another one, which is made if it is not there"

_TABLE: Final = """
CREATE TABLE tasks (
    id TEXT PRIMARY KEY NOT NULL, owner TEXT NOT NULL, session_id TEXT NOT NULL, method TEXT NOT NULL, name TEXT NOT NULL,
    status TEXT NOT NULL, message TEXT, created REAL NOT NULL, updated REAL NOT NULL, ended REAL, ttl REAL NOT NULL, poll REAL,
    result BLOB, error BLOB
)
"""
_PUT: Final = f"INSERT OR REPLACE INTO tasks ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 - the names of the fields
_ALL: Final = f"SELECT {', '.join(COLUMNS)} FROM tasks ORDER BY created, rowid"  # noqa: S608 - same


class TaskFile:
    """One of them."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sync: bool = True,
        patience: float = 5.0,
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect,
    ) -> None:
        """`patience` is for how many seconds another program may have it before that is an error."""
        self.path = Path(path)
        self._sync = sync
        self._patience = patience
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None

    # --- opening

    def open(self, now: float) -> list[TaskRecord]:
        """What it has, the oldest task first, without what has expired by `now`. Raises `TaskStoreError`."""
        self._make()
        try:
            connection = self._connection = self._connect(self.path, timeout=self._patience, isolation_level=None)
            self._prepare(connection)
            connection.execute("DELETE FROM tasks WHERE ended + ttl <= ?", (now,))
            connection.execute("PRAGMA incremental_vacuum").fetchall()
            records = [_record(row) for row in connection.execute(_ALL)]
        except (sqlite3.Error, msgspec.ValidationError) as error:
            self.close()
            raise TaskStoreError(self.path, _why_not(error)) from error
        except BaseException:
            self.close()
            raise
        self._inode = self._identity()
        return records

    def _make(self) -> None:
        """See that it is there. What is too short for a database would be taken for a new one, and overwritten."""
        try:
            # Never opened when it is there: closing it again would end the locks that this program has on it.
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _MODE))
            size = self.path.stat().st_size
        except FileNotFoundError as error:
            why = f"cannot be made: there is no folder {self.path.parent}. Make it, or name another file"
            raise TaskStoreError(self.path, why) from error
        except OSError as error:
            why = f"cannot be made: {error.strerror}. Name a file that the server's user may write"
            raise TaskStoreError(self.path, why) from error
        if not self.path.is_file():
            raise TaskStoreError(self.path, "is no file: name one")
        if 0 < size < _SHORTEST:
            raise TaskStoreError(self.path, _FOREIGN)

    def _keep_to_ourselves(self) -> None:
        """What stands in it is for the server's user only; the files that SQLite puts beside it take after it."""
        if os.name != "posix" or not self.path.stat().st_mode & 0o077:
            return
        try:
            self.path.chmod(_MODE)
        except OSError as error:
            raise TaskStoreError(
                self.path, f"can be read by others, and that cannot be changed: {error.strerror}"
            ) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        mark, version, tables = (
            int(connection.execute(asked).fetchone()[0])
            for asked in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        connection.execute("COMMIT")
        new = not (mark or version or tables)
        if not new:
            self._check(connection, mark, version)
        else:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL").fetchall()
        self._keep_to_ourselves()
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._sync else 'NORMAL'}").fetchall()
        connection.execute("PRAGMA journal_size_limit = 4194304").fetchall()
        if new:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id = {MARK}").fetchall()
            connection.execute(f"PRAGMA user_version = {VERSION}").fetchall()
            connection.execute("COMMIT")

    def _check(self, connection: sqlite3.Connection, mark: int, version: int) -> None:
        if mark != MARK:
            raise TaskStoreError(self.path, "is the database of another program: name another file for the tasks")
        if version != VERSION:
            why = f"was written by a newer greenroom (format {version}, not {VERSION}): use that one, or name another file"
            raise TaskStoreError(self.path, why)
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise TaskStoreError(self.path, _damaged(found))

    # --- writing

    def write(self, batch: Mapping[str, TaskRecord | None]) -> None:
        """Put all of these, None for what is to be forgotten: all or nothing, and safe on return. Raises `TaskStoreError`."""
        connection = self._connection
        if connection is None:
            raise TaskStoreError(self.path, "is not open")
        if self._inode is None or self._identity() != self._inode:
            why = "was moved or removed while the server has it: nothing is written. Put it back, or restart the server"
            raise TaskStoreError(self.path, why)
        gone = [(id,) for id, record in batch.items() if record is None]
        kept = [row(record) for record in batch.values() if record is not None]
        try:
            if connection.in_transaction:  # not even that could be taken back
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("DELETE FROM tasks WHERE id = ?", gone)
            connection.executemany(_PUT, kept)
            connection.execute("COMMIT")
        except BaseException as error:
            with contextlib.suppress(sqlite3.Error):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise TaskStoreError(self.path, f"cannot be written: {error}") from error
            raise

    def close(self) -> None:
        """Somebody else may have it now."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


def row(record: TaskRecord) -> tuple[Any, ...]:
    """A record as it is written: its session by a hash."""
    owner = record.owner
    if belongs_to_session(owner):
        kind, _, id = owner.partition(" ")
        owner = f"{kind} {_hashed(id)}"
    written = msgspec.structs.replace(record, owner=owner, session_id=_hashed(record.session_id))
    return tuple(_plain(value) for value in msgspec.structs.astuple(written))


def _record(row: Sequence[Any]) -> TaskRecord:
    return msgspec.convert(dict(zip(COLUMNS, row, strict=True)), TaskRecord)


def _hashed(id: str) -> str:
    return id if not id or id.startswith(_HASHED) else _HASHED + sha256(id.encode(errors="surrogatepass")).hexdigest()


def _plain(value: Any) -> Any:
    """Half a character, which a principal may have, cannot be written."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _damaged(how: str) -> str:
    return (
        f"is damaged ({' '.join(how.split())}). Move it away together with the files beside it that begin with its name: a new one is made, "
        "and the tasks in it are lost"
    )


def _why_not(error: Exception) -> str:
    name: str = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "is another server's: each needs a file of its own. If that one is just stopping, wait until it has"
    if name.startswith("SQLITE_NOTADB"):
        return _FOREIGN
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return f"cannot be opened for writing, or the folder that it is in cannot: {error}"
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM")):
        return f"cannot be read or written: {error}"
    return _damaged(str(error))
