"""A peer's connections to a server, by hand: each sends what a scenario says, and keeps every frame that arrives.

Frames are kept by exchange: a lane begins with what was sent, and lanes are in the order in which their exchanges began, so that parallel
exchanges on two connections are recorded in the same order in each run.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from greenroom import McpError

from .recordings import listed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from typing import Protocol

    from greenroom.testing import WireProbe

    Message = dict[str, Any]

    class Exchange(Protocol):
        """One HTTP request in flight."""

        async def head(self) -> tuple[str, list[tuple[str, str]]]:
            """The status, and the headers in their order."""
            ...

        def pieces(self) -> AsyncIterator[bytes]:
            """The body."""
            ...

    class Way(Protocol):
        """Sends HTTP requests to the server."""

        async def send(self, verb: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Exchange:
            """Start a request."""
            ...

        async def close(self) -> None:
            """Disconnect."""


BOTH = "application/json, text/event-stream"
INFO = {"name": "peer", "version": "1"}
APART = ("notifications/resources/updated", "notifications/tools/list_changed", "notifications/tasks/status")
"""Notifications that belong to no call: they may arrive before a call's reply or after it, and are recorded separately."""


def dump(value: object) -> str:
    """JSON as greenroom writes it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Unanswered(Exception):
    """The server disconnected before a response was complete."""


@dataclass
class FrameTape:
    """The recorded frames."""

    lanes: list[list[str]] = field(default_factory=list[list[str]])
    messages: list[Message] = field(default_factory=list["Message"])
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def lane(self, label: str) -> list[str]:
        """Start another lane."""
        lane = [f"> {label}"]
        self.lanes.append(lane)
        return lane

    def clear(self) -> None:
        """Drop the frames so far: they belong to another scenario."""
        self.lanes.clear()
        self.messages.clear()

    def take(self, message: Message) -> None:
        """Record a message."""
        self.messages.append(message)
        self._news.set()

    async def until(self, wanted: Callable[[Message], bool], count: int = 1) -> None:
        """Wait for so many messages of a kind."""
        while sum(map(wanted, tuple(self.messages))) < count:
            self._news.clear()
            await self._news.wait()


# --- HTTP on a socket


class Connection:
    """One connection, for sequential exchanges."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.left: Callable[[Connection], None] = lambda _: None
        self._length = 0
        self._chunked = False
        self._last = False

    async def head(self) -> tuple[str, list[tuple[str, str]]]:
        """The status, and the headers in their order."""
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = text[:-4].split("\r\n")
        headers: list[tuple[str, str]] = []
        for line in lines:
            name, _, value = line.partition(": ")
            headers.append((name, value))
        folded = {name.lower(): value for name, value in headers}
        self._length = int(folded.get("content-length", 0))
        self._chunked = folded.get("transfer-encoding") == "chunked"
        self._last = folded.get("connection") == "close"
        return status, headers

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body."""
        if self._chunked:
            while size := int(await self.reader.readuntil(b"\n"), 16):
                yield (await self.reader.readexactly(size + 2))[:-2]
            assert await self.reader.readline() == b"\r\n"
        elif self._length:
            yield await self.reader.readexactly(self._length)
        if not self._last:
            self.left(self)

    async def close(self) -> None:
        """Disconnect."""
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


class Sockets:
    """Connections to a port, as many as are needed at once."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._free: deque[Connection] = deque()
        self._all: list[Connection] = []

    async def connect(self) -> Connection:
        """Open a connection."""
        made = Connection(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22))
        made.left = self._free.append
        self._all.append(made)
        return made

    async def send(self, verb: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Connection:
        """Start a request."""
        connection = self._free.popleft() if self._free else await self.connect()
        said = {"host": f"127.0.0.1:{self.port}", **headers}
        if body is not None and "transfer-encoding" not in said:
            said.setdefault("content-length", str(len(body)))
        lines = [f"{verb} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in said.items() if value != "-")]
        connection.writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))
        await connection.writer.drain()
        return connection

    async def raw(self, data: bytes) -> str:
        """Send these bytes on a new connection, and read until it ends."""
        connection = await self.connect()
        connection.writer.write(data)
        got = b""
        with suppress(ConnectionError):
            while more := await connection.reader.read(1 << 16):
                got += more
        return got.decode("latin-1")

    async def close(self) -> None:
        """Disconnect all."""
        for each in self._all:
            await each.close()


