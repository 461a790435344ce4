"""Interfaces between the transports and the rest of a server: sessions, replies, feeds and authentication.

A transport describes the other end as a `Peer`, asks the `SessionRouter` for a session and passes it messages. The result is an `EncodedReply`, a `Feed` that
continues, or nothing. A feed ends by itself when its session dies, for any reason, so a transport never has to monitor processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from greenroom.supervision import ProcessExited

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping, Sequence

    from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse


@dataclass(frozen=True, slots=True)
class Peer:
    """The identity of the other end of a connection, known before any session is looked up.

    `principal` owns the call; a session belongs to the principal that created it, and is unknown to all others. `auth` is what the
    authenticator found out besides; handlers see it as `ctx.auth`. `proxied` tells whether the address is a trusted proxy's, which serves
    many clients; None where the transport has no list of proxies, and then loopback addresses count as proxies. `forwarded` is the client's
    own address as trusted proxies report it: it is logged, and never used for limits or permissions.
    """

    transport: str
    address: str = ""
    principal: Hashable = None
    auth: Any = field(default=None, repr=False)
    proxied: bool | None = None
    forwarded: str = ""


class EncodedReply(NamedTuple):
    """One JSON-RPC message as bytes, and the HTTP status it is sent with, where there is one.

    `needs` are the scopes whose lack is the reason of a refusal; the authenticator writes the challenge for them.
    """

    body: bytes
    status: int = 200
    needs: tuple[str, ...] = ()


class FeedEvent(NamedTuple):
    """One message on a feed.

    `id` is empty where a stream cannot be resumed; `data` is empty in an event that only sets a resumption mark. `retry` asks the reader to
    reconnect after so many milliseconds; a transport without such a field omits it. `answers` is the id of the request that the message
    answers: from it a channel knows which requests are still unanswered when a session dies, and when all are answered.
    """

    id: str
    data: bytes
    retry: int | None = None
    answers: str | int | None = None


class Feed(Protocol):
    """Messages for the peer, in order, for one reader at a time."""

    @property
    def name(self) -> str:
        """The feed's name in the ids of its events."""
        ...

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
        """The events since the last call, at least one; empty after the timeout; None when the feed has ended.

        The feed also ends for a reader that another reader has replaced.
        """

    def leave(self) -> None:
        """Detach the reader. A resumable feed waits for its next reader; any other feed ends."""


class LastingFeed(Feed, Protocol):
    """The feed of a `subscriptions/listen`, which has its reply when it is ended."""

    def finish(self) -> None:
        """End it in order: its reader gets the reply, and then the feed has ended."""


SessionReply: TypeAlias = EncodedReply | Feed | None
"""The result of a request: its reply; a feed on which the reply follows other messages; or nothing, because the peer cancelled it."""


class RequestNotDelivered(ProcessExited):
    """The session ended before the request was delivered, so nothing was done and the peer may retry in another session."""


class SessionHandle(Protocol):
    """A session, as transports use it.

    Each method raises `ProcessExited` when the session is gone: the request may have been executed or not. A session on another node may
    turn out not to exist, which is `RequestNotDelivered`.
    """

    @property
    def id(self) -> str:
        """The id that the peer knows the session by."""
        ...

    @property
    def version(self) -> str | None:
        """The negotiated protocol revision; None before the handshake."""

    @property
    def channel(self) -> Feed | None:
        """The single feed of a session that has one channel (stdio, memory): lossless, with a bounded backlog."""

    async def request(self, request: JsonRpcRequest, quiet: float | None = None) -> SessionReply:
        """Answer a request. In a session with a channel the result is that channel, at once.

        After `quiet` seconds without a message the result is a feed on which the reply comes later. Cancelling the wait detaches the
        reader; the call continues.
        """

    async def notify(self, notification: JsonRpcNotification) -> None:
        """Deliver a notification; an unknown one is ignored."""

    async def respond(self, answer: JsonRpcResponse | JsonRpcError) -> None:
        """Deliver the peer's answer to a request of the session's own; an unknown id is ignored."""

    async def listen(self, last_event_id: str | None = None) -> Feed:
        """Open the stream for messages that belong to no request, or resume the stream of that event."""
        ...

    async def end(self) -> None:
        """End the session: the peer is done with it."""


