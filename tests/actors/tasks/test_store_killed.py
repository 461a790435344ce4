"""A server that is killed in the middle of its tasks: when it is there again, each of them has a truthful end."""

from __future__ import annotations

import http.client
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.free_ports import free_port
from tests.served_program import _wait_for

from .http_client import HttpClient

if TYPE_CHECKING:
    from collections.abc import Generator

PRESS = Path(__file__).parent / "programs" / "press.py"
TERMINAL = {"completed", "failed", "cancelled"}
RELATED = "io.modelcontextprotocol/related-task"
CUT_OFF = (OSError, http.client.HTTPException)


@contextmanager
def pressing(file: Path) -> Generator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    log = file.with_suffix(".log")
    with log.open("ab") as said:
        program = subprocess.Popen([sys.executable, str(PRESS), str(file), str(port)], stdout=said, stderr=said)
    try:
        _wait_for(program, port, log)
        yield program, port
    finally:
        program.kill()
        program.wait()


class Crowd:
    """Threads that go on beginning tasks until the server is no more, one that looks at them, and what each was told."""

    def __init__(self, port: int, count: int) -> None:
        self.told: dict[str, str] = {}
        """The texts that tools were to return, by task id."""
        self.seen: dict[str, dict[str, Any]] = {}
        """The last that was heard of each."""
        self._client = HttpClient.enter(port)
        self._threads = [threading.Thread(target=self._go_on, args=(n,)) for n in range(count)]
        self._threads.append(threading.Thread(target=self._look))
        for thread in self._threads:
            thread.start()

    def _go_on(self, number: int) -> None:
        for count in range(1000):
            text, after = f"crowd {number} {count}", (0, 0.01, 0.03, 60)[count % 4]
            try:
                answer = self._client.ask(
                    "tools/call", name="say", arguments={"text": text, "after": after}, task={"ttl": 600_000}
                )
            except CUT_OFF:
                return
            if "result" in answer:  # more than so many at once are refused
                self.told[answer["result"]["task"]["taskId"]] = text

    def _look(self) -> None:
        while True:
            for id in list(self.told)[-20:]:
                try:
                    self.seen[id] = self._client.ask("tasks/get", taskId=id)["result"]
                except CUT_OFF:
                    return
            time.sleep(0.001)  # there may be nothing to look at yet

    def join(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()


def until(client: HttpClient, id: str, status: str) -> str:
    deadline = time.monotonic() + 20
    while client.status(id) != status:
        assert time.monotonic() < deadline, f"{id} is {client.status(id)}, not {status}"
        time.sleep(0.01)  # another program's: it is polled, as any peer would
    return id


def outcome(client: HttpClient, id: str) -> Any:
    """The result or error of the task, without ids."""
    answer = client.ask("tasks/result", taskId=id)
    return answer.get("error") or answer["result"]


@pytest.mark.deep
@pytest.mark.row("TF-14")
@pytest.mark.row("TF-15")
def test_killed_with_fifty_tasks_in_all_states(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    with pressing(file) as (program, port):
        client = HttpClient.enter(port)
        working = [client.begin("wait") for _ in range(10)]
        asking = [until(client, client.begin("ask"), "input_required") for _ in range(8)]
        said = {until(client, client.begin("say", text=f"line {n}"), "completed"): f"line {n}" for n in range(8)}
        failed = [until(client, client.begin("fail", text="no ink"), "failed") for _ in range(8)]
        refused = [until(client, client.begin("refuse", text="not tonight"), "failed") for _ in range(8)]
        cancelled = [client.begin("wait") for _ in range(8)]
        for id in cancelled:
            assert client.ask("tasks/cancel", taskId=id)["result"]["status"] == "cancelled"
        ended = {
            id: (client.ask("tasks/get", taskId=id)["result"], outcome(client, id))
            for id in (*said, *failed, *refused, *cancelled)
        }
        crowd = Crowd(port, 4)
        while len(crowd.told) < 40 or sum(each["status"] == "completed" for each in crowd.seen.values()) < 10:
            time.sleep(0.005)  # another program tells it to other threads
        assert client.ask("tasks/get", taskId=next(iter(crowd.told)))["error"]["code"] == -32602  # another session's
        program.kill()
        program.wait()
        crowd.join()

    with pressing(file) as (_, port):
        client = HttpClient.enter(port)
        assert client.ask("tasks/list")["result"]["tasks"] == []  # callers are anonymous: the id is the ticket
        for id, (task, what) in ended.items():
            assert client.ask("tasks/get", taskId=id)["result"] == task
            assert outcome(client, id) == what
        for id in (*working, *asking):
            task = client.ask("tasks/get", taskId=id)["result"]
            assert (task["status"], task["statusMessage"]) == (
                "failed",
                "The server was restarted before the task had ended",
            )
            assert outcome(client, id)["message"].endswith("The server was restarted before the task had ended")
            assert client.ask("tasks/cancel", taskId=id)["error"]["code"] == -32602
        for id, text in crowd.told.items():
            task, what = client.ask("tasks/get", taskId=id)["result"], outcome(client, id)
            status, seen = task["status"], crowd.seen.get(id)
            assert seen is None or seen["status"] not in TERMINAL or seen == task
            if status == "completed":
                assert what["content"] == [{"type": "text", "text": text}]
            else:
                assert status == "failed"
                assert what["message"].endswith("The server was restarted before the task had ended")
        assert {client.status(id) for id in crowd.told} == {"completed", "failed"}

    with sqlite3.connect(file) as database:
        rows = database.execute("SELECT id, status FROM tasks").fetchall()
        owners = database.execute("SELECT DISTINCT owner FROM tasks").fetchall()
    database.close()
    assert len({id for id, _ in rows}) == len(rows)
    assert {*working, *asking, *ended, *crowd.told} <= {id for id, _ in rows}
    assert {status for _, status in rows} <= TERMINAL
    assert all(owner.startswith("session sha256:") for (owner,) in owners)


@pytest.mark.deep
@pytest.mark.row("TF-14")
def test_stopped_in_order_and_killed_again(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    with pressing(file) as (program, port):
        client = HttpClient.enter(port)
        said = until(client, client.begin("say", text="a line"), "completed")
        working, asking = client.begin("wait"), until(client, client.begin("ask"), "input_required")
        left = HttpClient.enter(port)
        alone, kept = left.begin("wait"), until(left, left.begin("say", text="kept"), "completed")
        left.end()
        until(client, alone, "cancelled")  # the id is the ticket as soon as its session is gone
        program.terminate()
        assert program.wait(20) == 0
    for _ in range(2):
        with pressing(file) as (program, port):
            client = HttpClient.enter(port)
            assert outcome(client, said)["content"] == [{"type": "text", "text": "a line"}]
            assert outcome(client, kept)["content"] == [{"type": "text", "text": "kept"}]
            assert client.status(alone) == "cancelled"
            for id in (working, asking):
                assert client.status(id) == "failed"
                assert "The server stopped" in outcome(client, id)["message"]
            program.kill()
            program.wait()


def test_a_file_that_cannot_be_used_ends_the_server_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    file.write_text("my shopping list\n")
    done = subprocess.run(
        [sys.executable, str(PRESS), str(file), "0"], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == f"greenroom: {file} is not a file of tasks: name another one, which is made if it is missing"
    assert file.read_text() == "my shopping list\n"
