"""`UpstreamSpec`: how to connect to one server of a federation, with its limits and timeouts; and the values that describe an upstream.

`UpstreamStatus` is its state at one moment, `OfferingChange` a change of its lists, `ConnectionProcess` a process for its connections.
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
"""Seconds that a catalogue, or a call, waits for a server that is being started."""


class UpstreamState(Enum):
    """The state of an upstream."""

    STARTING = "starting"
    """Not ready yet, and nothing has failed."""
    READY = "ready"
    DEGRADED = "degraded"
    """Unreachable and being retried; or connected, and its lists could not be fetched."""
    OPEN = "open"
    """The circuit breaker is open: only probes are sent."""
    PARKED = "parked"
    """Given up for a long pause, or until `retry`."""
    NEEDS_SIGN_IN = "needs_sign_in"
    """A user has to sign in first: `UpstreamStatus.sign_in_url` says where, `reason` what to do."""
    STOPPING = "stopping"
    """Removed: it takes no new requests, and those under way have its grace."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """The status of one upstream at one moment. ``id, state, cause = status`` unpacks the part that is compared."""

    id: str
    state: UpstreamState
    cause: BaseException | None = None
    """Why it is not ready."""
    next_attempt: float | None = field(default=None, compare=False)
    """Seconds until the next attempt: 0 while one is under way, None when none is due."""
    in_progress: int = field(default=0, compare=False)
    """Calls that are under way or queued."""
    left_out: Mapping[str, str] = field(default_factory=dict[str, str], compare=False)
    """Tools that are not listed because a header annotation of theirs is invalid, by name, and why it is."""
    revision: str = field(default="", compare=False)
    """The revision of the protocol that was agreed on last, such as 2026-07-28; empty before the first connection."""

    since: float | None = field(default=None, compare=False, kw_only=True)
    """For how many seconds it has been in this state."""
    waiting: int = field(default=0, compare=False, kw_only=True)
    """Calls that are queued, of those in progress."""
    breaker: str = field(default="", compare=False, kw_only=True)
    """The state of its breaker: `closed`, `open` or `half_open`."""
    restarts: int = field(default=0, compare=False, kw_only=True)
    """How often its connection was opened again."""
    process: int | None = field(default=None, compare=False, kw_only=True)
    """The operating system's process of a server that is run by a command in this program, while the connection has it."""

    @property
    def sign_in_url(self) -> str:
        """The URL of the server at which a user has to sign in; empty if that is not the problem."""
        return (
            self.cause.url if self.state is UpstreamState.NEEDS_SIGN_IN and isinstance(self.cause, SignInError) else ""
        )

    def __iter__(self) -> Iterator[Any]:
        return iter((self.id, self.state, self.cause))

    @property
    def reason(self) -> str:
        """Why it is not ready, as text; empty without a cause."""
        return "" if self.cause is None else str(self.cause) or type(self.cause).__name__


class OfferingChange(NamedTuple):
    """A change of an upstream's lists: the differences, and the new lists."""

    id: str
    differences: Differences
    offering: Offering


_AS_ANY: Final[Any] = ...

_MOST_QUESTIONS: Final = 10_000
"""How many questions of a server may be open at once on a connection for callers of a gateway, which bounds by itself how many each caller has."""

Away: TypeAlias = Literal["mark", "withdraw", "keep"]
"""How tools of an unreachable server are listed: marked in their descriptions, not at all, or unchanged."""
AWAY: Final[tuple[Away, ...]] = get_args(Away)
_NOT_NOW: Final = "[Not available now: the server of this tool is away.]"


def marked_away(definition: Mapping[str, Any]) -> Mapping[str, Any]:
    """A tool's definition with a note that its server is away. It is the same text for every attempt, so lists do not change with each."""
    description: Any = definition.get("description")
    return {
        **definition,
        "description": f"{_NOT_NOW} {description}" if isinstance(description, str) and description else _NOT_NOW,
    }


def _revive() -> Backoff:
    return Backoff(first=30.0, factor=2.0, longest=600.0, jitter=0.5, quiet=600.0)


def check_away(away: Any) -> None:
    """Raise `ConfigError` for an invalid value of `away`."""
    if away not in AWAY:
        raise ConfigError(f"away is {', '.join(map(repr, AWAY))}, not {away!r}")


