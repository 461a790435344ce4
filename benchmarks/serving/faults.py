"""Faulty tools among a hundred calls in flight: the lost calls, the result of the faulty call, and whether the server survives."""

from __future__ import annotations

import json
import select
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .load import callers
from .sessions import Caller, Unexpected, answer_in, encoded
from .wire import ConnectionClosed, HttpResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .processes import Served

CROWD = 100
WAIT = 2.0
"""The duration of each of the other calls."""
PATIENCE = 5.0
"""How long the faulty call's client waits."""


@dataclass(frozen=True)
class Fault:
    """A call of a faulty tool."""

    name: str
    tool: str
    then: Literal["wait", "cancel", "hang up"] = "wait"


FAULTS = (
    Fault("`sys.exit(0)` in an `async def` tool", "leave"),
    Fault("`sys.exit(0)` in a gathered task", "leave_gathered"),
    Fault("`sys.exit(0)` in a thread it started", "leave_in_thread"),
    Fault("`sys.exit(0)` in a `def` tool", "leave_def"),
    Fault("`KeyboardInterrupt` in an `async def` tool", "interrupt"),
    Fault("`KeyboardInterrupt` in a `def` tool", "interrupt_def"),
    Fault("a `BaseException` in an `async def` tool", "leak"),
    Fault("a `BaseException` in a gathered task", "leak_gathered"),
    Fault("a `BaseException` in a `def` tool", "leak_def"),
    Fault("never returns", "never"),
    Fault("is cancelled", "never", "cancel"),
    Fault("its client disconnects", "never", "hang up"),
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a fault."""

    lost: int
    response: str
    """The result of the faulty call."""
    serves: bool
    """Whether a new client is served afterwards."""
    code: int | None
    """The exit code of the server, if it ended."""

    def __str__(self) -> str:
        """The outcome as a table cell."""
        gone = f"gone, exit code {self.code}" if self.code is not None else "running, but serves no client"
        end = "serves on" if self.serves else gone
        return f"{self.lost} of {CROWD} lost; caller: {self.response}; {end}"


def try_out(served: Served, fault: Fault) -> Outcome:
    """Cause one fault among the other calls. The server may not survive it."""
    with callers(served.port, CROWD) as crowd:
        guilty = Caller(served.port, timeout=PATIENCE)
        marks = [begin_waiting(caller) for caller in crowd]
        time.sleep(WAIT / 10)  # all calls are in progress
        response = commit(guilty, fault)
        answered = collect(crowd, marks, WAIT + PATIENCE)
        guilty.line.close()
    serves = is_served(served.port)
    code = None
    if not serves:
        with suppress(subprocess.TimeoutExpired):
            code = served.process.wait(PATIENCE)
    return Outcome(CROWD - answered, response, serves, code)


def begin_waiting(caller: Caller) -> bytes:
    """Start a call."""
    caller.prepare("wait", {"seconds": WAIT})
    return caller.begin()


def commit(guilty: Caller, fault: Fault) -> str:
    """Make the faulty call. Returns its result as text."""
    guilty.prepare(fault.tool, {})
    mark = guilty.begin()
    if fault.then == "hang up":
        guilty.line.close()
        return "has gone"
    if fault.then == "cancel":
        time.sleep(WAIT / 10)
        cancel(guilty, int(mark))
    until = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < until:
            answer = guilty.line.read_response()
            if answer is not None:
                return verdict(answer, int(mark))
    except ConnectionClosed:
        return "connection closed"
    except TimeoutError:
        pass
    except OSError as error:
        return f"connection lost ({type(error).__name__})"
    return "nothing"


def cancel(guilty: Caller, request: int) -> None:
    """Send a cancellation on a separate connection."""
    other = Caller.__new__(Caller)
    other.line = type(guilty.line)(guilty.line.port, timeout=PATIENCE)
    other.line.fixed = guilty.line.fixed
    params = {"requestId": request, "reason": "enough"}
    body = encoded({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    try:
        other.line.exchange("POST", body)
    except (ConnectionClosed, OSError):
        pass  # the other calls show the effect
    finally:
        other.line.close()


def verdict(answer: bytes, request: int) -> str:
    """An answer in a few words."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head[9:12])
    kind = "text/event-stream" if b"text/event-stream" in head.lower() else "application/json"
    try:
        message = answer_in(HttpResponse(status, {"content-type": kind}, body), request)
    except (Unexpected, json.JSONDecodeError):
        return f"an empty answer (HTTP {status})"
    if "error" in message:
        return f"error {message['error'].get('code')}"
    return "`isError`" if message["result"].get("isError") else "a result"


def collect(crowd: Sequence[Caller], marks: Sequence[bytes], seconds: float) -> int:
    """The number of calls that are answered in time, each with its own result."""
    answered = 0
    poll = select.epoll()
    open_lines = {caller.line.fileno(): (caller, mark) for caller, mark in zip(crowd, marks, strict=True)}
    for number in open_lines:
        poll.register(number, select.EPOLLIN)
    until = time.monotonic() + seconds
    while open_lines and (rest := until - time.monotonic()) > 0:
        for number, _ in poll.poll(rest):
            caller, mark = open_lines[number]
            try:
                answer = caller.line.read_response()
            except (ConnectionClosed, OSError):
                answer = b""
            if answer is None:
                continue
            answered += mark in answer and b"waited" in answer
            poll.unregister(number)
            del open_lines[number]
    poll.close()
    return answered


def is_served(port: int) -> bool:
    """Whether a new client gets a quick answer."""
    try:
        caller = Caller(port, timeout=PATIENCE)
        answer = caller.call("quick")
        caller.end()
    except (ConnectionClosed, OSError, Unexpected):
        return False
    return "result" in answer
