"""How an upstream is kept, and the words for its state: values, for callers that start one and callers that watch one.

An `UpstreamSpec` says where a server is and how much is asked of it. A `UpstreamStatus` is how one is at a moment; a `OfferingChange` is what is
different in what it offers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, get_args

from greenroom.actors.client.connection_line import ConnectionLine, connection_spec
from greenroom.actors.client.settings import ClientSettings
from greenroom.auth.client.auth_option import CallerCredentials, CallerNotSignedIn
from greenroom.auth.errors import SignInError
from greenroom.errors import ConfigError
from greenroom.supervision import Backoff
from greenroom.supervision.cluster import ProcessLimits
from greenroom.transports.client.interfaces import check_portable
from greenroom.transports.client.remote_wire import RemoteRoute

from .breaker import BreakerSettings
from .offering import PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from greenroom.actors.client.client_handler import ClientHandler
    from greenroom.actors.client.interfaces import Line
    from greenroom.auth.client.auth_option import CallerAuth, CallerIdentity
    from greenroom.supervision import ChildSpec
    from greenroom.supervision.cluster import Cluster
    from greenroom.transports.client.interfaces import Route
    from greenroom.transports.client.remote_wire import NodeProvider

    from .offering import Differences, Offering, Part

PATIENCE: Final = 5.0
"""For how long a catalogue, or a call, waits for a server that is just being started."""


class UpstreamState(Enum):
    """How an upstream is."""

    STARTING = "starting"
    """It has not been ready yet, and nothing has gone wrong."""
    READY = "ready"
    DEGRADED = "degraded"
    """It is away, and tried again; or it is there, and its lists could not be had."""
    OPEN = "open"
    """It failed so often that nothing is sent but a probe now and then."""
    PARKED = "parked"
    """It is left alone for long, or until `retry`."""
    NEEDS_SIGN_IN = "needs_sign_in"
    """A user has to sign in at it first: `UpstreamStatus.sign_in_url` says where, its reason what to do."""
    STOPPING = "stopping"
    """It takes no more requests; those under way have some time left."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """How one upstream is at a moment: ``id, state, cause = standing``, and what changes from one moment to the next."""

    id: str
    state: UpstreamState
    cause: BaseException | None = None
    """Why it is not ready."""
    next_attempt: float | None = field(default=None, compare=False)
    """In how many seconds it is tried again: 0 while an attempt is under way, None when no attempt is due."""
    in_progress: int = field(default=0, compare=False)
    """How many calls are under way at it, or wait for their turn."""

    @property
    def sign_in_url(self) -> str:
        """The server at which a user has to sign in, where that is what is missing."""
        return (
            self.cause.url if self.state is UpstreamState.NEEDS_SIGN_IN and isinstance(self.cause, SignInError) else ""
        )

    def __iter__(self) -> Iterator[Any]:
        return iter((self.id, self.state, self.cause))

    @property
    def reason(self) -> str:
        """Why it is not ready, in words; empty when there is nothing to say."""
        return "" if self.cause is None else str(self.cause) or type(self.cause).__name__


class OfferingChange(NamedTuple):
    """What an upstream offers is different: in what way, and what it is now."""

    id: str
    differences: Differences
    offering: Offering


_AS_ANY: Final[Any] = ...

Away: TypeAlias = Literal["mark", "withdraw", "keep"]
"""What becomes of the tools of a server that is away: their descriptions say so, they are not listed, or nothing."""
AWAY: Final[tuple[Away, ...]] = get_args(Away)
_NOT_NOW: Final = "[Not available now: the server of this tool is away.]"


def marked_away(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """The definition of a tool whose server is away, for its users. It does not change from one attempt to reach the server to the next."""
    said: Any = definition.get("description")
    return {**definition, "description": f"{_NOT_NOW} {said}" if isinstance(said, str) and said else _NOT_NOW}


def _revive() -> Backoff:
    return Backoff(first=30.0, factor=2.0, longest=600.0, jitter=0.5, quiet=600.0)


def check_away(away: Any) -> None:
    """Raise `ConfigError` for what says nothing about tools of a server that is away."""
    if away not in AWAY:
        raise ConfigError(f"away is {', '.join(map(repr, AWAY))}, not {away!r}")


@dataclass(frozen=True, slots=True)
class UpstreamSpec:
    """One server of a federation. `UpstreamSpec(route)` is often enough."""

    route: Route
    settings: ClientSettings = field(default_factory=ClientSettings, kw_only=True)
    handler: Callable[[], ClientHandler] | None = field(default=None, kw_only=True)
    """Makes what answers the server's requests: one for each time that the upstream is started or replaced."""
    breaker: BreakerSettings = field(default_factory=BreakerSettings, kw_only=True)
    concurrent: int = field(default=16, kw_only=True)
    """How many requests may be under way at once,"""
    queue: int = field(default=256, kw_only=True)
    """and how many more may wait; the next request is refused with `UpstreamBusy`."""
    intensity: int = field(default=3, kw_only=True)
    """How often its processes may die within the period; once more, and it is parked."""
    period: float = field(default=60.0, kw_only=True)
    revive: Backoff = field(default_factory=_revive, kw_only=True)
    """How long it is parked."""
    grace: float = field(default=10.0, kw_only=True)
    """How long requests that are under way may take when it is replaced or stopped."""
    tool_timeout: float | None = field(default=_AS_ANY, kw_only=True)
    """How long a call of a tool may take whose caller does not say; by default as long as any request."""
    lists: Sequence[Part] = field(default=PARTS, kw_only=True)
    """Which of its lists are kept from the beginning; the others from when a caller first wants them."""
    settling: float = field(default=0.05, kw_only=True)
    """For how long changes of a list are collected before it is fetched anew."""
    isolation: Isolation = field(default=None, kw_only=True)
    """"process": its connections run in a process of their own; an `ConnectionProcess`: in one that is shared by all who have the same."""
    away: Away = field(default="mark", kw_only=True)
    """What becomes of its tools while calls of them are refused, since it cannot be reached."""
    caller_auth: CallerAuth | None = field(default=None, kw_only=True, repr=False)
    """Of a gateway's caller, the login that the caller's own connection shows: a token, `OAuth(…)` or other `auth` of a client; None refuses the caller.

    For a server at a URL. It may be async. The route's own credentials are then for the host alone: its lists, and its program's calls.
    """
    connect: Callable[[str, UpstreamSpec], tuple[ChildSpec[Any], Line]] | None = field(default=None, kw_only=True)
    """Another kind of client: makes the child that is connected, and the line to it."""

    def __post_init__(self) -> None:
        if self.concurrent < 1 or self.queue < 0 or self.intensity < 0:
            raise ConfigError("concurrent is 1 or more, queue and intensity are 0 or more")
        if "tools" not in self.lists or not set(self.lists) <= set(PARTS):
            raise ConfigError(
                f"lists are some of {', '.join(PARTS)}, tools among them, not {', '.join(self.lists) or 'none'}"
            )
        check_away(self.away)
        check_isolation(self.isolation)
        if self.caller_auth is not None:
            check: Any = getattr(self.route, "check_caller_credentials", None)
            if check is None or self.connect is not None or not callable(self.caller_auth):
                raise ConfigError(
                    "caller_auth is a function of the caller, for a server at a URL: there are no logins elsewhere"
                )
            check()
        if self.isolation is not None:
            if self.connect is not None:
                raise ConfigError("isolation is for a route: whoever makes the connection decides where it runs")
            check_portable(self.route)
        if self.tool_timeout is not _AS_ANY and self.tool_timeout is not None and not self.tool_timeout > 0:
            raise ConfigError(f"tool_timeout is more than 0 seconds, or None for no limit, not {self.tool_timeout!r}")
        for name in ("period", "grace", "settling"):
            value: float = getattr(self, name)
            if not (math.isfinite(value) and value >= 0) or (name == "period" and not value):
                raise ConfigError(f"{name} is a number of seconds, not {value!r}")

    def patience(self, method: str) -> float | None:
        """How long a request of this kind may take whose caller does not say."""
        return (
            self.settings.request_timeout
            if method != "tools/call" or self.tool_timeout is _AS_ANY
            else self.tool_timeout
        )

    def personal(self, caller: CallerIdentity | None) -> UpstreamSpec:
        """The same for connections of one caller of a gateway. Raises `CallerNotSignedIn`."""
        ask = self.caller_auth
        if ask is None:
            return self
        if caller is None:
            raise CallerNotSignedIn("each caller's own login is used there, and the caller is not known")
        route: Any = self.route
        return replace(self, route=route.with_credentials(partial(CallerCredentials, ask, caller)))

    def connected(
        self, id: str, place: NodeProvider | None = None, patience: float | None = None
    ) -> tuple[ChildSpec[Any], Line]:
        """The child that keeps a connection, and the line to it. `place` is where its wires run, if not here; `patience` is the line's."""
        if self.connect is not None:
            return self.connect(id, self)
        handler = None if self.handler is None else self.handler()
        line = ConnectionLine(str(id), self.settings, patience=patience)
        route = self.route if place is None else RemoteRoute(self.route, place)
        return connection_spec(route, handler, line=line), line


