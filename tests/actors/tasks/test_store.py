"""The promises of a task store, checked for both stores, and the additional ones of the store in a file."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import ConfigError, SqliteTasks, TaskStoreError
from greenroom.actors.task_store import MemoryTaskStore, TaskStore
from greenroom.transports.interfaces import Peer

from .task_records import ended, record
from .task_server import reply_to, running_task_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")  # a thread writes to a disk


@pytest.fixture(params=["memory", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[TaskStore]:
    found: TaskStore = MemoryTaskStore() if request.param == "memory" else SqliteTasks(tmp_path / "tasks.db")
    await found.open("company")
    yield found
    await found.close()


async def safe(waits: asyncio.Future[None] | None) -> None:
    if waits is not None:
        await waits


async def test_readers_have_the_newest_of_each_owner_in_order(store: TaskStore) -> None:
    ada, bob = record(name="1"), record(owner="principal bob", name="2")
    third = record(name="3")
    for each in (ada, bob, third):
        await safe(store.put(each))
    await safe(store.put(ended(ada)))
    assert [each.name for each in store.list()] == ["1", "2", "3"]
    assert [each.name for each in store.list("principal ada")] == ["1", "3"]
    found = store.get(ada.id)
    assert found is not None
    assert (found.status, found.result) == ("completed", b"done")
    store.remove(ada.id)
    store.remove(ada.id)
    store.remove("unknown")
    assert store.get(ada.id) is None
    assert [each.name for each in store.list()] == ["2", "3"]


async def test_stored_records_are_there_after_a_restart(tmp_path: Path) -> None:
    file, now = tmp_path / "tasks.db", time.time()
    store = SqliteTasks(file)
    await store.open("company")
    running, over, gone = record(poll=1.5, message="half way"), record(), record()
    late = record(created=now - 50, updated=now - 50, ttl=5.0)
    for each in (running, over, gone, late):
        _ = store.put(each)
    _ = store.put(ended(over))
    _ = store.put(ended(late, now=now - 20))
    store.remove(gone.id)
    await store.close()
    await store.open("company")
    assert store.get(running.id) == running
    assert store.get(over.id) is not None
    assert store.get(late.id) is None  # it expired while the store was closed
    assert [each.id for each in store.list()] == [running.id, over.id]
    await store.close()


async def test_an_end_is_seen_when_it_is_safe_and_stays(tmp_path: Path) -> None:
    store = SqliteTasks(tmp_path / "tasks.db")
    await store.open("company")
    task, other = record(), record()
    await safe(store.put(task))
    waits = store.put(ended(task))
    assert store.get(task.id) == task  # a server that dies now takes nothing back
    again = store.put(task.with_status("failed", time.time()))
    await waits
    await again
    found = store.get(task.id)
    assert found is not None
    assert found.status == "completed"
    _ = store.put(other)
    _ = store.put(ended(other, "at once"), at_once=True)
    found = store.get(other.id)
    assert found is not None
    assert found.result == b"at once"
    await store.close()


async def test_session_ids_are_written_as_hashes_and_the_file_is_private(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    store = SqliteTasks(file)
    await store.open("company")
    task = record(owner="session mcp_secret", session_id="mcp_secret")
    await safe(store.put(task))
    files = sorted(tmp_path.iterdir())  # noqa: ASYNC240 - a test may
    everything = b"".join(each.read_bytes() for each in files)
    assert task.id.encode() in everything
    assert b"mcp_secret" not in everything
    assert {each.stat().st_mode & 0o777 for each in files} == {0o600}
    await store.close()
    for _ in range(2):  # a hash is not hashed again
        await store.open("company")
        (found,) = store.list()
        assert found.owner == f"session {found.session_id}"
        assert found.session_id.startswith("sha256:")
        await safe(store.put(found.with_status("input_required", time.time())) if found.status == "working" else None)
        await store.close()


async def test_no_more_is_kept_than_may_be_the_oldest_go(tmp_path: Path) -> None:
    store = SqliteTasks(tmp_path / "tasks.db", max_records=3, max_bytes=100)
    await store.open("company")
    first, second, running = record(), record(), record()
    for each in (first, second, running):
        await safe(store.put(each))
    with pytest.raises(TaskStoreError, match="is full of tasks that run: max_records is 3"):
        await safe(store.put(record()))
    await safe(store.put(ended(second, "x" * 60)))
    await safe(store.put(ended(first, "y" * 60)))
    assert [each.id for each in store.list()] == [first.id, running.id]
    with pytest.raises(TaskStoreError, match="takes no result of 101 bytes: max_bytes is 100"):
        await safe(store.put(ended(running, "z" * 101)))
    await store.close()
    await store.open("company")
    assert {each.id: each.status for each in store.list()} == {first.id: "completed", running.id: "working"}
    await store.close()
    with pytest.raises(ConfigError):
        SqliteTasks(tmp_path / "tasks.db", max_records=0)


async def test_a_record_that_could_not_be_read_again_is_refused_alone(tmp_path: Path) -> None:
    store = SqliteTasks(tmp_path / "tasks.db")
    await store.open("company")
    odd: Any = 7
    strange, good = record(name=odd), record(owner="principal \udc80")
    waits = [store.put(strange), store.put(record(ttl=float("nan"))), store.put(good)]
    results = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(each) for each in results] == [TaskStoreError, TaskStoreError, type(None)]
    await store.close()
    await store.open("company")
    assert [each.id for each in store.list()] == [good.id]
    await store.close()


async def test_a_task_file_belongs_to_one_server(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    store, other = SqliteTasks(file), SqliteTasks(file, patience=0.05)
    await store.open("company")
    await store.open("company")  # the process that opened it was restarted
    with pytest.raises(TaskStoreError, match="is another server's: each needs a file of its own"):
        await other.open("company")
    with pytest.raises(TaskStoreError, match="is another server's in this program"):
        await store.open("another")
    await safe(store.put(record()))
    await store.close()
    await other.open("company")
    assert len(other.list()) == 1
    await other.close()


async def test_a_record_that_cannot_be_written_is_reported_shown_and_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, away = tmp_path / "tasks.db", tmp_path / "away.db"
    store = SqliteTasks(file)
    await store.open("company")
    task = record()
    await safe(store.put(task))
    file.rename(away)
    with caplog.at_level(logging.WARNING, "greenroom.tasks"):
        with pytest.raises(TaskStoreError, match="was moved or removed while the server has it"):
            await safe(store.put(ended(task)))
        found = store.get(task.id)
        assert found is not None
        assert found.status == "completed"  # it is the truth, and readers have it
        with pytest.raises(TaskStoreError):
            await safe(store.put(record()))
        assert len(caplog.records) == 1  # it is one trouble
        away.rename(file)
        new = record()
        await safe(store.put(new))
        assert "can be written again" in caplog.text
    await store.close()
    with sqlite3.connect(file) as database:
        rows = dict(database.execute("SELECT id, status FROM tasks").fetchall())
    database.close()
    assert (rows[task.id], rows[new.id]) == ("completed", "working")


async def test_a_last_try_is_made_when_it_is_closed(tmp_path: Path) -> None:
    file, away = tmp_path / "tasks.db", tmp_path / "away.db"
    store = SqliteTasks(file)
    await store.open("company")
    file.rename(away)
    with pytest.raises(TaskStoreError):
        await safe(store.put(record()))
    with pytest.raises(TaskStoreError, match="was moved or removed"):
        await store.close()
    away.rename(file)
    with pytest.raises(TaskStoreError, match="is not open"):
        await safe(store.put(record()))
    await store.open("company")
    assert not store.list()
    await store.close()
    assert not [each for each in threading.enumerate() if each.name == "greenroom-tasks"]


@pytest.mark.row("TF-14")
async def test_a_restarted_server_knows_the_outcomes_of_its_tasks(tmp_path: Path) -> None:
    ada, bob = Peer("test", principal="ada"), Peer("test", principal="bob")
    store = SqliteTasks(tmp_path / "tasks.db")
    async with running_task_server(task_store=store) as stage:
        client = await stage.player(ada)
        begun = await reply_to(client, "tools/call", name="wait", arguments={"gate": "shut"}, task={})
        running = begun["result"]["task"]["taskId"]
        done = await reply_to(client, "tools/call", name="only", arguments={}, task={})
        over = done["result"]["task"]["taskId"]
        answer = await reply_to(client, "tasks/result", taskId=over)
    async with running_task_server(task_store=SqliteTasks(tmp_path / "tasks.db")) as stage:
        client, foreign = await stage.player(ada), await stage.player(bob)
        listed = (await reply_to(client, "tasks/list"))["result"]["tasks"]
        assert [(each["taskId"], each["status"]) for each in listed] == [(running, "failed"), (over, "completed")]
        assert (await reply_to(client, "tasks/result", taskId=over))["result"] == answer["result"]
        assert not (await reply_to(foreign, "tasks/list"))["result"]["tasks"]
        for id in (running, over):  # a principal's id is no ticket
            assert (await reply_to(foreign, "tasks/get", taskId=id))["error"]["code"] == -32602
        unnamed = await stage.player()
        assert (await reply_to(unnamed, "tasks/get", taskId=over))["error"]["code"] == -32602


async def test_a_task_that_cannot_be_kept_is_not_begun(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    store = SqliteTasks(file)
    async with running_task_server(task_store=store) as stage:
        client = await stage.player()
        file.rename(tmp_path / "away.db")
        refused = await reply_to(client, "tools/call", name="only", arguments={}, task={})
        assert refused["error"] == {"code": -32603, "message": "The task cannot be kept"}
        assert not store.list()
        (tmp_path / "away.db").rename(file)
        begun = await reply_to(client, "tools/call", name="only", arguments={}, task={})
        assert begun["result"]["task"]["status"] == "working"
