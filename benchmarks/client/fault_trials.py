"""Fault trials of clients, independent of any client library: three servers, one of which is killed in the middle of calls.

A driver defines how a client of its library is opened, calls and lists; the faults and the measurements are here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

NOTHING = "nothing"
CALLS = 8
"""The calls in progress when the server is killed."""
PATIENCE = 10.0
"""The seconds after which a call counts as hanging, and within which a client must recover."""
SHORT = 60
"""The longest error message in the table, in characters."""
DEADLINE = 2.0
"""The deadline of calls to a server that lives but does not answer."""


class Client:
    """The interface of a driver. It is opened and closed in one task."""

    async def open(self, target: str | list[str]) -> None:
        """Connect to a URL, or to a program that it starts."""
        raise NotImplementedError

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float) -> str:
        """Call a tool, with the library's own deadline in seconds. Returns the text."""
        raise NotImplementedError

    async def list(self) -> int:
        """List the tools. Returns their number."""
        raise NotImplementedError


async def opened(make: Callable[[], Client], target: str | list[str]) -> Client:
    """Open a client for the program's lifetime: how clients close is not measured."""
    client, ready = make(), asyncio.Event()

    async def life() -> None:
        await client.open(target)
        ready.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(life())
    waiting = asyncio.create_task(ready.wait())
    await asyncio.wait([task, waiting], timeout=60, return_when=asyncio.FIRST_COMPLETED)
    if not ready.is_set():
        waiting.cancel()
        if task.done():
            task.result()
        raise TimeoutError
    _lives.add(task)
    return client


_lives: set[asyncio.Task[None]] = set()


class Outcome(NamedTuple):
    """The outcome of a call: the error (None: success), the answer, the duration, and the time."""

    error: str | None
    said: object
    took: float
    at: float


async def outcome(call: Awaitable[object]) -> Outcome:
    """Wait for a call, with a limit."""
    began = time.perf_counter()
    error, said = None, None
    limit = asyncio.timeout(PATIENCE)
    try:
        async with limit:
            said = await call
    except BaseException as raised:  # noqa: BLE001 - a library under faults may raise anything
        error = NOTHING if limit.expired() else _name(raised)
    ended = time.perf_counter()
    return Outcome(error, said, ended - began, ended)


def _name(error: BaseException) -> str:
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words}" if 0 < len(words) < SHORT and "/" not in words else type(error).__name__


class Neighbour:
    """Calls another server continuously."""

    def __init__(self, client: Client) -> None:
        """Start calling."""
        self._client = client
        self.longest, self.failed, self.calls = 0.0, 0, 0
        self.task = asyncio.create_task(self._life())

    async def _life(self) -> None:
        while True:
            end = await outcome(self._client.call("echo", {"text": "x"}, PATIENCE))
            self.calls += 1
            self.failed += end.error is not None
            self.longest = max(self.longest, end.took)
            await asyncio.sleep(0.002)


async def shot(make: Callable[[], Client], words: list[str], number: int, rounds: int) -> dict[str, Any]:
    """Kill a server in the middle of calls: the callers' errors and times, the recovery, and the effect on other servers' calls.

    Each round has a new client, since a second death in a row behaves differently from the first.
    """
    neighbours = [Neighbour(await opened(make, words)) for _ in range(2)]
    notified_after: list[float] = []
    back: list[float] = []
    starts: list[float] = []
    hanging, errors, again = 0, set[str](), ""
    for _ in range(rounds):
        began = time.perf_counter()
        target = await opened(make, words)
        process = int(await target.call("where", {}, PATIENCE))
        starts.append(time.perf_counter() - began)
        calls = [asyncio.create_task(outcome(target.call("hang", {}, 10 * PATIENCE))) for _ in range(CALLS)]
        await asyncio.sleep(0.1)
        hit = time.perf_counter()
        os.kill(process, number)
        ends = await asyncio.gather(*calls)
        notified_after.append(max(end.at for end in ends) - hit)
        hanging += sum(end.error == NOTHING for end in ends)
        errors |= {str(end.error) for end in ends}
        returned, again = await comes_back(target, hit if notified_after[-1] < PATIENCE else time.perf_counter())
        if returned is None:
            break
        back.append(returned)
    for each in neighbours:
        each.task.cancel()
    return {
        "notified_after": statistics.median(notified_after),
        "slowest": max(notified_after),
        "hanging": hanging,
        "errors": sorted(errors),
        "start": statistics.median(starts),
        "back": statistics.median(back) if len(back) == rounds else None,
        "again": again,
        "neighbours": {
            "calls": sum(each.calls for each in neighbours),
            "failed": sum(each.failed for each in neighbours),
            "longest": max(each.longest for each in neighbours),
        },
    }


