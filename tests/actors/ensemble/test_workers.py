"""`server.run("http", workers=2)`, as programs of their own: which worker answers, what is lost with a worker, and what is left."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, ConfigError, Server
from greenroom.errors import GreenroomError
from greenroom.inspect_socket import inspect_sockets, read_snapshot

from .several_nodes import until
from .worker_programs import PATIENCE, PROGRAMS, Crew, Line, crew, ended, events, is_free, is_running, started, wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")


def test_several_processes_serve_on_one_port_and_stop_in_order(tmp_path: Path) -> None:
    with crew(tmp_path) as program:
        one, other = program.lines()
        answered = {one.tool("where"), other.tool("where")}
        assert len(answered) == 2
        assert str(program.process.pid) not in answered
        port = program.port
        assert program.stop() == 0
        assert not program.left()
        assert is_free(port)
        for line in (one, other):
            line.close()


def test_settings_that_were_typed_hold_in_every_worker(tmp_path: Path) -> None:
    words = [
        "--http",
        "0",
        "--workers",
        "1",
        "--page-size",
        "1",
        "--capabilities",
        '{"logging": null}',
        "--max-body",
        "300",
    ]
    with started(
        tmp_path, [sys.executable, "-m", "greenroom.cli", "serve", f"{PROGRAMS / 'crew.py'}:server", *words]
    ) as program:
        line = program.line()
        assert "logging" not in line.enter()["capabilities"]
        assert len(line.ask("tools/list")["result"]["tools"]) == 1
        assert line.send({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"pad": "x" * 300}}).status == 413
        line.close()
        assert program.stop() == 0


def test_a_quiet_call_of_another_worker_is_a_stream_with_comments(tmp_path: Path) -> None:
    words = ["--http", "0", "--workers", "2", "--quiet-after", "0.05"]
    with started(
        tmp_path, [sys.executable, "-m", "greenroom.cli", "serve", f"{PROGRAMS / 'crew.py'}:server", *words]
    ) as program:
        one, other = program.lines()
        home, other.session = one.tool("where"), one.session
        for line in (one, other):
            answer = line.begin("rest", seconds=0.3)
            assert answer.headers["content-type"] == "text/event-stream"
            said = answer.read()
            assert said.startswith(b": keep-alive\n\n")
            assert f"rested in {home}".encode() in said
            line.close()


def test_a_script_that_serves_at_its_end_is_imported_up_to_there(tmp_path: Path) -> None:
    with crew(tmp_path, "bare.py") as program:
        one, other = program.lines()
        assert program.stop(signal.SIGINT) == 0
        one.close()
        other.close()


def test_a_session_is_answered_for_by_whichever_worker_it_comes_to(tmp_path: Path) -> None:
    with crew(tmp_path) as program:
        one, other = program.lines()
        home, session = one.tool("where"), one.session
        other_home, other.session = other.tool("where"), session
        assert [other.tool("where"), one.tool("where")] == [home, home]
        assert other_home != home
        answer = other.begin("steps", count=3)
        said = events(answer)
        assert [id for id, _ in said] == [f"p1:{number}" for number in range(5)]
        assert f"done by {home}" in said[-1][1]
        ending = other.send(None, "DELETE")
        ending.read()
        assert ending.status == 204
        gone = one.begin("where")
        assert (gone.status, json.loads(gone.read())["error"]["message"]) == (404, "Unknown Mcp-Session-Id")
        one.close()
        other.close()


def test_a_stream_that_broke_at_one_worker_is_resumed_at_another(tmp_path: Path) -> None:
    with crew(tmp_path) as program:
        one, other = program.lines()
        home = one.tool("where")
        answer = one.begin("steps", count=30)
        seen = events(answer, 4)
        answer.close()
        one.close()
        other.session = one.session
        rest = events(other.send(None, "GET", **{"last-event-id": seen[-1][0]}))
        assert [id for id, _ in (*seen, *rest)] == [f"p1:{number}" for number in range(32)]
        assert f"done by {home}" in rest[-1][1]
        other.close()


def test_an_update_announced_in_one_worker_reaches_subscribers_of_another(tmp_path: Path) -> None:
    with crew(tmp_path) as program:
        one, other = program.lines()
        assert one.ask("resources/subscribe", uri="crew://news")["result"] == {}
        ears = Line(program.port, one.session)
        answer = ears.send(None, "GET")
        assert events(answer, 1)[0][0] == "g0:0"
        assert other.tool("publish") != one.tool("where")
        assert "crew://news" in events(answer, 1)[0][1]
        for line in (one, other, ears):
            line.close()


def test_a_worker_that_is_killed_takes_its_own_sessions_only_and_another_comes(tmp_path: Path) -> None:
    with crew(tmp_path) as program:
        one, other = program.lines()
        victim, home = int(one.tool("where")), other.tool("where")
        lost = Line(program.port, one.session)
        program.relatives()
        ended(victim)
        assert other.tool("where") == home
        wait_for(lambda: "SIGKILL" in program.said(), program.said)
        wait_for(lambda: _status(program, lost.session) == 404, program.said)
        again, fourth = program.lines()
        assert {again.tool("where"), fourth.tool("where")} & {home}
        assert str(victim) not in {again.tool("where"), fourth.tool("where")}
        assert other.tool("where") == home
        for line in (one, other, lost, again, fourth):
            line.close()


def _status(program: Crew, session: str) -> int:
    """The status that a new connection gets for a session; 0 when it was cut."""
    line = Line(program.port, session)
    with contextlib.closing(line):
        try:
            answer = line.begin("where")
            answer.read()
        except OSError:
            return 0
        return answer.status


def test_a_tool_that_ends_its_worker_is_the_end_of_that_one(tmp_path: Path) -> None:
    with crew(tmp_path) as program:
        one, other = program.lines()
        home = other.tool("where")
        victim = one.session
        other.session, mine = victim, other.session
        answer = other.begin("end_with", code=7)  # of the other's session, by way of this one
        assert answer.status == 200  # it may have been done: a 404 would have it sent again
        assert "initialize" in json.loads(answer.read())["error"]["message"]
        other.session = mine
        assert other.tool("where") == home
        wait_for(lambda: "exited with code 7" in program.said(), program.said)
        again, fourth = program.lines()
        for line in (one, other, again, fourth):
            line.close()


@pytest.mark.deep
async def test_a_kill_under_load_is_one_outcome_for_each_call(tmp_path: Path) -> None:
    with crew(tmp_path) as program:
        url = await asyncio.to_thread(lambda: program.url)
        stop = asyncio.Event()
        outcomes: Counter[str] = Counter()
        homes: Counter[str] = Counter()

        async def call(number: int) -> None:
            async with Client(url) as client:
                homes[str(await client.call("where"))] += 1
                while not stop.is_set():
                    try:
                        async with asyncio.timeout(10):
                            await (client.call("steps", count=2) if number % 2 else client.call("where"))
                        outcomes["answered"] += 1
                    except GreenroomError as error:
                        outcomes[type(error).__name__] += 1
                        await asyncio.sleep(0.05)  # a peer that comes back at once would be in the way of others

        calls = [asyncio.create_task(call(number)) for number in range(16)]
        await until(lambda: outcomes["answered"] >= 200)
        assert len(homes) == 2
        program.relatives()
        ended(int(next(iter(homes))))
        before = outcomes["answered"]
        await until(lambda: outcomes["answered"] >= before + 1000)
        stop.set()
        await asyncio.gather(*calls)
        assert "TimeoutError" not in outcomes
        assert 0 < sum(outcomes.values()) - outcomes["answered"] < 200, outcomes
        assert await asyncio.to_thread(program.stop) == 0


def test_calls_under_way_are_finished_when_the_program_is_told_to_stop(tmp_path: Path) -> None:
    with crew(tmp_path) as program:
        one, other = program.lines()
        one.session, other.session = other.session, one.session  # each by way of the other
        answers = [line.begin("steps", count=20) for line in (one, other)]
        begun = [events(answer, 2) for answer in answers]
        program.relatives()
        program.process.send_signal(signal.SIGTERM)
        for answer, said in zip(answers, begun, strict=True):
            assert "done by" in [*said, *events(answer)][-1][1]
        assert program.process.wait(10) == 0
        one.close()
        other.close()


def test_new_connections_are_refused_while_what_is_under_way_finishes(tmp_path: Path) -> None:
    """At once, also where a worker hangs: a connection that the kernel takes, and no process accepts, would hang until the end of the grace."""
    words = ["--http", "0", "--workers", "2", "--grace", "100"]
    with started(
        tmp_path, [sys.executable, "-m", "greenroom.cli", "serve", f"{PROGRAMS / 'crew.py'}:server", *words]
    ) as program:
        one, other = program.lines()
        hung, port, go = int(other.tool("where")), program.port, tmp_path / "go"
        calling = threading.Thread(target=lambda: answers.append(one.tool("hold", path=str(go))))
        answers: list[str] = []
        calling.start()
        wait_for((tmp_path / "go.begun").exists, program.said)
        program.relatives()
        os.kill(hung, signal.SIGSTOP)
        try:
            program.process.send_signal(signal.SIGTERM)
            wait_for(lambda: _refuses(port), program.said)
            assert not answers
        finally:
            go.touch()
            os.kill(hung, signal.SIGCONT)
        calling.join(PATIENCE)
        assert [answer.rsplit(" ", 1)[0] for answer in answers] == ["held by"]
        assert program.process.wait(PATIENCE) == 0
        assert "cannot accept" not in program.said()
        one.close()
        other.close()


def _refuses(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def test_when_the_program_is_killed_all_of_it_is_gone_and_the_port_is_free(tmp_path: Path) -> None:
    with crew(tmp_path, "crew.py", "3") as program:
        one, other = program.lines()
        answer = one.begin("steps", count=1000)
        events(answer, 2)
        workers = [int(each.tool("where")) for each in (other,)]
        port = program.port
        family = program.relatives()
        assert len(family) >= 6
        program.process.kill()
        program.process.wait()
        wait_for(lambda: not program.left(), lambda: f"{program.left()} are left", 3.0)
        wait_for(
            lambda: is_free(port), lambda: f"port {port} is still taken", 3.0
        )  # a process that is gone lets go of its sockets last
        assert not any(map(is_running, workers))
        one.close()
        other.close()


def test_a_tool_with_a_process_of_its_own_has_one_in_a_worker_too(tmp_path: Path) -> None:
    with crew(tmp_path) as program:
        one, other = program.lines()
        mine, theirs = one.tool("apart"), other.tool("apart")
        assert len({mine, theirs, one.tool("where"), other.tool("where")}) == 4
        program.relatives()
        assert program.stop() == 0
        one.close()
        other.close()


@pytest.mark.deep
def test_the_program_and_each_worker_can_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as folder:  # a socket's path is short
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        monkeypatch.setenv("CREW_SEEN", "1")
        with crew(tmp_path) as program:
            one, other = program.lines()
            seen = {each.name: read_snapshot(each.path) for each in inspect_sockets()}
            assert set(seen) == {"crew", "crew-1", "crew-2"}
            homes = {int(one.tool("where")), int(other.tool("where"))}
            assert {seen["crew-1"]["pid"], seen["crew-2"]["pid"]} == homes
            assert seen["crew"]["pid"] == program.process.pid
            assert [each["urls"] for each in seen.values()] == [[program.url]] * 3
            assert any("Session" in each["behaviour"] for each in seen["crew-1"]["processes"])
            assert any("WorkerOwner" in each["behaviour"] for each in seen["crew"]["processes"])
            assert program.stop() == 0
            one.close()
            other.close()
        assert inspect_sockets() == []


def test_lines_that_a_worker_prints_are_printed_by_the_program(tmp_path: Path) -> None:
    with crew(tmp_path) as program:
        line = program.line()
        line.enter()
        line.tool("say", text="hello out there")
        wait_for(lambda: program.prints.read_text() == "hello out there\n", program.prints.read_text)
        line.close()


@pytest.mark.deep
def test_connections_that_are_not_accepted_yet_outlive_a_worker(tmp_path: Path) -> None:
    with crew(tmp_path, "crew.py", "1") as program:
        line = program.line()
        line.enter()
        victim = int(line.tool("where"))
        program.relatives()
        ended(victim)
        wait_for(lambda: not is_running(victim), program.said)
        waiting = Line(program.port)
        waiting.enter()  # there is no worker just now: it waits in the socket
        assert int(waiting.tool("where")) != victim
        line.close()
        waiting.close()


@pytest.mark.deep
def test_a_program_can_be_stopped_while_its_workers_are_starting(tmp_path: Path) -> None:
    with crew(tmp_path, "slow.py") as program:
        wait_for(lambda: len(program.relatives()) > 4, program.said)
        began = time.monotonic()
        assert program.stop() == 0
        assert time.monotonic() - began < 10.0  # a grace, and a machine that has other things to do
        assert not program.left()
        assert "serves on" not in program.said()


# --- what cannot be


def test_a_server_that_no_worker_could_find_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with crew(tmp_path, "hidden.py") as program:
        assert program.process.wait(30) == 1
        assert "workers cannot find this server: other processes import it by its name" in program.said()
        assert not program.relatives()


def test_a_program_that_a_worker_cannot_import_says_why_and_ends(tmp_path: Path) -> None:
    with crew(tmp_path, "moody.py") as program:
        assert program.process.wait(30) == 1
        last = program.said().strip().splitlines()[-1]
        assert last.startswith("greenroom: no worker could be started: ")
        assert "OSError: the database is away" in last


@pytest.mark.parametrize(
    ("name", "missing", "hint"),
    [
        (
            "halved.py",
            "tool 'elsewhere' (of half_tools), lifespan opened (of half_tools)",
            "write `import half_tools` in it",
        ),
        ("guarded.py", "tool 'below' (of __main__)", "register it above `if __name__"),
    ],
)
def test_workers_that_would_serve_less_than_the_program_has_are_refused(
    tmp_path: Path, name: str, missing: str, hint: str
) -> None:
    with crew(tmp_path, name) as program:
        assert program.process.wait(30) == 1
        said = program.said()
        assert "serves on" not in said
        assert "Traceback" not in said, "nothing has crashed"
        last = said.strip().splitlines()[-1]
        assert last.startswith("greenroom: no worker could be started: worker processes import ")
        assert f"{missing} would be missing; {hint}" in last


@pytest.mark.parametrize("when", ["first", "later"])
def test_a_lifespan_that_a_worker_cannot_open_ends_the_program_with_the_reason(tmp_path: Path, when: str) -> None:
    with crew(tmp_path, "locked.py", *(str(tmp_path / "key"),) * (when == "later")) as program:
        if when == "later":
            line = program.line()
            line.enter()
            program.relatives()
            (tmp_path / "key").touch()  # the next worker cannot open it any more
            ended(int(line.tool("where")))
            line.close()
        assert program.process.wait(60) == 1
        assert "OSError: the database is away" in program.said()
        last = program.said().strip().splitlines()[-1]
        if when == "later":
            assert "gives up on child 'worker-1'" in program.said()
            assert last.startswith("greenroom: the server has ended: ")
        else:
            assert "serves on" not in program.said()
            assert last.startswith("greenroom: no worker could be started: ")
            assert "OSError: the database is away" in last


@pytest.mark.parametrize("workers", [0, -1, 65, True, "2", 1.5])
def test_workers_are_counted(workers: Any) -> None:
    with pytest.raises(ConfigError, match="workers must be a whole number, 1 to 64"):
        here.run("http", port=0, workers=workers)


def test_there_are_none_on_stdio() -> None:
    with pytest.raises(ConfigError, match="workers are for"):
        here.run("stdio", workers=2)


def test_a_port_that_is_taken_is_told_at_once() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OSError, match="the port is in use"),
    ):
        here.run("http", port=taken.getsockname()[1], workers=2)


here = Server("here")
