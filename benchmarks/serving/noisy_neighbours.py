"""Latency under load by other clients, the cost of a flood, and the shutdown time with many sessions."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from .load import callers
from .sessions import Caller, encoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .processes import Served

SLOW = 40
HELD = 4.0
BLOCKED = 5.0
FLOOD = 200 * 1024 * 1024
STREAMS = 1_000
ENOUGH = 30.0
"""The limit of a shutdown in seconds."""


def quick_amid_slow(served: Served) -> str:
    """The duration of a call while forty plain functions occupy threads."""
    with callers(served.port, SLOW) as crowd:
        other = Caller(served.port)
        for caller in crowd:
            caller.prepare("slow_def", {"seconds": HELD})
            caller.begin()
        time.sleep(0.5)
        waited = timed(other, "quick_def")
        other.end()
        for caller in crowd:
            while caller.line.read_response() is None:
                pass
    return _duration(waited)


def while_blocked(served: Served, tool: str) -> str:
    """The time of a new client to connect, initialize and get an answer while a call is in `time.sleep`."""
    guilty = Caller(served.port)
    guilty.prepare(tool, {"seconds": BLOCKED})
    guilty.begin()
    time.sleep(0.5)
    began = time.perf_counter()
    other = Caller(served.port)
    other.call("quick")
    waited = time.perf_counter() - began
    other.end()
    while guilty.line.read_response() is None:
        pass
    guilty.end()
    return _duration(waited)


def timed(caller: Caller, tool: str) -> float:
    """The duration of one call."""
    began = time.perf_counter()
    caller.call(tool)
    return time.perf_counter() - began


def flood(command: Sequence[str]) -> str:
    """200 MiB on standard input without a line break: the growth of the process, and its answer."""
    process = subprocess.Popen(  # noqa: S603 - our own table of programs
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    answers = bytearray()
    reader = threading.Thread(target=_read_all, args=(process.stdout, answers))
    reader.start()
    try:
        info = {"name": "flood", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        process.stdin.write(encoded({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + b"\n")
        process.stdin.flush()
        while not answers:
            time.sleep(0.01)
        del answers[:]
        before = most = _resident(process.pid)
        block = b"a" * 65_536
        for _ in range(FLOOD // len(block)):
            process.stdin.write(block)
            most = max(most, _resident(process.pid))
        process.stdin.write(b"\n" + encoded({"jsonrpc": "2.0", "id": 2, "method": "ping"}) + b"\n")
        process.stdin.flush()
        until = time.monotonic() + ENOUGH
        while b'"id":2' not in answers and time.monotonic() < until and process.poll() is None:
            most = max(most, _resident(process.pid))
            time.sleep(0.01)
        said = b'"error"' in bytes(answers).partition(b'"id":2')[0]
        went_on = b'"id":2' in answers
    except BrokenPipeError:
        return "it closed its input"
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()
        with suppress(BrokenPipeError):
            process.stdin.close()
    answer_text = "an error" if said else "no error"
    return f"memory {(most - before) / 2**20:+.0f} MiB at most; {answer_text}; {'goes on' if went_on else 'answers no more'}"


def _read_all(stream: IO[bytes], into: bytearray) -> None:
    while data := os.read(stream.fileno(), 65_536):
        into += data


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except FileNotFoundError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def closing(served: Served) -> str:
    """SIGTERM with a thousand open streams and a plain function that never returns: the shutdown time and the exit code."""
    with ExitStack() as stack:
        for _ in range(STREAMS):
            caller = Caller(served.port)
            stack.callback(caller.line.close)
            caller.line.socket.sendall(caller.line.head("GET", 0))
        stuck = Caller(served.port)
        stack.callback(stuck.line.close)
        stuck.prepare("slow_def", {"seconds": 600.0})
        stuck.begin()
        select.select([], [], [], 1.0)  # all streams are open
        began = time.perf_counter()
        served.process.send_signal(signal.SIGTERM)
        try:
            code = served.process.wait(ENOUGH)
        except subprocess.TimeoutExpired:
            return f"still there after {ENOUGH:.0f} s"
        return f"out in {time.perf_counter() - began:.2f} s, exit code {code}"


def _duration(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
