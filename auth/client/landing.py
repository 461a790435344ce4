"""Where a user's browser comes back to: one page on this machine's loopback, for one login, for as long as that takes.

It reads one line of a request and its headers, never more; it answers whoever else comes with nothing of use. What the browser is shown is
made of fixed words, besides what is escaped, and nothing in it may run.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple, Self
from urllib.parse import parse_qsl, urlsplit

from greenroom.auth.errors import SignInError

if TYPE_CHECKING:
    from types import TracebackType

HOST: Final = "127.0.0.1"
PATH: Final = "/callback"
_HEAD: Final = 16 * 1024
_SECONDS: Final = 5.0
_MOST: Final = 16
"""Connections at once."""
_STEP: Final = "authorization"
_HEADERS: Final = (
    "content-type: text/html; charset=utf-8\r\ncache-control: no-store\r\nreferrer-policy: no-referrer\r\n"
    "content-security-policy: default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "x-content-type-options: nosniff\r\nconnection: close\r\n"
)
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><h1>{title}</h1><p>{text}</p></body></html>
"""


class Return(NamedTuple):
    """What the authorization server has the browser bring back."""

    code: str | None
    state: str | None
    issuer: str | None
    error: str | None
    description: str | None


def read_return(query: str) -> Return:
    """From a query; of what stands there twice nothing counts."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=64)
    except ValueError:
        pairs = []
    names = [name for name, _ in pairs]
    found = {name: value for name, value in pairs if names.count(name) == 1}
    return Return(*(found.get(name) for name in ("code", "state", "iss", "error", "error_description")))


def same(one: str | None, other: str) -> bool:
    """Whether two texts are equal, in a time that says nothing of where they differ."""
    return one is not None and hmac.compare_digest(one.encode(), other.encode())


def page(title: str, text: str) -> str:
    """What a browser is shown."""
    return _PAGE.format(title=escape(title), text=escape(text))


class Landing:
    """The page. `async with Landing(port) as landing:` listens; `await landing.arrival(state)` is who comes back with that state."""

    def __init__(self, port: int = 0, host: str = HOST) -> None:
        """Port 0 is any that is free. `host` is what the address says; it is the loopback in any case."""
        self._wanted = port
        self._host = host
        self._server: asyncio.Server | None = None
        self._talking: set[asyncio.Task[None]] = set()
        self._state: str | None = None
        self._arrived: asyncio.Future[Return] | None = None

    @property
    def redirect_uri(self) -> str:
        """Its address."""
        assert self._server is not None
        return f"http://{self._host}:{self._server.sockets[0].getsockname()[1]}{PATH}"

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._visit, HOST, self._wanted, limit=_HEAD)
        except OSError as error:
            where = f"port {self._wanted}" if self._wanted else "any port"
            raise SignInError(
                _STEP, f"nobody can come back to {HOST}, {where}: {error.strerror or error}; pin another port"
            ) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        if self._talking:
            await asyncio.wait(tuple(self._talking), timeout=_SECONDS)  # the page is still on its way to the browser
        for task in tuple(self._talking):
            task.cancel()
        await asyncio.gather(*self._talking, return_exceptions=True)
        await self._server.wait_closed()

    async def arrival(self, state: str) -> Return:
        """Wait for it. Whoever brings another state is sent away, and the wait goes on."""
        self._state = state
        self._arrived = asyncio.get_running_loop().create_future()
        return await self._arrived

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._talking.add(task)
        try:
            if len(self._talking) <= _MOST:
                async with asyncio.timeout(_SECONDS):
                    request = await reader.readuntil(b"\r\n\r\n")
                    status, title, text = self._answer(request)
                    body = page(title, text).encode()
                    head = f"HTTP/1.1 {status}\r\n{_HEADERS}content-length: {len(body)}\r\n\r\n"
                    writer.write(head.encode("ascii") + body)
                    await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._talking.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, request: bytes) -> tuple[str, str, str]:
        words = request.partition(b"\r\n")[0].decode("latin-1").split(" ")
        parts = urlsplit(words[1]) if len(words) == 3 and words[1].startswith("/") else None  # noqa: PLR2004 - a request line
        if parts is None or words[0] != "GET" or parts.path != PATH:
            return "404 Not Found", "Nothing here", "This page is for somebody who comes back from signing in."
        found = read_return(parts.query)
        if self._state is None or not same(found.state, self._state):
            return "400 Bad Request", "Not expected", "Nobody waits for this. Begin again in the program that sent you."
        if self._arrived is None or self._arrived.done():
            return "400 Bad Request", "Once is enough", "You have been here already."
        self._arrived.set_result(found)
        if found.error is not None or found.code is None:
            return "200 OK", "Not signed in", "The program that sent you says why. You can close this window."
        return "200 OK", "Thank you", "You can close this window, and go back to the program that sent you."
