"""What a session and its workers say to each other: the job, the voice that it lends, and the two ways to end.

A worker is linked to the session that asked. It ends by sending `Finished` or `Failed`; one that dies without either has
crashed, and the session answers for it. The key is the session's own number for the call, never the peer's id.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from greenroom.protocol.errors import McpError
    from greenroom.supervision import Ref
    from greenroom.transports.seam import Peer

    from .bulkheads import Bulkheads
    from .cancellation import Cancellation
    from .catalogue import Catalogue, Kind, Shelf
    from .context import Context
    from .settings import Settings


Own: TypeAlias = "Callable[[Job, Context], Awaitable[dict[str, Any]]]"
"""Answers a request with the whole result, as the wire has it."""

Around: TypeAlias = "Callable[[str, Context, Callable[[], Awaitable[dict[str, Any]]]], Awaitable[dict[str, Any]]]"
"""Stands around whatever answers: it gets the method, the context, and what to await for the result."""


class Isolating(Protocol):
    """An owner of processes that run handlers."""

    async def run(self, job: Job, entry: Any) -> dict[str, Any]:
        """The result of a job whose entry has a pool. Raises what the peer is to be told instead."""
        ...


class House(Protocol):
    """What of the company a worker needs."""

    @property
    def settings(self) -> Settings:
        """How the company was set up."""
        ...

    @property
    def shelf(self) -> Shelf:
        """Where the current catalogue stands."""
        ...

    @property
    def bulkheads(self) -> Bulkheads:
        """The limits on threads."""
        ...

    @property
    def pools(self) -> Isolating:
        """The pools, which run handlers in processes of their own."""
        ...

    @property
    def own(self) -> Mapping[str, Own]:
        """By method: what the server answers by code of its own, instead of from the catalogue."""
        ...

    @property
    def around(self) -> Around | None:
        """What stands around all of that, if anything does."""
        ...

    def expect(self, session_id: str, key: int | None, ids: Sequence[str]) -> None:
        """A peer is about to hear of these pages, on behalf of a call, and wants to know when its user has done with them."""

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """A resource has changed: tell the sessions that subscribed to it."""

    def list_changed(self, kind: Kind) -> None:
        """What is offered has changed."""

    def completed(self, elicitation_id: str) -> bool:
        """A user has done with the page that they were sent to. Returns whether a client may be told."""
        ...


_home: Final[ContextVar[House | None]] = ContextVar("greenroom_home", default=None)
# The server that a worker process has imported runs nowhere: what a handler says by it goes to the company whose call this is.


def at_home(house: House) -> None:
    """In a worker: from now on the code that runs in this context, and in threads that it is handed to, is of a call of that company."""
    _home.set(house)


def home_of_call() -> House | None:
    """The company to be told, as a worker reaches it; None outside of a worker's calls."""
    return _home.get()


class Voice(Protocol):
    """What a handler may say to the peer, through the session that its call belongs to. Safe to use from any thread."""

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification on the call's own stream. False when the peer will not get it."""
        ...

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message, unless the session's level is higher."""
        ...

    def touch(self, ahead: float = 0.0) -> None:
        """Begin the call's time of silence anew, `ahead` seconds from now: its handler has reported something that is not sent."""
        ...

    async def ask(self, method: str, params: Mapping[str, Any], timeout: float | None) -> dict[str, Any]:
        """Send a request to the peer and wait for its result.

        Raises `McpError` (what the peer answered, or that it has not declared the capability) and `CallTimeout`.
        """
        ...

    def interrupt_stream(self, retry: float | None) -> bool:
        """Close the call's stream for now, asking the peer to come back after so many seconds; the call goes on."""
        ...


@dataclass(frozen=True, slots=True)
class Facts:
    """What a handler may know about the session that its call came through."""

    session_id: str = field(repr=False)
    version: str
    peer: Peer
    client_info: Mapping[str, Any]
    client_capabilities: Mapping[str, Any]
    state: Any = None
    """What the server's own `init` returned for this session."""


@dataclass(slots=True)
class Job:
    """One piece of user code to run for a peer."""

    key: int
    session: Ref[Any]
    request_id: str | int
    method: str
    params: Mapping[str, Any]
    facts: Facts
    voice: Voice
    cancelled: Cancellation
    house: House
    task: str | None = None
    """The task that this is the work of; then `session` is the process that keeps the task."""
    catalogue: Catalogue | None = None
    """The one in which the scopes of its peer were looked up; another one asks again."""


class Finished(NamedTuple):
    """The work is done. `body` is the whole encoded response: what cannot be encoded has crashed its worker, not the session."""

    key: int
    body: bytes


class Failed(NamedTuple):
    """The work has ended in a JSON-RPC error."""

    key: int
    error: McpError


class Encoded(dict[str, Any]):
    """A result that has been fitted and encoded in another process: the whole response, and nothing to look at."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        """As it is sent."""
        super().__init__()
        self.body = body


class FarCrash(Exception):
    """A handler has crashed in a process of its own, which has worded the answer; the cause is what it raised."""

    def __init__(self, ending: Finished | Failed, error: Exception) -> None:
        """`ending` is what the peer is told."""
        super().__init__(ending, error)
        self.ending = ending
        self.error = error
