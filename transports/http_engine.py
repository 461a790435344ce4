"""The HTTP engine: the Model Context Protocol over HTTP, independent of the HTTP server. It does no socket I/O.

`HttpEngine.handle` takes one request and answers through a `Responder`. It runs in its caller's task and returns when the response is out;
a stream also ends when its session ends, when the responder reports that the peer reads no more, or when the task is cancelled, which is
how a server reports a disconnect. A running call then continues: its session owns it, not the connection.

Checks run in this order, and the first that fails is reported: path, method, duplicate headers, `Host`, `Origin`, authentication, `Accept`,
`Content-Type`, size, message, revision, session. Public documents are served after the check of `Host`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import secrets
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar, cast

from msgspec.structs import force_setattr

from greenroom.protocol.dialect import (
    ASSUMED_DIALECT,
    HANDSHAKE_VERSIONS,
    OLDEST_DIALECT,
    STATELESS_DIALECT,
    is_handshake_version,
)
from greenroom.protocol.envelope import PROTOCOL_VERSION_KEY, is_enveloped
from greenroom.protocol.errors import ErrorCode, McpError, PeerError, RemoteProtocolError
from greenroom.protocol.jsonrpc import (
    JSONRPC,
    CarriedByHttp,
    JsonRpcError,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    MessageLimits,
    encode,
    encode_error,
    parse,
    without_null_id,
)
from greenroom.protocol.mirrored_headers import VERSION_HEADER, HeaderMismatch, check_standard_headers
from greenroom.supervision import ProcessExited, tracebacks
from greenroom.supervision.event_bus import bus, trace_context

from . import http_request as checks
from .access_log import log_refusal
from .channel_exchanges import LISTEN_LOST
from .http1_codec import RequestHead
from .http_config import HttpConfig
from .http_request import JSON_HEADERS, STREAM_HEADERS, HttpRequest, HttpRequestRefused, Interruption, invalid_request
from .interfaces import EncodedReply, FeedEvent, HttpRefusal, Peer, RequestNotDelivered
from .legacy_sse import LegacySse
from .open_connections import TrustedProxies, host_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence

    from greenroom.protocol.jsonrpc import RequestId

    from .http_request import BodyShare, Headers
    from .interfaces import Authenticator, Feed, LastingFeed, SessionHandle, SessionReply, SessionRouter

if TYPE_CHECKING:
    RawHeaders: TypeAlias = RequestHead | Iterable[tuple[bytes | str, bytes | str]]
    Body: TypeAlias = bytes | Callable[[BodyShare], Awaitable[bytes]]

T = TypeVar("T")

log: Final = logging.getLogger("greenroom.http")

_LONGEST_LENGTH: Final = 18  # digits: a longer Content-Length exceeds every limit, and converting it is expensive


class Responder(Protocol):
    """How the engine sends a response: one `reply`, or `stream_start`, any number of `stream_chunk`, and `stream_end`."""

    @property
    def http_version(self) -> str:
        """The version of HTTP, such as "1.1"."""
        ...

    @property
    def around(self) -> dict[str, str] | None:
        """The trace context of the application in which the endpoint is mounted, if it traces its requests."""
        ...

    async def reply(self, status: int, headers: Headers, body: bytes) -> None:
        """Send the whole response."""

    async def stream_start(self, status: int, headers: Headers, *, until_eof: bool = False) -> None:
        """Begin a response of unknown length. With `until_eof`, a peer that sends no more has left, and is not written to any more."""

    async def stream_chunk(self, data: bytes) -> bool:
        """Send more of it. False when the peer reads no more."""
        ...

    async def stream_end(self) -> None:
        """End it."""


async def handle(
    method: str, path: str, headers: RawHeaders, body: Body, responder: Responder, engine: HttpEngine
) -> None:
    """Answer one request; see `HttpEngine.handle`."""
    await engine.handle(method, path, headers, body, responder)


class HttpEngine:
    """One MCP endpoint: its session router, its authenticator and its configuration."""

    def __init__(
        self,
        router: SessionRouter,
        config: HttpConfig | None = None,
        authenticator: Authenticator | None = None,
        *,
        key: bytes | None = None,
    ) -> None:
        """Raises `ConfigError` for invalid lists of hosts or origins. All processes of one program use the same `key`."""
        self.config = config = HttpConfig() if config is None else config
        own = secrets.token_hex(8)
        program = own if key is None else hashlib.blake2b(key, digest_size=8, person=b"instance").hexdigest()
        # The header has two parts: the program and the process in it. Only the process that holds the session can vouch that a request was
        # not executed: if another one refuses, a proxy may have sent the request to both, and the first may have died of it.
        self._instance: Headers = ((checks.INSTANCE_HEADER, f"{program}.{own}"),)
        self._router = router
        self._authenticator: Authenticator = NoAuthentication() if authenticator is None else authenticator
        self._documents = checks.PublicDocumentRoutes(self._authenticator)
        self._hosts = checks.AllowedHosts(config)
        self._origins = checks.AllowedOrigins(config)
        self._proxies = TrustedProxies(config.trusted_proxies)
        self._peer_for = lru_cache(maxsize=1024)(self._unauthenticated_peer)
        self._paths = {config.path.rstrip("/") or "/", *(("/",) if config.serve_root else ())}
        self.bodies = checks.BodyBudget(config.bodies)
        """The memory budget for bodies. A share is returned when its body is complete, before the message is parsed, or was given up."""
        self._methods = config.methods
        self._limits = MessageLimits.of_size(config.max_body)
        self._sessions = config.session_enabled and not config.plain
        self._legacy = LegacySse(router, config, self._limits, self._instance) if config.old_sse else None
        self._retry = None if config.sse_retry is None else round(config.sse_retry * 1000)
        self._open_streams: set[Interruption] = set()
        self._listening: set[LastingFeed] = set()
        self._interruptible_calls: set[Interruption] = set()
        self._stopping = False
        quiet = config.quiet_after
        self._quiet_after = math.inf if quiet is None else quiet
        self._heartbeat = min(config.heartbeat, self._quiet_after)

    def _unauthenticated_peer(self, address: str) -> Peer:
        return Peer("http", address, proxied=host_in(address) in self._proxies)

    @property
    def instance(self) -> Headers:
        """The header that names this process, for components that refuse requests in front of this endpoint."""
        return self._instance

    def owns(self, path: str) -> bool:
        """Whether this endpoint serves a path (without its query)."""
        return self._methods_at(path) is not None or path in self._documents.paths

    def _methods_at(self, path: str) -> Sequence[str] | None:
        if path in self._paths or (path.rstrip("/") or "/") in self._paths:
            return self._methods
        return None if self._legacy is None else self._legacy.methods(path)

    def start_listening(self) -> None:
        """Accept standalone streams again after `stop_listening`; they are accepted from the start."""
        self._stopping = False
        if self._legacy is not None:
            self._legacy.stopping = False

    def stop_listening(self) -> None:
        """End all standalone streams and refuse new ones; running calls are still answered."""
        self._stopping = True
        for stream in tuple(self._open_streams):
            stream.interrupt()
        for feed in tuple(self._listening):
            feed.finish()
        if self._legacy is not None:
            self._legacy.stop()

    def end_calls(self) -> bool:
        """Answer all running calls with an error now, since their connections are about to be cut. Returns whether there were any."""
        calls = tuple(self._interruptible_calls)
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
        """Answer one request. `body` is its bytes, or a function that reads them, called after all other checks.

        That function may raise `HttpRequestRefused` or `PeerGone`. `peer` is the caller, where a component in front has authenticated it.
        """
        if peer is None:
            peer = self._peer_for(address)
        elif peer.proxied is None:
            peer = replace(peer, proxied=host_in(peer.address) in self._proxies)
        http_request = HttpRequest(method, peer, responder)
        try:
            await self._route(http_request, path, headers, body)
        except HttpRequestRefused as refusal:
            known = () if refusal.maybe_done else self._instance
            log_refusal(
                refusal.why,
                status=refusal.status,
                peer=http_request.peer,
                method=method,
                path=path,
                seen=refusal.seen,
                setting=refusal.setting,
                program=self._router.program,
            )
            await http_request.reply(refusal.status, (*refusal.headers, *known), _fitting(http_request, refusal.body))
        except checks.PeerGone:
            pass
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # noqa: BLE001 - an error in the router or the authenticator ends this request, and nothing else
            tracebacks.log_error(log, "%r %r ended in an error of the server", method, path)
            if not http_request.has_replied:
                failure = encode_error(None, McpError.wrap(Exception()))
                await http_request.reply(500, JSON_HEADERS, _fitting(http_request, failure))

    async def _route(self, http_request: HttpRequest, path: str, headers: RawHeaders, body: Body) -> None:
        method = http_request.method
        whole = http_request.path = path
        path, _, query = path.partition("?")
        is_public = path in self._documents.paths
        methods = () if is_public else self._methods_at(path)
        if methods is None:
            raise HttpRequestRefused(
                404, (("content-type", "text/plain"),), b"Not Found", why="No endpoint is at this path"
            )
        if method not in methods and not is_public:
            raise invalid_request(405, "Method not allowed", headers=(("allow", ", ".join(methods)),))
        try:
            http_request.headers = folded = (
                headers.folded() if isinstance(headers, RequestHead) else checks.headers_by_name(headers)
            )
        except checks.DuplicateHeader as twice:
            raise invalid_request(400, f"{twice} came twice, and can have one value only") from None
        if http_request.peer.proxied and (client := self._proxies.client_in(folded.get("x-forwarded-for", ""))):
            http_request.peer = replace(http_request.peer, forwarded=client)
        self._check_host(http_request)
        if is_public:
            await self._documents.respond(http_request, whole)
            return
        self._check_origin(http_request)
        if method == "OPTIONS":
            await http_request.reply(204, checks.preflight_headers(methods, self._authenticator.headers, folded))
            return
        admitted = await self._authenticator.authenticate(method, whole, folded, http_request.peer)
        if isinstance(admitted, HttpRefusal):
            raise HttpRequestRefused(
                admitted.status,
                checks.checked_headers(admitted),
                admitted.body,
                why=admitted.why or "The authenticator refused it",
            )
        http_request.peer = admitted
        if method in ("GET", "DELETE") and folded.get(VERSION_HEADER) == STATELESS_DIALECT.version:
            raise invalid_request(405, "Method not allowed: this revision has POST alone", headers=(("allow", "POST"),))
        if self._legacy is not None and methods is not self._methods:
            await self._legacy.serve(http_request, query, lambda: self._read(http_request, body))
        elif method == "POST":
            await self._post(http_request, body)
        elif method == "GET":
            await self._get(http_request)
        else:
            await self._delete(http_request)

    def _check_host(self, http_request: HttpRequest) -> None:
        host = http_request.headers.get("host")
        if not self._hosts.allow(host):
            message = "This server does not go by the name in Host; if it should, say so in allowed_hosts"
            raise invalid_request(403, message, seen=host or "", setting="allowed_hosts")

    def _check_origin(self, http_request: HttpRequest) -> None:
        origin = http_request.headers.get("origin")
        if not self._origins.allow(origin, http_request.headers.get("sec-fetch-site")):
            if origin is None and not self.config.allow_missing_origin:
                raise invalid_request(
                    403, "Origin is missing; if callers without one are welcome, say allow_missing_origin"
                )
            message = "Pages of this Origin may not call; if they should, say so in allowed_origins"
            raise invalid_request(403, message, seen=origin, setting="allowed_origins")
        if origin is not None:
            http_request.cors = checks.cors_headers(origin)

    def _check_version(self, http_request: HttpRequest, id: RequestId | None = None) -> str:
        """The revision the request names; without one, the default."""
        said = http_request.headers.get(VERSION_HEADER)
        if said is None or (not self.config.validate_protocol_version and not is_handshake_version(said)):
            return (OLDEST_DIALECT if self.config.plain else ASSUMED_DIALECT).version
        if not is_handshake_version(said):
            known = ", ".join(HANDSHAKE_VERSIONS)
            raise invalid_request(400, f"MCP-Protocol-Version {said[:32]!r} is not supported; these are: {known}", id)
        return said

    def _session(self, http_request: HttpRequest, id: RequestId | None = None) -> SessionHandle:
        if not (name := http_request.headers.get(checks.SESSION_HEADER)):
            raise invalid_request(400, "Mcp-Session-Id header required", id)
        session = self._router.find(name, http_request.peer)
        if session is None or session.channel is not None:  # a session with a channel has its peer on another transport
            raise invalid_request(404, "Unknown Mcp-Session-Id", id)
        return session

    # --- POST

    async def _post(self, http_request: HttpRequest, body: Body) -> None:
        accepted = self._check_post(http_request)
        data = await self._read(http_request, body)
        if bus.detail_listener is not None:
            self._emit_frames("in", (data,), http_request)
        try:
            message = parse(data, self._limits)
        except RemoteProtocolError as error:
            await self._report_broken_answer(http_request, error)
            raise HttpRequestRefused(
                error.status, JSON_HEADERS, encode_error(error.id, error), why=error.message
            ) from None
        if type(message) is JsonRpcRequest:
            if bus.listener is not None:
                responder = http_request.responder
                trace = responder.around or trace_context(http_request.headers)
                force_setattr(message, "carried", CarriedByHttp(trace, responder.http_version))
            if self._is_exchange(http_request, message):
                await self._exchange(http_request, message, accepted)
            else:
                await self._request(http_request, message, accepted)
            return
        if self._names_no_session_version(http_request) or is_enveloped(getattr(message, "params", {})):
            if not isinstance(message, JsonRpcNotification):
                raise invalid_request(400, "Invalid Request: the client must not answer here, as it is never asked")
            self._check_notification(http_request, message)
            # There is nothing to do: a client of the stateless era cancels a request by closing its stream.
            await http_request.reply(202, ())
            return
        self._check_version(http_request)
        if self._has_session(http_request):
            session = self._session(http_request)
            try:
                if isinstance(message, JsonRpcNotification):
                    await session.notify(message)
                elif isinstance(message, JsonRpcResponse | JsonRpcError):
                    await session.respond(message)
            except ProcessExited:
                raise invalid_request(404, "Unknown Mcp-Session-Id") from None
        await http_request.reply(204 if self.config.plain else 202, ())

    def _emit_frames(self, direction: Literal["in", "out"], bodies: Iterable[bytes], http_request: HttpRequest) -> None:
        from .wire_events import emit_frames  # noqa: PLC0415 - only a program with a listener loads the events

        session_id = http_request.headers.get(checks.SESSION_HEADER, "")
        emit_frames(direction, bodies, self._router.program, http_request.peer.transport, session_id)

    def _check_notification(self, http_request: HttpRequest, message: JsonRpcNotification) -> None:
        """Refuse a notification of the stateless era whose headers differ from it. They may be missing: the revision requires none."""
        said: Any = message.params["_meta"][PROTOCOL_VERSION_KEY] if is_enveloped(message.params) else None
        version = said if isinstance(said, str) else None
        try:
            check_standard_headers(message.method, message.params, http_request.headers, version, required=False)
        except HeaderMismatch as error:
            body = encode({"jsonrpc": JSONRPC, "error": error.to_wire()})
            raise HttpRequestRefused(400, JSON_HEADERS, body, why=error.message) from None

    def _is_exchange(self, http_request: HttpRequest, request: JsonRpcRequest) -> bool:
        """Whether the request is of the stateless era: by its envelope, or, where it has none, by its header.

        `initialize` without an envelope begins a session, whatever header a proxy has put beside it.
        """
        return is_enveloped(request.params) or (
            request.method != "initialize" and self._names_no_session_version(http_request)
        )

    def _names_no_session_version(self, http_request: HttpRequest) -> bool:
        """Whether the header names a revision that no session can have negotiated, and there is none.

        In a session such a header gets the session's own refusal.
        """
        said = http_request.headers.get(VERSION_HEADER)
        return (
            bool(said)
            and not is_handshake_version(said)
            and checks.SESSION_HEADER not in http_request.headers
            and (self.config.validate_protocol_version or said == STATELESS_DIALECT.version)
        )

    async def _exchange(self, http_request: HttpRequest, request: JsonRpcRequest, accepted: tuple[str, ...]) -> None:
        """Answer a request of the stateless era. Whenever its client disconnects, it is cancelled."""
        is_listen = request.method == "subscriptions/listen"
        if is_listen and self._stopping:
            raise invalid_request(503, "The server is shutting down", request.id)
        quiet = self._quiet_after if checks.EVENTS in accepted else None
        begun = asyncio.get_running_loop().time()
        wait = self._router.exchange(http_request.peer, request, http_request.headers, quiet)
        result = await self._reply_or_stopped(wait, request.id)
        if result is None or isinstance(result, EncodedReply):
            # A client that asks what the server is learns which process it has asked, as with `initialize`.
            named = self._instance if request.method == "server/discover" else ()
            await self._reply(http_request, result, accepted, named)
        else:
            quiet_for = asyncio.get_running_loop().time() - begun
            listening = cast("LastingFeed", result) if is_listen else None
            if listening is not None:
                self._listening.add(listening)
                if self._stopping:  # since it was opened: it was not among those that `stop_listening` has ended
                    listening.finish()
            try:
                silent = quiet_for >= self._quiet_after
                await self._stream(
                    http_request, result, None, request.id, silent=silent, until_eof=True, is_listen=is_listen
                )
            finally:
                if listening is not None:
                    self._listening.discard(listening)

    def _check_post(self, http_request: HttpRequest) -> tuple[str, ...]:
        """The media types the peer accepts, of JSON and event streams, in its order."""
        headers, config = http_request.headers, self.config
        accepted = (checks.JSON,) if config.plain else checks.accepted_types(headers.get("accept", "*/*"))
        if not config.plain and len(accepted) < (2 if config.accept == "both" else 1):
            both = "both " if config.accept == "both" else ""
            either = "and" if both else "or"
            raise invalid_request(406, f"Accept header must include {both}application/json {either} text/event-stream")
        if not checks.is_json(headers.get("content-type")):
            raise invalid_request(415, "Unsupported Media Type: Content-Type must be application/json")
        return accepted

    async def _read(self, http_request: HttpRequest, body: Body) -> bytes:
        """Read the body. A declared length over the limit is refused before reading."""
        headers, config = http_request.headers, self.config
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise invalid_request(415, "Unsupported Media Type: send the body without a Content-Encoding")
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > _LONGEST_LENGTH or int(length) > config.max_body):
            raise checks.body_size_error(config)
        if isinstance(body, bytes):
            data = body
            if self.bodies.used:  # with an empty budget there is room, and the share would be returned at once
                with self.bodies.body(http_request.peer) as share:
                    if not share.take(len(data)):
                        raise checks.body_budget_error()
        else:
            with self.bodies.body(http_request.peer) as share:
                data = await body(share)
        if len(data) > config.max_body:
            raise checks.body_size_error(config)
        return data

    async def _report_broken_answer(self, http_request: HttpRequest, error: RemoteProtocolError) -> None:
        """Pass an invalid answer to the session as an error: the session waits for it."""
        name = http_request.headers.get(checks.SESSION_HEADER)
        session = self._router.find(name, http_request.peer) if name and error.response_to is not None else None
        if session is not None:
            with contextlib.suppress(ProcessExited):
                await session.respond(JsonRpcError(error.response_to, PeerError(error.code, error.message, error.data)))

    def _has_session(self, http_request: HttpRequest) -> bool:
        """Whether the request names a session, or has to."""
        return self._sessions and (self.config.require_session or checks.SESSION_HEADER in http_request.headers)

    async def _request(self, http_request: HttpRequest, request: JsonRpcRequest, accepted: tuple[str, ...]) -> None:
        is_initialize = request.method == "initialize"
        version = ASSUMED_DIALECT.version if is_initialize else self._check_version(http_request, request.id)
        if is_initialize and self._sessions and checks.SESSION_HEADER not in http_request.headers:
            started = await self._result_or_none(self._router.start_session(http_request.peer, request))
            if started is None:
                raise invalid_request(503, "The server is shutting down", request.id)
            session, reply = started
            named = [checks.checked_header(checks.SESSION_HEADER, session.id)] if session is not None else []
            await self._reply(http_request, reply, accepted, (*named, *self._instance))
            return
        streamed = checks.EVENTS in accepted and not is_initialize
        begun = asyncio.get_running_loop().time()
        session = self._session(http_request, request.id) if self._has_session(http_request) else None
        quiet = self._quiet_after if streamed else None
        result: SessionReply
        if session is not None:
            result = await self._ask_session(session, request, quiet)
        else:
            once = self._router.once(http_request.peer, request, version, quiet)
            result = await self._reply_or_stopped(once, request.id)
        if result is None or isinstance(result, EncodedReply):
            await self._reply(http_request, result, accepted, self._instance if is_initialize else ())
        elif streamed:
            quiet_for = asyncio.get_running_loop().time() - begun
            await self._stream(http_request, result, session, request.id, silent=quiet_for >= self._quiet_after)
        else:
            final = await self._result_or_none(self._final_reply(result, request.id))
            await self._reply(http_request, final or EncodedReply(checks.server_stopped_error(request.id)), accepted)

    async def _ask_session(self, session: SessionHandle, request: JsonRpcRequest, quiet: float | None) -> SessionReply:
        try:
            return await self._reply_or_stopped(session.request(request, quiet), request.id)
        except RequestNotDelivered:
            raise invalid_request(404, "Unknown Mcp-Session-Id", request.id) from None
        except ProcessExited:
            return EncodedReply(
                checks.session_lost_error(request.id)
            )  # not 404: on that a client opens a new session and repeats the call, which may have been executed

    async def _reply_or_stopped(self, reply: Coroutine[Any, Any, SessionReply], id: RequestId) -> SessionReply:
        """The reply, or an error if the server stops while this waits."""
        with Interruption() as wait:
            self._interruptible_calls.add(wait)
            try:
                return await reply
            finally:
                self._interruptible_calls.discard(wait)
        return EncodedReply(checks.server_stopped_error(id))

    async def _result_or_none(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result, or None if the server stops while this waits."""
        with Interruption() as wait:
            self._interruptible_calls.add(wait)
            try:
                return await work
            finally:
                self._interruptible_calls.discard(wait)
        return None

    async def _reply(
        self, http_request: HttpRequest, answer: EncodedReply | None, accepted: tuple[str, ...], headers: Headers = ()
    ) -> None:
        """Send one message in the format the peer prefers.

        A cancelled request has no reply: the response is an empty stream, or 202 where the peer takes no streams. An empty body with a JSON
        content type is logged as a parse error by the official SDKs (Python 1.x and 2.x, TypeScript); they take both of these silently.
        """
        if answer is None:
            if checks.EVENTS in accepted:
                await http_request.reply(200, (*STREAM_HEADERS, *headers), checks.KEEP_ALIVE)
            else:
                await http_request.reply(202, headers)
            return
        if bus.detail_listener is not None:
            self._emit_frames("out", (answer.body,), http_request)
        if answer.needs:
            await checks.refuse_for_scopes(http_request, self._authenticator, answer, self._instance)
            return
        streamed = accepted[0] == checks.EVENTS and (self.config.honour_accept_order or len(accepted) == 1)
        if streamed and answer.status == 200:  # noqa: PLR2004 - any other outcome is told by its status
            await http_request.reply(200, (*STREAM_HEADERS, *headers), checks.encode_event(FeedEvent("", answer.body)))
        else:
            await http_request.reply(answer.status, (*JSON_HEADERS, *headers), answer.body)

    async def _final_reply(self, feed: Feed, id: RequestId) -> EncodedReply:
        """The reply on a feed, for a peer that takes no streams: other messages on it are dropped."""
        last: EncodedReply | None = None
        try:
            while (events := await feed.next()) is not None:
                for event in events:
                    if event.answers == id:
                        last = EncodedReply(event.data)
        finally:
            feed.leave()
        return last or EncodedReply(checks.session_lost_error(id))

    # --- GET and DELETE

    async def _get(self, http_request: HttpRequest) -> None:
        if checks.EVENTS not in checks.accepted_types(http_request.headers.get("accept", "*/*")):
            raise invalid_request(406, "Accept header must include text/event-stream")
        self._check_version(http_request)
        session = self._session(http_request)
        if self._stopping:
            raise invalid_request(503, "The server is shutting down")
        try:
            feed = await session.listen(http_request.headers.get("last-event-id"))
        except ProcessExited:
            raise invalid_request(404, "Unknown Mcp-Session-Id") from None
        with Interruption() as stream:
            self._open_streams.add(stream)
            try:
                await self._stream(http_request, feed, session, None)
            finally:
                self._open_streams.discard(stream)
        if stream.fired:
            await http_request.responder.stream_end()

    async def _delete(self, http_request: HttpRequest) -> None:
        self._check_version(http_request)
        session = self._session(http_request)
        try:
            await session.end()
        except RequestNotDelivered:  # the session's node has no such session of this principal
            raise invalid_request(404, "Unknown Mcp-Session-Id") from None
        except ProcessExited:
            pass  # the session ended at this moment, which is what was asked for
        await http_request.reply(204, ())

    # --- streams

    async def _stream(  # noqa: PLR0913 - what a stream has
        self,
        http_request: HttpRequest,
        feed: Feed,
        session: SessionHandle | None,
        id: RequestId | None,
        *,
        silent: bool = False,
        until_eof: bool = False,
        is_listen: bool = False,
    ) -> None:
        """Send a feed's events until it ends. `id` is the request that it has to answer, if any; `silent` sends a comment first.

        `until_eof` ends the stream when the peer sends no more: in the stateless era a client cancels by closing, and a FIN is all that is seen of it.
        """
        responder, retry = http_request.responder, self._retry
        answered = id is None
        pulse = self.config.heartbeat if answered else self._heartbeat
        wait = Interruption()
        sending, observed = True, None
        if bus.listener is not None:
            from .wire_events import observe_stream  # noqa: PLC0415 - only a program with a listener loads the events

            observed = observe_stream(self._router.program, session, is_general=answered, is_listen=is_listen)
        try:
            http_request.has_replied = True
            await responder.stream_start(
                200, (*checks.stream_headers(session.id if session else ""), *http_request.cors), until_eof=until_eof
            )
            if silent and not await responder.stream_chunk(checks.KEEP_ALIVE):
                return
            with wait:
                if not answered:
                    self._interruptible_calls.add(wait)
                while True:
                    sending = False
                    events = await feed.next(pulse)
                    sending = True
                    if events is None:
                        break
                    if observed is not None:
                        observed.note_send()
                    if bus.detail_listener is not None:
                        self._emit_frames("out", [event.data for event in events], http_request)
                    for piece in checks.encode_events(events, retry) if events else (checks.KEEP_ALIVE,):
                        if not await responder.stream_chunk(piece):
                            return
                    if events:
                        retry = None
                        answered = answered or any(event.answers == id for event in events)
            if wait.fired and sending:
                return  # in the middle of an event, to a peer that does not read: nothing more can be sent
            if wait.fired:
                await responder.stream_chunk(checks.encode_event(FeedEvent("", checks.server_stopped_error(id))))
            elif not answered and (session is None or self._router.find(session.id, http_request.peer) is None):
                # In the stateless era only a listen can lose its feed: a call whose process dies has a reply.
                lost = McpError(ErrorCode.INTERNAL_ERROR, LISTEN_LOST if until_eof else checks.SESSION_LOST)
                await responder.stream_chunk(checks.encode_event(FeedEvent("", encode_error(id, lost))))
        finally:
            self._interruptible_calls.discard(wait)
            if observed is not None:
                too_slow = sending and observed.since_send >= self.config.write_timeout
                observed.end(is_evicted=too_slow or getattr(feed, "is_replaced", False))
            feed.leave()
        await responder.stream_end()


def _fitting(http_request: HttpRequest, body: bytes) -> bytes:
    """An error to no request in particular, as the era of the request has it."""
    return without_null_id(body) if http_request.headers.get(VERSION_HEADER) == STATELESS_DIALECT.version else body


class NoAuthentication:
    """The authenticator of a server without authentication: every caller is anonymous."""

    headers: Sequence[str] = ()

    async def authenticate(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> Peer | HttpRefusal:  # noqa: ARG002
        return peer

    async def challenge_for_scopes(
        self,
        scopes: Collection[str],  # noqa: ARG002 - an anonymous caller has no scopes to add
        method: str,  # noqa: ARG002
        path: str,  # noqa: ARG002
        headers: Mapping[str, str],  # noqa: ARG002
        peer: Peer,  # noqa: ARG002
    ) -> HttpRefusal:
        return HttpRefusal(403)
