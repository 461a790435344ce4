"""Programs with workers, which tests start and end by their pids, and connections to single workers."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenroom.supervision.cluster import os_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE = 30.0
_ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Crew:
    """A program that runs."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path, prints: Path) -> None:
        self.process = process
        self.errors = errors
        self.prints = prints
        self.family: set[int] = set()

    @property
    def url(self) -> str:
        """Its URL, once it serves."""
        found = wait_for(lambda: re.search(r"serves on (http://\S+)\n", self.said()), self.said)
        return str(found[1])

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.url.rsplit(":", 1)[1].split("/")[0])

    def said(self) -> str:
        """Its standard error so far."""
        return self.errors.read_text(errors="replace")

    def line(self) -> Line:
        """A connection to it."""
        return Line(self.port)

    def lines(self, most: int = 40) -> tuple[Line, Line]:
        """Two connections with a session each, on different workers; one worker may still be starting."""
        rest: list[Line] = []
        first = self.line()
        first.enter()
        home = first.tool("where")

        def elsewhere() -> Line | None:
            if len(rest) >= most:
                rest.pop(0).close()
            other = self.line()
            other.enter()
            rest.append(other)
            return None if other.tool("where") == home else rest.pop()

        other: Line = wait_for(elsewhere, lambda: f"all connections are with one worker\n{self.said()}")
        for each in rest:
            each.close()
        return first, other

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it with SIGTERM; returns its exit code."""
        self.relatives()
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def relatives(self) -> set[int]:
        """All processes that it had at any call of this method."""
        self.family |= set(os_processes.descendants(self.process.pid))
        return self.family

    def left(self) -> list[int]:
        """Which of them run."""
        return [pid for pid in self.family if is_running(pid)]


@contextmanager
def crew(folder: Path, program: str = "crew.py", *arguments: str) -> Generator[Crew]:
    """Start the program, and end it with all processes that it has started."""
    with started(folder, [sys.executable, str(PROGRAMS / program), *arguments]) as made:
        yield made


@contextmanager
def started(folder: Path, command: Sequence[str]) -> Generator[Crew]:
    """The same for any command that serves with workers."""
    errors, prints = folder / "errors", folder / "prints"
    with errors.open("wb") as said, prints.open("wb") as printed:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=said,
        )
    made = Crew(process, errors, prints)
    try:
        yield made
    finally:
        made.relatives()
        if process.poll() is None:
            process.kill()
        process.wait()
        wait_for(lambda: not made.left(), lambda: f"{made.left()} are left\n{made.said()}", 5.0)


def is_running(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(condition: Callable[[], Any], told: Callable[[], str], seconds: float = PATIENCE) -> Any:
    """Poll until the function returns something true: other processes send no event."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(told())
        time.sleep(0.01)
    return found


def is_free(port: int) -> bool:
    """Whether a server could listen there."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
            tried.listen()
        except OSError:
            return False
        return True


class Line:
    """One connection, which stays with one worker, and its session."""

    def __init__(self, port: int, session: str = "") -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        self.session = session
        self.last = 0
        self.answer: http.client.HTTPResponse | None = None

    def close(self) -> None:
        """Hang up."""
        if self.answer is not None:
            self.answer.close()
        self.connection.close()

    def send(self, body: Any, method: str = "POST", **headers: str) -> http.client.HTTPResponse:
        """One request; its answer, not yet read."""
        with_session = {"mcp-session-id": self.session} if self.session else {}
        data = json.dumps(body) if body is not None else None
        self.connection.request(method, "/mcp", data, {**_ACCEPT, **with_session, **headers})
        self.answer = self.connection.getresponse()
        return self.answer

    def enter(self) -> dict[str, Any]:
        """Begin a session; returns the server's result."""
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        answer = self.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        body = answer.read()
        assert answer.status == 200, body
        self.session = answer.headers["mcp-session-id"]
        told = self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        told.read()
        assert told.status == 202
        result: dict[str, Any] = json.loads(body)["result"]
        return result

    def begin(self, name: str, **arguments: Any) -> http.client.HTTPResponse:
        """Call a tool; the answer, not yet read."""
        self.last += 1
        params = {"name": name, "arguments": arguments, "_meta": {"progressToken": "t"}}
        return self.send({"jsonrpc": "2.0", "id": self.last, "method": "tools/call", "params": params})

    def tool(self, name: str, **arguments: Any) -> Any:
        """Call a tool; the text of its result."""
        answer = self.begin(name, **arguments)
        body = answer.read()
        assert answer.status == 200, body
        return json.loads(body.rsplit(b"data: ", 1)[-1])["result"]["content"][0]["text"]

    def ask(self, method: str, **params: Any) -> Any:
        """Another request; its answer."""
        self.last += 1
        answer = self.send({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        return json.loads(answer.read())


def events(answer: http.client.HTTPResponse, count: int | None = None) -> list[tuple[str, str]]:
    """So many events of a stream, or all: their ids and data."""
    found: list[tuple[str, str]] = []
    id = ""
    while count is None or len(found) < count:
        line = answer.readline().decode()
        if not line:
            break
        word, _, value = line.rstrip("\n").partition(": ")
        if word == "id":
            id = value
        elif word == "data":
            found.append((id, value))
    return found


def ended(pid: int) -> None:
    """End one process, at once."""
    os.kill(pid, signal.SIGKILL)
