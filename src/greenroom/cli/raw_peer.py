"""Raw peers for `greenroom check --era modern`: they send messages exactly as written, right or wrong, and keep everything that comes back.

`HttpPeer` writes HTTP/1.1 by hand on connections of its own, `CommandPeer` writes lines to a program that it starts. Both offer `ask` and `open`, so that one
check fits both transports. Nothing of the server's own code is used here, since a check that shares the code of what it judges shares its mistakes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
import signal
import ssl
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias
from urllib.parse import urlsplit

from greenroom.protocol.dialect import STATELESS_DIALECT
from greenroom.protocol.jsonrpc import JSONRPC, is_object
from greenroom.protocol.serialization import is_array

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

Json: TypeAlias = dict[str, Any]

PREFIX: Final = "io.modelcontextprotocol/"
SUBSCRIPTION_ID: Final = f"{PREFIX}subscriptionId"
CLIENT: Final[Mapping[str, str]] = {"name": "greenroom check", "version": "1"}
WAIT: Final = 10.0
"""Seconds until an answer counts as missing."""
_MOST_BYTES: Final = 16 * 1024 * 1024
_HEAD: Final = 64 * 1024
_ENDS_WITHIN: Final = 2.0
_STATUS_LINE: Final = re.compile(r"HTTP/1\.[0-9] ([1-5][0-9][0-9])(?: .*)?")
_LENGTHS: Final = {10: re.compile("[0-9]{1,9}"), 16: re.compile("[0-9A-Fa-f]{1,8}")}
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_SAFE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_SENTINEL: Final = re.compile(r"=\?base64\?.*\?=", re.DOTALL)
_NAMED_BY: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}


class PeerFailed(Exception):
    """The server did not answer, or not in the form of its transport. The message says what came instead."""


def object_in(value: object, *path: str) -> Json:
    """The object at a path of members; empty if there is none, since what a server sends may have any shape."""
    found: Any = value
    for name in path:
        found = found.get(name) if is_object(found) else None
    return found if is_object(found) else {}


def objects_in(value: object) -> list[Json]:
    """The objects of an array; empty if it is none."""
    return [each for each in value if is_object(each)] if is_array(value) else []


def header_value(text: str) -> str:
    """A value as a client writes it into `Mcp-Name` or `Mcp-Param-*`: in base64 where it could be misread."""
    if _SAFE.fullmatch(text) and not _SENTINEL.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


class SseFrame(NamedTuple):
    """One block of lines of an event stream, as it was sent; comments are not in it."""

    fields: tuple[tuple[str, str], ...]

    def values(self, name: str) -> list[str]:
        """The values of a field."""
        return [value for field_name, value in self.fields if field_name == name]

    @property
    def data(self) -> str:
        """The data of the event."""
        return "\n".join(self.values("data"))


@dataclass
class RawReply:
    """Everything that came back for one request."""

    status: int | None = None
    """The HTTP status; None on stdio."""
    headers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Names in lower case."""
    body: bytes = b""
    messages: list[Json] = field(default_factory=list[Json])
    frames: list[SseFrame] = field(default_factory=list[SseFrame])
    ended: bool = False
    """Whether the server has ended its answer."""

    def header(self, name: str) -> str | None:
        """The value of a header, None if it is missing."""
        return next((value for each, value in self.headers if each == name.lower()), None)

    @property
    def streamed(self) -> bool:
        """Whether this is an event stream."""
        return (self.header("content-type") or "").startswith("text/event-stream")

    @property
    def final(self) -> Json | None:
        """The response, None if none came."""
        return next((each for each in reversed(self.messages) if "method" not in each), None)

    @property
    def result(self) -> Json:
        """The result; empty if there is none."""
        return object_in(self.final, "result")

    @property
    def error(self) -> Json:
        """The error; empty if there is none."""
        return object_in(self.final, "error")

    @property
    def error_data(self) -> Json:
        """The data of the error; empty if it is no object."""
        return object_in(self.error, "data")

    @property
    def code(self) -> int | None:
        """The code of the error."""
        return self.error.get("code")

    @property
    def kind(self) -> str | None:
        """The `resultType`, None without a result."""
        return self.result.get("resultType")

    @property
    def text(self) -> str:
        """The text of the result's first content block."""
        content = objects_in(self.result.get("content"))
        return str(content[0].get("text", "")) if content else ""

    def notifications(self, method: str) -> list[Json]:
        """The params of the notifications of that method."""
        return [object_in(each, "params") for each in self.messages if each.get("method") == method]

    def __str__(self) -> str:
        """The answer in a few words, for evidence."""
        status = "" if self.status is None else f"HTTP {self.status}, "
        if self.error:
            return f"{status}error {self.code} {str(self.error.get('message', ''))[:80]!r}"
        if self.final is not None and "result" in self.final:
            failed = " with isError" if self.result.get("isError") is True else ""
            kind = "" if self.kind in (None, "complete") else f" {self.kind}"
            return f"{status}a result{kind}{failed}"
        return f"{status}no JSON-RPC response" if self.status is not None else "no answer"


