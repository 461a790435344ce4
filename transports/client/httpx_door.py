"""HTTP by way of httpx, for a user who brings a client, a transport or a proxy. Only this module imports httpx.

It sends the same requests as the connection pool, each in its own task, at several times the cost; the documentation (what a client's call
costs) has the measurements. The module is imported only when it is needed.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Final, TypeAlias

import httpx

from greenroom.errors import ConfigError
from greenroom.transports.http1_codec import Malformed

from .errors import ConnectFailed, ConnectionLost, NotMcp, TransportError
from .http_connection_pool import ResponseHead
from .interfaces import READ_SLICE, READ_TURN

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from .http_settings import HttpSettings
    from .outgoing_requests import OutgoingRequest

_STEPS: Final = 32
"""How many pieces of a response are taken before other tasks get a turn; httpx takes 30 microseconds for each."""
_IDENTITY: Final = (b"accept-encoding", b"identity")
HttpxTransport: TypeAlias = "httpx.AsyncClient | httpx.AsyncBaseTransport"


def httpx_client(
    brought: HttpxTransport | None, proxy: str | None, context: ssl.SSLContext | None, settings: HttpSettings
) -> httpx.AsyncClient:
    """The httpx client for what the user brought. Raises `ConfigError` for an unusable proxy."""
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


class HttpxRequest:
    """One request in flight through httpx."""

    def __init__(self, outgoing: OutgoingRequest) -> None:
        self.outgoing = outgoing
        self.task: asyncio.Task[None] | None = None
        self.resumed = asyncio.Event()
        self.resumed.set()
        self.is_done = False

    @property
    def may_have_been_sent(self) -> bool:
        """Whether any byte may have been sent: httpx does not tell."""
        return True

    def drop(self) -> None:
        """Cancel the request."""
        if not self.is_done:
            self.is_done = True
            if self.task is not None:
                self.task.cancel()

    def pause(self) -> None:
        self.resumed.clear()

    def resume(self) -> None:
        self.resumed.set()


class HttpxCarrier:
    """Sends all requests of one wire through an httpx client."""

    def __init__(self, settings: HttpSettings, client: httpx.AsyncClient, *, own: bool) -> None:
        """`own`: the client belongs to this wire, and is closed with it."""
        self._client = client
        self._own = own
        self._slots = asyncio.Semaphore(settings.max_connections)
        self._timeout = httpx.Timeout(None, connect=settings.connect_timeout)
        self._running: dict[HttpxRequest, None] = {}

    def start(self, request: OutgoingRequest) -> None:
        """Send a request in its own task."""
        running = request.in_flight = HttpxRequest(request)
        self._running[running] = None
        running.task = request.wire.task(self._send_in_turn(running))
        running.task.add_done_callback(lambda _: self._running.pop(running, None))

    async def _send_in_turn(self, running: HttpxRequest) -> None:
        if running.outgoing.urgent:
            await self._send(running)
        else:
            async with self._slots:
                await self._send(running)

    async def _send(self, running: HttpxRequest) -> None:
        outgoing = running.outgoing
        origin = outgoing.address.origin
        error: TransportError
        try:
            request = self._client.build_request(
                outgoing.method,
                outgoing.address.url,
                headers=[
                    (name.encode(), value.encode("latin-1")) for name, value in (*outgoing.headers, *outgoing.mirrored)
                ]
                + [_IDENTITY],
                content=outgoing.frame if outgoing.method == "POST" else None,
                timeout=self._timeout,
            )
            response = await self._client.send(request, stream=True, follow_redirects=False)
            try:
                await self._receive(running, response)
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
            if not running.is_done:
                running.is_done = True
                outgoing.on_end()
            return
        if not running.is_done:
            running.is_done = True
            outgoing.on_failure(error, unseen=unseen)

    async def _receive(self, running: HttpxRequest, response: httpx.Response) -> None:
        lines = [(name.lower(), value) for name, value in response.headers.raw]
        running.outgoing.on_head(ResponseHead(response.status_code, b"1.1", lines))
        # A response that was created with its whole body, as those of `httpx.MockTransport` mostly are, cannot be streamed any more.
        pieces = _one_piece(response.content) if response.is_stream_consumed else response.aiter_raw()
        steps = 0
        until = perf_counter() + READ_TURN
        async for piece in pieces:
            for at in range(0, len(piece), READ_SLICE):
                if running.is_done:
                    return
                running.outgoing.on_body(piece[at : at + READ_SLICE])
                steps += 1
                if not steps % _STEPS or perf_counter() > until:
                    await asyncio.sleep(0)  # pieces of one read arrive without any wait between them
                    until = perf_counter() + READ_TURN
                await running.resumed.wait()

    async def close(self) -> None:
        """Cancel all requests."""
        tasks = [each.task for each in self._running if each.task is not None]
        for running in tuple(self._running):
            running.drop()
        if tasks:
            await asyncio.wait(tasks)
        if self._own:
            await self._client.aclose()


async def _one_piece(content: bytes) -> AsyncIterator[bytes]:
    yield content
