"""Plays every scenario of a transport against a server, one after the other, each with a session of its own."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenroom import HttpConfig, Server
from greenroom.testing import WireProbe

from . import client_frames, raw_wires, recorded_server, scenarios
from .recordings import Record

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator
    from contextlib import AbstractAsyncContextManager

    Talking = Callable[[str, scenarios.Conversation], AbstractAsyncContextManager[raw_wires.PeerWire]]

PATIENCE = 100.0
"""Seconds for one scenario, which takes milliseconds: one that hangs is recorded as such, and the others are played."""

STILL: dict[str, Any] = {
    "port": 0,
    "heartbeat": 3600.0,
    "quiet_after": None,
    "keep_alive": 3600.0,
    "write_timeout": 3600.0,
}
"""No frame may depend on the time that has passed."""

CONFIGS: dict[str, dict[str, Any]] = {
    "http": {"old_sse": True},
    "sse": {"old_sse": True},
    "stateless": {"session_enabled": False},
    "optional": {"require_session": False},
    "plain": {"plain": True},
    "either": {"accept": "either", "honour_accept_order": True, "sse_retry": 2.5},
    "strict": {
        "max_body": 2000,
        "max_header": 4096,
        "enable_get": False,
        "allow_delete": False,
        "serve_root": False,
        "allowed_origins": ["https://app.example"],
        "allowed_hosts": ["app.example", "127.0.0.1"],
    },
    "hypercorn": {"hypercorn": True, "require_session": False},
    "guarded": {},
}
TRANSPORTS = (*CONFIGS, "asgi", "stdio", "memory", *client_frames.TRANSPORTS)


def names(transport: str) -> list[str]:
    """The scenarios of a transport."""
    if transport in client_frames.TRANSPORTS:
        return client_frames.scenarios(transport)
    found = list(scenarios.conversations(transport)) if transport in scenarios.PLAYED else []
    found += [f"{transport}/visit/{each.name}" for each in scenarios.EXCHANGES_BY_SERVER.get(transport, ())]
    found += [f"{transport}/bytes/{each}" for each in scenarios.BYTES if transport in scenarios.SPOKEN]
    assert len(found) == len(set(found)), "a name twice"
    return found


async def play(transport: str, only: str = "") -> dict[str, Record]:
    """Play every scenario of a transport whose name contains `only`; returns the records."""
    if transport in client_frames.TRANSPORTS:
        return {
            name: await _whole(client_frames.play(name)) for name in client_frames.scenarios(transport) if only in name
        }
    found: dict[str, Record] = {}
    async with _served(transport) as (talking, way):
        for name, (revision, said) in (
            scenarios.conversations(transport).items() if transport in scenarios.PLAYED else ()
        ):
            if only in name:
                found[name] = await _whole(_conversation(talking(revision, said), said))
        for exchange in scenarios.EXCHANGES_BY_SERVER.get(transport, ()):
            name = f"{transport}/visit/{exchange.name}"
            if only in name:
                found[name] = await _whole(_http_exchange(transport, way(), exchange))
        for each, data in scenarios.BYTES.items() if transport in scenarios.SPOKEN else ():
            name = f"{transport}/bytes/{each}"
            if only in name:
                found[name] = await _whole(_bytes(way(), data))
    return found


async def _whole(scenario: Any) -> Record:
    try:
        async with asyncio.timeout(PATIENCE):
            return Record.of(await scenario)
    except Exception as error:  # noqa: BLE001 - it is what came of this scenario, and the others go on
        return Record((f"failed: {type(error).__name__}: {error}",))


async def _conversation(
    opened: AbstractAsyncContextManager[raw_wires.PeerWire], said: scenarios.Conversation
) -> list[list[str]]:
    async with opened as talk:
        await talk.open()
        if said.greets:
            await talk.greet()
            talk.fresh()
        try:
            await _steps(talk, said.steps)
        finally:
            await talk.leave()
        return talk.tape.lanes


async def _steps(talk: raw_wires.PeerWire, steps: tuple[Any, ...]) -> None:
    ids = itertools.count(1)
    for step in steps:
        match step:
            case scenarios.Ask(method, params, id, until):
                message = {"jsonrpc": "2.0", "id": next(ids) if id is None else id, "method": method}
                message |= {} if params is None else {"params": params}
                if until:
                    talk.begin(message)
                    await talk.tape.until(_is_called(until))
                else:
                    await talk.ask(message)
            case scenarios.AskAbout(method, params, field):
                tasks = [each["result"]["task"] for each in talk.tape.messages if "task" in each.get("result", {})]
                said = {**params, field: tasks[-1]["taskId"] if tasks else "nothing"}
                await talk.ask({"jsonrpc": "2.0", "id": next(ids), "method": method, "params": said})
            case scenarios.Tell(method, params):
                await talk.say({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})
            case scenarios.Raw(data):
                await talk.raw(data)
            case scenarios.End(id):
                await talk.end(id)
            case scenarios.WaitUntilReceived(method, count):
                await talk.tape.until(_is_called(method), count)
            case scenarios.Listen(last) if type(talk) is raw_wires.HttpWire:
                await talk.listen(last)
            case scenarios.Listen():
                pass  # messages that belong to no request arrive here by themselves
            case _:
                raise AssertionError(step)


def _is_called(method: str) -> Callable[[dict[str, Any]], bool]:
    return lambda each: each.get("method") == method


async def _http_exchange(transport: str, way: raw_wires.Way, exchange: scenarios.HttpExchange) -> list[list[str]]:
    token = {"authorization": "Bearer right"} if transport == "guarded" else {}
    sessions = transport not in ("stateless", "plain")
    talk = raw_wires.HttpWire(scenarios.LATEST, way=way, sessions=sessions, more=token)
    if exchange.session:
        await talk.greet()
        talk.tape.clear()
    headers = {**talk.headers(), **exchange.headers}
    path = exchange.path.replace("{session}", talk.session)
    try:
        await talk.exchange(exchange.verb, path, headers, exchange.body, exchange.name)
    finally:
        await way.close()
    return talk.tape.lanes


async def _bytes(way: Any, data: bytes) -> list[list[str]]:
    try:
        head, _, body = (await way.raw(data)).partition("\r\n\r\n")
        status, *lines = head.split("\r\n")
        headers = [(name, value) for name, _, value in (line.partition(": ") for line in lines)]
        return [[raw_wires.shown_head(status, headers, body.encode("latin-1")), *body.split("\r\n")]]
    finally:
        await way.close()


# --- servers


@asynccontextmanager
async def _served(transport: str) -> AsyncGenerator[tuple[Talking, Callable[[], Any]]]:
    """How conversations and HTTP requests reach a server."""
    if transport == "stdio":
        with _forks() as orders:
            yield lambda revision, said: _on_pipes(orders, revision, said), _no_http
        return
    server = recorded_server.make_guarded() if transport == "guarded" else recorded_server.make_server()
    async with server.started() as company:
        if transport == "memory":
            yield lambda revision, said: _in_memory(company, revision, said), _no_http
            return
        way = await _way(transport, server)
        sessions = transport not in ("stateless", "plain")

        @asynccontextmanager
        async def talking(revision: str, said: scenarios.Conversation) -> AsyncGenerator[raw_wires.PeerWire]:
            given: dict[str, Any] = {"answers": said.answers, "capabilities": said.capabilities}
            if transport == "sse":
                yield raw_wires.LegacySseWire(revision, **given, way=way())
            else:
                yield raw_wires.HttpWire(revision, **given, way=way(), sessions=sessions)

        yield talking, way


async def _way(transport: str, server: Server) -> Callable[[], Any]:
    if transport == "asgi":
        app = server.asgi(HttpConfig(**STILL))
        return lambda: raw_wires.Asgi(app)
    url = await server.listen(config=HttpConfig(**STILL, **CONFIGS[transport]))
    port = int(url.rpartition(":")[2].partition("/")[0])
    # The first request for a page loads Quart in a thread, which on a busy machine takes longer than a scenario may.
    warm = raw_wires.Sockets(port)
    page = await warm.send("GET", "/", {"accept": "text/html"}, None)
    await page.head()
    await warm.close()
    return lambda: raw_wires.Sockets(port)


def _no_http() -> None:
    raise AssertionError("no HTTP there")


@asynccontextmanager
async def _in_memory(company: Any, revision: str, said: scenarios.Conversation) -> AsyncGenerator[raw_wires.PeerWire]:
    answers = {method: raw_wires.probe_answer(answer) for method, answer in said.answers.items()}
    async with AsyncExitStack() as stack:
        probe = await stack.enter_async_context(WireProbe(company, answers=answers, greet=False))
        talk = raw_wires.MemoryWire(revision, said.answers, said.capabilities, probe=probe)
        probe.received = raw_wires.ReceivedMessages(talk.took)
        yield talk


@contextmanager
def _forks() -> Generator[socket.socket]:
    """The program that forks a server for each pair of streams."""
    ours, theirs = socket.socketpair()
    program = Path(recorded_server.__file__).with_name("stdio_server.py")
    with ours, theirs:
        forks = subprocess.Popen(
            [sys.executable, program, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        try:
            yield ours
        finally:
            ours.close()
            forks.wait()


@asynccontextmanager
async def _on_pipes(
    orders: socket.socket, revision: str, said: scenarios.Conversation
) -> AsyncGenerator[raw_wires.PeerWire]:
    loop = asyncio.get_running_loop()
    (their_input, our_output), (our_input, their_output) = os.pipe(), os.pipe()
    socket.send_fds(orders, [b"1"], [their_input, their_output])
    os.close(their_input)
    os.close(their_output)
    reader = asyncio.StreamReader(limit=1 << 22)
    protocol = asyncio.StreamReaderProtocol(reader)
    reading, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(our_input, "rb", 0))
    writing, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(our_output, "wb", 0))
    writer = asyncio.StreamWriter(writing, flow, reader, loop)
    talk = raw_wires.PipeWire(revision, said.answers, said.capabilities, reader=reader, writer=writer)
    try:
        yield talk
    finally:
        writing.close()
        reading.close()
        orders.setblocking(False)
        talk.lane.append(f"exit {(await loop.sock_recv(orders, 1))[0]}")