class SeenMessage(NamedTuple):
    """A message that the server has sent, and what it was sent for."""

    method: str
    """The method of the request; empty if it belongs to none."""
    enveloped: bool
    """Whether the request was one of the stateless era."""
    message: Json


def envelope(
    version: str = STATELESS_DIALECT.version, capabilities: Json | None = None, client: Mapping[str, Any] = CLIENT
) -> Json:
    """The `_meta` that every request of the revision has."""
    return {
        f"{PREFIX}protocolVersion": version,
        f"{PREFIX}clientInfo": dict(client),
        f"{PREFIX}clientCapabilities": capabilities or {},
    }


class RawRequest:
    """One request as it will be sent. Everything that is not given is what a correct client writes."""

    def __init__(  # noqa: PLR0913 - the parts of a request
        self,
        method: str,
        params: Json | None = None,
        *,
        id: str | int,
        capabilities: Json | None = None,
        meta: Json | None = None,
        headers: Mapping[str, str | None] | None = None,
        enveloped: bool = True,
        version: str = STATELESS_DIALECT.version,
        client: Mapping[str, Any] = CLIENT,
    ) -> None:
        """`headers` replace the correct ones; None leaves a header out."""
        self.id, self.method, self.enveloped = id, method, enveloped
        whole: Json = dict(params or {})
        sent_meta = {**(envelope(version, capabilities, client) if enveloped else {}), **(meta or {})}
        if sent_meta:
            whole["_meta"] = sent_meta
        self.message: Json = {"jsonrpc": JSONRPC, "id": id, "method": method, "params": whole}
        correct: dict[str, str | None] = {}
        if enveloped:
            correct = {"MCP-Protocol-Version": version, "Mcp-Method": method}
            name = whole.get(_NAMED_BY.get(method, ""))
            if isinstance(name, str):
                correct["Mcp-Name"] = header_value(name)
        replaced = {each.lower() for each in headers or {}}
        kept = {name: value for name, value in correct.items() if name.lower() not in replaced}
        self.headers = {name: value for name, value in {**kept, **(headers or {})}.items() if value is not None}

    @property
    def progress_name(self) -> Any:
        """The progress token that it has, None if it has none."""
        return self.message["params"].get("_meta", {}).get("progressToken")

    @property
    def body(self) -> bytes:
        """The message as JSON on one line."""
        return json.dumps(self.message).encode()


# --- HTTP


class HttpLine:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def close(self) -> None:
        """Close it; an answer that is still under way is cut off."""
        self.writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_ENDS_WITHIN):
                await self.writer.wait_closed()


