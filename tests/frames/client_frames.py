"""The frames that our client sends: its scenarios are in a table, and a scripted server records what arrives.

Over HTTP, requests that open a stream are recorded separately: a client opens one beside its other requests.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenroom import Client, ClientSettings, Command, GreenroomError
from greenroom.transports import SseRoute

from . import scripted_peer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    Action = Callable[[Client], Awaitable[object]]

TRANSPORTS = ("client-http", "client-sse", "client-stdio")
REVISIONS = {
    "client-http": ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"),
    "client-sse": ("2024-11-05",),
    "client-stdio": ("2024-11-05", "2025-11-25"),
}


async def _nothing(client: Client) -> None:
    del client


async def _cancel(client: Client) -> None:
    async with client.listen("notifications/message") as updates:
        pending = client.start_tool("never", {}, progress=False)
        await anext(aiter(updates))
        pending.cancel("not needed")
        with suppress(GreenroomError):
            await pending


async def _subscribe(client: Client) -> None:
    async with client.subscribe("a://b"):
        pass
    await client.ping()


async def _progress(client: Client) -> None:
    await client.call_tool("progress", {}, on_progress=lambda _: None)


def _tool(name: str, arguments: Any = None, **options: Any) -> Action:
    return lambda client: client.call_tool(name, arguments, **options)


ACTIONS: dict[str, Action] = {
    "handshake": _nothing,
    "ping": lambda client: client.ping(),
    "tools-list": lambda client: client.list_tools(),
    "tools-page": lambda client: client.list_tools_page("more"),
    "call": _tool("add", {"a": 1, "b": [None, True, 1.5, "grün \u2028 \U0001f3ad"]}),
    "call-no-arguments": _tool("add"),
    "call-meta": _tool("add", {}, meta={"a": 1}),
    "call-value": lambda client: client.call("add", a=1),
    "call-progress": _progress,
    "call-cancel": _cancel,
    "call-task": _tool("add", {}, task=60),
    "resources-list": lambda client: client.list_resources(),
    "templates-list": lambda client: client.list_resource_templates(),
    "read": lambda client: client.read_resource("a://b"),
    "subscribe": _subscribe,
    "prompts-list": lambda client: client.list_prompts(),
    "prompt": lambda client: client.get_prompt("greet", who="Ann", times=3),
    "prompt-no-arguments": lambda client: client.get_prompt("greet"),
    "complete": lambda client: client.complete("greet", "mood", "c"),
    "complete-known": lambda client: client.complete("greet", "mood", "c", {"who": "Ann"}),
    "complete-template": lambda client: client.complete("a://{b}", "b", "c"),
    "level": lambda client: client.set_log_level("error"),
    "tasks-list": lambda client: client.tasks_list(),
    "tasks-get": lambda client: client.tasks_get("t1"),
    "tasks-cancel": lambda client: client.tasks_cancel("t1"),
    "tasks-result": lambda client: client.tasks_result("t1"),
    "roots-changed": lambda client: client.set_roots(["file:///there"]),
    "request": lambda client: client.request("curtain/raise", {"fast": True}),
    "notify": lambda client: client.notify("notifications/curtain", {"up": True}),
    **{f"asked-{name}": _tool(name, {}) for name in scripted_peer.ASKED},
}


def _always(answer: Any) -> Callable[[Any], Any]:
    return lambda _: answer  # pyright: ignore[reportUnknownLambdaType]


CLIENTS: dict[str, dict[str, Any]] = {
    "answering": {
        "sampling": _always("yes"),
        "elicitation": _always({"name": "Ann"}),
        "url_elicitation": _always(True),
        "roots": ["file:///here"],
    },
    "declining": {
        "sampling": _always(None),
        "elicitation": _always(None),
        "url_elicitation": _always(False),
    },
    "silent": {},
}
"""The client's answers to server requests. The first variant does everything; the others differ from it."""


def scenarios(transport: str) -> list[str]:
    """The scenarios of a transport, by name."""
    found: list[str] = []
    for revision in REVISIONS[transport]:
        for kind in CLIENTS:
            actions = [
                each for each in ACTIONS if kind == "answering" or each == "handshake" or each.startswith("asked-")
            ]
            if kind != "answering" and revision != REVISIONS[transport][-1]:
                continue
            found += [f"{transport}/{revision}/{kind}/{each}" for each in actions]
    return found


