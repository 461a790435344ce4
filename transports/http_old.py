"""HTTP as it was before: an event stream that carries everything to the peer, and a place to post what comes from it (2024-11-05).

A GET opens the stream and begins a session with one channel. The first event, `endpoint`, says where to post; every message is an event
after that, answers too, and posts are only taken note of. The session ends with its stream: nothing was ever resumed in those days.

Who it is, where from, and by which name has been looked at by the `Engine` before anything comes here. It is off unless asked for.
"""

from __future__ import annotations

import contextlib
import posixpath
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, quote

from greenroom.protocol import sse
from greenroom.protocol.errors import McpError, PeerError, RemoteProtocolError
from greenroom.protocol.messages import Failure, Notification, Request, encode_error, parse
from greenroom.supervision import ProcessExited

from . import http_checks as checks
from .http_answers import JSON_HEADERS, KEEP_ALIVE, STREAM_HEADERS, Refused, invalid
from .interruption import Interruption
from .seam import NeverAsked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from greenroom.protocol.json import Limits

    from .http_answers import Headers
    from .http_config import HttpConfig
    from .http_engine import Responder
    from .http_exchange import Exchange
    from .seam import Door, Event, Session

PARAMETER: Final = "session_id"
TAKEN: Final = ((("content-type", "text/plain"),), b"Accepted")
_GET: Final = ("GET", "OPTIONS")
_POST: Final = ("POST", "OPTIONS")


class OldStreams:
    """The two places of the old transport, `/sse` and `/messages`."""

    def __init__(self, door: Door, config: HttpConfig, limits: Limits, instance: Headers) -> None:
        """Both paths are the configuration's. `instance` says on each stream which process it is of."""
        self._instance = instance
        self._door = door
        self._config = config
        self._limits = limits
        self._sse = config.old_sse_path
        self._messages = config.old_messages_path
        # Relative, so that it is right wherever the application is mounted.
        self._where = posixpath.relpath(self._messages, posixpath.dirname(self._sse))
        self._open: set[Interruption] = set()
        self.stopping = False

    def methods(self, path: str) -> Sequence[str] | None:
        """What is served at a path; None when it is none of ours."""
        return {self._sse: _GET, self._messages: _POST}.get(path)

    def stop(self) -> None:
        """End all streams, each with what is still owed on it."""
        self.stopping = True
        for stream in tuple(self._open):
            stream.interrupt()

    async def serve(self, exchange: Exchange, query: str, read: Callable[[], Awaitable[bytes]]) -> None:
        """Answer a request at one of the two places. Raises `Refused`."""
        if exchange.method == "GET":
            await self._listen(exchange)
        else:
            await self._post(exchange, query, read)

    # --- to the peer

    async def _listen(self, exchange: Exchange) -> None:
        """The stream, for as long as somebody reads it."""
        if checks.EVENTS not in checks.accepted(exchange.headers.get("accept", "*/*")):
            raise invalid(406, "Accept header must include text/event-stream")
        if self.stopping:
            raise invalid(503, "The server is shutting down")
        try:
            session = await self._door.connect(exchange.peer)
        except McpError as error:
            raise Refused(503, JSON_HEADERS, encode_error(None, error), why=error.message) from None
        responder = exchange.responder
        try:
            exchange.begun = True
            await responder.stream_start(200, (*STREAM_HEADERS, *self._instance, *exchange.cors))
            if await responder.stream_chunk(sse.event("", self._endpoint(session), "endpoint")):
                await self._carry(session, responder)
        finally:
            with contextlib.suppress(ProcessExited):
                await session.end()
        await responder.stream_end()

    def _endpoint(self, session: Session) -> bytes:
        return f"{self._where}?{PARAMETER}={quote(session.id)}".encode()

    async def _carry(self, session: Session, responder: Responder) -> None:
        feed = session.channel
        assert feed is not None
        stream = Interruption()
        self._open.add(stream)
        try:
            with stream:
                while (events := await feed.next(self._config.heartbeat)) is not None:
                    if not await responder.stream_chunk(_frames(events)):
                        return
            if stream.fired:  # told to stop: what is owed is answered by the session's end, and still goes out
                with contextlib.suppress(ProcessExited):
                    await session.end()
                while (events := await feed.next()) is not None:
                    if not await responder.stream_chunk(_frames(events)):
                        return
        finally:
            self._open.discard(stream)
            feed.leave()

    # --- from the peer

    async def _post(self, exchange: Exchange, query: str, read: Callable[[], Awaitable[bytes]]) -> None:
        """Hand one message to the session that the query names. What it brings comes on the stream."""
        if not checks.is_json(exchange.headers.get("content-type")):
            raise invalid(415, "Unsupported Media Type: Content-Type must be application/json")
        name = _session_id(query)
        try:
            # Before the session is looked up: one of another node is not known to be this peer's until it is asked.
            message = parse(await read(), self._limits)
        except RemoteProtocolError as error:
            session = self._door.find(name, exchange.peer) if error.answers is not None else None
            if session is not None:
                with contextlib.suppress(ProcessExited):
                    await session.respond(Failure(error.answers, PeerError(error.code, error.message, error.data)))
            raise Refused(error.status, JSON_HEADERS, encode_error(error.id, error), why=error.message) from None
        session = self._door.find(name, exchange.peer)
        if session is None or session.channel is None:
            raise invalid(404, "Unknown session_id: open the stream again")
        try:
            if isinstance(message, Request):
                await session.request(message)
            elif isinstance(message, Notification):
                await session.notify(message)
            else:
                await session.respond(message)
        except ProcessExited as error:
            refused = invalid(404, "Unknown session_id: open the stream again")
            refused.maybe_done = not isinstance(error, NeverAsked)
            raise refused from None
        await exchange.reply(202, *TAKEN)


_LONGEST_QUERY: Final = 512


def _session_id(query: str) -> str:
    named = parse_qs(query, max_num_fields=16).get(PARAMETER, []) if len(query) <= _LONGEST_QUERY else []
    if len(named) != 1:
        raise invalid(400, f"{PARAMETER} is required: post to the address that the stream began with")
    return named[0]


def _frames(events: Sequence[Event]) -> bytes:
    return b"".join(sse.event("", event.data, "message") for event in events if event.data) or KEEP_ALIVE
