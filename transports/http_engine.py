"""The Model Context Protocol over HTTP, for any HTTP server: a request in, answers out through a `Responder`. No sockets in here.

`Engine.handle` runs in its caller's task and ends when the answer is out; on a stream, when the session ends, the responder
says that the peer reads no more, or the task is cancelled, which is how a host says that the peer is gone. A call that was
running then goes on: its session owns it, and not the connection that it came by.

Looked at in this order, and the first that is wrong is what the peer hears: path, method, doubled headers, `Host`, `Origin`, the
caller's identity, `Accept`, `Content-Type`, size, the message, the revision, the session. What the gatekeeper has for every caller is shown after
`Host` was looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import posixpath
import secrets
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qs, quote

from greenroom.protocol import sse, versions
from greenroom.protocol.errors import McpError, PeerError, RemoteProtocolError
from greenroom.protocol.messages import Failure, Limits, Notification, Request, Response, encode_error, parse
from greenroom.supervision import ProcessExited, tracebacks

from . import http_exchange as checks
from .access_log import log_refusal
from .http1 import Head
from .http_config import HttpConfig
from .http_exchange import (
    INSTANCE_HEADER,
    JSON_HEADERS,
    KEEP_ALIVE,
    SESSION_HEADER,
    STREAM_HEADERS,
    Board,
    BodyBudget,
    Exchange,
    Interruption,
    PeerGone,
    Refused,
    forbid,
    frame,
    frames,
    invalid,
    lost,
    no_room,
    preflight,
    stopped,
    stream_headers,
    told,
    too_large,
    visible,
)
from .interfaces import Answer, Event, NeverAsked, Peer, Refusal
from .open_connections import TrustedProxies, host_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence

    from greenroom.protocol.messages import RequestId

    from .http_exchange import BodyShare, Headers
    from .interfaces import Door, Feed, Gatekeeper, Reply, Session

if TYPE_CHECKING:
    RawHeaders: TypeAlias = Head | Iterable[tuple[bytes | str, bytes | str]]
    Body: TypeAlias = bytes | Callable[[BodyShare], Awaitable[bytes]]

T = TypeVar("T")

log: Final = logging.getLogger("greenroom.http")

_LONGEST_LENGTH: Final = 18  # digits: a Content-Length beyond that is larger than anything, and dear to convert


class Responder(Protocol):
    """How an answer gets out: one `reply`, or `stream_start`, any number of `stream_chunk`, and `stream_end`."""

    async def reply(self, status: int, headers: Headers, body: bytes) -> None:
        """The whole answer."""

    async def stream_start(self, status: int, headers: Headers) -> None:
        """An answer begins whose length is not known."""

    async def stream_chunk(self, data: bytes) -> bool:
        """More of it. False when the peer reads no more."""
        ...

    async def stream_end(self) -> None:
        """That was all."""


async def handle(method: str, path: str, headers: RawHeaders, body: Body, responder: Responder, engine: Engine) -> None:
    """Answer one request; see `Engine.handle`."""
    await engine.handle(method, path, headers, body, responder)


class Engine:
    """One endpoint: the door that it leads to, its gatekeeper, and how it is set up."""

    def __init__(
        self,
        door: Door,
        config: HttpConfig | None = None,
        gatekeeper: Gatekeeper | None = None,
        *,
        key: bytes | None = None,
    ) -> None:
        """Raises `ConfigError` for a list of hosts or origins that makes no sense. Processes of one program have one `key`."""
        self.config = config = HttpConfig() if config is None else config
        own = secrets.token_hex(8)
        program = own if key is None else hashlib.blake2b(key, digest_size=8, person=b"instance").hexdigest()
        # The program is one word, its process another. A refusal is proof only from the process that has the session: where another
        # refuses, a proxy may have sent the request to both, and the first may have died of it.
        self._instance: Headers = ((INSTANCE_HEADER, f"{program}.{own}"),)
        self._door = door
        self._gatekeeper: Gatekeeper = OpenDoor() if gatekeeper is None else gatekeeper
        self._board = Board(self._gatekeeper)
        self._hosts = checks.Hosts(config)
        self._origins = checks.Origins(config)
        self._proxies = TrustedProxies(config.trusted_proxies)
        self._peer_at = lru_cache(maxsize=1024)(self._stranger)
        self._paths = {config.path.rstrip("/") or "/", *(("/",) if config.serve_root else ())}
        self.bodies = BodyBudget(config.bodies)
        """What bodies are read within: given back when a body is complete, before its message is parsed, or never will be."""
        self._methods = config.methods
        self._limits = Limits.of_size(config.max_body)
        self._sessions = config.session_enabled and not config.plain
        self._old = OldStreams(door, config, self._limits, self._instance) if config.old_sse else None
        self._retry = None if config.sse_retry is None else round(config.sse_retry * 1000)
        self._listening: set[Interruption] = set()
        self._waiting: set[Interruption] = set()
        self._stopping = False
        quiet = config.quiet_after
        self._quiet = math.inf if quiet is None else quiet
        self._pulse = min(config.heartbeat, self._quiet)

    def _stranger(self, address: str) -> Peer:
        return Peer("http", address, proxied=host_in(address) in self._proxies)

    @property
    def instance(self) -> Headers:
        """The header that says which process refuses: for what refuses requests in front of this endpoint."""
        return self._instance

    def owns(self, path: str) -> bool:
        """Whether a path, without its query, is this endpoint's."""
        return self._methods_at(path) is not None or path in self._board.paths

    def _methods_at(self, path: str) -> Sequence[str] | None:
        if path in self._paths or (path.rstrip("/") or "/") in self._paths:
            return self._methods
        return None if self._old is None else self._old.methods(path)

    def start_listening(self) -> None:
        """Streams that belong to no request are welcome: they are from the beginning, and again after they were not."""
        self._stopping = False
        if self._old is not None:
            self._old.stopping = False

    def stop_listening(self) -> None:
        """End all streams that belong to no request, now and from now on; a caller that waits for an answer still gets it."""
        self._stopping = True
        for stream in tuple(self._listening):
            stream.interrupt()
        if self._old is not None:
            self._old.stop()

    def end_calls(self) -> bool:
        """Answer all calls that are still being worked on with an error, now: their connections are about to be cut. Whether there were any."""
        calls = tuple(self._waiting)
        for call in calls:
            call.interrupt()
        return bool(calls)

    async def handle(  # noqa: PLR0913 - what a request has
        self,
        method: str,
        path: str,
        headers: RawHeaders,
        body: Body,
        responder: Responder,
        *,
        address: str = "",
        peer: Peer | None = None,
    ) -> None:
        """Answer one request. `body` is its bytes, or what reads them, called when all else about the request is right.

        What reads it may raise `Refused` or `PeerGone`. `peer` is the caller, where a server in front has found that out.
        """
        if peer is None:
            peer = self._peer_at(address)
        elif peer.proxied is None:
            peer = replace(peer, proxied=host_in(peer.address) in self._proxies)
        exchange = Exchange(method, peer, responder)
        try:
            await self._route(exchange, path, headers, body)
        except Refused as refusal:
            known = () if refusal.maybe_done else self._instance
            log_refusal(
                refusal.why,
                status=refusal.status,
                peer=exchange.peer,
                method=method,
                path=path,
                seen=refusal.seen,
                setting=refusal.setting,
            )
            await exchange.reply(refusal.status, (*refusal.headers, *known), refusal.body)
        except PeerGone:
            pass
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # noqa: BLE001 - whatever a door or a gatekeeper raised is the end of this request, and of nothing else
            tracebacks.log_error(log, "%r %r ended in an error of the server", method, path)
            if not exchange.begun:
                await exchange.reply(500, JSON_HEADERS, encode_error(None, McpError.wrap(Exception())))

    async def _route(self, exchange: Exchange, path: str, headers: RawHeaders, body: Body) -> None:
        method = exchange.method
        whole = exchange.path = path
        path, _, query = path.partition("?")
        noticed = path in self._board.paths
        methods = () if noticed else self._methods_at(path)
        if methods is None:
            raise Refused(404, (("content-type", "text/plain"),), b"Not Found", why="No endpoint is at this path")
        if method not in methods and not noticed:
            raise invalid(405, "Method not allowed", headers=(("allow", ", ".join(methods)),))
        try:
            exchange.headers = folded = headers.folded() if isinstance(headers, Head) else checks.fold(headers)
        except checks.Twice as twice:
            raise invalid(400, f"{twice} came twice, and can have one value only") from None
        if exchange.peer.proxied and (client := self._proxies.client_in(folded.get("x-forwarded-for", ""))):
            exchange.peer = replace(exchange.peer, forwarded=client)
        self._check_host(exchange)
        if noticed:
            await self._board.show(exchange, whole)
            return
        self._check_origin(exchange)
        if method == "OPTIONS":
            await exchange.reply(204, preflight(methods, self._gatekeeper.headers, crossing="origin" in folded))
            return
        admitted = await self._gatekeeper.admit(method, whole, folded, exchange.peer)
        if isinstance(admitted, Refusal):
            raise Refused(
                admitted.status, told(admitted), admitted.body, why=admitted.why or "The gatekeeper refused it"
            )
        exchange.peer = admitted
        if self._old is not None and methods is not self._methods:
            await self._old.serve(exchange, query, lambda: self._read(exchange, body))
        elif method == "POST":
            await self._post(exchange, body)
        elif method == "GET":
            await self._get(exchange)
        else:
            await self._delete(exchange)

    def _check_host(self, exchange: Exchange) -> None:
        host = exchange.headers.get("host")
        if not self._hosts.allow(host):
            message = "This server does not go by the name in Host; if it should, say so in allowed_hosts"
            raise invalid(403, message, seen=host or "", setting="allowed_hosts")

    def _check_origin(self, exchange: Exchange) -> None:
        origin = exchange.headers.get("origin")
        if not self._origins.allow(origin, exchange.headers.get("sec-fetch-site")):
            if origin is None and not self.config.allow_missing_origin:
                raise invalid(403, "Origin is missing; if callers without one are welcome, say allow_missing_origin")
            message = "Pages of this Origin may not call; if they should, say so in allowed_origins"
            raise invalid(403, message, seen=origin, setting="allowed_origins")
        if origin is not None:
            exchange.cors = visible(origin)

    def _check_version(self, exchange: Exchange, id: RequestId | None = None) -> str:
        """The revision that the request says it follows; what to assume where it does not say."""
        said = exchange.headers.get("mcp-protocol-version")
        if said is None or (not self.config.validate_protocol_version and not versions.is_supported(said)):
            return versions.V2024_11_05 if self.config.plain else versions.DEFAULT_NEGOTIATED
        if not versions.is_supported(said):
            known = ", ".join(versions.SUPPORTED)
            raise invalid(400, f"MCP-Protocol-Version {said[:32]!r} is not supported; these are: {known}", id)
        return said

    def _session(self, exchange: Exchange, id: RequestId | None = None) -> Session:
        if not (name := exchange.headers.get(SESSION_HEADER)):
            raise invalid(400, "Mcp-Session-Id header required", id)
        session = self._door.find(name, exchange.peer)
        if session is None or session.channel is not None:  # one with a channel has its peer elsewhere
            raise invalid(404, "Unknown Mcp-Session-Id", id)
        return session

    # --- POST

    async def _post(self, exchange: Exchange, body: Body) -> None:
        accepted = self._check_post(exchange)
        try:
            message = parse(await self._read(exchange, body), self._limits)
        except RemoteProtocolError as error:
            await self._broken_answer(exchange, error)
            raise Refused(error.status, JSON_HEADERS, encode_error(error.id, error), why=error.message) from None
        if type(message) is Request:
            await self._request(exchange, message, accepted)
            return
        self._check_version(exchange)
        if self._has_session(exchange):
            session = self._session(exchange)
            try:
                if isinstance(message, Notification):
                    await session.notify(message)
                elif isinstance(message, Response | Failure):
                    await session.respond(message)
            except ProcessExited:
                raise invalid(404, "Unknown Mcp-Session-Id") from None
        await exchange.reply(204 if self.config.plain else 202, ())

    def _check_post(self, exchange: Exchange) -> tuple[str, ...]:
        """What the peer accepts, of JSON and event streams, in its order."""
        headers, config = exchange.headers, self.config
        accepted = (checks.JSON,) if config.plain else checks.accepted(headers.get("accept", "*/*"))
        if not config.plain and len(accepted) < (2 if config.accept == "both" else 1):
            both = "both " if config.accept == "both" else ""
            either = "and" if both else "or"
            raise invalid(406, f"Accept header must include {both}application/json {either} text/event-stream")
        if not checks.is_json(headers.get("content-type")):
            raise invalid(415, "Unsupported Media Type: Content-Type must be application/json")
        return accepted

    async def _read(self, exchange: Exchange, body: Body) -> bytes:
        """The body, unless it is too large, which its length may tell before it is read."""
        headers, config = exchange.headers, self.config
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise invalid(415, "Unsupported Media Type: send the body without a Content-Encoding")
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > _LONGEST_LENGTH or int(length) > config.max_body):
            raise too_large(config)
        if isinstance(body, bytes):
            data = body
            if self.bodies.used:  # else it has room, and gives it back in this moment
                with self.bodies.body(exchange.peer) as share:
                    if not share.take(len(data)):
                        raise no_room()
        else:
            with self.bodies.body(exchange.peer) as share:
                data = await body(share)
        if len(data) > config.max_body:
            raise too_large(config)
        return data

    async def _broken_answer(self, exchange: Exchange, error: RemoteProtocolError) -> None:
        """The session waits for the answer that was broken: it is an answer all the same, if only that."""
        name = exchange.headers.get(SESSION_HEADER)
        session = self._door.find(name, exchange.peer) if name and error.answers is not None else None
        if session is not None:
            with contextlib.suppress(ProcessExited):
                await session.respond(Failure(error.answers, PeerError(error.code, error.message, error.data)))

    def _has_session(self, exchange: Exchange) -> bool:
        """Whether a session is asked for, or has to be."""
        return self._sessions and (self.config.require_session or SESSION_HEADER in exchange.headers)

    async def _request(self, exchange: Exchange, request: Request, accepted: tuple[str, ...]) -> None:
        hello = request.method == "initialize"
        version = versions.DEFAULT_NEGOTIATED if hello else self._check_version(exchange, request.id)
        if hello and self._sessions and SESSION_HEADER not in exchange.headers:
            entered = await self._waited(self._door.enter(exchange.peer, request))
            if entered is None:
                raise invalid(503, "The server is shutting down", request.id)
            session, answer = entered
            named = [checks.field(SESSION_HEADER, session.id)] if session is not None else []
            await self._reply(exchange, answer, accepted, (*named, *self._instance))
            return
        streamed = checks.EVENTS in accepted and not hello
        begun = asyncio.get_running_loop().time()
        session = self._session(exchange, request.id) if self._has_session(exchange) else None
        if session is not None:
            reply = await self._asked(session, request, self._quiet if streamed else None)
        else:
            quiet = self._quiet if streamed else None
            reply = await self._answered(self._door.once(exchange.peer, request, version, quiet), request.id)
        if reply is None or isinstance(reply, Answer):
            await self._reply(exchange, reply, accepted, self._instance if hello else ())
        elif streamed:
            quiet_for = asyncio.get_running_loop().time() - begun
            await self._stream(exchange, reply, session, request.id, silent=quiet_for >= self._quiet)
        else:
            await self._reply(
                exchange, await self._waited(self._last(reply, request.id)) or Answer(stopped(request.id)), accepted
            )

    async def _asked(self, session: Session, request: Request, quiet: float | None) -> Reply:
        try:
            return await self._answered(session.request(request, quiet), request.id)
        except NeverAsked:
            raise invalid(404, "Unknown Mcp-Session-Id", request.id) from None
        except ProcessExited:
            return Answer(
                lost(request.id)
            )  # no 404: a client that hears it begins anew, and asks again what may have been done

    async def _answered(self, reply: Coroutine[Any, Any, Reply], id: RequestId) -> Reply:
        """The reply; that the server has stopped, where it does while this waits."""
        with Interruption() as wait:
            self._waiting.add(wait)
            try:
                return await reply
            finally:
                self._waiting.discard(wait)
        return Answer(stopped(id))

    async def _waited(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What comes of it; None where the server stops meanwhile."""
        with Interruption() as wait:
            self._waiting.add(wait)
            try:
                return await work
            finally:
                self._waiting.discard(wait)
        return None

    async def _reply(
        self, exchange: Exchange, answer: Answer | None, accepted: tuple[str, ...], headers: Headers = ()
    ) -> None:
        """One message, as what the peer likes best.

        A request that the peer has cancelled has no message: its answer is a stream that ends, or 202 where the peer takes no streams. An empty
        body that is called JSON is a parse error in the logs of the official SDKs (Python 1.x and 2.x, TypeScript); both of these they take in silence.
        """
        if answer is None:
            if checks.EVENTS in accepted:
                await exchange.reply(200, (*STREAM_HEADERS, *headers), KEEP_ALIVE)
            else:
                await exchange.reply(202, headers)
            return
        if answer.needs:
            await forbid(exchange, self._gatekeeper, answer, self._instance)
            return
        streamed = accepted[0] == checks.EVENTS and (self.config.honour_accept_order or len(accepted) == 1)
        if streamed and answer.status == 200:  # noqa: PLR2004 - anything else is read from the status
            await exchange.reply(200, (*STREAM_HEADERS, *headers), frame(Event("", answer.body)))
        else:
            await exchange.reply(answer.status, (*JSON_HEADERS, *headers), answer.body)

    async def _last(self, feed: Feed, id: RequestId) -> Answer:
        """What the feed ends with, for a peer that takes no streams: the rest is lost on it."""
        last: Answer | None = None
        try:
            while (events := await feed.next()) is not None:
                for event in events:
                    if event.answers == id:
                        last = Answer(event.data)
        finally:
            feed.leave()
        return last or Answer(lost(id))

    # --- GET and DELETE

    async def _get(self, exchange: Exchange) -> None:
        if checks.EVENTS not in checks.accepted(exchange.headers.get("accept", "*/*")):
            raise invalid(406, "Accept header must include text/event-stream")
        self._check_version(exchange)
        session = self._session(exchange)
        if self._stopping:
            raise invalid(503, "The server is shutting down")
        try:
            feed = await session.listen(exchange.headers.get("last-event-id"))
        except ProcessExited:
            raise invalid(404, "Unknown Mcp-Session-Id") from None
        with Interruption() as stream:
            self._listening.add(stream)
            try:
                await self._stream(exchange, feed, session, None)
            finally:
                self._listening.discard(stream)
        if stream.fired:
            await exchange.responder.stream_end()

    async def _delete(self, exchange: Exchange) -> None:
        self._check_version(exchange)
        session = self._session(exchange)
        try:
            await session.end()
        except NeverAsked:  # the node of that session has none such of this principal
            raise invalid(404, "Unknown Mcp-Session-Id") from None
        except ProcessExited:
            pass  # it ended in this moment, which is what was asked for
        await exchange.reply(204, ())

    # --- streams

    async def _stream(
        self, exchange: Exchange, feed: Feed, session: Session | None, id: RequestId | None, *, silent: bool = False
    ) -> None:
        """Send what comes on a feed until it ends. `id` is of the request that it has to answer, if any; `silent` begins with a comment."""
        responder, retry = exchange.responder, self._retry
        answered = id is None
        pulse = self.config.heartbeat if answered else self._pulse
        wait = Interruption()
        sending = True
        try:
            exchange.begun = True
            await responder.stream_start(200, (*stream_headers(session.id if session else ""), *exchange.cors))
            if silent and not await responder.stream_chunk(KEEP_ALIVE):
                return
            with wait:
                if not answered:
                    self._waiting.add(wait)
                while True:
                    sending = False
                    events = await feed.next(pulse)
                    sending = True
                    if events is None:
                        break
                    for piece in frames(events, retry) if events else (KEEP_ALIVE,):
                        if not await responder.stream_chunk(piece):
                            return
                    if events:
                        retry = None
                        answered = answered or any(event.answers == id for event in events)
            if wait.fired and sending:
                return  # in the middle of a frame, to a peer that does not read: there is no room for another
            if wait.fired:
                await responder.stream_chunk(frame(Event("", stopped(id))))
            elif not answered and (session is None or self._door.find(session.id, exchange.peer) is None):
                await responder.stream_chunk(frame(Event("", lost(id))))
        finally:
            self._waiting.discard(wait)
            feed.leave()
        await responder.stream_end()


# --- HTTP as it was before: an event stream that carries everything to the peer, and a place to post what comes from it (2024-11-05).
# A GET opens the stream and begins a session with one channel. The first event, `endpoint`, says where to post; every message is an event
# after that, answers too, and posts are only taken note of. The session ends with its stream: nothing was ever resumed in those days.
# Who it is, where from, and by which name has been looked at by the `Engine` before anything comes here. It is off unless asked for.

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
        """The stream, for as long as the peer reads it."""
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


class OpenDoor:
    """The gatekeeper of a server without authentication: every caller is anonymous."""

    headers: Sequence[str] = ()

    async def admit(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> Peer | Refusal:  # noqa: ARG002
        """Come in."""
        return peer

    async def lacking(
        self,
        scopes: Collection[str],  # noqa: ARG002 - no caller could show any
        method: str,  # noqa: ARG002
        path: str,  # noqa: ARG002
        headers: Mapping[str, str],  # noqa: ARG002
        peer: Peer,  # noqa: ARG002
    ) -> Refusal:
        """There is nothing that they could show."""
        return Refusal(403)