async def comes_back(client: Client, since: float) -> tuple[float | None, str]:
    """The seconds until a call is answered; None and the last error, if none is."""
    again = ""
    until = time.perf_counter() + PATIENCE
    while time.perf_counter() < until:
        end = await outcome(client.call("where", {}, PATIENCE))
        if end.error is None:
            return end.at - since, again
        again = end.error
        await asyncio.sleep(0.05)
    return None, again


async def stopped(make: Callable[[], Client], words: list[str]) -> dict[str, Any]:
    """Stop a server with SIGSTOP: the outcome of a call with a deadline, and whether the client ever recovers."""
    client = await opened(make, words)
    process = int(await client.call("where", {}, PATIENCE))
    os.kill(process, signal.SIGSTOP)
    try:
        end = await outcome(client.call("where", {}, DEADLINE))
        back, _ = await comes_back(client, time.perf_counter())
        return {"took": end.took, "error": end.error, "back": back is not None}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


async def misled(make: Callable[[], Client], words: list[str]) -> dict[str, Any]:
    """One call to a server that misbehaves in calls, then a list, in which it does not."""
    client = await opened(make, words)
    end = await outcome(client.call("echo", {"text": "x"}, DEADLINE))
    until = time.perf_counter() + PATIENCE
    lists = False
    while not lists and time.perf_counter() < until:
        listing = await outcome(client.list())
        lists = listing.error is None
        await asyncio.sleep(0.05)
    return {"took": end.took, "error": end.error, "right": end.said == "x", "lists": lists}


async def restarted(make: Callable[[], Client], words: list[str], port: int) -> dict[str, Any]:
    """Kill an HTTP server in the middle of calls, and start it again: the same measurements."""
    url = f"http://127.0.0.1:{port}/mcp"
    server = await _serve(words, port)
    try:
        client = await opened(make, url)
        calls = [asyncio.create_task(outcome(client.call("hang", {}, 10 * PATIENCE))) for _ in range(CALLS)]
        await asyncio.sleep(0.3)
        hit = time.perf_counter()
        server.kill()
        server.wait()
        ends = await asyncio.gather(*calls)
        server = await _serve(words, port)
        back, again = await comes_back(client, time.perf_counter())
        return {
            "notified_after": max(end.at for end in ends) - hit,
            "hanging": sum(end.error == NOTHING for end in ends),
            "errors": sorted({str(end.error) for end in ends}),
            "back": back,
            "again": again,
        }
    finally:
        server.kill()
        server.wait()


async def _serve(words: list[str], port: int) -> subprocess.Popen[bytes]:
    server = subprocess.Popen([*words, str(port)], stderr=subprocess.DEVNULL)  # noqa: S603, ASYNC220 - our own table of programs
    until = time.perf_counter() + 30
    while time.perf_counter() < until:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return server
    server.kill()
    raise TimeoutError


def main(make: Callable[[], Client]) -> None:
    """Run the trials in the only argument, print the results, and exit, whatever state the client is in."""
    asked: dict[str, Any] = json.loads(sys.argv[1])
    scenario = {"shot": shot, "stopped": stopped, "misled": misled, "restarted": restarted}[asked.pop("scenario")]

    async def run() -> None:
        found = await scenario(make, **asked)  # type: ignore[operator]
        print(json.dumps(found), flush=True)
        sys.stderr.flush()
        os._exit(0)

    asyncio.run(run())
