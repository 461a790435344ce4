"""httpx, for a user that brings something of it: a client, a transport, or a proxy that has to be gone through.

It carries the same requests as the pool does, each in a task of its own, and costs several times as much; why it is not what carries by default is in
the documentation (what a client's call costs). Nothing but this file imports it, and this file is loaded only for such a user.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

import httpx

from greenroom.errors import ConfigError
from greenroom.transports.http1 import Malformed

from .errors import ConnectFailed, ConnectionLost, NotMcp, TransportError
from .http_pool import Head
from .interfaces import SLICE, TURN

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from .http_posts import Visit
    from .http_settings import HttpSettings

_STEPS: Final = 32
"""How many pieces of an answer are taken before others have their turn; httpx takes 30 microseconds for each."""
_PLAIN: Final = (b"accept-encoding", b"identity")
Brought: TypeAlias = "httpx.AsyncClient | httpx.AsyncBaseTransport"


def client_of(
    brought: Brought | None, proxy: str | None, context: ssl.SSLContext | None, settings: HttpSettings
) -> httpx.AsyncClient:
    """The client of httpx for what was brought. Raises `ConfigError` for a proxy that cannot be one."""
    if isinstance(brought, httpx.AsyncClient):
        return brought
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=settings.max_connections)
    try:
        return httpx.AsyncClient(
            transport=brought,
            proxy=proxy,
            verify=context or True,
            limits=limits,
            trust_env=False,
            follow_redirects=False,
        )
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise ConfigError(f"this proxy cannot be used: {type(error).__name__}") from None  # its URL may have a password


class Carried:
    """One request under way."""

    def __init__(self, visit: Visit) -> None:
        """Not begun."""
        self.visit = visit
        self.task: asyncio.Task[None] | None = None
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.over = False

    @property
    def left(self) -> bool:
        """Whether anything of it may have left: httpx does not say."""
        return True

    def drop(self) -> None:
        """Cancel it: the answer is not wanted."""
        if not self.over:
            self.over = True
            if self.task is not None:
                self.task.cancel()

    def pause(self) -> None:
        """Let the answer wait where it is."""
        self.flowing.clear()

    def resume(self) -> None:
        """Go on."""
        self.flowing.set()


class ThroughHttpx:
    """All requests of one wire, by way of a client of httpx."""

    def __init__(self, settings: HttpSettings, client: httpx.AsyncClient, *, own: bool) -> None:
        """`own`: no other code uses that client, and it ends with the wire."""
        self._client = client
        self._own = own
        self._room = asyncio.Semaphore(settings.max_connections)
        self._timeout = httpx.Timeout(None, connect=settings.connect_timeout)
        self._running: dict[Carried, None] = {}

    def begin(self, visit: Visit) -> None:
        """Take one on."""
        carried = visit.errand = Carried(visit)
        self._running[carried] = None
        carried.task = visit.wire.task(self._carry(carried))
        carried.task.add_done_callback(lambda _: self._running.pop(carried, None))

    async def _carry(self, carried: Carried) -> None:
        if carried.visit.urgent:
            await self._send(carried)
        else:
            async with self._room:
                await self._send(carried)

    async def _send(self, carried: Carried) -> None:
        visit = carried.visit
        origin = visit.address.origin
        error: TransportError
        try:
            request = self._client.build_request(
                visit.method,
                visit.address.url,
                headers=[(name.encode(), value.encode("latin-1")) for name, value in visit.headers] + [_PLAIN],
                content=visit.frame if visit.method == "POST" else None,
                timeout=self._timeout,
            )
            response = await self._client.send(request, stream=True, follow_redirects=False)
            try:
                await self._receive(carried, response)
            finally:
                await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as failed:
            error = ConnectFailed(f"{origin}: {type(failed).__name__}: {failed}")
            unseen = True
        except (httpx.RemoteProtocolError, Malformed) as failed:
            error = NotMcp(f"{origin} does not speak HTTP properly: {failed}")
            unseen = False
            if "without sending" in str(failed) or "without sending complete" in str(failed):
                error = ConnectionLost(f"{origin}: {failed}")
        except (httpx.HTTPError, httpx.StreamError, OSError) as failed:
            error = ConnectionLost(f"{origin}: {type(failed).__name__}: {failed}")
            unseen = False
        else:
            if not carried.over:
                carried.over = True
                visit.end()
            return
        if not carried.over:
            carried.over = True
            visit.failed(error, unseen=unseen)

    async def _receive(self, carried: Carried, response: httpx.Response) -> None:
        lines = [(name.lower(), value) for name, value in response.headers.raw]
        carried.visit.head(Head(response.status_code, b"1.1", lines))
        # One that was made with all of its body, as those of `httpx.MockTransport` mostly are, cannot be streamed any more.
        pieces = _once(response.content) if response.is_stream_consumed else response.aiter_raw()
        steps = 0
        until = perf_counter() + TURN
        async for piece in pieces:
            for at in range(0, len(piece), SLICE):
                if carried.over:
                    return
                carried.visit.body(piece[at : at + SLICE])
                steps += 1
                if not steps % _STEPS or perf_counter() > until:
                    await asyncio.sleep(0)  # many pieces of one read come without any wait between them
                    until = perf_counter() + TURN
                await carried.flowing.wait()

    async def close(self) -> None:
        """Drop everything."""
        tasks = [each.task for each in self._running if each.task is not None]
        for carried in tuple(self._running):
            carried.drop()
        if tasks:
            await asyncio.wait(tasks)
        if self._own:
            await self._client.aclose()


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
