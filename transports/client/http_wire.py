"""The HTTP wire: the client process that sends a connection's messages over HTTP, and the session they are in.

The work is done in callbacks as bytes arrive; the process itself only waits for its end: an exit signal of its owner, or an error. It is
linked to the connection that opened it, which always learns of its end. One wire is one session: when the server has lost that, messages it
cannot have received are reported as safe to resend, requests in flight may still be answered for a moment, and the wire ends.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.dialect import dialect_of
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcRequest, JsonRpcResponse, MessageLimits
from greenroom.supervision import SHUTDOWN, Exit, Quit, Shutdown, receive, spawn_link

from .errors import ConnectFailed, HttpError, NotMcp, SessionGone, TransportError, WireFull, instance_of, is_not_done
from .interfaces import (
    FixedHeaders,
    Inbound,
    InvalidMessage,
    RelatedRequest,
    StreamGap,
    UnansweredRequest,
    process_of,
    unread_mails,
)
from .outgoing_requests import MessagePost, RequestPost
from .session_requests import LegacySseStream, SessionDelete, SessionPing, StandaloneStream

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.supervision import Pid

    from .http_address import ServerUrl
    from .http_connection_pool import ResponseHead
    from .http_route import HttpRoute
    from .interfaces import Headers, HttpCarrier, InboundItem
    from .outgoing_requests import OutgoingRequest

_SESSION_GONE_GRACE: Final = 1.0
"""Seconds that requests in flight still have when the session is gone."""
_SHORTEST_RETRY: Final = 0.05
"""The shortest delay before a stream is reopened, even if the server says 0."""
_UNREAD_MAILS: Final = 64
"""How many unread mails of the connection pause reading."""
_NOTIFICATIONS_IN_FLIGHT: Final = 32
"""How many notifications and answers of ours may be in flight before reading pauses.