@dataclass(frozen=True, slots=True)
class UpstreamSpec:
    """How to connect to one server of a federation. `UpstreamSpec(route)` is often enough."""

    route: Route
    settings: ClientSettings = field(default_factory=ClientSettings, kw_only=True)
    handler: Callable[[], ClientHandler] | None = field(default=None, kw_only=True)
    """Makes the handler of the server's requests: one for each start or replacement of the upstream."""
    breaker: BreakerSettings = field(default_factory=BreakerSettings, kw_only=True)
    concurrent: int = field(default=16, kw_only=True)
    """The most requests under way at once,"""
    queue: int = field(default=256, kw_only=True)
    """and the most that wait; further ones are refused with `UpstreamBusy`."""
    intensity: int = field(default=3, kw_only=True)
    """How often its processes may die within the period; once more, and it is parked."""
    period: float = field(default=60.0, kw_only=True)
    revive: Backoff = field(default_factory=_revive, kw_only=True)
    """How long it stays parked."""
    grace: float = field(default=10.0, kw_only=True)
    """How long requests under way may take when it is replaced or stopped."""
    tool_timeout: float | None = field(default=_AS_ANY, kw_only=True)
    """The default timeout of tool calls; unless set, that of all requests."""
    lists: Sequence[Part] = field(default=PARTS, kw_only=True)
    """The lists that are kept from the start; others are kept from their first use."""
    settling: float = field(default=0.05, kw_only=True)
    """Seconds for which changes of a list are collected before it is fetched again."""
    isolation: Isolation = field(default=None, kw_only=True)
    """"process": its connections run in a process of their own; a `ConnectionProcess`: in one that is shared by all specs that have the same object."""
    away: Away = field(default="mark", kw_only=True)
    """How its tools are listed while it cannot be reached and their calls are refused."""
    caller_auth: CallerAuth | None = field(default=None, kw_only=True, repr=False)
    """Called with a gateway's caller; returns the login for that caller's own connection: a token, `OAuth(…)` or another `auth` of a client; None refuses the caller.

    For servers at a URL. It may be async. The route's own credentials are then used for the host alone: its lists, and its program's calls.
    """
    connect: Callable[[str, UpstreamSpec], tuple[ChildSpec[Any], Line]] | None = field(default=None, kw_only=True)
    """For another kind of client: makes the child spec of its connection, and the line to it."""

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
                    "caller_auth is a function of the caller, for a server at a URL: other servers have no logins"
                )
            check()
        if self.isolation is not None:
            if self.connect is not None:
                raise ConfigError(
                    "isolation is for a route: with `connect`, that function decides where the connection runs"
                )
            check_portable(self.route)
        if self.tool_timeout is not _AS_ANY and self.tool_timeout is not None and not self.tool_timeout > 0:
            raise ConfigError(f"tool_timeout is more than 0 seconds, or None for no limit, not {self.tool_timeout!r}")
        for name in ("period", "grace", "settling"):
            value: float = getattr(self, name)
            if not (math.isfinite(value) and value >= 0) or (name == "period" and not value):
                raise ConfigError(f"{name} is a number of seconds, not {value!r}")

    def patience(self, method: str) -> float | None:
        """The default timeout of requests with this method."""
        return (
            self.settings.request_timeout
            if method != "tools/call" or self.tool_timeout is _AS_ANY
            else self.tool_timeout
        )

    def personal(self, caller: CallerIdentity | None) -> UpstreamSpec:
        """The spec for connections of one caller of a gateway, or of several. Raises `CallerNotSignedIn`."""
        ask, settings = self.caller_auth, self.settings
        # Each question waits for another user.
        settings = replace(settings, max_server_requests=max(settings.max_server_requests, _MOST_QUESTIONS))
        if ask is None:
            return replace(self, settings=settings)
        if caller is None:
            raise CallerNotSignedIn("this server needs each caller's own login, and the caller is not signed in")
        route: Any = self.route
        return replace(self, route=route.with_credentials(partial(CallerCredentials, ask, caller)), settings=settings)

    def connected(
        self, id: str, place: NodeProvider | None = None, patience: float | None = None
    ) -> tuple[ChildSpec[Any], Line]:
        """The child spec of a connection, and the line to it. `place` is the process in which its wires run, None for this one; `patience` is the line's."""
        if self.connect is not None:
            return self.connect(id, self)
        handler = None if self.handler is None else self.handler()
        line = ConnectionLine(str(id), self.settings, patience=patience)
        line.way = "upstream"
        route = self.route if place is None else RemoteRoute(self.route, place)
        return connection_spec(route, handler, line=line), line


# --- A `ConnectionProcess` describes a process beside the program for connections, so that a bad server cannot harm the program: its limits,
# and by its identity the upstreams that share it. It is a value: each host that uses it runs a process of its own (`connection_processes`).

_serials: Final = count(1)


@dataclass(frozen=True, slots=True, eq=False)
class ConnectionProcess:
    """A process for connections. Servers of a host that are given the same one share the process, and its failures.

    `memory` limits its bytes, and `open_files` its descriptors; None is no limit. Both hold for each program that is started there as well.
    `start` is how many seconds it may take to start. `cluster` is a cluster that the program has started in its own tree before the host: it
    then places the process, on a machine that has everything in `requires`.
    """

    name: str = "connection process"
    memory: int | None = field(default=None, kw_only=True)
    open_files: int | None = field(default=None, kw_only=True)
    start: float = field(default=30.0, kw_only=True)
    cluster: Cluster | None = field(default=None, kw_only=True)
    requires: Mapping[str, object] = field(default_factory=dict[str, object], kw_only=True)
    serial: int = field(init=False, repr=False)
    """A number that is unique in this program."""

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
        """The limits for the cluster. Raises `ConfigError`."""
        return ProcessLimits(memory=self.memory, open_files=self.open_files)


Isolation: TypeAlias = ConnectionProcess | Literal["process"] | None
"""Where a connection runs: in this process, in one of its own, or in a shared one."""


def check_isolation(isolation: object) -> None:
    """Raise `ConfigError` for an invalid value of `isolation`."""
    if isolation is not None and isolation != "process" and not isinstance(isolation, ConnectionProcess):
        raise ConfigError(f"isolation is 'process' or a ConnectionProcess(…), not {isolation!r}")
