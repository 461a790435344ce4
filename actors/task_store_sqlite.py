"""The task store whose tasks survive a restart: records in memory, and a thread that writes them to an SQLite file.

    server = Server("press", task_store=SqliteTasks("tasks.db"))

The loop never waits for the disk. Records wait in a table with one slot for each task, where the newest replaces the one before; the thread takes all of them
and writes them as one transaction. So nothing grows when the disk is slow, and a flood becomes few writes.

No peer gets an outcome that a restart would take back: readers see an end once it is on disk, and a task's id is sent
once its record is. When the disk fails, a new task is refused; the end of one is shown all the same, kept in memory,
and written as soon as writing works. If the server dies before that, the task will have failed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import sqlite3
import threading
import time
from concurrent.futures import Future as Promise
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from greenroom.errors import ConfigError

from .task_record import TaskRecord, belongs_to_session
from .task_store import DEFAULT_MAX_BYTES, DEFAULT_MAX_RECORDS, MemoryTaskStore, TaskStoreError

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

if TYPE_CHECKING:
    Taken: TypeAlias = "list[tuple[TaskRecord, Future[None]]]"

_log = logging.getLogger("greenroom.tasks")

_RETRY: Final = 1.0
"""After how many seconds a failed write is retried, if no record is stored before."""
_MIB: Final = 1024 * 1024
_MAX_BYTES_LIMIT: Final = 512 * _MIB
"""SQLite's default limit for one blob is above this."""