Each has a connection of its own, so a flood of pings once opened a thousand.
"""
_LISTEN: Final = ("mcp-method", "subscriptions/listen")
"""The header of a request whose response goes on until one side ends it."""
_FALLBACK_STATUSES: Final = frozenset({400, 404, 405})


class _WireEnd(NamedTuple):
    error: TransportError


class HttpWire:
    """The wire of one connection. Public methods are for its requests and for the `ClientWire` interface."""

    def __init__(self, route: HttpRoute, owner: Pid) -> None:
        """Made in the calling process, which is the owner."""
        carrier = route.carrier()  # raises before a process is started
        self._owner = process_of(owner)
        self.pid: Pid = spawn_link(self._run)
        own = process_of(self.pid)
        own.trap_exit = True
        own.label = "http wire"
        self._process = own
        self._loop = own.node.loop
        self.description = route.description
        self.settings = route.settings
        self.address: ServerUrl = route.address
        self.post_url: ServerUrl = route.address
        """Where messages are posted to."""
        self.credentials = route.credentials
        self.known_headers: Mapping[str, str] | None = None
        """The authentication headers, if they never change."""
        self.on_nonce: Callable[[str, str], None] | None = getattr(route.credentials, "on_nonce", None)
        """Told of the nonces in responses, by URL, if the credentials sign requests."""
        if isinstance(route.credentials, FixedHeaders):
            self.known_headers = route.credentials._headers  # noqa: SLF001 - the same package; fixed headers need no task to be asked for
        self._own_headers = route.headers
        self._last: tuple[Mapping[str, str], str, str, Headers] | None = None
        """The headers of the last message and their inputs: the next message mostly has the same ones, and comparing costs less than building them."""
        self.session = ""
        """The session id; empty before the handshake, and for a server without sessions."""
        self.response_limits = MessageLimits.of_size(self.settings.max_response)
        self.event_limits = MessageLimits.of_size(self.settings.max_event)
        self.carrier: HttpCarrier = carrier(own)
        self._version = ""
        self._has_sessions = True
        """Whether the revision has sessions, and so a standalone stream."""
        self.instance = ""
        """The server process that has our session; empty where it does not say."""
        self._in_flight: dict[MessagePost, None] = {}
        self._unanswered: dict[RequestId, RequestPost | MessagePost] = {}
        self._waiting: deque[MessagePost] = deque()
        self._bytes_in_flight = 0
        self._notifications_in_flight = 0  # how many of those in flight are no requests
        self._lasting = 0  # how many of those in flight are listens
        self._barrier: MessagePost | None = None
        self._standalone: StandaloneStream | None = None
        self._legacy: LegacySseStream | None = None
        self._may_fall_back = route.fallback
        self._session_gone: SessionGone | None = None
        self.session_in_doubt = False
        """Whether the standalone stream has ended, so that the server may have restarted without our session."""
        self._ping: SessionPing | None = None
        self._pings = 0
        self._invalid_in_a_row = 0  # how many of the last messages were invalid
        self._closing = False
        self._has_ended = False
        self._all_sent: asyncio.Future[None] | None = None
        self.unsent = 0
        """How many notifications and answers of ours could not be delivered."""
        if route.old:
            self._open_legacy(None)

    # --- the ClientWire interface

    is_http = True

    def send(self, frame: bytes, id: RequestId | None = None, *, ordered: bool = False, mirrored: Headers = ()) -> None:
        if self._closing or self._has_ended or self._process.life:
            return
        if self._session_gone is not None:
            if id is not None:
                self.deliver((UnansweredRequest(id, self._session_gone, resend=True),))
            return
        settings = self.settings
        lasts = _LISTEN in mirrored
        queued = len(self._in_flight) + len(self._waiting) - self._lasting
        if queued >= settings.max_connections + settings.max_waiting and not lasts:
            raise WireFull(f"{queued} messages are queued or in flight to {self.description}")
        if self._bytes_in_flight + len(frame) > settings.max_waiting_bytes and self._bytes_in_flight and not lasts:
            raise WireFull(f"{self._bytes_in_flight:,} bytes are queued or in flight to {self.description}")
        if id is None or self._legacy is not None:
            request = MessagePost(self, frame, id, ordered=ordered)
        else:
            request = RequestPost(self, frame, id, ordered=ordered)
        if mirrored:
            request.mirrored = mirrored
        if lasts:
            request.lasts = request.urgent = True
            self._lasting += 1
        else:
            self._bytes_in_flight += len(frame)
        if id is not None:
            self._unanswered[id] = request
            if self.session_in_doubt and self._barrier is None:
                self._ping_session()
        if self._barrier is not None or self._waiting or (self._legacy is not None and not self._legacy.ready):
            self._waiting.append(request)
        else:
            self._start(request)

    def forget(self, id: RequestId) -> None:
        request = self._unanswered.pop(id, None)
        if request is not None:
            request.drop()
            self._remove(request)

    def on_negotiated(self, version: str) -> None:
        self._version = version
        self._has_sessions = not dialect_of(version).is_stateless
        if self._has_sessions and self._legacy is None and self._standalone is None and not self._process.life:
            self._loop.call_soon(self._open_standalone_stream, context=self._process.own_context())

    # --- sending

    def _ping_session(self) -> None:
        """Ping the session before the next calls. Nothing overtakes the ping: later messages wait for its result, or for another session."""
        self.session_in_doubt = False
        self._pings += 1
        probe = self._ping = SessionPing(self, self._pings)
        self._bytes_in_flight += len(probe.frame)
        self._start(probe)

    def _start(self, request: MessagePost) -> None:
        self._in_flight[request] = None
        self._notifications_in_flight += request.id is None
        if request.ordered:
            self._barrier = request
        request.start()

    def _send_queued(self) -> None:
        """Send queued messages, up to the next ordered one."""
        if self._standalone is None and self._version and self._has_sessions:
            self._open_standalone_stream()  # opened first: a server that answers with a request of its own may send that on this stream
        while self._waiting and self._barrier is None and not (self._legacy is not None and not self._legacy.ready):
            self._start(self._waiting.popleft())

    def _remove(self, request: MessagePost) -> None:
        """A request is finished, whatever its outcome."""
        if request in self._in_flight:
            del self._in_flight[request]
            self._notifications_in_flight -= request.id is None
        elif request in self._waiting:
            self._waiting.remove(request)
        else:
            return
        if request.lasts:
            self._lasting -= 1
        else:
            self._bytes_in_flight -= len(request.frame)
        if self._barrier is request:
            self._barrier = None
        if self._ping is request:
            self._ping = None
        if self._barrier is None and (
            self._waiting or (self._version and self._has_sessions and self._standalone is None)
        ):
            self._send_queued()
        if self._all_sent is not None and not self._in_flight and not self._all_sent.done():
            self._all_sent.set_result(None)
        if self._session_gone is not None and not self._in_flight:
            self.end(self._session_gone)

    def _open_standalone_stream(self) -> None:
        """Open the standalone stream as soon as no ordered message is in flight."""
        if (
            self._standalone is None
            and self._barrier is None
            and not (self._closing or self._has_ended or self._session_gone or self._legacy or self._process.life)
        ):
            self._standalone = StandaloneStream(self)
            self._standalone.start()

    # --- called by requests

    def headers(self, request: OutgoingRequest, credentials: Mapping[str, str]) -> Headers:
        """The headers of a request. Raises `ValueError` for credentials that are no valid headers."""
        session, version, last = self.session, "" if self._legacy is not None else self._version, self._last
        if request.mirrored:  # it has a version of its own, and no session
            session = version = ""
        if request.method == "POST" and last is not None and last[0] == credentials and last[1:3] == (session, version):
            return last[3]
        headers = request_headers(
            self._own_headers, credentials, login=request.address.login, session=session, version=version
        )
        if request.method != "POST":
            return (_ACCEPT_STREAM, *request.extra_headers(), *headers)
        self._last = dict(credentials), session, version, (_ACCEPT_BOTH, _CONTENT_TYPE_JSON, *headers)
        return self._last[3]

    def on_session_id(self, request: RequestPost, head: ResponseHead) -> None:
        """The handshake's response: it names the session, or there is none."""
        if not self._version:
            self.instance = instance_of(head)
        session = "" if request.mirrored else head.get(b"mcp-session-id")
        if session:
            if not is_valid_session_id(session):
                request._fail(NotMcp(f"{self.address.origin} sent an invalid session id"))  # noqa: SLF001
            else:
                self.session = session

    def deliver(self, items: Sequence[InboundItem], *, during: RequestId | None = None) -> None:
        """Deliver items to the connection. `during` is the request on whose stream they came."""
        if self._ping is not None:
            items = [each for each in items if getattr(each, "id", None) != self._ping.id]
            if not items:
                return
        if during is not None and any(type(each) is JsonRpcRequest for each in items):
            items = [
                RelatedRequest(each.id, each.method, each.params, during=during)
                if type(each) is JsonRpcRequest
                else each
                for each in items
            ]
        for each in items:
            if type(each) is InvalidMessage:
                self._invalid_in_a_row += 1
                if (
                    each.error.response_to is not None
                ):  # it has no other reply, even if this came on another request's stream
                    self._unanswered.pop(each.error.response_to, None)
            elif type(each) is not UnansweredRequest and type(each) is not StreamGap:
                self._invalid_in_a_row = 0
                if type(each) is JsonRpcResponse or type(each) is JsonRpcError:
                    self._unanswered.pop(each.id, None)  # type: ignore[arg-type]  # an id that is None is no request's
        if not self._closing:
            self._owner.send(Inbound(self.pid, items))
        if self._invalid_in_a_row >= self.settings.quarantine and not self._has_ended:
            what = f"{self.description} is no MCP server: {self._invalid_in_a_row} messages in a row were invalid"
            self._end_now(NotMcp(what))

    def is_behind(self) -> bool:
        """Whether the connection has many unread mails, or the server has not yet acknowledged many of our answers."""
        return self._notifications_in_flight > _NOTIFICATIONS_IN_FLIGHT or unread_mails(self._owner) > _UNREAD_MAILS

    def on_settled(self, request: MessagePost, *, answered: bool = True) -> None:
        """A request was acknowledged or answered."""
        if answered and type(request) is RequestPost and request.id is not None:
            self._unanswered.pop(request.id, None)
        self._remove(request)

    def on_unanswered(self, request: MessagePost, error: TransportError, *, resend: bool) -> None:
        """A request got no reply and will get none."""
        if resend and isinstance(error, ConnectFailed) and self._is_server_gone(request):
            self._end_now(error)
            return
        if request.id is not None:
            if self._unanswered.pop(request.id, None) is not None:
                self.deliver((UnansweredRequest(request.id, error, resend),))
        else:
            self.unsent += 1
            if request.ordered:
                self.end(error)
        self._remove(request)

    def _is_server_gone(self, request: MessagePost) -> bool:
        """Whether the server is gone altogether, and nothing is left that it may have received and could answer."""
        if (
            not self._version
            or self._session_gone is not None
            or (self._standalone is not None and self._standalone.may_have_been_sent)
        ):
            return False
        # A request that was acknowledged, or whose stream is to be resumed, is on no connection, though the server has received it.
        # A listen is not waited for: a server that stops lets it go on to the last moment, and it is opened again.
        return not any(
            each.may_have_been_received
            for each in (*self._in_flight, *self._unanswered.values())
            if each is not request and not each.lasts
        )

    def _end_now(self, error: TransportError) -> None:
        """End now. With a `ConnectFailed`, messages still queued were not received, so nothing may be sent any more."""
        self._has_ended = True
        self._drop_all()
        self._waiting.clear()
        self.end(error)

    def _drop_all(self) -> None:
        for request in (*self._in_flight, *self._waiting, self._standalone, self._legacy):
            if request is not None:
                request.drop()

    def was_not_done(self, head: ResponseHead) -> bool:
        """Whether a refused request can be resent: a handshake always, anything else only if it was surely not executed."""
        return not self._version or is_not_done(head, self.instance, alone=not self._has_sessions)

    def session_gone(self, request: MessagePost | None, error: HttpError, *, unseen: bool) -> None:
        """The server has lost our session. Requests that were surely not executed can be resent in another one."""
        if self._session_gone is None:
            self._session_gone = SessionGone(error.status, error.body, error.where)
            if self._standalone is not None:
                self._standalone.drop()
            waiting, self._waiting = self._waiting, deque()
            for each in waiting:
                self.on_unanswered(each, self._session_gone, resend=True)
            self.later(_SESSION_GONE_GRACE, partial(self.end, self._session_gone))
        if request is not None:
            self.on_unanswered(request, self._session_gone, resend=unseen)
        elif not self._in_flight:
            self.end(self._session_gone)

    def retry_delay(self, retry: float | None) -> float:
        """How long to wait before a stream is reopened."""
        return self.settings.retry if retry is None else max(_SHORTEST_RETRY, min(retry, self.settings.max_retry))

    def now(self) -> float:
        """The loop's clock."""
        return self._loop.time()

    def later(self, seconds: float, function: Callable[[], None]) -> asyncio.TimerHandle:
        """Call a function later; an exception in it crashes this process."""
        return self._loop.call_later(seconds, self._guarded, function, context=self._process.own_context().copy())

    def _guarded(self, function: Callable[[], None]) -> None:
        if self._process.life:
            return
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - any exception crashes the process
            self._process.crash(error)

    def task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine as a task of this process; an exception in it crashes this process."""
        task = self._loop.create_task(coroutine, context=self._process.own_context().copy())
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._process.crash(error)

    # --- the legacy transport

    def falls_back(self, request: RequestPost, error: HttpError) -> bool:
        """If the handshake was refused as legacy servers refuse it, try the legacy transport; returns whether it does."""
        if (
            request.mirrored
            or not self._may_fall_back
            or error.status not in _FALLBACK_STATUSES
            or self.session
            or self._version
        ):
            return False
        self._may_fall_back = False
        frame = request.frame
        self._open_legacy(error)
        self._remove(request)
        assert request.id is not None
        if request.id in self._unanswered:
            again = MessagePost(self, frame, request.id, ordered=request.ordered)
            self._unanswered[request.id] = again
            self._bytes_in_flight += len(frame)
            self._waiting.appendleft(again)
        return True

    def _open_legacy(self, instead: HttpError | None) -> None:
        self._legacy = LegacySseStream(self, instead)
        self._legacy.start()

    def on_legacy_ready(self, post_url: ServerUrl) -> None:
        """The legacy stream has named the URL for posts."""
        self.post_url = post_url
        self._send_queued()

    def on_legacy_end(self, error: TransportError) -> None:
        """The legacy stream has ended, and the session with it."""
        assert self._legacy is not None
        for request in (*self._waiting, *self._in_flight):
            if request.id is not None and self._unanswered.pop(request.id, None) is not None:
                self.deliver((UnansweredRequest(request.id, error, resend=not self._legacy.ready),))
        self.end(error)

    # --- the process

    def end(self, error: TransportError) -> None:
        """End the process: the server cannot be reached any more."""
        self._process.send(_WireEnd(error))

    async def _run(self) -> None:
        try:
            while True:
                message = await receive()
                if isinstance(message, _WireEnd):
                    raise Quit(Shutdown(message.error))
                if isinstance(message, Exit):
                    await self._close_session()
                    raise Quit(message.reason if isinstance(message.reason, Shutdown) else SHUTDOWN)
        finally:
            self._closing = True
            self._drop_all()
            await self.carrier.close()

    async def _close_session(self) -> None:
        """Send queued messages and delete the session, within the grace."""
        self._closing = True
        for request in (self._standalone, self._ping, *self._unanswered.values()):
            if request is not None:
                request.drop()
                if isinstance(request, MessagePost):
                    self._remove(request)
        try:
            async with asyncio.timeout(self.settings.close_grace):
                if self._in_flight or self._waiting:
                    self._all_sent = self._loop.create_future()
                    await self._all_sent
                if self.session and self._session_gone is None and self._legacy is None:
                    goodbye = SessionDelete(self)
                    goodbye.start()
                    await goodbye.finished.wait()
        except TimeoutError:
            pass


# --- The headers of every request: accepted types, authentication, session and revision.

_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_ACCEPT_BOTH: Final = ("accept", "application/json, text/event-stream")
_ACCEPT_STREAM: Final = ("accept", "text/event-stream")
_CONTENT_TYPE_JSON: Final = ("content-type", "application/json")


def is_valid_session_id(session: str) -> bool:
    """Whether a session id is valid: visible ASCII characters, not too many."""
    return _VISIBLE.fullmatch(session) is not None


def is_header(name: str, value: str) -> bool:
    """Whether name and value form a valid header."""
    return _NAME.fullmatch(name) is not None and _VALUE.fullmatch(value) is not None


def request_headers(
    own: Headers, credentials: Mapping[str, str], *, login: str = "", session: str = "", version: str = ""
) -> Headers:
    """The headers that every request needs. Raises `ValueError` for credentials that are no valid headers.

    `own` are the route's headers; `credentials` override them. `login` comes from the URL, and both override it.
    """
    given = {name.lower() for name in credentials}
    found = [each for each in own if each[0] not in given]  # servers refuse a request with two of them
    if login and not any(name == "authorization" for name in (*given, *(name for name, _ in found))):
        found.append(("authorization", login))
    for name, value in credentials.items():
        if not is_header(name, value):
            raise ValueError("invalid header")
        found.append((name.lower(), value))
    if session:
        found.append(("mcp-session-id", session))
    if version:
        found.append(("mcp-protocol-version", version))
    return tuple(found)
