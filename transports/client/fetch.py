"""One guarded HTTP request to a URL that another party has named: metadata, keys, tokens. Bounded, and on its own connection.

It follows redirects only if told to, and checks each address. The response is complete and never larger than the limit.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import urljoin

from greenroom.transports.http1_codec import Malformed, ParserState

from .errors import ConnectFailed, ConnectionLost, NotMcp, ResponseTooLarge, SilentTooLong
from .http_address import Guard, ServerUrl, dial
from .http_connection_pool import ResponseHead, ResponseParser
from .http_settings import Trust, error_text

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

SIZE: Final = 1024 * 1024
SECONDS: Final = 10.0
_HEADER: Final = 64 * 1024
_PIECE: Final = 64 * 1024
_STEPS: Final = 256
"""How many parser steps of a response are taken before other tasks get a turn."""
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class FetchResponse(NamedTuple):
    """A response, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    """The URL that responded, after redirects."""


class FetchFunction(Protocol):
    """The signature of `Fetcher`, for tests that replace it."""

    async def __call__(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchResponse:
        """Send a request. Raises `TransportError`."""
        ...


class Fetcher:
    """Sends single requests within its limits."""

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        size: int = SIZE,
        seconds: float = SECONDS,
        redirects: int = 0,
        trust: Trust | None = None,
    ) -> None:
        """`seconds` is for the whole request, redirects included."""
        self.guard = guard or Guard()
        self.size = size
        self.seconds = seconds
        self.redirects = redirects
        self._trust = trust or Trust()
        self._context: ssl.SSLContext | None = None

    async def __call__(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchResponse:
        """Send a request. Raises `TransportError`."""
        address = _parse_url(url)
        try:
            async with asyncio.timeout(self.seconds):
                for _ in range(self.redirects + 1):
                    found = await self._once(address, method, headers or {}, body)
                    location = found.headers.get("location")
                    if not self.redirects or found.status not in _REDIRECTS or location is None or method != "GET":
                        return found
                    there = _parse_url(location, address.url)
                    if there.origin != address.origin:
                        headers = None  # headers for one origin are not sent to another
                    address = there
        except TimeoutError:
            raise SilentTooLong(f"{address.description} had not answered after {self.seconds:g} s") from None
        raise NotMcp(f"{address.description}: more than {self.redirects} redirects")

    async def _once(self, address: ServerUrl, method: str, headers: Mapping[str, str], body: bytes) -> FetchResponse:
        request = _request(address, method, headers, body)
        reader, writer = await self._connect(address)
        try:
            writer.write(request)
            return await self._read(reader, address, method)
        except OSError as error:
            raise ConnectionLost(f"{address.origin}: {error_text(error)} before the response was complete") from None
        finally:
            writer.transport.abort()  # closed at once: neither side has anything more to send
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _connect(self, address: ServerUrl) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if address.secure and self._context is None:
            self._context = self._trust.context()
        self.guard.check_scheme(address)
        try:
            return await asyncio.open_connection(
                sock=await dial(address.host, address.port, self.guard),
                ssl=self._context if address.secure else None,
                server_hostname=address.host if address.secure else None,
            )
        except (OSError, UnicodeError) as error:
            raise ConnectFailed(f"{address.origin}: {error_text(error)}") from None

    async def _read(self, reader: asyncio.StreamReader, address: ServerUrl, method: str) -> FetchResponse:
        answers = ResponseParser(_HEADER, bodiless=method == "HEAD")
        head: ResponseHead | None = None
        body = bytearray()
        steps = 0
        while True:
            data = await reader.read(_PIECE)
            if data:
                answers.feed(data)
            try:
                while (event := answers.next()) is not ParserState.NEED_DATA:
                    if isinstance(event, ResponseHead):
                        head = event
                    elif isinstance(event, bytes):
                        body += event
                        if len(body) > self.size:
                            raise ResponseTooLarge(len(body), self.size, f"the answer of {address.origin}")
                    else:
                        assert head is not None
                        return _fetched(head, body, address)
                    steps += 1
                    if not steps % _STEPS:
                        await asyncio.sleep(0)
            except Malformed as broken:
                raise NotMcp(f"{address.origin} does not speak HTTP/1.1 properly: {broken}") from None
            if not data:
                if head is not None and answers.eof():
                    return _fetched(head, body, address)
                raise ConnectionLost(f"{address.origin}: it closed the connection before the response was complete")


def _fetched(head: ResponseHead, body: bytearray, address: ServerUrl) -> FetchResponse:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers.items()}
    return FetchResponse(head.status, headers, bytes(body), address.url)


def _request(address: ServerUrl, method: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{method} {address.target} HTTP/1.1", f"host: {address.authority}", "connection: close"]
    for name, value in ({"accept": "application/json"} | dict(headers)).items():
        if not (name.isascii() and value.isascii() and name.isprintable() and value.isprintable()):
            raise NotMcp(f"the header {name!r} cannot be sent")
        lines.append(f"{name}: {value}")
    if body or method == "POST":
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _parse_url(url: str, base: str = "") -> ServerUrl:
    try:
        return ServerUrl.of(urljoin(base, url))
    except ValueError as error:  # ConfigError is a ValueError, too
        raise NotMcp(f"this URL cannot be fetched: {error}") from None