class SqliteTasks:
    """Tasks in an SQLite file, for one server at a time."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_records: int = DEFAULT_MAX_RECORDS,
        max_bytes: int = DEFAULT_MAX_BYTES,
        sync: bool = True,
        patience: float = 5.0,
    ) -> None:
        """The folder has to be there, the file need not.

        Of the tasks that have ended, the oldest go when there are more than `max_records` or their results have more than `max_bytes`; both
        are in memory as well. Without `sync`, what is safe is safe from the end of the program but not from that of the machine.
        `patience` is for how many seconds another server may still have the file when this one starts.
        """
        if max_records < 1 or not 1 <= max_bytes <= _MAX_BYTES_LIMIT:
            raise ConfigError(f"max_records must be 1 or more, and max_bytes 1 to {_MAX_BYTES_LIMIT}")
        self.max_records = max_records
        self.max_bytes = max_bytes
        self._sync = sync
        self._patience = patience
        self._file = TaskFile(path, sync=sync, patience=patience)
        self._writer: _Writer | None = None
        self._visible = MemoryTaskStore()
        self._unsafe_ends: dict[str, tuple[TaskRecord, Future[None]]] = {}
        """Ends that are not safe yet."""
        self._ended: dict[str, int] = {}
        """The size of each ended task, the first to end first."""
        self._bytes = 0
        self._company: object = None

    def of_place(self, place: int) -> SqliteTasks:
        """The store of one of several processes that serve: each has a file of its own, and the first has this one."""
        if place == 0:
            return self
        path = self._file.path
        return SqliteTasks(
            path.with_name(f"{path.stem}.{place}{path.suffix}"),
            max_records=self.max_records,
            max_bytes=self.max_bytes,
            sync=self._sync,
            patience=self._patience,
        )

    @property
    def durable(self) -> bool:
        """True: records outlive the program."""
        return True

    def __repr__(self) -> str:
        return f"<SqliteTasks {self._file.path}>"

    async def open(self, company: object) -> None:
        """Read the file, or go on with it if it is open. Raises `TaskStoreError`, which says what is wrong and what to do."""
        writer = self._writer
        taken = writer is not None and (company != self._company or not writer.serves_this_loop())
        if writer is not None and not writer.closing and taken:
            raise TaskStoreError(self._file.path, "is another server's in this program: each needs a file of its own")
        self._company = company
        if writer is not None and writer.closing:
            with contextlib.suppress(TaskStoreError):  # the caller of `close` got this error
                await asyncio.wrap_future(writer.closed)
            writer = None
        if writer is None:
            writer = self._writer = _Writer(self, self._file)
            writer.start()
        try:
            records = await asyncio.wrap_future(writer.opened)
        except asyncio.CancelledError:
            raise
        except BaseException:
            if self._writer is writer:
                self._writer = None
            raise
        if not writer.read:
            writer.read = True
            self._load(records)
        writer.loop = asyncio.get_running_loop()

    def _load(self, records: Sequence[TaskRecord]) -> None:
        self._visible, self._ended, self._bytes = MemoryTaskStore(), {}, 0
        self._unsafe_ends.clear()
        for record in records:
            self._visible.put(record)
        for record in sorted((each for each in records if each.terminal), key=lambda each: each.ended or 0.0):
            self._count(record)
        self._make_room()

    async def close(self) -> None:
        """Write what is left. Raises `TaskStoreError` when that fails."""
        writer = self._writer
        if writer is None:
            return
        writer.close()
        try:
            await asyncio.wrap_future(writer.closed)
        finally:
            if self._writer is writer and writer.closed.done():
                self._writer = None
                writer.join()  # the thread ends right after `closed` is set

    # --- called by the company

    def put(self, record: TaskRecord, *, at_once: bool = False) -> Future[None]:
        """Have the record written. A task's first end is final: later records are ignored."""
        writer = self._writer
        held = self._unsafe_ends.get(record.id)
        if held is not None:
            return held[1]
        known = self._visible.get(record.id)
        if known is not None and known.terminal:
            return _done_future(None)
        if writer is None or not writer.read or writer.closing:
            self._publish(record)
            return _done_future(TaskStoreError(self._file.path, "is not open"))
        if (unfit := self._refusal_of(record)) is not None:
            self._visible.put(record)  # kept in memory only, and not counted
            if record.terminal:
                self._ended[record.id] = 0
            return _done_future(TaskStoreError(self._file.path, unfit))
        if known is None and not self._make_room(1):
            return _done_future(
                TaskStoreError(self._file.path, f"is full of tasks that run: max_records is {self.max_records}")
            )
        safe = writer.put(record)
        if record.terminal and not at_once:
            self._unsafe_ends[record.id] = (record, safe)
        else:
            self._publish(record)
        return safe

    def get(self, id: str) -> TaskRecord | None:
        """The newest visible record of that task."""
        return self._visible.get(id)

    def list(self, owner: str | None = None) -> Sequence[TaskRecord]:
        """The newest visible record of each task of that owner, or of all owners, the oldest task first."""
        return self._visible.list(owner)

    def remove(self, id: str) -> None:
        """Remove a task."""
        held = self._unsafe_ends.pop(id, None)
        if held is None and self._visible.get(id) is None:
            return
        self._visible.remove(id)
        self._bytes -= self._ended.pop(id, 0)
        if self._writer is not None:
            self._writer.forget(id)

    # --- in the loop, called after the thread

    def on_written(self, taken: Taken, error: TaskStoreError | None) -> None:
        """The thread has written these records, or failed to."""
        for record, safe in taken:
            held = self._unsafe_ends.get(record.id)
            if held is not None and held[0] is record:
                del self._unsafe_ends[record.id]
                self._publish(record)
            if safe.done():
                continue
            if error is None:
                safe.set_result(None)
            else:
                safe.set_exception(error)
                # Reading the exception marks it as retrieved: asyncio would otherwise log each future that no task awaits.
                # `_Writer._report` logs the failure once.
                safe.exception()

    def _refusal_of(self, record: TaskRecord) -> str | None:
        """Why this record could not be written, or not be read again. It must not keep the others from being written."""
        if record.size > self.max_bytes:
            return f"takes no result of {record.size} bytes: max_bytes is {self.max_bytes}"
        try:
            msgspec.convert(msgspec.structs.asdict(record), TaskRecord)
        except msgspec.ValidationError as error:
            return f"takes no such record: {error}"
        moments = (record.created, record.updated, record.ended or 0.0, record.ttl, record.poll or 0.0)
        return None if all(map(math.isfinite, moments)) else "takes no record with a time that is not finite"

    def _publish(self, record: TaskRecord) -> None:
        self._visible.put(record)
        if record.terminal and record.id not in self._ended:
            self._count(record)
            self._make_room()

    def _count(self, record: TaskRecord) -> None:
        self._ended[record.id] = record.size
        self._bytes += record.size

    def _make_room(self, more: int = 0) -> bool:
        """Remove the oldest ended tasks until there is room for so many more. Whether there is."""
        while len(self._visible) + more > self.max_records or self._bytes > self.max_bytes:
            oldest = next(iter(self._ended), None)
            if oldest is None:
                return False
            self.remove(oldest)
        return True