# --- HTTP in an ASGI application


class Asgi:
    """Requests as an ASGI server passes them to an application."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, verb: str, path: str, headers: Mapping[str, str], body: bytes | None) -> AsgiExchange:
        """Start a request."""
        said = {"host": "127.0.0.1", **headers}
        if body is not None:
            said.setdefault("content-length", str(len(body)))
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": verb,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "client": ("127.0.0.1", 9),
            "server": ("127.0.0.1", 80),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in said.items() if value != "-"],
        }
        exchange = AsgiExchange(body or b"")
        task = asyncio.create_task(self._app(scope, exchange.receive, exchange.take))
        self._tasks.add(task)
        task.add_done_callback(lambda _: exchange.came.put_nowait(None))
        return exchange

    async def close(self) -> None:
        """Disconnect."""
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class AsgiExchange:
    """One request."""

    def __init__(self, body: bytes) -> None:
        self.came: asyncio.Queue[Any] = asyncio.Queue()
        self._body: list[bytes] = [body]

    async def receive(self) -> dict[str, Any]:
        """ASGI `receive`: the body, and then nothing for ever."""
        if not self._body:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": self._body.pop(), "more_body": False}

    async def take(self, event: Any) -> None:
        """ASGI `send`."""
        self.came.put_nowait(event)

    async def head(self) -> tuple[str, list[tuple[str, str]]]:
        """The status, and the headers in their order."""
        begun = await self.came.get()
        if begun is None:
            raise Unanswered
        return f"ASGI {begun['status']}", [(name.decode(), value.decode()) for name, value in begun["headers"]]

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body."""
        while True:
            event = await self.came.get()
            if event is None:
                raise Unanswered
            yield event["body"]
            if not event.get("more_body"):
                return


# --- a conversation


@dataclass
class PeerWire:
    """A peer of a server on some transport; each kind defines how a message is sent."""

    revision: str
    answers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    tape: FrameTape = field(default_factory=FrameTape)
    begun: dict[Any, asyncio.Task[None]] = field(default_factory=dict[Any, "asyncio.Task[None]"])

    async def open(self) -> None:
        """Connect, where that is a step of its own."""

    def fresh(self) -> None:
        """Start a recording; earlier frames belong to another one."""
        self.tape.clear()

    async def greet(self) -> None:
        """The handshake."""
        params = {"protocolVersion": self.revision, "capabilities": self.capabilities, "clientInfo": INFO}
        await self.ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        await self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def ask(self, message: Message) -> None:
        """Send a request, and wait for its reply."""
        raise NotImplementedError

    async def say(self, message: Message) -> None:
        """Send a message that has no reply."""
        raise NotImplementedError

    async def raw(self, text: bytes) -> None:
        """Send these bytes, and read one reply."""
        raise NotImplementedError

    async def close(self) -> None:
        """Leave."""
        raise NotImplementedError

    def begin(self, message: Message) -> None:
        """Send a request without waiting."""
        self.begun[message["id"]] = asyncio.create_task(self.ask(message))

    async def end(self, id: Any) -> None:
        """Wait until nothing more will come for a started request."""
        await self.begun.pop(id)

    async def stop(self, id: Any) -> None:
        """A cancelled request gets nothing: when the next one is answered, its reply would have come."""
        task = self.begun.pop(id)
        await self.ask({"jsonrpc": "2.0", "id": "after", "method": "ping"})
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def leave(self) -> None:
        """Leave with requests in flight."""
        await self.close()
        for each in self.begun.values():
            each.cancel()
        await asyncio.gather(*self.begun.values(), return_exceptions=True)

    def reply_to(self, message: Message) -> Message | None:
        """The answer to a server's request; None where the scenario has no answer."""
        answer = self.answers.get(message["method"], {"code": -32601, "message": "Not here"})
        if answer is None:
            return None
        kind = "error" if isinstance(answer, dict) and "code" in answer else "result"
        return {"jsonrpc": "2.0", "id": message["id"], kind: answer}


