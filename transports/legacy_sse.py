"""HTTP+SSE of revision 2024-11-05: one event stream for all messages to the peer, and a path to post messages to.

A GET opens the stream and starts a session with one channel. The first event, `endpoint`, names the path for posts; every message is an event after it, replies
included, and a post gets only 202. The session ends with its stream, which cannot be resumed. `HttpEngine` has checked authentication, origin and host before.
Off unless configured.
"""

from __future__ import annotations

import contextlib
import posixpath
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, quote

from greenroom.protocol import sse
from greenroom.protocol.errors import McpError, PeerError, RemoteProtocolError
from greenroom.protocol.jsonrpc import (
    JsonRpcError,
    JsonRpcNotification,
    JsonRpcRequest,
    MessageLimits,
    encode_error,
    parse,
)
from greenroom.supervision import ProcessExited
from greenroom.supervision.event_bus import bus

from . import http_request as checks
from .http_request import JSON_HEADERS, STREAM_HEADERS, HttpRequest, HttpRequestRefused, Interruption, invalid_request
from .interfaces import RequestNotDelivered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from .http_config import HttpConfig
    from .http_engine import Responder
    from .http_request import Headers
    from .interfaces import FeedEvent, SessionHandle, SessionRouter

PARAMETER: Final = "session_id"
ACCEPTED_RESPONSE: Final = ((("content-type", "text/plain"),), b"Accepted")
_GET: Final = ("GET", "OPTIONS")
_POST: Final = ("POST", "OPTIONS")


class LegacySse:
    """The two paths of the legacy transport, `/sse` and `/messages`."""

    def __init__(self, router: SessionRouter, config: HttpConfig, limits: MessageLimits, instance: Headers) -> None:
        """The configuration has both paths. `instance` names this process on each stream."""
        self._instance = instance
        self._router = router
        self._config = config
        self._limits = limits
        self._sse = config.old_sse_path
        self._messages = config.old_messages_path
        # Relative, so that it is valid wherever the application is mounted.
        self._relative_messages_path = posixpath.relpath(self._messages, posixpath.dirname(self._sse))
        self._open: set[Interruption] = set()
        self.stopping = False

    def methods(self, path: str) -> Sequence[str] | None:
        """The methods served at a path; None for a path that is not of this transport."""
        return {self._sse: _GET, self._messages: _POST}.get(path)

    def stop(self) -> None:
        """End all streams, after the replies that are still pending on them."""
        self.stopping = True
        for stream in tuple(self._open):
            stream.interrupt()

    async def serve(self, http_request: HttpRequest, query: str, read: Callable[[], Awaitable[bytes]]) -> None:
        """Answer a request at one of the two paths. Raises `HttpRequestRefused`."""
        if http_request.method == "GET":
            await self._listen(http_request)
        else:
            await self._post(http_request, query, read)

    # --- to the peer

    async def _listen(self, http_request: HttpRequest) -> None:
        """Serve the stream for as long as the peer reads it."""
        if checks.EVENTS not in checks.accepted_types(http_request.headers.get("accept", "*/*")):
            raise invalid_request(406, "Accept header must include text/event-stream")
        if self.stopping:
            raise invalid_request(503, "The server is shutting down")
        try:
            session = await self._router.connect(http_request.peer)
        except McpError as error:
            raise HttpRequestRefused(503, JSON_HEADERS, encode_error(None, error), why=error.message) from None
        responder = http_request.responder
        observed = None
        if bus.listener is not None:
            from .wire_events import ObservedStream  # noqa: PLC0415 - only a program with a listener loads the events

            observed = ObservedStream(self._router.program, "session", session.id)
        try:
            http_request.has_replied = True
            await responder.stream_start(200, (*STREAM_HEADERS, *self._instance, *http_request.cors))
            if await responder.stream_chunk(sse.encode_event("", self._endpoint(session), "endpoint")):
                await self._forward(session, responder)
        finally:
            if observed is not None:
                observed.end(is_evicted=False)
            with contextlib.suppress(ProcessExited):
                await session.end()
        await responder.stream_end()

    def _endpoint(self, session: SessionHandle) -> bytes:
        return f"{self._relative_messages_path}?{PARAMETER}={quote(session.id)}".encode()

    async def _forward(self, session: SessionHandle, responder: Responder) -> None:
        feed = session.channel
        assert feed is not None
        stream = Interruption()
        self._open.add(stream)
        try:
            with stream:
                while (events := await feed.next(self._config.heartbeat)) is not None:
                    if not await responder.stream_chunk(_legacy_events(events)):
                        return
            if stream.fired:  # stopped: ending the session answers the pending requests, and those replies still go out
                with contextlib.suppress(ProcessExited):
                    await session.end()
                while (events := await feed.next()) is not None:
                    if not await responder.stream_chunk(_legacy_events(events)):
                        return
        finally:
            self._open.discard(stream)
            feed.leave()

    # --- from the peer

    async def _post(self, http_request: HttpRequest, query: str, read: Callable[[], Awaitable[bytes]]) -> None:
        """Pass one message to the session that the query names; replies come on its stream."""
        if not checks.is_json(http_request.headers.get("content-type")):
            raise invalid_request(415, "Unsupported Media Type: Content-Type must be application/json")
        name = _session_id(query)
        try:
            # Parsed before the session is looked up: whether a session on another node belongs to this peer is known only after asking it.
            message = parse(await read(), self._limits)
        except RemoteProtocolError as error:
            session = self._router.find(name, http_request.peer) if error.response_to is not None else None
            if session is not None:
                with contextlib.suppress(ProcessExited):
                    await session.respond(
                        JsonRpcError(error.response_to, PeerError(error.code, error.message, error.data))
                    )
            raise HttpRequestRefused(
                error.status, JSON_HEADERS, encode_error(error.id, error), why=error.message
            ) from None
        session = self._router.find(name, http_request.peer)
        if session is None or session.channel is None:
            raise invalid_request(404, "Unknown session_id: open the stream again")
        try:
            if isinstance(message, JsonRpcRequest):
                await session.request(message)
            elif isinstance(message, JsonRpcNotification):
                await session.notify(message)
            else:
                await session.respond(message)
        except ProcessExited as error:
            refused = invalid_request(404, "Unknown session_id: open the stream again")
            refused.maybe_done = not isinstance(error, RequestNotDelivered)
            raise refused from None
        await http_request.reply(202, *ACCEPTED_RESPONSE)


_LONGEST_QUERY: Final = 512


def _session_id(query: str) -> str:
    named = parse_qs(query, max_num_fields=16).get(PARAMETER, []) if len(query) <= _LONGEST_QUERY else []
    if len(named) != 1:
        raise invalid_request(400, f"{PARAMETER} is required: post to the address that the stream began with")
    return named[0]


def _legacy_events(events: Sequence[FeedEvent]) -> bytes:
    return b"".join(sse.encode_event("", event.data, "message") for event in events if event.data) or checks.KEEP_ALIVE