class _Writer(threading.Thread):
    """The thread that has the file open, from its opening to its closing."""

    def __init__(self, store: SqliteTasks, file: TaskFile) -> None:
        super().__init__(name="greenroom-tasks", daemon=True)
        self.opened: Promise[list[TaskRecord]] = Promise()
        self.closed: Promise[None] = Promise()
        for promise in (self.opened, self.closed):
            # A running future cannot be cancelled: `wrap_future` passes a waiter's cancellation on, and the thread would
            # then fail to set the result that other waiters need.
            promise.set_running_or_notify_cancel()
        self.closing = False
        self.read = False
        """Whether the store has taken the file's records."""
        self.loop = asyncio.get_running_loop()
        self._store = store
        self._file = file
        self._changed = threading.Condition()
        self._waiting: dict[str, TaskRecord | None] = {}
        self._futures: dict[str, tuple[TaskRecord, Future[None]]] = {}
        self._on_file: set[str] = set()
        """The ids that are or may be in the file: others need not be deleted from it."""
        self._error: TaskStoreError | None = None

    # --- in the loop

    def serves_this_loop(self) -> bool:
        """Whether it works for this loop, or for one that is closed."""
        return self.loop is asyncio.get_running_loop() or self.loop.is_closed()

    def put(self, record: TaskRecord) -> Future[None]:
        """Have the record written next."""
        with self._changed:
            promised = self._futures.get(record.id)
            safe = self.loop.create_future() if promised is None or promised[1].done() else promised[1]
            self._futures[record.id] = (record, safe)
            self._waiting[record.id] = record
            self._changed.notify()
        return safe

    def forget(self, id: str) -> None:
        """Have the task deleted next, unless it was never written."""
        with self._changed:
            promised = self._futures.pop(id, None)
            if id in self._on_file:
                self._waiting[id] = None
                self._changed.notify()
            else:
                self._waiting.pop(id, None)
        if promised is not None and not promised[1].done():
            promised[1].set_result(None)

    def close(self) -> None:
        """Write what waits, and end."""
        with self._changed:
            self.closing = True
            self._changed.notify()

    # --- in the thread

    def run(self) -> None:
        """Open the file, write as long as records are stored, close it."""
        try:
            records = self._file.open(time.time())
        except BaseException as error:  # noqa: BLE001 - it is raised where the opening is awaited
            self.opened.set_exception(error)
            self.closed.set_result(None)
            return
        self._on_file.update(record.id for record in records)
        self.opened.set_result(records)
        del records
        last = False
        while not last:
            last = self._wait()
            if self._waiting:
                self._write()
        self._file.close()
        if self._error is None:
            self.closed.set_result(None)
        else:
            self.closed.set_exception(self._error)

    def _wait(self) -> bool:
        """Wait until there is something to write, and not just after a failure. Whether this is the last time."""
        with self._changed:
            patient = self._error is not None
            while not self.closing and (patient or not self._waiting):
                woken = self._changed.wait(_RETRY if patient else None)
                patient = patient and woken and not self._futures
            return self.closing

    def _write(self) -> None:
        with self._changed:
            batch, self._waiting = self._waiting, {}
            promised, self._futures = list(self._futures.values()), {}
            self._on_file.update(id for id, record in batch.items() if record is not None)
        try:
            self._file.write(batch)
        except BaseException as error:  # noqa: BLE001 - any error is reported, and the write retried
            if not isinstance(error, TaskStoreError):
                error = TaskStoreError(self._file.path, f"cannot be written: {error!r}")
            with self._changed:
                self._waiting = {**batch, **self._waiting}
            self._report(promised, error)
        else:
            with self._changed:
                self._on_file.difference_update(
                    id for id, record in batch.items() if record is None and self._waiting.get(id) is None
                )
            self._report(promised, None)

    def _report(self, promised: Taken, error: TaskStoreError | None) -> None:
        before, self._error = self._error, error
        if error is not None and before is None:
            _log.error("%s. New tasks are refused, and the ends of others kept in memory, until that works", error)
        elif error is None and before is not None:
            _log.warning("%s can be written again: nothing is missing", self._file.path)
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no task waits
            self.loop.call_soon_threadsafe(self._store.on_written, promised, error)


