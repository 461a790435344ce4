"""The interfaces of a client: `Line`, the handle with which callers send requests to one server, and the values that it returns.

The handle survives restarts of the connection behind it. `Client`, federations and gateways use this interface alone, so tests and other
kinds of clients can implement it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from greenroom.protocol.dialect import dialect_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from types import TracebackType
    from typing import Self

    from greenroom.protocol.dialect import Dialect
    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.supervision import Pid


class Phase(Enum):
    """The state of a connection."""

    CONNECTING = "connecting"
    INITIALIZING = "initializing"
    READY = "ready"
    BACKOFF = "backoff"
    PARKED = "parked"
    CLOSING = "closing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Status:
    """The state of a connection at one moment, and why it is not ready."""

    phase: Phase
    cause: Exception | None = None
    """The last error, while the connection is not ready."""
    attempts: int = 0
    """Failed attempts since it was last ready."""
    retry_in: float | None = None
    """Seconds until the next attempt; 0 while one is under way."""
    generation: int = 0
    """Counts how often the connection was opened: state kept from an older one has to be fetched again."""


@dataclass(frozen=True, slots=True)
class ServerWelcome:
    """The server's description of itself, in a handshake or by `server/discover`: its version, capabilities, name and instructions."""

    version: str
    capabilities: Mapping[str, Any]
    server_info: Mapping[str, Any]
    instructions: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    evidence: str = field(default="", compare=False, repr=False)
    """How the revision was found out, for people. It may quote the server."""

    @property
    def dialect(self) -> Dialect:
        """The rules of that revision."""
        return dialect_of(self.version)

    @property
    def is_stateless(self) -> bool:
        """Whether each request stands alone, and there is no session."""
        return dialect_of(self.version).is_stateless


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a request."""

    progress: float
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ServerNotification:
    """A notification from the server, or a gap (with an empty method): notifications may have been lost while there was no connection."""

    method: str
    params: Mapping[str, Any]

    @property
    def gap(self) -> bool:
        """Whether notifications may be missing here: fetch again what you keep."""
        return not self.method


class Pending(Protocol):
    """A request under way. Await it for its result; cancelling the awaiting task cancels the request."""

    @property
    def id(self) -> RequestId:
        """The request id on the wire."""
        ...

    async def result(self) -> dict[str, Any]:
        """The result, once. Raises `PeerError`, `ClientError` or `RequestCancelled`."""
        ...

    def progress(self, *, of_task: bool = False) -> AsyncIterator[Progress]:
        """Progress until the request is settled, or with `of_task` until the task ends that the server made of it. Unread progress is dropped, oldest first; the last one stays."""
        ...

    def when_settled(self, tell: Callable[[dict[str, Any] | None, BaseException | None], object]) -> None:
        """Call `tell` once, soon after the request is settled, with the result or the error; also when no task awaits it."""
        ...

    def cancel(self, reason: str = "") -> None:
        """Cancel the request: the server is notified, and tasks awaiting it get `RequestCancelled`. A no-op once it is settled."""


class Updates(Protocol):
    """A stream of notifications for one reader. Notifications that it does not read in time are dropped and replaced by a gap."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __aiter__(self) -> AsyncIterator[ServerNotification]: ...


class Line(Protocol):
    """The handle for requests to one server. It stays valid while the connection behind it restarts."""

    @property
    def pid(self) -> Pid | None:
        """The connection's process, while it runs."""
        ...

    @property
    def name(self) -> str:
        """The server's name in this program."""
        ...

    @property
    def status(self) -> Status:
        """The connection's present status. Never blocks."""
        ...

    @property
    def welcome(self) -> ServerWelcome | None:
        """The server's description of itself from the last opening of the connection; None before."""
        ...

    def begin(  # noqa: PLR0913 - the options of a request
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = ...,
        wait: bool = True,
        progress: bool = False,
        token: str | int | None = None,
        idempotent: bool | None = None,
        as_task: bool = False,
    ) -> Pending:
        """Send a request. Never raises: errors come from the pending request.

        `timeout` is a fixed deadline that progress does not extend; the default is the connection's own, None is no deadline. While the
        connection is not ready the request waits for it within that time, unless `wait` is False. `progress` asks for progress, under
        `token` or one of our own. A request that was lost on the way is sent again only if it is `idempotent`; None leaves that to the
        method: lists and reads are, `tools/call` is not. In the stateless era a server may make a task of a call: its result is waited for,
        unless `as_task` asks for the task itself.
        """
        ...

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = ..., wait: bool = True
    ) -> dict[str, Any]:
        """Send a request and wait for its result."""
        ...

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification. Raises `ClientError` when it cannot be sent."""

    async def ready(self, timeout: float | None = ...) -> ServerWelcome:
        """Wait until the connection is ready. Raises as soon as it is parked or closed, or its opening is refused for good."""
        ...

    def subscribe(self, uri: str) -> Updates:
        """Updates of a resource, for as long as the block lasts. Several readers of one resource share one subscription.

        After each reconnect the subscription is renewed, and the readers get a gap.
        """
        ...

    def listen(self, *methods: str) -> Updates:
        """Notifications of these methods, or of all.

        In the stateless era a server announces changes of its lists only when it is asked: entering the block waits for its acknowledgement.
        """
        ...

    def watch(self) -> AsyncIterator[Status]:
        """The present status, and each one after it; slow readers get the latest."""
        ...

    def retry(self) -> None:
        """Leave backoff or parked, and connect now."""

    async def close(self, timeout: float | None = ...) -> None:
        """Close the connection in order. Requests under way fail with `ClientClosed`. Closing twice is a no-op."""
