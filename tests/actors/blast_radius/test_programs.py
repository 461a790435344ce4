"""Whole programs: what a flood costs one, and how long a full one takes to stop."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest
from tests.free_ports import free_port

if TYPE_CHECKING:
    from collections.abc import Generator

STAGE = Path(__file__).parent / "programs" / "stage.py"
GRACE = 1.0
FLOOD = 200 * 1024 * 1024
ROOM = 24 * 1024
"""KiB that a process may grow by for reasons of its own, which is far from 200 MiB."""


# --- a flood


@contextlib.contextmanager
def piped() -> Generator[tuple[IO[bytes], IO[bytes]]]:
    """A server on pipes: its input and its output."""
    with subprocess.Popen([sys.executable, STAGE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdin, process.stdout
            process.stdin.close()
            assert process.wait(30.0) == 0
        finally:
            process.kill()


def say(stream: IO[bytes], **message: Any) -> None:
    stream.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    stream.flush()


def test_a_flood_without_a_newline_costs_no_memory_and_gets_a_clear_error(no_leaks: None) -> None:
    with piped() as (into, out):

        def ask(id: int, method: str, **params: Any) -> Any:
            say(into, id=id, method=method, params=params)
            answer = json.loads(out.readline())
            assert answer["id"] == id
            return answer["result"]

        def peak(id: int) -> int:
            found: int = ask(id, "tools/call", name="peak", arguments={})["structuredContent"]["result"]
            return found

        ask(1, "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "t", "version": "1"})
        say(into, method="notifications/initialized")
        before = peak(2)
        block = b"a" * 65_536
        for _ in range(FLOOD // len(block)):
            into.write(block)
        into.write(b"\n")
        into.flush()
        refused = json.loads(out.readline())
        assert refused["id"] is None
        assert refused["error"]["code"] in {-32700, -32600}
        assert "too large" in refused["error"]["message"]
        assert peak(3) - before <= ROOM


# --- the end of a full house


class Session:
    """A client of a program over HTTP."""

    def __init__(self, port: int, kept: contextlib.ExitStack) -> None:
        self.port = port
        self.kept = kept
        self.headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        info = {"name": "t", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        answer = self.begin("POST", id=0, method="initialize", params=hello).getresponse()
        answer.read()
        self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        self.begin("POST", method="notifications/initialized").getresponse().read()

    def begin(self, verb: str, **message: Any) -> HTTPConnection:
        """Send a request on a connection of its own, which stays."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60.0)
        self.kept.callback(connection.close)
        connection.request(verb, "/mcp", json.dumps({"jsonrpc": "2.0", **message}) if message else None, self.headers)
        return connection


@contextlib.contextmanager
def program() -> Generator[tuple[subprocess.Popen[bytes], int, IO[bytes]]]:
    """A server over HTTP that serves: its process, its port, and what it says."""
    port = free_port()
    command = [sys.executable, str(STAGE), str(port), str(GRACE)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            assert process.stderr is not None
            assert b"serves on" in process.stderr.readline()
            yield process, port, process.stderr
        finally:
            process.kill()


@pytest.mark.parametrize("streams", [100, pytest.param(1_000, marks=pytest.mark.soak)])
def test_a_full_house_with_a_stuck_thread_is_out_in_time(streams: int, no_leaks: None) -> None:
    with contextlib.ExitStack() as kept, program() as (process, port, said):
        listening = [Session(port, kept).begin("GET").getresponse() for _ in range(streams)]
        assert all(each.status == 200 for each in listening)
        stuck = Session(port, kept).begin("POST", id=1, method="tools/call", params={"name": "never_returns"})
        assert said.readline() == b"held\n"
        began = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        code = process.wait(GRACE + 30.0)
        took = time.perf_counter() - began
        assert code == 0
        assert took <= GRACE + 0.5
        for each in listening:
            kept.callback(each.close)
            each.read()  # to its proper end: an incomplete stream raises
        kept.callback(stuck.close)


def test_a_program_without_anything_under_way_does_not_use_its_grace(no_leaks: None) -> None:
    with contextlib.ExitStack() as kept, program() as (process, port, _):
        stream = Session(port, kept).begin("GET").getresponse()
        began = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        assert process.wait(GRACE + 30.0) == 0
        assert time.perf_counter() - began < GRACE
        stream.read()
        kept.callback(stream.close)
