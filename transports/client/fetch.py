"""One HTTP request to an address that another party has named: metadata, keys, tokens. Small, bounded, guarded, and on a connection of its own.

It follows no redirect unless told to, and looks at each address that it is sent to. What comes back is whole, and never larger than was said.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from urllib.parse import urljoin

from greenroom.transports.http1 import Malformed, State

from .errors import ConnectFailed, ConnectionLost, NotMcp, ResponseTooLarge, SilentTooLong
from .http_address import Address, Guard, dial
from .http_pool import Answers, Head
from .http_settings import Trust, why

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

SIZE: Final = 1024 * 1024
SECONDS: Final = 10.0
_HEADER: Final = 64 * 1024
_PIECE: Final = 64 * 1024
_STEPS: Final = 256
"""How many steps of reading an answer are taken before others have their turn."""
_MOVED: Final = frozenset({301, 302, 303, 307, 308})


class Fetched(NamedTuple):
    """An answer, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    """Where it came from in the end."""


class Fetch(Protocol):
    """How to fetch: `Fetcher`, or what a test puts in its place."""

    async def __call__(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Fetched:
        """Ask. Raises `TransportError`."""
        ...


class Fetcher:
    """Asks, within its limits."""

    def __init__(
        self,
        guard: Guard | None = None,
        *,
        size: int = SIZE,
        seconds: float = SECONDS,
        redirects: int = 0,
        trust: Trust | None = None,
    ) -> None:
        """`seconds` is for all of it, redirects included."""
        self.guard = guard or Guard()
        self.size = size
        self.seconds = seconds
        self.redirects = redirects
        self._trust = trust or Trust()
        self._context: ssl.SSLContext | None = None

    async def __call__(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Fetched:
        """Ask. Raises `TransportError`."""
        address = _place(url)
        try:
            async with asyncio.timeout(self.seconds):
                for _ in range(self.redirects + 1):
                    found = await self._once(address, method, headers or {}, body)
                    location = found.headers.get("location")
                    if not self.redirects or found.status not in _MOVED or location is None or method != "GET":
                        return found
                    there = _place(location, address.url)
                    if there.origin != address.origin:
                        headers = None  # what was meant for one is not told to another
                    address = there
        except TimeoutError:
            raise SilentTooLong(f"{address.description} had not answered after {self.seconds:g} s") from None
        raise NotMcp(f"{address.description}: more than {self.redirects} redirects")

    async def _once(self, address: Address, method: str, headers: Mapping[str, str], body: bytes) -> Fetched:
        request = _request(address, method, headers, body)
        reader, writer = await self._connect(address)
        try:
            writer.write(request)
            return await self._read(reader, address, method)
        except OSError as error:
            raise ConnectionLost(f"{address.origin}: {why(error)} before the answer was complete") from None
        finally:
            writer.transport.abort()  # nothing more is expected of it, in either direction
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _connect(self, address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
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
            raise ConnectFailed(f"{address.origin}: {why(error)}") from None

    async def _read(self, reader: asyncio.StreamReader, address: Address, method: str) -> Fetched:
        answers = Answers(_HEADER, bodiless=method == "HEAD")
        head: Head | None = None
        body = bytearray()
        steps = 0
        while True:
            data = await reader.read(_PIECE)
            if data:
                answers.feed(data)
            try:
                while (event := answers.next()) is not State.HUNGRY:
                    if isinstance(event, Head):
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
                raise ConnectionLost(f"{address.origin}: it hung up before the answer was complete")


def _fetched(head: Head, body: bytearray, address: Address) -> Fetched:
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers.items()}
    return Fetched(head.status, headers, bytes(body), address.url)


def _request(address: Address, method: str, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"{method} {address.target} HTTP/1.1", f"host: {address.authority}", "connection: close"]
    for name, value in ({"accept": "application/json"} | dict(headers)).items():
        if not (name.isascii() and value.isascii() and name.isprintable() and value.isprintable()):
            raise NotMcp(f"the header {name!r} cannot be sent")
        lines.append(f"{name}: {value}")
    if body or method == "POST":
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _place(url: str, base: str = "") -> Address:
    try:
        return Address.of(urljoin(base, url))
    except ValueError as error:  # which a `ConfigError` is as well
        raise NotMcp(f"this is no place to fetch from: {error}") from None