def _done_future(error: TaskStoreError | None) -> Future[None]:
    done: Future[None] = asyncio.get_running_loop().create_future()
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
        done.exception()
    return done


# --- The file: one SQLite database, its schema, and the files that are refused.
# Blocking code, run by one thread. The program that has the file open has it exclusively: the lock is the operating
# system's, and goes with a program that is killed. Session ids are bearer secrets, so only their hashes are written.

APPLICATION_ID: Final = 0x67726E72
"""SQLite's `application_id` of these files: "grnr"."""
FORMAT_VERSION: Final = 2
"""The version of the table. An older file is migrated, a newer one is refused."""
COLUMNS: Final = TaskRecord.__struct_fields__
_MODE: Final = 0o600
_HASHED: Final = "sha256:"
_MIN_DATABASE_BYTES: Final = 512
_NOT_A_TASK_FILE: Final = "is not a file of tasks: name another one, which is made if it is missing"

_TABLE: Final = """
CREATE TABLE tasks (
    id TEXT PRIMARY KEY NOT NULL, owner TEXT NOT NULL, session_id TEXT NOT NULL, method TEXT NOT NULL, name TEXT NOT NULL,
    status TEXT NOT NULL, message TEXT, created REAL NOT NULL, updated REAL NOT NULL, ended REAL, ttl REAL NOT NULL, poll REAL,
    result BLOB, error BLOB, era TEXT NOT NULL DEFAULT 'handshake', input_requests BLOB
)
"""
_MIGRATIONS: Final[Mapping[int, Sequence[str]]] = {
    1: (
        "ALTER TABLE tasks ADD COLUMN era TEXT NOT NULL DEFAULT 'handshake'",
        "ALTER TABLE tasks ADD COLUMN input_requests BLOB",
    )
}
"""The statements that turn a file of that version into one of the next."""
_PUT: Final = f"INSERT OR REPLACE INTO tasks ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 - the names of the fields
_ALL: Final = f"SELECT {', '.join(COLUMNS)} FROM tasks ORDER BY created, rowid"  # noqa: S608 - same