# --- A process beside the program, for connections that must not be able to harm it: one `ConnectionProcess` says what it may use, and which upstreams share it.
# It is a value and owns nothing: each host that has a server with it runs a process of its own (`connection_processes`).

_serials: Final = count(1)


@dataclass(frozen=True, slots=True, eq=False)
class ConnectionProcess:
    """A process for connections. Give one to several servers of a host, and they share it, and its fate.

    `memory` is how many bytes it may have, and `open_files` how many descriptors; None is no limit. Both hold as well for each program that is
    started there. `start` is how many seconds it may take to come up. `cluster` is one that the program has started in its own tree,
    before the host: the process is then placed by that, on a machine that has all that `requires` asks for.
    """

    name: str = "connection process"
    memory: int | None = field(default=None, kw_only=True)
    open_files: int | None = field(default=None, kw_only=True)
    start: float = field(default=30.0, kw_only=True)
    cluster: Cluster | None = field(default=None, kw_only=True)
    requires: Mapping[str, object] = field(default_factory=dict[str, object], kw_only=True)
    serial: int = field(init=False, repr=False)
    """What tells it from all others of this program."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "serial", next(_serials))
        _ = self.limits
        if isinstance(self.start, bool) or not self.start > 0:
            raise ConfigError(f"start must be more than 0 seconds, not {self.start!r}")
        if self.requires and self.cluster is None:
            raise ConfigError(
                "a connection process that requires something needs the program's `cluster`, which knows other machines"
            )

    @property
    def limits(self) -> ProcessLimits:
        """As the cluster knows them. Raises `ConfigError`."""
        return ProcessLimits(memory=self.memory, open_files=self.open_files)


Isolation: TypeAlias = ConnectionProcess | Literal["process"] | None
"""Where a connection runs: here, in a process of its own, or in one that others share."""


def check_isolation(isolation: object) -> None:
    """Raises `ConfigError` for what is none."""
    if isolation is not None and isolation != "process" and not isinstance(isolation, ConnectionProcess):
        raise ConfigError(f"isolation is 'process' or a ConnectionProcess(…), not {isolation!r}")
