"""The seam between the wire and the company: all that a transport knows of sessions and credentials, as Protocols.

A transport makes a `Peer` of the other end, asks the `SessionRouter` for a session, and hands it messages. What comes
back is an `EncodedReply`, a `Feed` that goes on, or nothing. Feeds end by themselves when their session dies, however it
dies: a transport never has to watch over processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from greenroom.supervision import ProcessExited

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping, Sequence

    from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse


@dataclass(frozen=True, slots=True)
class Peer:
    """The identity of the other end: one connection's worth of it, made before any session is looked up.

    `principal` is the owner of the call; a session belongs to the principal that made it, and looks unknown to all others.
    `auth` is what the gatekeeper found out besides, and what handlers see as `ctx.auth`. `proxied` says whether the address is
    a trusted proxy's, which brings many clients; None where the transport has no list of them: the loopback addresses are.
    `forwarded` is the client's own address, as trusted proxies have written it: for logs, and for nothing that is counted or allowed.
    """

    transport: str
    address: str = ""
    principal: Hashable = None
    auth: Any = field(default=None, repr=False)
    proxied: bool | None = None
    forwarded: str = ""


class EncodedReply(NamedTuple):
    """One JSON-RPC message as bytes, and as which HTTP status it travels where there is one.

    `needs` are the scopes that the caller would have to have, where that is why it is refused: the gatekeeper words the challenge.
    """

    body: bytes
    status: int = 200
    needs: tuple[str, ...] = ()


class FeedEvent(NamedTuple):
    """One message on a feed. `id` is empty where nothing can be resumed; `data` is empty in the event that only sets a mark.

    `retry` asks the reader to come back after so many milliseconds; a transport without such a word leaves it out. `answers` is
    the id of the request that the message answers: on a channel, it is how the transport knows what is still owed when a session dies,
    and when everything has been said.
    """

    id: str
    data: bytes
    retry: int | None = None
    answers: str | int | None = None


class Feed(Protocol):
    """Messages for the peer, in order, for one reader at a time."""

    @property
    def name(self) -> str:
        """What the feed is called in its events' ids."""
        ...

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
        """What has come since the last time, at least one event; empty when the time was up first; None when it has ended.

        It also ends for a reader whose place another reader has taken.
        """

    def leave(self) -> None:
        """The reader is gone. What is resumable stays for the next one; what is not ends."""


SessionReply: TypeAlias = EncodedReply | Feed | None
"""What a request brings: its answer; a feed that the answer comes on, since something else came first; or nothing, because
the peer has cancelled it."""


class RequestNotDelivered(ProcessExited):
    """The session was gone before it could have heard of it: nothing was done, and a peer may try again with another one."""


class SessionHandle(Protocol):
    """What a transport may ask of a session. Each raises `ProcessExited` when the session is gone: what it was at may have been done or not.

    One that lives elsewhere may turn out never to have been there, which is `RequestNotDelivered`.
    """

    @property
    def id(self) -> str:
        """What the peer calls it."""
        ...

    @property
    def version(self) -> str | None:
        """The revision that was agreed on; None before that."""

    @property
    def channel(self) -> Feed | None:
        """Where everything goes in a session that has one channel (stdio, memory): lossless, and bounded by what it holds back."""

    async def request(self, request: JsonRpcRequest, quiet: float | None = None) -> SessionReply:
        """Have it answer a request. In a session with a channel, the reply is that channel, at once.

        After `quiet` seconds without a word, the reply is a feed on which the answer comes later. A caller that stops waiting for the reply is a
        reader that left: the call goes on.
        """

    async def notify(self, notification: JsonRpcNotification) -> None:
        """Tell it something; what it does not know it ignores."""

    async def respond(self, answer: JsonRpcResponse | JsonRpcError) -> None:
        """Hand it the peer's answer to one of its own requests; an unknown id is ignored."""

    async def listen(self, last_event_id: str | None = None) -> Feed:
        """Open the stream for what belongs to no request, or resume the one that the event was on."""
        ...

    async def end(self) -> None:
        """The peer has done with it."""


class SessionStart(NamedTuple):
    """What came of `initialize`: its answer, and a session unless it was refused."""

    session: SessionHandle | None
    answer: EncodedReply


class SessionRouter(Protocol):
    """The way into a company."""

    async def start_session(self, peer: Peer, hello: JsonRpcRequest) -> SessionStart:
        """Begin a session with an `initialize` request. Nothing is kept of one that is refused."""
        ...

    async def connect(self, peer: Peer) -> SessionHandle:
        """Begin a session with a channel, before anything was said. Raises `McpError` when there is no room.

        It has no links: it ends when it is told to, when it has been idle too long, or with its company.
        """
        ...

    def find(self, session_id: str, peer: Peer) -> SessionHandle | None:
        """The session of that id, if it is this peer's: a foreign one looks unknown."""

    async def once(self, peer: Peer, request: JsonRpcRequest, version: str, quiet: float | None = None) -> SessionReply:
        """Answer one request without any session, as the revision wants it that the peer says it follows.

        With `quiet`, which may be infinite, the reply may be a feed: what is said before the answer comes on it, and it is made after so many seconds
        without a word. It must be left, which ends the request. Without, all but the answer is refused.
        """
        ...


class HttpRefusal(NamedTuple):
    """What a gatekeeper says no with. `why` is for the access log alone."""

    status: int
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    why: str = ""


class Authenticator(Protocol):
    """Admits peers, or refuses them. Asked on every verb, before a session is looked up."""

    @property
    def headers(self) -> Sequence[str]:
        """The request headers that it reads, for the CORS allow-list."""
        ...

    async def authenticate(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> Peer | HttpRefusal:
        """The peer with its principal, or a refusal. `headers` are lower-cased; `path` has its query."""
        ...

    async def challenge_for_scopes(
        self, scopes: Collection[str], method: str, path: str, headers: Mapping[str, str], peer: Peer
    ) -> HttpRefusal:
        """How a peer that was admitted is told that its call needs these scopes. Of the refusal, status and headers are used."""
        ...


class PublicDocuments(Protocol):
    """Public documents: any caller may read them, from any page, without credentials.

    A gatekeeper that has some has them as `public_documents`.
    """

    @property
    def paths(self) -> Collection[str]:
        """Where they are, from the root of whatever is served."""
        ...

    async def respond(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> HttpRefusal:
        """The answer, whatever the method. `path` has its query."""
        ...
