"""A faulty load balancer: it cuts connections, delays, answers in place of the server (before or after it was asked), and fails over.

It speaks as much HTTP/1.1 as our client and server do with each other. What goes wrong with a request is decided by the seed, the token in it
and how often that token has come, so it goes wrong in the same way the next time.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

_RESET: Final = struct.pack("ii", 1, 0)
_TOKEN: Final = re.compile(rb'"token": ?"([^"]{1,100})"')
_LENGTH: Final = re.compile(rb"\r\ncontent-length: ?(\d+)\r\n", re.IGNORECASE)
STATUSES: Final = (404, 429, 502, 503)
FAULTS: Final = (
    "cut before it",
    "cut in the request",
    "cut in the answer",
    "cut after the answer",
    "late request",
    "late answer",
    *(f"{status} before it" for status in STATUSES),
    *(f"{status} after it" for status in STATUSES),
    "fail over",
)


Behind: TypeAlias = "dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]]"
"""The connections to servers that belong to one connection of a client."""


class Fault(NamedTuple):
    """A fault of one request; `where` is how far the exchange gets before it, as a fraction from 0 to 1."""

    kind: str
    where: float


class _Whole(NamedTuple):
    """An answer. With `more` it is the beginning of a stream, which ends with its connection."""

    data: bytes
    more: bool


_BAD_GATEWAY: Final = _Whole(b"HTTP/1.1 502 So\r\ncontent-length: 0\r\n\r\n", more=False)
_MIRRORED: Final = b"\r\nmcp-method:"


class Balancer:
    """A load balancer in front of servers: one is active, the others are on standby."""

    def __init__(self, seed: int, rate: float, targets: Sequence[int] = ()) -> None:
        """`rate` is the share of requests with a token that get a fault; for other requests it is a fifth of that."""
        self.targets = list(targets)
        self.active = 0
        self.port = 0
        self.faults: Counter[str] = Counter()
        self.failed_over = 0
        """How many requests were sent to a second server."""
        self.what: dict[str, list[str]] = {}
        """By token, the kinds of its faults, one for each request that had one."""
        self._seed = seed
        self._rate = rate
        self._times: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._met, "127.0.0.1", 0, limit=2**20)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def plan(self, token: str) -> Fault | None:
        """The fault of the next request with that token; None without one."""
        self._times[token] += 1
        chance = Random(f"{self._seed}/{token}/{self._times[token]}")
        if chance.random() >= (self._rate if "-" in token else self._rate / 5):
            return None
        fault = Fault(chance.choice(FAULTS), chance.random())
        self.faults[fault.kind] += 1
        if "-" in token:
            self.what.setdefault(token, []).append(fault.kind)
        return fault

    # --- connections

    def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind: Behind = {}
        try:
            with suppress(OSError, EOFError, asyncio.LimitOverrunError, _Cut):
                while await self._request(reader, writer, behind):
                    pass
        finally:
            for _, each in behind.values():
                each.close()
            writer.close()

    async def _request(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        behind: Behind,
    ) -> bool:
        """Forward one request and its answer. Returns whether another request may follow on the connection."""
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1])) if length is not None else b""
        found = _TOKEN.search(body)
        token = found[1].decode() if found is not None else head.partition(b" ")[0].decode()
        fault = self.plan(token)
        kind, where = fault or ("", 0.0)
        request = head + body
        if kind == "cut before it":
            _reset(writer)
        if kind == "late request":
            await asyncio.sleep(0.2 * where)
        if kind.endswith("before it"):
            await _say(writer, int(kind[:3]), where)
            return True
        if kind == "cut in the request":
            upstream = await self._upstream(behind, self.active)
            upstream[1].write(request[: max(1, int(where * len(request)))])
            await upstream[1].drain()
            _drop(behind, self.active)
            _reset(writer)
        which, answer = await self._answer(request, behind, lost=kind == "fail over")
        if kind == "late answer":
            await asyncio.sleep(0.2 * where)
        if kind.endswith("after it"):
            _drop(behind, which)
            await _say(writer, int(kind[:3]), where)
            return True
        if kind == "cut in the answer":
            writer.write(answer.data[: int(where * len(answer.data))])
            await writer.drain()
            _reset(writer)
        writer.write(answer.data)
        await writer.drain()
        if kind == "cut after the answer":
            _reset(writer)
        if not answer.more:
            return True
        upstream = behind[which]
        hung_up = asyncio.ensure_future(reader.read(1))  # stop reading from the server when the client has hung up
        try:
            while True:
                more = asyncio.ensure_future(upstream[0].read(2**16))
                await asyncio.wait([more, hung_up], return_when=asyncio.FIRST_COMPLETED)
                if not more.done():
                    more.cancel()
                    return False
                if not (data := more.result()):
                    return False
                writer.write(data)
                await writer.drain()
        finally:
            hung_up.cancel()
            await asyncio.gather(hung_up, return_exceptions=True)

    async def _upstream(self, behind: Behind, which: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        kept = behind.get(which)
        if kept is None or kept[0].at_eof():
            kept = behind[which] = await asyncio.open_connection("127.0.0.1", self.targets[which], limit=2**20)
        return kept

    async def _answer(self, request: bytes, behind: Behind, *, lost: bool) -> tuple[int, _Whole]:
        """The answer, and the number of its server. A server that hangs up, or whose answer is `lost`, counts as dead, and the next one gets the request.

        Not so a request that stands alone: any server would execute it a second time, and no client could tell. HTTP forbids proxies to repeat those.
        """
        which = self.active
        alone = _MIRRORED in request.partition(b"\r\n\r\n")[0].lower()
        try:
            answer = await self._ask(request, behind, which)
        except (OSError, EOFError):
            if len(self.targets) == 1:
                raise
        else:
            if not lost or len(self.targets) == 1:
                return which, answer
        _drop(behind, which)
        self.active = (which + 1) % len(self.targets)
        if alone:
            return which, _BAD_GATEWAY
        self.failed_over += 1
        return self.active, await self._ask(request, behind, self.active)

    async def _ask(self, request: bytes, behind: Behind, which: int) -> _Whole:
        """The answer; for a stream, its beginning."""
        try:
            reader, writer = await self._upstream(behind, which)
        except OSError:  # nothing was sent: the next request goes to the next server, as with any load balancer
            if len(self.targets) > 1:
                self.active = (which + 1) % len(self.targets)
            return _BAD_GATEWAY
        writer.write(request)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if length is not None:
            return _Whole(head + await reader.readexactly(int(length[1])), more=False)
        status = head[9:12]
        return _Whole(head, more=status not in (b"202", b"204"))


class _Cut(Exception):
    """The connection was cut."""


def _reset(writer: asyncio.StreamWriter) -> None:
    raw: socket.socket | None = writer.get_extra_info("socket")
    if raw is not None:
        with suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
    raise _Cut


def _drop(behind: Behind, which: int) -> None:
    kept = behind.pop(which, None)
    if kept is not None:
        kept[1].close()


async def _say(writer: asyncio.StreamWriter, status: int, where: float) -> None:
    later = b"retry-after: 0\r\n" if where < 0.5 else b""
    writer.write(b"HTTP/1.1 %d So\r\n%bcontent-length: 2\r\n\r\nno" % (status, later))
    await writer.drain()