class TaskFile:
    """One file of tasks."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sync: bool = True,
        patience: float = 5.0,
        connect: Callable[..., sqlite3.Connection] = sqlite3.connect,
    ) -> None:
        """`patience` is for how many seconds another program may have the file before that is an error."""
        self.path = Path(path)
        self._sync = sync
        self._patience = patience
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None

    # --- opening

    def open(self, now: float) -> list[TaskRecord]:
        """The file's records, the oldest task first, without those that have expired by `now`. Raises `TaskStoreError`."""
        self._create()
        try:
            connection = self._connection = self._connect(self.path, timeout=self._patience, isolation_level=None)
            self._prepare(connection)
            connection.execute("DELETE FROM tasks WHERE ended + ttl <= ?", (now,))
            connection.execute("PRAGMA incremental_vacuum").fetchall()
            records = [_record_of(row) for row in connection.execute(_ALL)]
        except (sqlite3.Error, msgspec.ValidationError) as error:
            self.close()
            raise TaskStoreError(self.path, _open_failure(error)) from error
        except BaseException:
            self.close()
            raise
        self._inode = self._identity()
        return records

    def _create(self) -> None:
        """Make the file if it is missing.

        A file too short for a database is refused: SQLite would take it for a new one, and overwrite it.
        """
        try:
            # An existing file is never opened here: closing it again would drop the POSIX locks that this program has
            # on it.
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
            raise TaskStoreError(self.path, "is not a file: name one")
        if 0 < size < _MIN_DATABASE_BYTES:
            raise TaskStoreError(self.path, _NOT_A_TASK_FILE)

    def _make_private(self) -> None:
        """Make the file readable by the server's user only. The files that SQLite puts beside it inherit its mode."""
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
        self._make_private()
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._sync else 'NORMAL'}").fetchall()
        connection.execute("PRAGMA journal_size_limit = 4194304").fetchall()
        if new:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").fetchall()
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}").fetchall()
            connection.execute("COMMIT")
        elif version < FORMAT_VERSION:
            self._migrate(connection, version)

    def _migrate(self, connection: sqlite3.Connection, version: int) -> None:
        """Bring an older file to this version, in one transaction."""
        connection.execute("BEGIN IMMEDIATE")
        for each in range(version, FORMAT_VERSION):
            for statement in _MIGRATIONS[each]:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}").fetchall()
        connection.execute("COMMIT")

    def _check(self, connection: sqlite3.Connection, mark: int, version: int) -> None:
        if mark != APPLICATION_ID:
            raise TaskStoreError(self.path, "is the database of another program: name another file for the tasks")
        if version > FORMAT_VERSION:
            why = f"was written by a newer greenroom (format {version}, not {FORMAT_VERSION}): use that one, or name another file"
            raise TaskStoreError(self.path, why)
        if version < 1:
            raise TaskStoreError(self.path, _NOT_A_TASK_FILE)
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise TaskStoreError(self.path, _damage_text(found))

    # --- writing

    def write(self, batch: Mapping[str, TaskRecord | None]) -> None:
        """Store these records and delete those that are None, in one transaction, safe on return. Raises `TaskStoreError`."""
        connection = self._connection
        if connection is None:
            raise TaskStoreError(self.path, "is not open")
        if self._inode is None or self._identity() != self._inode:
            why = "was moved or removed while the server has it: nothing is written. Put it back, or restart the server"
            raise TaskStoreError(self.path, why)
        gone = [(id,) for id, record in batch.items() if record is None]
        kept = [row_of(record) for record in batch.values() if record is not None]
        try:
            if connection.in_transaction:  # the last failure's ROLLBACK failed too
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
        """Close the file: another program may open it now."""
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


def row_of(record: TaskRecord) -> tuple[Any, ...]:
    """A record as it is written, with its session's id hashed."""
    owner = record.owner
    if belongs_to_session(owner):
        kind, _, id = owner.partition(" ")
        owner = f"{kind} {_hashed(id)}"
    written = msgspec.structs.replace(record, owner=owner, session_id=_hashed(record.session_id))
    return tuple(_encodable(value) for value in msgspec.structs.astuple(written))


def _record_of(row: Sequence[Any]) -> TaskRecord:
    return msgspec.convert(dict(zip(COLUMNS, row, strict=True)), TaskRecord)


def _hashed(id: str) -> str:
    return id if not id or id.startswith(_HASHED) else _HASHED + sha256(id.encode(errors="surrogatepass")).hexdigest()


def _encodable(value: Any) -> Any:
    """The value without lone surrogates, which a principal may have and SQLite cannot store."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _damage_text(how: str) -> str:
    return (
        f"is damaged ({' '.join(how.split())}). Move it away together with the files beside it that begin with its name: a new one is made, "
        "and the tasks in it are lost"
    )


def _open_failure(error: Exception) -> str:
    name: str = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "is another server's: each needs a file of its own. If that one is just stopping, wait until it has"
    if name.startswith("SQLITE_NOTADB"):
        return _NOT_A_TASK_FILE
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return f"cannot be opened for writing, or the folder that it is in cannot: {error}"
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_NOMEM")):
        return f"cannot be read or written: {error}"
    return _damage_text(str(error))
