"""Which files a task store opens, and its errors for the others, which it leaves as they are."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from greenroom.actors.task_record import TaskRecord
from greenroom.actors.task_store import TaskStoreError
from greenroom.actors.task_store_sqlite import APPLICATION_ID, COLUMNS, FORMAT_VERSION, TaskFile

from .task_records import ended, record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOLDS = """
import sys
from greenroom.actors.task_store_sqlite import TaskFile
file = TaskFile(sys.argv[1])
file.open(0)
print("open", flush=True)
sys.stdin.read()
"""


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = TaskFile(tmp_path / "tasks.db")
    assert file.open(0) == []
    full = ended(record(poll=1.0, message="half way", name="press", era="stateless"))
    plain, gone = record(owner="local", status="input_required", input_requests=b'{"question-1":{}}'), record()
    file.write({each.id: each for each in (full, plain, gone)})
    file.write({gone.id: None, "unknown": None})
    file.close()
    file.close()
    assert file.open(0) == [full, plain]
    file.close()
    with pytest.raises(TaskStoreError, match="is not open"):
        file.write({})
    with sqlite3.connect(file.path) as database:
        table = [name for _, name, *_ in database.execute("PRAGMA table_info(tasks)")]
        mark = database.execute("PRAGMA application_id").fetchone()[0]
        mode = database.execute("PRAGMA journal_mode").fetchone()[0]
    database.close()
    assert table == list(COLUMNS) == list(TaskRecord.__struct_fields__)
    assert (mark, mode) == (APPLICATION_ID, "wal")


_FIRST_TABLE = """
CREATE TABLE tasks (
    id TEXT PRIMARY KEY NOT NULL, owner TEXT NOT NULL, session_id TEXT NOT NULL, method TEXT NOT NULL, name TEXT NOT NULL,
    status TEXT NOT NULL, message TEXT, created REAL NOT NULL, updated REAL NOT NULL, ended REAL, ttl REAL NOT NULL, poll REAL,
    result BLOB, error BLOB
)
"""
"""The table of format 1, as it was written then."""


def test_a_file_of_the_first_format_is_migrated_and_keeps_its_records(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    full, plain = ended(record(poll=1.0, message="half way", name="press")), record(owner="local")
    columns = [name for name in COLUMNS if name not in ("era", "input_requests")]
    with sqlite3.connect(path) as database:
        database.execute(_FIRST_TABLE)
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute("PRAGMA user_version = 1")
        database.executemany(
            f"INSERT INTO tasks VALUES ({', '.join('?' * len(columns))})",
            [[getattr(each, name) for name in columns] for each in (full, plain)],
        )
    database.close()
    for _ in range(2):  # it is migrated once, and read as it is the second time
        file = TaskFile(path)
        assert file.open(0) == [full, plain]
        asking = record(
            input_requests=b'{"question-1":{"method":"roots/list"}}', era="stateless", status="input_required"
        )
        file.write({asking.id: asking})
        file.write({asking.id: None})
        file.close()
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (FORMAT_VERSION,)
        assert [name for _, name, *_ in database.execute("PRAGMA table_info(tasks)")] == list(COLUMNS)
    database.close()


def test_opening_removes_expired_records_and_no_running_ones(tmp_path: Path) -> None:
    file, now = TaskFile(tmp_path / "tasks.db"), time.time()
    file.open(now)
    old = record(created=now - 100, updated=now - 100, ttl=1.0)
    over = ended(record(created=now - 100, updated=now - 100, ttl=50.0), now=now - 49)
    gone = ended(record(created=now - 100, updated=now - 100, ttl=50.0), now=now - 50)
    file.write({each.id: each for each in (old, over, gone)})
    file.close()
    assert [each.id for each in file.open(now)] == [old.id, over.id]
    file.close()


def test_another_program_holds_the_file_until_it_ends_or_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(TaskStoreError, match="is another server's"):
            TaskFile(path, patience=0.05).open(0)
    finally:
        holder.kill()
        holder.communicate()
    file = TaskFile(path)
    assert file.open(0) == []
    file.close()


def short(path: Path) -> None:
    path.write_text("milk")


def text(path: Path) -> None:
    path.write_text("milk\n" * 1000)


def folder(path: Path) -> None:
    path.mkdir()


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE shopping (item TEXT)")
    database.close()


def newer(path: Path) -> None:
    file = TaskFile(path)
    file.open(0)
    file.close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    database.close()


def torn(path: Path) -> None:
    """Every page but the first is noise."""
    whole(path)
    data = path.read_bytes()
    path.write_bytes(data[:4096] + os.urandom(len(data) - 4096))


def odd(path: Path) -> None:
    whole(path)
    with sqlite3.connect(path) as database:
        database.execute("UPDATE tasks SET status = 'dreaming'")
    database.close()


def whole(path: Path) -> None:
    file = TaskFile(path)
    file.open(0)
    tasks = [ended(record(), "x" * 3000) for _ in range(20)]
    file.write({each.id: each for each in tasks})
    file.close()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (short, "is not a file of tasks: name another one"),
        (text, "is not a file of tasks: name another one"),
        (folder, "is not a file: name one"),
        (foreign, "is the database of another program: name another file"),
        (newer, "was written by a newer greenroom"),
        (torn, "is damaged .*Move it away together with the files beside it"),
        (odd, "is damaged .*Move it away"),
    ],
    ids=["short", "text", "folder", "foreign", "newer", "torn", "odd"],
)
def test_a_foreign_file_is_refused_and_left_alone(tmp_path: Path, make: Callable[[Path], None], why: str) -> None:
    path = tmp_path / "tasks.db"
    make(path)
    path.chmod(0o744)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(TaskStoreError, match=why) as caught:
        TaskFile(path).open(0)
    assert str(caught.value).startswith(str(path))
    if path.is_file() and make is not odd:
        assert path.read_bytes() == before
    if make == foreign or before.startswith(b"milk"):
        assert path.stat().st_mode & 0o777 == 0o744
    with sqlite3.connect(tmp_path / "other.db") as database:  # nothing of it is locked
        database.execute("SELECT 1")
    database.close()


def test_a_folder_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(TaskStoreError, match=r"cannot be made: there is no folder .*Make it, or name another file"):
        TaskFile(tmp_path / "nowhere" / "tasks.db").open(0)


def test_a_file_that_others_may_read_is_kept_from_them(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    path.touch(0o644)
    file = TaskFile(path)
    file.open(0)
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
    file.close()