class SessionStart(NamedTuple):
    """The result of `initialize`: the reply, and a session unless it was refused."""

    session: SessionHandle | None
    answer: EncodedReply


class SessionRouter(Protocol):
    """Creates and finds the sessions of a server."""

    @property
    def max_in_flight(self) -> int:
        """How many requests of one peer may be in flight at once: a channel counts those of its session and those that stand alone."""
        ...

    @property
    def program(self) -> str:
        """The server's name in events."""
        ...

    @property
    def process_name(self) -> Hashable:
        """The name of the process whose end is the end of the server."""
        ...

    async def start_session(self, peer: Peer, hello: JsonRpcRequest) -> SessionStart:
        """Start a session with an `initialize` request. A refused one leaves no state behind."""
        ...

    async def connect(self, peer: Peer) -> SessionHandle:
        """Start a session with a channel, before the first message. Raises `McpError` when there is no room.

        The session has no links: it ends when told to, after its idle timeout, or with its server.
        """
        ...

    def find(self, session_id: str, peer: Peer) -> SessionHandle | None:
        """The session of that id if it belongs to this peer; a session of another principal is reported as unknown."""

    async def once(self, peer: Peer, request: JsonRpcRequest, version: str, quiet: float | None = None) -> SessionReply:
        """Answer one request without a session, by the revision that the peer names.

        With `quiet`, which may be infinite, the result may be a feed: it carries messages that precede the reply, and it is created after
        so many seconds without a message. The reader has to leave that feed, which ends the request. Without `quiet`, the server refuses to
        send anything but the reply.
        """
        ...

    async def exchange(
        self, peer: Peer, request: JsonRpcRequest, headers: Mapping[str, str] | None = None, quiet: float | None = None
    ) -> SessionReply:
        """Answer one request of the stateless era: it names its revision itself and stands alone. Cancelling the wait cancels it.

        `headers` are the headers of an HTTP request, by lower-case name, which have to agree with the request. With `quiet`, which may be
        infinite, the result may be a feed, as for `once`; leaving the feed before its reply cancels the request.
        """
        ...


class HttpRefusal(NamedTuple):
    """An authenticator's refusal. `why` goes to the access log alone."""

    status: int
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    why: str = ""


class Authenticator(Protocol):
    """Authenticates every HTTP request, whatever its method, before a session is looked up."""

    @property
    def headers(self) -> Sequence[str]:
        """The request headers it reads, for the CORS allow-list."""
        ...

    async def authenticate(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> Peer | HttpRefusal:
        """Return the peer with its principal, or a refusal. `headers` have lower-case names; `path` includes the query."""
        ...

    async def challenge_for_scopes(
        self, scopes: Collection[str], method: str, path: str, headers: Mapping[str, str], peer: Peer
    ) -> HttpRefusal:
        """The challenge for an authenticated peer whose call needs these scopes. Of the refusal, status and headers are used."""
        ...


class PublicDocuments(Protocol):
    """Documents that any caller may read from any origin without credentials, such as resource metadata.

    An authenticator offers them as its attribute `public_documents`.
    """

    @property
    def paths(self) -> Collection[str]:
        """Their paths, from the root of the application."""
        ...

    async def respond(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> HttpRefusal:
        """The response, whatever the method. `path` includes the query."""
        ...


_SHOWN_CHARACTERS: Final = 8
"""How many characters of an id are shown: enough to tell two sessions apart, too few to guess one."""


def short_id(session_id: str) -> str:
    """The first characters of a session's id, which is a secret, for logs, reports and events; empty for no session."""
    return f"{session_id.removeprefix('mcp_')[:_SHOWN_CHARACTERS]}…" if session_id else ""