def label(message: Message) -> str:
    """The name of a message in the recording."""
    named = str(message.get("method", "answer"))
    params: Any = message.get("params")
    return f"{named} {params['name']}" if isinstance(params, dict) and "name" in params else named


@dataclass
class HttpWire(PeerWire):
    """Streamable HTTP. Without sessions, each request stands alone."""

    way: Way = field(kw_only=True)
    path: str = "/mcp"
    sessions: bool = True
    session: str = ""
    more: Mapping[str, str] = field(default_factory=dict[str, str])
    waits_for_event: bool = False
    _streams: list[asyncio.Task[None]] = field(default_factory=list["asyncio.Task[None]"])

    async def greet(self) -> None:
        if self.sessions:
            await super().greet()

    def headers(self, message: Message | None = None) -> dict[str, str]:
        """The headers of a client's message."""
        said = {"accept": BOTH, "content-type": "application/json"}
        if self.session:
            said["mcp-session-id"] = self.session
        if self.revision >= "2025-06-18" and (message or {}).get("method") != "initialize":
            said["mcp-protocol-version"] = self.revision
        return {**said, **self.more}

    async def ask(self, message: Message) -> None:
        await self.post(message)

    async def say(self, message: Message) -> None:
        await self.post(message)

    async def raw(self, text: bytes) -> None:
        await self.exchange("POST", self.path, self.headers(), text, "raw")

    async def post(self, message: Message) -> None:
        """Send one message."""
        await self.exchange("POST", self.path, self.headers(message), dump(message).encode(), label(message))

    async def listen(self, last: str = "") -> None:
        """Open a stream, and continue once it has begun."""
        headers = {**self.headers(), "accept": "text/event-stream"}
        del headers["content-type"]
        if last:
            headers["last-event-id"] = last
        first = asyncio.Event()
        reading = self.exchange("GET", self.path, headers, None, f"GET {last}".strip(), first)
        self._streams.append(asyncio.create_task(reading))
        await first.wait()

    async def resume(self, last: str) -> None:
        """Resume a stream, and read it to its end."""
        await self.listen(last)
        await self._streams.pop()

    async def close(self) -> None:
        if self.session:
            lanes = len(self.tape.lanes)
            await self.exchange("DELETE", self.path, self.headers(), None, "DELETE")
            del self.tape.lanes[lanes:]
        await asyncio.gather(*self._streams)
        await self.way.close()

    async def exchange(
        self,
        verb: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        named: str,
        first: asyncio.Event | None = None,
    ) -> None:
        """Send one request, and read its whole response."""
        lane = self.tape.lane(named)
        try:
            exchange = await self.way.send(verb, path, headers, body)
            status, got = await exchange.head()
            while " 100 " in status:
                lane.append(status)
                status, got = await exchange.head()
            folded = {name.lower(): value for name, value in got}
            self.session = self.session or (folded.get("mcp-session-id", "") if self.sessions else "")
            lane.append(status)
            place = len(lane) - 1
            if folded.get("content-type") == "text/event-stream":
                lane[place] = shown_head(status, got, None)
                if first is not None and not self.waits_for_event:
                    first.set()
                await self._events(exchange, lane, first)
            else:
                data = b"" if verb == "HEAD" else b"".join([each async for each in exchange.pieces()])
                lane[place] = shown_head(status, got, None if verb == "HEAD" else data)
                if data:
                    await self._take(lane, data.decode(), is_text=folded.get("content-type") == "text/plain")
        except (ConnectionError, asyncio.IncompleteReadError, Unanswered):
            lane.append("hung up")
        finally:
            if first is not None:
                first.set()

    async def _events(self, exchange: Exchange, lane: list[str], first: asyncio.Event | None) -> None:
        rest = b""
        async for piece in exchange.pieces():
            *events, rest = (rest + piece).split(b"\n\n")
            for event in events:
                await self._take(lane, event.decode())
                if first is not None:
                    first.set()
        if rest:
            lane.append(f"unfinished {rest.decode()}")

    async def _take(self, lane: list[str], text: str, *, is_text: bool = False) -> None:
        lane.append(f"text: {text}" if is_text else text)
        _, _, data = ("\n" + text).rpartition("\ndata: ") if not text.startswith(("{", "[")) else ("", "", text)
        with suppress(ValueError):
            for message in listed(json.loads(data)):
                self.tape.take(message)
                if "method" in message and "id" in message and (reply := self.reply_to(message)) is not None:
                    await self.post(reply)


