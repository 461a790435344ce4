"""Interfaces between a client connection and its transport: routes, wires, what they deliver, and credentials.

A `Route` describes how to reach a server; `open` starts a `ClientWire`: a process linked to the connection that opened it. Opening returns
at once; messages sent before the server is reached are queued in order, within bounds. Messages from the server arrive as `Inbound` mails
in the connection's mailbox. A request that will get no reply is reported by an `UnansweredRequest`. The end of a wire is reported exactly
once, by its exit signal: its reason is `Shutdown(TransportError)`, and `Crash` only for a bug of the wire.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from greenroom.errors import ConfigError
from greenroom.protocol.errors import RemoteProtocolError
from greenroom.protocol.jsonrpc import JsonRpcRequest, encode, parse, too_long_error
from greenroom.supervision import current_node

from .errors import sample

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence

    from greenroom.protocol.jsonrpc import JsonRpcMessage, MessageLimits, OversizedMessage, RequestId
    from greenroom.supervision import Pid, Process

    from .errors import TransportError
    from .outgoing_requests import OutgoingRequest
    from .remote_wire import HomeCallbacks

READ_TURN: Final = 0.001
"""Seconds for which input of one server is processed before other tasks get a turn: tiny lines, chunks and events cost a thousand times what plain text does."""
READ_SLICE: Final = 4096
"""How many bytes are delivered at once before the clock is checked."""


class UnansweredRequest(NamedTuple):
    """A request of ours gets no reply on this wire; other requests are unaffected.

    `resend` tells that the server cannot have received it: it is safe to send again.
    """

    id: RequestId
    error: TransportError
    resend: bool = False
    ending: bool = False
    """The wire is ending and accepts no more: a resend has to wait for the next wire."""


class InvalidMessage(NamedTuple):
    """The server sent something that is not a valid message.

    `error.response_to` is the id of our request that it would have answered, if that can be read. `sample` is its beginning, at most a line,
    for reports.
    """

    error: RemoteProtocolError
    sample: str = ""


class RelatedRequest(JsonRpcRequest, frozen=True):
    """A request of the server that came on the stream of one of ours."""

    during: RequestId | None = None
    """The id of our request."""


class StreamGap(NamedTuple):
    """The standalone stream was cut and starts anew: messages in between are lost."""

    why: str


InboundItem: TypeAlias = "JsonRpcMessage | InvalidMessage | UnansweredRequest | StreamGap"


def parse_inbound(data: bytes | OversizedMessage, limits: MessageLimits) -> JsonRpcMessage | InvalidMessage:
    """Parse a message; invalid input becomes an `InvalidMessage`."""
    try:
        if type(data) is bytes:
            return parse(data, limits)
        raise too_long_error(data, limits.size)  # type: ignore[arg-type]
    except RemoteProtocolError as error:
        return invalid_message(error, data if type(data) is bytes else data.head)  # type: ignore[union-attr]


def invalid_message(error: RemoteProtocolError, data: bytes, expected_id: RequestId | None = None) -> InvalidMessage:
    """Describe invalid input. `expected_id` is the request that it must have been meant for, if there is just one."""
    if error.response_to is None:
        error.response_to = expected_id
    return InvalidMessage(error, sample(data))


class Inbound(NamedTuple):
    """Items from the server, in order, as one mail to the connection. `wire` tells the present wire's mail from a former one's."""

    wire: Pid
    items: Sequence[InboundItem]


def process_of(pid: Pid) -> Process:
    """The live local process with that pid."""
    process = current_node().process(pid)
    assert process is not None
    return process


def unread_mails(owner: Process) -> int:
    """The length of a process's mailbox: a wire pauses reading while the connection has many unread mails."""
    return 0 if owner.mailbox is None else len(owner.mailbox)


class ClientWire(Protocol):
    """An open transport to a server. No method blocks or raises after the wire has ended: the exit signal reports that."""

    @property
    def pid(self) -> Pid:
        """The wire's process. `exit(pid, Shutdown(…))` closes in order: queued messages are flushed, the session is deleted, a child process is ended."""
        ...

    @property
    def description(self) -> str:
        """The server as people may see it: a URL without secrets, a command, a name."""
        ...

    @property
    def is_http(self) -> bool:
        """Whether each request has a stream of its own, with headers, whose end cancels the request."""
        ...

    def send(self, frame: bytes, id: RequestId | None = None, *, ordered: bool = False, mirrored: Headers = ()) -> None:
        """Send one message. `id` is given for a request, and `mirrored` are the headers of one that stands alone, where `is_http`.

        Messages may be sent in parallel, but none overtakes an `ordered` one (`notifications/initialized`). Raises `WireFull` when too many
        messages are queued.
        """

    def forget(self, id: RequestId) -> None:
        """Release what is held for a request whose caller has stopped waiting. Its stream ends, where it has one."""

    def on_negotiated(self, version: str) -> None:
        """The protocol revision is negotiated; where it has sessions, the standalone stream may be opened.

        Called right before `notifications/initialized` is sent, where there is one.
        """


class Route(Protocol):
    """How to reach a server: a value that is used again for each new attempt."""

    @property
    def description(self) -> str:
        """The server as people and reports may see it, without secrets."""
        ...

    def open(self, owner: Pid) -> ClientWire:
        """Start a wire for the calling process, which is `owner`: linked to it, and delivering to it.

        An exception counts as a failed attempt, as the end of the wire would.
        """
        ...


def is_http(route: Route) -> bool:
    """Whether the wires of this route are HTTP."""
    return bool(getattr(route, "is_http", False))


def transport_of(route: Route) -> str:
    """The name of the route's transport: `http`, `stdio` or `memory`; empty where the route has none."""
    return str(getattr(route, "transport_name", ""))


