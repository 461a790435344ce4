"""The modules that a call passes on its way through a server and through a client."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import Counter
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from greenroom import Client, HttpConfig, Server
from greenroom.supervision import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import FrameType


class Route:
    """A profiler of one thread: the modules of greenroom that it runs, in the order of their first call."""

    def __init__(self) -> None:
        """Empty."""
        self.modules: dict[str, None] = {}
        self.made: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        """The objects of `transports` among these: for a client, its POST."""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("greenroom."):
            self.modules[module] = None
            if frame.f_code.co_name == "__init__":
                kind: type[object] = frame.f_locals["self"].__class__
                self.made[kind.__name__] += 1
                self.sent[kind.__name__] += kind.__module__.startswith("greenroom.transports.")

    def changes(self, *, above: bool = False) -> int:
        """How often the next module belongs to another room. With `above`, modules of supervision are not counted."""
        rooms = [module.split(".")[1] for module in self.modules]
        return sum(
            one != other for one, other in pairwise(room for room in rooms if not above or room != "supervision")
        )


async def followed(here: Callable[[], Awaitable[Any]]) -> Route:
    """Follows one `await here()` in this thread, after twenty others, so that all caches are filled."""
    for _ in range(20):
        await here()
    route = Route()
    sys.setprofile(route)
    try:
        await here()
    finally:
        sys.setprofile(None)
    return route


async def routes() -> tuple[Route, Route]:
    """The routes of a `tools/call` over HTTP: through the server, and through the client, each with the other end in another thread."""
    server = Server("shape")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with server.started():
        url = await server.listen(config=HttpConfig(port=0))
        parts = urlsplit(url)
        with closing(HTTPConnection(parts.hostname or "", parts.port)) as connection:
            call = await asyncio.to_thread(_entered, connection, parts.path)
            served = await followed(lambda: asyncio.to_thread(call))
    listening: Future[str] = Future()
    ended = threading.Event()
    thread = threading.Thread(target=lambda: run(partial(_serving, server, listening, ended)))
    thread.start()
    there = await asyncio.wrap_future(listening)
    async with Client(there) as client:
        called = await followed(lambda: client.call("add", a=1, b=2))
    ended.set()
    await asyncio.to_thread(thread.join)
    return served, called


async def _serving(server: Server, listening: Future[str], ended: threading.Event) -> None:
    async with server.started():
        listening.set_result(await server.listen(config=HttpConfig(port=0)))
        await asyncio.to_thread(ended.wait)


def _entered(connection: HTTPConnection, path: str) -> Callable[[], None]:
    """Opens a session with a client of the standard library. Returns a function that makes one call."""
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}

    def ask(method: str, params: dict[str, Any], request_id: int | None = 1) -> None:
        body = {"jsonrpc": "2.0", "method": method, "params": params} | (
            {} if request_id is None else {"id": request_id}
        )
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        headers.setdefault("mcp-session-id", answer.headers.get("mcp-session-id", ""))
        answer.read()

    ask(
        "initialize",
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "shape", "version": "1"}},
    )
    ask("notifications/initialized", {}, None)
    return lambda: ask("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