def shown_head(status: str, headers: list[tuple[str, str]], body: bytes | None) -> str:
    """A status and headers as they are recorded. A content length that equals the body's is not recorded as a number, which would change with the text of an error."""
    shown: list[str] = []
    is_html = any(value.startswith("text/html") for _, value in headers)
    for name, said in headers:
        # Quart writes its `Allow` from a set, in another order in each process.
        value = ", ".join(sorted(said.split(", "))) if is_html and name == "allow" else said
        exact = body is not None and name.lower() == "content-length" and value == str(len(body))
        shown.append(f"{name}: {'exact' if exact and body else value}")
    return " | ".join([status, *shown])


@dataclass
class LegacySseWire(HttpWire):
    """HTTP+SSE, as clients of 2024-11-05 speak it."""

    sse: str = "/sse"
    waits_for_event: bool = True
    _place: str = ""
    _apart: list[str] = field(default_factory=list[str])

    async def greet(self) -> None:
        await PeerWire.greet(self)

    async def open(self) -> None:
        """The stream: its first event names the URL for posts."""
        first = asyncio.Event()
        reading = self.exchange("GET", self.sse, {"accept": "text/event-stream"}, None, "GET /sse", first)
        self._streams.append(asyncio.create_task(reading))
        await first.wait()

    def fresh(self) -> None:
        stream = self.tape.lanes[0]
        super().fresh()
        stream[:] = ["> stream"]
        self.tape.lanes.append(stream)

    async def ask(self, message: Message) -> None:
        await self.post(message)
        await self.tape.until(lambda each: "method" not in each and each.get("id") == message["id"])

    async def end(self, id: Any) -> None:
        await self.stop(id)

    async def raw(self, text: bytes) -> None:
        await self.exchange("POST", self._place, self.headers(), text, "raw")
        asked: Any = None
        with suppress(ValueError):
            asked = json.loads(text)
        taken = next(lane for lane in reversed(self.tape.lanes) if lane[0] == "> raw")[1].startswith("HTTP/1.1 202")
        if taken and "id" in asked:
            id: Any = asked["id"]
            await self.tape.until(lambda each: "method" not in each and each.get("id") == id)

    async def post(self, message: Message) -> None:
        await self.exchange("POST", self._place, self.headers(message), dump(message).encode(), label(message))

    async def close(self) -> None:
        await self.way.close()
        await asyncio.gather(*self._streams)
        self.tape.lanes = [[each for each in lane if each != "hung up"] for lane in (*self.tape.lanes, self._apart)]

    async def _take(self, lane: list[str], text: str, *, is_text: bool = False) -> None:
        if text.startswith("event: endpoint\n"):
            self._place = f"/{text.partition('data: ')[2]}"
        apart = any(f'"method":"{each}"' in text for each in APART)
        await super()._take(self._apart if apart else lane, text, is_text=is_text)