def address_of(route: Route) -> str:
    """Host and port of the server that a route leads to; empty where there are none."""
    return str(getattr(route, "peer_address", ""))


def http_version_of(route: Route) -> str:
    """The version of HTTP that a route speaks, if it is known before a response."""
    return str(getattr(route, "http_version", ""))


def endpoint_of(route: Route) -> str:
    """The identity of the server that a route leads to, to compare with others; empty where the route has none. It may contain secrets."""
    return str(getattr(route, "endpoint", ""))


def authorization_of(route: Route) -> Hashable:
    """By what requests over this route are authorized now: equal for equal headers and tokens. None where that is not known. It contains no secrets."""
    found: Hashable = getattr(route, "authorization", None)
    return found


def extensions_of(route: Route) -> Sequence[str]:
    """The extensions of the protocol by which requests over this route are authorized: a client declares them."""
    found: Sequence[str] = getattr(route, "extensions", ())
    return found


def digest_of(*texts: str) -> bytes:
    """A digest of these texts, some of which are secrets, to compare."""
    return blake2b(encode(texts), digest_size=16).digest()


class Credentials(Protocol):
    """Supplies the authentication headers of each HTTP request, and is told of refusals. `greenroom.auth` has those that can log in.

    Those whose headers depend on the request have the methods of `RequestCredentials`, too. Those that know by what requests are authorized now
    have an `authorization`, as a route has: without it, results that are for one user alone are not kept.
    """

    def headers(self) -> Awaitable[Mapping[str, str]]:
        """The authentication headers. Raises `TransportError` (`Unauthorized`) when there are none."""
        ...

    def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> Awaitable[bool]:
        """A request with the headers `sent` was answered with 401 or 403 and that `WWW-Authenticate`. Returns whether to try again."""
        ...


class RequestCredentials(Credentials, Protocol):
    """Credentials that sign each HTTP request (DPoP): each attempt to send one, retries included, asks for headers of its own."""

    def headers_for(self, method: str, url: str) -> Awaitable[Mapping[str, str]]:
        """The authentication headers of one request, asked for instead of `headers()`."""
        ...

    def on_nonce(self, url: str, nonce: str) -> None:
        """A response from that URL, whatever its status, has the header `DPoP-Nonce`."""


def headers_for_request(credentials: Credentials, method: str, url: str) -> Awaitable[Mapping[str, str]]:
    """The authentication headers of one HTTP request."""
    headers_for = getattr(credentials, "headers_for", None)
    if headers_for is None:
        return credentials.headers()
    made: Awaitable[Mapping[str, str]] = headers_for(method, url)
    return made


@dataclass(frozen=True, slots=True)
class FixedHeaders:
    """The same headers each time: a token managed elsewhere, or none for anonymous requests. Their values are hidden in the repr."""

    _headers: Mapping[str, str]

    def __repr__(self) -> str:
        return f"FixedHeaders({', '.join(sorted(self._headers))})"

    @property
    def authorization(self) -> Hashable:
        """A digest of these headers, to compare."""
        headers = self._headers
        return digest_of(*(text for header in sorted(headers.items()) for text in header)) if headers else b""

    async def headers(self) -> Mapping[str, str]:
        return self._headers

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:  # noqa: ARG002 - there is nothing else to try
        return False


# --- HTTP carriers: `HttpConnectionPool` is our own, directly on the loop's transports; `HttpxCarrier` is for a client, a transport or a
# proxy of httpx that the user brings. All callbacks run in the loop's thread, and nothing blocks.


Headers: TypeAlias = tuple[tuple[str, str], ...]


class InFlightRequest(Protocol):
    """The transport side of a request that was started."""

    @property
    def may_have_been_sent(self) -> bool:
        """Whether any byte of the request may have been sent."""
        ...

    def drop(self) -> None:
        """Give up the response: no callback of the request follows."""

    def pause(self) -> None:
        """Pause the response."""

    def resume(self) -> None:
        """Resume the response."""


class HttpCarrier(Protocol):
    """Sends the HTTP requests of a wire."""

    def start(self, request: OutgoingRequest) -> None:
        """Send the request, and keep its `in_flight` current. No callback is made before this has returned."""
        ...

    async def close(self) -> None:
        """Drop all requests and close the connections."""


# --- Routes that are opened in another process.
# A program's command travels with its environment; a URL with its headers, its trusted authorities, and a fixed token. Credentials that can
# log in stay in the home process: the other one asks for the headers of each request. Both processes talk over a local socket that only
# their user can open, with its own key.


@dataclass(frozen=True, slots=True)
class PortableRoute:
    """A route as a value that can be sent: the function that makes it again, and its arguments."""

    make: Callable[..., Route]
    arguments: Mapping[str, Any] = field(repr=False)

    def route(self, home: HomeCallbacks) -> Route:
        """The route, in the receiving process; `home` gives access to what stayed in the home process."""
        return self.make(home, **self.arguments)


def portable_route(route: Route) -> PortableRoute:
    """The portable form of a route. Raises `ConfigError` for one that works in this process only."""
    make = getattr(route, "portable", None)
    portable: PortableRoute = PortableRoute(_same_route, {"route": route}) if make is None else make()
    return portable


def _same_route(_: HomeCallbacks, route: Route) -> Route:
    return route


def check_portable(route: Route) -> None:
    """Raises `ConfigError` for a route that cannot be opened in another process."""
    # Imported here, since a client in one process needs none of the modules that link several.
    from greenroom.supervision.cluster import CannotTravel, value_codec  # noqa: PLC0415 - as above

    try:
        value_codec.encode(portable_route(route), "")
    except CannotTravel as error:
        raise ConfigError(f"{route!r} cannot be opened in another process: {error}") from None
