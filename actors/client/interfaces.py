"""The handle with which callers send requests to a server: a `Line`. The connection behind it may die and come back; the line stays.

Facades, federations and gateways are written against this and nothing else, so that a test, or another kind of client, can stand in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from types import TracebackType
    from typing import Self

    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.supervision import Pid


class Phase(Enum):
    """Where a connection is in its life."""

    CONNECTING = "connecting"
    INITIALIZING = "initializing"
    READY = "ready"
    BACKOFF = "backoff"
    PARKED = "parked"
    CLOSING = "closing"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Status:
    """How a connection is."""

    phase: Phase
    cause: Exception | None = None
    """What went wrong last, while it is not ready."""
    attempts: int = 0
    """How often it was tried in vain since it was last ready."""
    retry_in: float | None = None
    """In how many seconds the next attempt comes; 0 while one is under way."""
    generation: int = 0
    """How many handshakes have succeeded: a caller that kept something of an older one has to ask again."""


@dataclass(frozen=True, slots=True)
class ServerWelcome:
    """What the server said of itself in the handshake."""

    version: str
    capabilities: Mapping[str, Any]
    server_info: Mapping[str, Any]
    instructions: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a request has come."""

    progress: float
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ServerNotification:
    """A notification of the server's, or (with an empty method) that some may have been lost while there was no connection."""

    method: str
    params: Mapping[str, Any]

    @property
    def gap(self) -> bool:
        """Whether something may have been missed: ask for what you keep."""
        return not self.method


class Pending(Protocol):
    """A request that is under way. Await it for its result; a task that is cancelled while awaiting it cancels the request."""

    @property
    def id(self) -> RequestId:
        """What the server knows it as."""
        ...

    async def result(self) -> dict[str, Any]:
        """The result, once. Raises `PeerError`, `ClientError` or `RequestCancelled`."""
        ...

    def progress(self, *, of_task: bool = False) -> AsyncIterator[Progress]:
        """How it goes, until it is settled, or with `of_task` until the task has ended that the server has made of it. What was not read in time is dropped, oldest first; the last one stays."""
        ...

    def when_settled(self, tell: Callable[[dict[str, Any] | None, BaseException | None], object]) -> None:
        """Have `tell` called once, soon after it is settled, with the result or with the error; also when no task awaits it."""
        ...

    def cancel(self, reason: str = "") -> None:
        """Cancel the request: the server is told, and tasks awaiting it get `RequestCancelled`. Nothing when it is settled."""


class Updates(Protocol):
    """Changes, as they come, for one reader; what it does not read in time is dropped and told as a gap."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __aiter__(self) -> AsyncIterator[ServerNotification]: ...


class Line(Protocol):
    """A way to ask one server."""

    @property
    def pid(self) -> Pid | None:
        """The connection's process, if it runs just now."""
        ...

    @property
    def name(self) -> str:
        """What the server is called here."""
        ...

    @property
    def status(self) -> Status:
        """How it is. Never blocks."""
        ...

    @property
    def welcome(self) -> ServerWelcome | None:
        """What the server last said of itself; None before that."""
        ...

    def begin(  # noqa: PLR0913 - what can be said of a request
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = ...,
        wait: bool = True,
        progress: bool = False,
        token: str | int | None = None,
        idempotent: bool | None = None,
    ) -> Pending:
        """Send a request. Never raises: what is wrong, the pending request tells.

        `timeout` is a deadline on the wall's clock that nothing puts off; by default the connection's own, None for none. While the
        connection is not ready the request waits for it within that time, unless `wait` is False. `progress` asks for progress, under
        `token` or one of our own. A request that was lost on the way is sent again only if it is `idempotent`; None leaves that to the
        method: lists and reads are, `tools/call` is not.
        """
        ...

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, timeout: float | None = ..., wait: bool = True
    ) -> dict[str, Any]:
        """Send a request and wait for its result."""
        ...

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the server something. Raises `ClientError` when it cannot be said."""

    async def ready(self, timeout: float | None = ...) -> ServerWelcome:
        """Wait until it is ready. Raises why it is not, as soon as that is for good (parked, closed, a handshake that is no use)."""
        ...

    def subscribe(self, uri: str) -> Updates:
        """Updates of a resource, for as long as the block lasts. Several may want the same one; the server is asked once.

        It is asked again after each new handshake, and the reader told of the gap.
        """
        ...

    def listen(self, *methods: str) -> Updates:
        """Notifications of these methods, or of all."""
        ...

    def watch(self) -> AsyncIterator[Status]:
        """The present status, and each one that comes after it; slow readers get the latest."""
        ...

    def retry(self) -> None:
        """Try now: out of backoff or parked."""

    async def close(self, timeout: float | None = ...) -> None:
        """End it in order. What is under way gets `ClientClosed`. Again is no error."""