# --- lines


@dataclass
class LineWire(PeerWire):
    """Messages one after the other, in both directions."""

    lane: list[str] = field(init=False)
    apart: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.fresh()

    def fresh(self) -> None:
        super().fresh()
        self.lane = self.tape.lane("lines")
        self.apart = self.tape.lane("apart")

    async def greet(self) -> None:
        await super().greet()
        await self.barrier()

    async def end(self, id: Any) -> None:
        await self.stop(id)

    async def barrier(self) -> None:
        """Everything sent before was processed once this is answered."""
        await self.ask({"jsonrpc": "2.0", "id": "barrier", "method": "ping"})
        self.tape.messages.pop()
        self.lane.pop()

    async def ask(self, message: Message) -> None:
        before = self._answers(message["id"])
        await self.send(dump(message).encode())
        await self.tape.until(lambda each: "method" not in each and each.get("id") == message["id"], before + 1)

    def _answers(self, id: Any) -> int:
        return sum("method" not in each and each.get("id") == id for each in self.tape.messages)

    async def say(self, message: Message) -> None:
        await self.send(dump(message).encode())

    async def raw(self, text: bytes) -> None:
        count = len(self.tape.messages)
        await self.send(text)
        await self.tape.until(lambda _: True, count + 1)

    async def send(self, line: bytes) -> None:
        """One line."""
        raise NotImplementedError

    async def came(self, text: str) -> None:
        """A line."""
        found = listed(json.loads(text))
        (self.apart if any(each.get("method") in APART for each in found) else self.lane).append(text)
        for each in found:
            self.tape.take(each)
            if "method" in each and "id" in each and (reply := self.reply_to(each)) is not None:
                await self.send(dump(reply).encode())


@dataclass
class PipeWire(LineWire):
    """A program's standard streams."""

    reader: asyncio.StreamReader = field(kw_only=True)
    writer: asyncio.StreamWriter = field(kw_only=True)
    _reading: asyncio.Task[None] | None = None

    async def send(self, line: bytes) -> None:
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        self.writer.write(line + b"\n")
        await self.writer.drain()

    async def _read(self) -> None:
        while line := await self.reader.readline():
            await self.came(line.decode().removesuffix("\n"))

    async def close(self) -> None:
        self.writer.close()
        if self._reading is not None:
            await self._reading


class ReceivedMessages(list["Message"]):
    """What the probe has received; each message is passed on as it arrives."""

    def __init__(self, take: Callable[[Message], None]) -> None:
        super().__init__()
        self._take = take

    def append(self, message: Message) -> None:
        super().append(message)
        self._take(message)


@dataclass
class MemoryWire(LineWire):
    """The probe of greenroom's testing kit, which answers the server's requests by itself."""

    probe: WireProbe = field(kw_only=True)

    async def send(self, line: bytes) -> None:
        await self.probe.send(line)

    def took(self, message: Message) -> None:
        """The probe has received a message."""
        (self.apart if message.get("method") in APART else self.lane).append(dump(message))
        self.tape.take(message)

    async def leave(self) -> None:
        """Leave once everything sent before has arrived."""
        if not self.begun:
            await self.barrier()
        await super().leave()

    async def close(self) -> None:
        """The probe is closed by its owner."""


def probe_answer(answer: Any) -> Callable[[Message], Any]:
    """For the probe: returns a result, raises an error, or waits for ever where there is no answer."""

    async def answered(params: Message) -> Any:
        del params
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, dict) and "code" in answer:
            raise McpError(answer["code"], answer["message"])  # pyright: ignore[reportUnknownArgumentType]
        found: Any = answer  # pyright: ignore[reportUnknownVariableType]
        return found

    return answered