class HttpExchange:
    """A request that was sent over HTTP, and its answer as it arrives."""

    def __init__(self, peer: HttpPeer, line: HttpLine, request: RawRequest | None, *, keep: bool, judged: bool) -> None:
        """`keep` leaves the connection open after a complete answer."""
        self.reply = RawReply()
        self._peer, self._line, self._request, self._keep, self._judged = peer, line, request, keep, judged
        self._incoming: AsyncGenerator[Json] = self._read()

    async def next(self, within: float = WAIT) -> Json | None:
        """The next message; None at the end of the answer."""
        try:
            async with asyncio.timeout(within):
                return await anext(self._incoming, None)
        except TimeoutError:
            raise PeerFailed(f"nothing came within {within:g} s") from None
        except asyncio.LimitOverrunError:
            raise PeerFailed(f"a head, or the size of a chunk, is longer than {_HEAD} bytes") from None
        except (OSError, EOFError) as error:
            raise PeerFailed(f"the connection broke: {str(error) or type(error).__name__}") from error

    async def finish(self, within: float = WAIT) -> RawReply:
        """The whole answer."""
        try:
            while await self.next(within) is not None:
                pass
        finally:
            if not self._keep or not self.reply.ended:
                await self._line.close()
        return self.reply

    async def until_response(self, within: float = WAIT) -> RawReply:
        """The answer up to its response; the stream may still be open."""
        while (message := await self.next(within)) is not None and "method" in message:
            pass
        return self.reply

    async def close(self) -> None:
        """Close the connection, which cancels the request."""
        await self._line.close()

    async def _read(self) -> AsyncGenerator[Json]:
        await self._read_head()
        if self.reply.streamed:
            async for frame in self._frames():
                self.reply.frames.append(frame)
                if frame.data:
                    yield self._keep_message(_parsed(frame.data))
        else:
            self.reply.body = b"".join([piece async for piece in self._body()])
            parsed = _json(self.reply.body)
            for each in objects_in(parsed if is_array(parsed) else [parsed]):
                yield self._keep_message(each)
        self.reply.ended = True

    def _keep_message(self, message: Json) -> Json:
        self.reply.messages.append(message)
        self._peer.seen.append(
            SeenMessage("" if self._request is None else self._request.method, self._judged, message)
        )
        return message

    async def _read_head(self) -> None:
        while self.reply.status is None or 100 <= self.reply.status < 200:  # noqa: PLR2004 - interim responses
            block = (await self._line.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = block.split("\r\n")
            status = _STATUS_LINE.fullmatch(first)
            if status is None:
                raise PeerFailed(f"this is no HTTP response: {first[:60]!r}")
            self.reply.status = int(status[1])
            named = [line.partition(":") for line in lines if line]
            self.reply.headers = [(name.strip().lower(), value.strip()) for name, _, value in named]

    async def _body(self) -> AsyncIterator[bytes]:
        """The body in pieces, by the framing that the head declares."""
        reader, total = self._line.reader, 0
        length = self.reply.header("content-length")
        if (self.reply.header("transfer-encoding") or "").lower() == "chunked":
            while size := _length((await reader.readuntil(b"\r\n")).partition(b";")[0].decode("latin-1"), 16):
                total += size
                _check_size(total)
                yield await reader.readexactly(size)
                await reader.readexactly(2)
            await reader.readuntil(b"\r\n")
        elif length is not None:
            _check_size(total := _length(length, 10))
            yield await reader.readexactly(total)
        elif self.reply.status not in (204, 304):
            while piece := await reader.read(_HEAD):
                total += len(piece)
                _check_size(total)
                yield piece

    async def _frames(self) -> AsyncIterator[SseFrame]:
        # A line may come in many pieces: they are joined once, at its end.
        begun, fields = list[bytes](), list[tuple[str, str]]()
        async for piece in self._body():
            whole, ended, rest = piece.rpartition(b"\n")
            if not ended:
                begun.append(rest)
                continue
            lines = b"".join([*begun, whole]).split(b"\n")
            begun = [rest]
            for line in (each.removesuffix(b"\r").decode(errors="replace") for each in lines):
                if line and not line.startswith(":"):
                    name, _, value = line.partition(":")
                    fields.append((name, value.removeprefix(" ")))
                elif not line and fields:
                    yield SseFrame(tuple(fields))
                    fields = []


class HttpPeer:
    """Sends requests to the endpoint at a URL, each on a connection of its own unless `line` says which."""

    transport: Final = "http"

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        """`headers` go with every request. Raises `PeerFailed` for a URL without a host, and for a header that cannot be sent."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise PeerFailed(f"{url[:200]!r} is no URL: {error}") from None
        if host is None or parts.scheme not in ("http", "https"):
            raise PeerFailed(f"{url[:200]!r} is no URL of a server: write http://host:port/path, or https://…")
        self.url, self.secure = url, parts.scheme == "https"
        self.host, self.port = host, port or (443 if self.secure else 80)
        self.authority = parts.netloc.rpartition("@")[2]
        self.target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self.headers = dict(headers or {})
        for name, value in self.headers.items():  # the value may be a secret, and is not repeated
            if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise PeerFailed(f"the header {name[:60]!r} has characters that no header may have")
        self.seen: list[SeenMessage] = []
        """All messages of the server, in order."""
        self._ids = count(1)

    @property
    def origin(self) -> str:
        """The origin of the URL."""
        return f"{'https' if self.secure else 'http'}://{self.authority}"

    async def connect(self) -> HttpLine:
        """A connection for several requests, one after the other."""
        context = ssl.create_default_context() if self.secure else None
        try:
            async with asyncio.timeout(WAIT):
                opened = await asyncio.open_connection(self.host, self.port, ssl=context, limit=_HEAD)
        except (OSError, TimeoutError) as error:
            raise PeerFailed(f"{self.url} cannot be reached: {str(error) or 'no answer'}") from error
        return HttpLine(*opened)

    async def open(
        self, method: str, params: Json | None = None, *, line: HttpLine | None = None, **how: Any
    ) -> HttpExchange:
        """Send a request and return at once. `how` has the options of `RawRequest`."""
        how.setdefault("id", next(self._ids))
        request = RawRequest(method, params, **how)
        return await self.send("POST", request.headers, request.body, request=request, line=line)

    async def ask(
        self,
        method: str,
        params: Json | None = None,
        *,
        line: HttpLine | None = None,
        within: float = WAIT,
        **how: Any,
    ) -> RawReply:
        """Send a request and wait for the whole answer."""
        return await (await self.open(method, params, line=line, **how)).finish(within)

    async def send(  # noqa: PLR0913 - the parts of an HTTP request
        self,
        verb: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        request: RawRequest | None = None,
        line: HttpLine | None = None,
        bare: bool = False,
        judged: bool = True,
    ) -> HttpExchange:
        """Send these bytes. `bare` leaves out the headers that go with every request; what answers is judged as an answer of the revision if `judged`."""
        kept = line is not None
        line = line or await self.connect()
        whole = {
            "Host": self.authority,
            "Accept": "application/json, text/event-stream",
            **({"Content-Type": "application/json", "Content-Length": str(len(body))} if verb == "POST" else {}),
            **({} if kept else {"Connection": "close"}),
            **({} if bare else self.headers),
            **(headers or {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in whole.items())
        line.writer.write(f"{verb} {self.target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
        try:
            await line.writer.drain()
        except OSError as error:
            raise PeerFailed(f"the connection broke: {error}") from error
        return HttpExchange(self, line, request, keep=kept, judged=judged and (request is None or request.enveloped))


def _check_size(size: int) -> None:
    if size > _MOST_BYTES:
        raise PeerFailed(f"the answer is longer than {_MOST_BYTES} bytes")


def _length(text: str, base: int) -> int:
    """A length that frames a body. Python would read signs, blanks and underscores, too."""
    if _LENGTHS[base].fullmatch(text.strip()) is None:
        raise PeerFailed(f"this is no length of a body: {text[:60]!r}")
    return int(text, base)


def _json(data: bytes | str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _parsed(data: str) -> Json:
    found = _json(data)
    if not is_object(found):
        raise PeerFailed(f"this event holds no JSON object: {data[:60]!r}")
    return found


# --- stdio


class CommandExchange:
    """A request that was written to a program, and the messages that belong to it."""

    def __init__(self, peer: CommandPeer, request: RawRequest) -> None:
        self.reply = RawReply()
        self.is_closed = False
        self.late: list[Json] = []
        """The messages that came after the request was cancelled."""
        self.request = request
        self._peer = peer
        self._arrived: asyncio.Queue[Json | None] = asyncio.Queue()

    def take(self, message: Json | None) -> None:
        """A message that belongs to this request; None at the end of the output."""
        if self.is_closed and message is not None:
            self.late.append(message)
        self._arrived.put_nowait(message)

    async def next(self, within: float = WAIT) -> Json | None:
        """The next message; None at the end of the answer."""
        if self.reply.ended:
            return None
        try:
            async with asyncio.timeout(within):
                message = await self._arrived.get()
        except TimeoutError:
            raise PeerFailed(f"nothing came within {within:g} s") from None
        if message is None:
            raise PeerFailed("the server closed its output")
        self.reply.messages.append(message)
        self.reply.ended = "method" not in message
        return message

    async def finish(self, within: float = WAIT) -> RawReply:
        """The whole answer."""
        while await self.next(within) is not None:
            pass
        return self.reply

    async def until_response(self, within: float = WAIT) -> RawReply:
        """The same as `finish`: on stdio an answer ends with its response."""
        return await self.finish(within)

    async def close(self) -> None:
        """Cancel the request by the notification."""
        if not self.reply.ended and not self.is_closed:
            self.is_closed = True
            await self._peer.notify("notifications/cancelled", {"requestId": self.request.id})


class CommandPeer:
    """Starts a program, and writes requests to its stdin. `async with` starts and ends it."""

    transport: Final = "stdio"

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        self.command, self.env = list(command), {**os.environ, **(env or {})}
        self.seen: list[SeenMessage] = []
        """All messages of the server, in order."""
        self.garbage: list[bytes] = []
        """Lines of stdout that are no messages."""
        self.strays: list[Json] = []
        """Messages that belong to no request."""
        self._ids = count(1)
        self._open: dict[tuple[type, str | int], CommandExchange] = {}
        self._process: asyncio.subprocess.Process
        self._reading: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=pipe,
                stdout=pipe,
                stderr=asyncio.subprocess.DEVNULL,
                env=self.env,
                limit=_MOST_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            raise PeerFailed(f"{self.command[0]} cannot be started: {error.strerror or error}") from error
        self._reading = asyncio.ensure_future(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if not await self.exits_within(_ENDS_WITHIN):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading

    async def exits_within(self, seconds: float) -> bool:
        """Close the server's stdin. Returns whether the server has exited within that time."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(seconds):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    async def open(
        self, method: str, params: Json | None = None, *, line: HttpLine | None = None, **how: Any
    ) -> CommandExchange:
        """Write a request and return at once. `how` has the options of `RawRequest`; there are no headers, and one connection only."""
        del line
        how.pop("headers", None)
        how.setdefault("id", next(self._ids))
        request = RawRequest(method, params, **how)
        exchange = CommandExchange(self, request)
        self._open[type(request.id), request.id] = exchange
        await self.write(request.body)
        return exchange

    async def ask(
        self,
        method: str,
        params: Json | None = None,
        *,
        line: HttpLine | None = None,
        within: float = WAIT,
        **how: Any,
    ) -> RawReply:
        """Write a request and wait for the whole answer."""
        return await (await self.open(method, params, line=line, **how)).finish(within)

    async def notify(self, method: str, params: Json | None = None) -> None:
        """Write a notification."""
        await self.write(json.dumps({"jsonrpc": JSONRPC, "method": method, "params": params or {}}).encode())

    async def write(self, line: bytes) -> None:
        """Write this line."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + b"\n")
            await self._process.stdin.drain()
        except OSError as error:
            raise PeerFailed(f"the server closed its input: {error}") from error

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:  # the line is longer than the limit, and its beginning is dropped
                line = b"a line of more than %d bytes\n" % _MOST_BYTES
            if not line:
                break
            message = _json(line)
            if is_object(message):
                self._dispatch(message)
            else:
                self.garbage.append(line)
        for exchange in self._open.values():
            exchange.take(None)

    def _dispatch(self, message: Json) -> None:
        """Pass a message to its request: by its id, its subscription or its progress token; a log message to the request under way."""
        owner = self._owner(message)
        method, enveloped = ("", True) if owner is None else (owner.request.method, owner.request.enveloped)
        self.seen.append(SeenMessage(method, enveloped, message))
        if owner is None:
            self.strays.append(message)
        else:
            owner.take(message)

    def _owner(self, message: Json) -> CommandExchange | None:
        params = object_in(message, "params")
        if "method" not in message:
            return self._by_id(message.get("id"))
        subscription = object_in(params, "_meta").get(SUBSCRIPTION_ID)
        if subscription is not None:
            return self._by_id(subscription)
        if message["method"] == "notifications/cancelled":
            return self._by_id(params.get("requestId"))
        running = [each for each in self._open.values() if not each.reply.ended]
        if message["method"] == "notifications/progress":
            named = params.get("progressToken")
            running = [each for each in running if each.request.progress_name == named]
        calls = [each for each in running if each.request.method != "subscriptions/listen"]
        return calls[-1] if calls else None

    def _by_id(self, id: Any) -> CommandExchange | None:
        return self._open.get((type(id), id)) if isinstance(id, str | int) else None


RawPeer: TypeAlias = HttpPeer | CommandPeer
Exchange: TypeAlias = HttpExchange | CommandExchange
