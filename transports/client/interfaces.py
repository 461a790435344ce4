"""The seam between a connection and its wire: how a server is reached, what may be said, and what comes back.

A `Route` says where a server is; `open` makes a `ClientWire` of it: a process, linked to the connection that opened it, and so quick to begin
that the connection need not wait: what is sent before the server can be reached is kept in order, within bounds. What the server says comes as `Inbound`
messages to the connection's mailbox. A failure of one request is a `UnansweredRequest` for that request. The end of the whole wire is told
exactly once, by its exit: the linked connection gets it as an exit signal whose reason is `Shutdown(TransportError)`, whatever happened, and
`Crash` only for a bug of the wire's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from greenroom.errors import ConfigError
from greenroom.protocol.errors import RemoteProtocolError
from greenroom.protocol.jsonrpc import parse, too_long_error
from greenroom.supervision import current_node

from .errors import sample

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from greenroom.protocol.jsonrpc import JsonRpcMessage, MessageLimits, OversizedMessage, RequestId
    from greenroom.supervision import Pid, Process

    from .errors import TransportError
    from .outgoing_requests import OutgoingRequest
    from .remote_wire import HomeCallbacks

READ_TURN: Final = 0.001
"""Seconds that what one server has sent may take of the loop before other tasks have a turn: tiny lines, chunks and events cost a
thousand times what plain text does."""
READ_SLICE: Final = 4096
"""So many bytes are handed on at once, before the clock is looked at."""


class UnansweredRequest(NamedTuple):
    """One request of ours will not be answered on this wire, and why; others are not concerned.

    `resend` says that the server cannot have seen it: it is safe to send again.
    """

    id: RequestId
    error: TransportError
    resend: bool = False
    ending: bool = False
    """The wire is at its end, and takes nothing more: whatever is sent again has to wait for the next one."""


class InvalidMessage(NamedTuple):
    """Something came that is no message. `error.answers` names our request whose answer it would have been, where that can be read.

    `sample` is the beginning of it, for the report; never more than a line.
    """

    error: RemoteProtocolError
    sample: str = ""


class StreamGap(NamedTuple):
    """The stream for what belongs to no request was cut and begins anew: what was said in between is lost."""

    why: str


InboundItem: TypeAlias = "JsonRpcMessage | InvalidMessage | UnansweredRequest | StreamGap"


def parse_inbound(data: bytes | OversizedMessage, limits: MessageLimits) -> JsonRpcMessage | InvalidMessage:
    """The message in it, or what is wrong with it."""
    try:
        if type(data) is bytes:
            return parse(data, limits)
        raise too_long_error(data, limits.size)  # type: ignore[arg-type]
    except RemoteProtocolError as error:
        return invalid_message(error, data if type(data) is bytes else data.head)  # type: ignore[union-attr]


def invalid_message(error: RemoteProtocolError, data: bytes, expected_id: RequestId | None = None) -> InvalidMessage:
    """What has come instead of a message. `asked` is the one request that it can have been meant for, if there is one."""
    if error.answers is None:
        error.answers = expected_id
    return InvalidMessage(error, sample(data))


class Inbound(NamedTuple):
    """What the wire has heard, in order, as one mail to the connection. `wire` tells mail of a former wire from that of the present one."""

    wire: Pid
    items: Sequence[InboundItem]


def process_of(pid: Pid) -> Process:
    """The process behind it, which is one of this node, and lives."""
    process = current_node().process(pid)
    assert process is not None
    return process


def unread_mails(owner: Process) -> int:
    """How many mails it has not taken yet: a wire reads no further while there are many."""
    return 0 if owner.mailbox is None else len(owner.mailbox)


class ClientWire(Protocol):
    """An open way to a server. Nothing here blocks, and nothing raises when the wire has ended: the exit signal tells."""

    @property
    def pid(self) -> Pid:
        """The process. `exit(pid, Shutdown(…))` closes in order: what was sent is flushed, a session is given back, a child is ended."""
        ...

    @property
    def description(self) -> str:
        """Where it leads, for people: a URL without its secrets, a command, a name."""
        ...

    def send(self, frame: bytes, id: RequestId | None = None, *, ordered: bool = False) -> None:
        """Say one message. `id` is the request's, when it is one.

        Messages may travel side by side, but nothing overtakes one that is `ordered` (`notifications/initialized` is). Raises `WireFull`
        when too much waits already.
        """

    def forget(self, id: RequestId) -> None:
        """The caller does not wait for that answer any more: what was held for it can go."""

    def on_negotiated(self, version: str) -> None:
        """The handshake is over: that revision holds, and what the server wants to say by itself may be listened for.

        It is said right before `notifications/initialized` is sent.
        """


class Route(Protocol):
    """Where a server is, and how to get there: a value, used again for each new attempt."""

    @property
    def description(self) -> str:
        """Where it leads, for people and for reports: without secrets."""
        ...

    def open(self, owner: Pid) -> ClientWire:
        """Begin a wire for the calling process, which is `owner`: linked to it, and telling it what comes.

        What it raises is an attempt in vain, as the end of the wire would be.
        """
        ...


class Credentials(Protocol):
    """What a wire asks before each HTTP request, and when it was refused. The room of authentication has those that can log in."""

    def headers(self) -> Awaitable[Mapping[str, str]]:
        """The headers that say who we are. Raises `TransportError` (`Unauthorized`) when there are none to be had."""
        ...

    def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> Awaitable[bool]:
        """The server said 401 or 403, with that `WWW-Authenticate`, to a request with those headers. Whether it is worth another try."""
        ...


@dataclass(frozen=True, slots=True)
class FixedHeaders:
    """The same headers each time: a token that other code looks after, or none for anonymous requests. They never show in a repr."""

    _headers: Mapping[str, str]

    def __repr__(self) -> str:
        return f"FixedHeaders({', '.join(sorted(self._headers))})"

    async def headers(self) -> Mapping[str, str]:
        """These."""
        return self._headers

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:  # noqa: ARG002 - they are all there is
        """They are all there is."""
        return False


# --- What carries the HTTP of a wire: `Pool` is ours, straight on the event loop's transports. `ThroughHttpx` is for what users bring: a client or
# a transport of httpx, or a proxy. Everything here happens in the loop's thread, and nothing blocks.


Headers: TypeAlias = tuple[tuple[str, str], ...]


class InFlightRequest(Protocol):
    """What a request that is under way is on."""

    @property
    def may_have_been_sent(self) -> bool:
        """Whether anything of the request may have left."""
        ...

    def drop(self) -> None:
        """The answer is not wanted: the visit is told nothing more."""

    def pause(self) -> None:
        """Let the answer wait where it is."""

    def resume(self) -> None:
        """Go on."""


class HttpCarrier(Protocol):
    """What carries the requests of visits."""

    def start(self, request: OutgoingRequest) -> None:
        """Send what the visit says, and keep its `in_flight` true. Nothing is told to the visit before this has returned."""
        ...

    async def close(self) -> None:
        """Drop everything, and let go of the connections."""


# --- What another process needs to reach a server: a route as a value that travels, and what stays at home.
# A program's command goes with the environment that it is to see; a URL with its headers, with what it trusts, and with a token if that is fixed.
# Credentials that can log in stay at home with all that they keep: what travels is the header of each request, asked for when it is sent. Between the
# two processes is a socket of this machine that only its user can open, with a key of its own.


@dataclass(frozen=True, slots=True)
class PortableRoute:
    """A route that travels: the function that makes it again, by its name, and of what."""

    make: Callable[..., Route]
    arguments: Mapping[str, Any] = field(repr=False)

    def route(self, home: HomeCallbacks) -> Route:
        """The route, in the process that it has come to; `desk` is what stays at home."""
        return self.make(home, **self.arguments)


def portable_route(route: Route) -> PortableRoute:
    """The ticket. Raises `ConfigError` for what leads through this process alone."""
    make = getattr(route, "portable", None)
    portable: PortableRoute = PortableRoute(_same_route, {"route": route}) if make is None else make()
    return portable


def _same_route(_: HomeCallbacks, route: Route) -> Route:
    return route


def check_portable(route: Route) -> None:
    """Raises `ConfigError` for a route that cannot be followed in another process."""
    # Imported here, since a client in one process needs none of the modules that link several.
    from greenroom.supervision.cluster import CannotTravel, value_codec  # noqa: PLC0415 - as above

    try:
        value_codec.encode(portable_route(route), "")
    except CannotTravel as error:
        raise ConfigError(f"{route!r} cannot be followed in another process: {error}") from None
