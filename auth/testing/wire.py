"""HTTP on this machine for the authorization server: one request on a connection, and an answer, or what was planned in its place.

One task for each connection, which ends with it or with the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from greenroom.supervision.acceptor import serve, stream_protocol, tcp_sockets

from .faults import Cut, Flood, Redirect, Silence
from .words import Answer, Asked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.supervision.acceptor import Acceptor

    from .faults import Plan

    Handler = Callable[[Asked], Awaitable["Answer | Plan"]]

log: Final = logging.getLogger("greenroom.auth.testing")
LARGEST: Final = 1 << 20
_PIECE: Final = b" " * (64 * 1024)


class Wire:
    """A listener."""

    def __init__(self, handle: Handler) -> None:
        """Nothing is open yet."""
        self._handle = handle
        self._acceptor: Acceptor | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        sockets = await tcp_sockets(host, port)
        self._acceptor = serve(stream_protocol(self._serve, LARGEST), sockets, log)
        found: int = sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        """Hang up on everybody."""
        acceptor, self._acceptor = self._acceptor, None
        if acceptor is None:
            return
        acceptor.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            asked = await _read(reader)
            if asked is not None:
                await _write(writer, asked, await self._handle(asked))
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # a peer that is gone, or speaks no HTTP
        except asyncio.CancelledError:
            pass  # the end of the server, for a task that nobody else waits for
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    length = int(headers.get("content-length", "0"))
    body = await reader.readexactly(length) if 0 < length <= LARGEST else b""
    return Asked.of(method, target, headers, body)


async def _write(writer: asyncio.StreamWriter, asked: Asked, answer: Answer | Plan) -> None:
    if isinstance(answer, Silence):
        await asyncio.Event().wait()
    elif isinstance(answer, Cut):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{")
        await writer.drain()
    elif isinstance(answer, Flood):
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {answer.size}\r\n\r\n".encode()
        )
        left = answer.size
        while left > 0:
            writer.write(_PIECE[:left])
            await writer.drain()
            left -= len(_PIECE)
    else:
        status, headers, body = plain(answer)
        lines = [f"HTTP/1.1 {status} OK", *(f"{name}: {value}" for name, value in headers)]
        lines += [f"content-length: {len(body)}", "connection: close", "", ""]
        writer.write("\r\n".join(lines).encode("latin-1") + (b"" if asked.method == "HEAD" else body))
        await writer.drain()


def plain(answer: Answer | Plan) -> tuple[int, list[tuple[str, str]], bytes]:
    """Status, headers and body of an answer that is whole."""
    if isinstance(answer, Redirect):
        return answer.status, [("location", answer.url)], b""
    assert not isinstance(answer, Silence | Cut | Flood)
    return answer.status, list(answer.headers), answer.body