async def play(name: str) -> list[list[str]]:
    """Play one scenario; returns what arrived, request by request."""
    transport, revision, kind, action = name.split("/")
    settings = ClientSettings(mode=revision)
    options: dict[str, Any] = {
        **CLIENTS[kind],
        "settings": settings,
        "client_info": {"name": "recorded", "version": "1"},
    }
    if transport == "client-stdio":
        with tempfile.TemporaryDirectory() as folder:
            came = Path(folder) / "came"
            program = Command(sys.executable, "-I", "-S", Path(scripted_peer.__file__), revision, came)
            await _act(Client(program, **options), ACTIONS[action])
            return [["> lines", *came.read_text(encoding="utf-8").splitlines()]]
    async with _served(revision, old=transport == "client-sse") as (url, server):
        target = SseRoute(url) if transport == "client-sse" else url
        await _act(Client(target, **options), ACTIONS[action], server.listening)
        return [server.posts, server.gets]


async def _act(client: Client, action: Action, listening: asyncio.Event | None = None) -> None:
    """Run the scenario. A client may be done before it opens its stream, and then never does: so it stays until then."""
    async with client:
        with suppress(GreenroomError, ValueError):
            await action(client)
        if listening is not None:
            await listening.wait()


# --- a server on HTTP


class _Server:
    """Serves HTTP by hand, as far as this client needs it."""

    def __init__(self, revision: str, *, old: bool) -> None:
        self.part = scripted_peer.ScriptedRole(revision)
        self.old = old
        self.posts: list[str] = ["> posts"]
        self.gets: list[str] = ["> streams"]
        self.tasks: set[asyncio.Task[None]] = set()
        self.listening = asyncio.Event()
        self._stream: asyncio.StreamWriter | None = None
        self._asking: asyncio.StreamWriter | None = None

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head[:-4].split("\r\n")
                said = dict(line.split(": ", 1) for line in lines)
                length = int({name.lower(): value for name, value in said.items()}.get("content-length", 0))
                body = await reader.readexactly(length)
                shown = [f"{n}: exact" if n.lower() == "content-length" else f"{n}: {v}" for n, v in said.items()]
                lane = self.gets if first.startswith("GET") else self.posts
                lane.append(" | ".join([first, *shown]))
                if body:
                    lane.append(body.decode())
                await self._answer(first.split(" ")[0], json.loads(body) if body else None, writer)
        writer.close()

    async def _answer(self, verb: str, message: Any, writer: asyncio.StreamWriter) -> None:
        if verb == "GET":
            self.listening.set()
        if verb == "GET" and self.old:
            self._stream = writer
            await _write(writer, _STREAM + b"event: endpoint\ndata: /messages?session_id=1\n\n")
        elif verb != "POST":
            await _write(writer, _reply(405 if verb == "GET" else 204))
        elif self.old:
            await _write(writer, _reply(202))
            assert self._stream is not None
            await _write(self._stream, b"".join(map(_event, self.part.hear(message))))
        else:
            await self._post(message, writer)

    async def _post(self, message: Any, writer: asyncio.StreamWriter) -> None:
        said = self.part.hear(message)
        if "method" not in message:
            await _write(writer, _reply(202))
            asking, self._asking = self._asking, None
            assert asking is not None
            await _write(asking, b"".join(map(_event, said)))
            asking.close()
        elif not said:
            await _write(writer, _reply(202))
        elif len(said) == 1 and "result" in said[0]:
            session = b"mcp-session-id: s1\r\n" if message["method"] == "initialize" else b""
            await _write(
                writer, _reply(200, json.dumps(said[0]).encode(), b"content-type: application/json\r\n" + session)
            )
        else:
            await _write(writer, _STREAM + b"".join(map(_event, said)))
            if "result" in said[-1]:
                writer.close()
            else:
                self._asking = writer


_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def _reply(status: int, body: bytes = b"", headers: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d So\r\n%scontent-length: %d\r\n\r\n%s" % (status, headers, len(body), body)


def _event(message: Any) -> bytes:
    return b"data: " + json.dumps(message).encode() + b"\n\n"


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


@asynccontextmanager
async def _served(revision: str, *, old: bool) -> AsyncGenerator[tuple[str, _Server]]:
    server = _Server(revision, old=old)
    listening = await asyncio.start_server(server.connected, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/{'sse' if old else 'mcp'}", server
    finally:
        listening.close()
        for each in server.tasks:
            each.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)
