"""How an upstream is kept, and the words for how it is: values, for whoever starts one and whoever watches.

An `UpstreamSpec` says where a server is and how much is asked of it. A `Standing` is how one is at a moment; a `Change` is what is
different in what it offers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.actors.client.line import ConnectionLine, connection_spec
from greenroom.actors.client.settings import ClientSettings
from greenroom.errors import ConfigError
from greenroom.supervision import Backoff
from greenroom.transports.client.far_route import FarRoute
from greenroom.transports.client.tickets import check_travels

from .annex import Isolation, check_isolation
from .breaker import BreakerSettings
from .offering import PARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenroom.actors.client.handler import ClientHandler
    from greenroom.actors.client.seam import Line
    from greenroom.supervision import ChildSpec
    from greenroom.transports.client.far_route import Place
    from greenroom.transports.client.seam import Route

    from .offering import Differences, Offering, Part


class State(Enum):
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
    STOPPING = "stopping"
    """It takes no more requests; those under way have some time left."""
    STOPPED = "stopped"


class Standing(NamedTuple):
    """How one upstream is. `cause` is why it is not ready."""

    id: str
    state: State
    cause: BaseException | None = None


class Change(NamedTuple):
    """What an upstream offers is different: in what way, and what it is now."""

    id: str
    differences: Differences
    offering: Offering


_AS_ANY: Final[Any] = ...


def _revive() -> Backoff:
    return Backoff(first=30.0, factor=2.0, longest=600.0, jitter=0.5, quiet=600.0)


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
    """and how many more may wait; who comes then is refused with `UpstreamBusy`."""
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
    """Which of its lists are kept from the beginning; the others from when somebody wants them."""
    settling: float = field(default=0.05, kw_only=True)
    """For how long changes of a list are collected before it is fetched anew."""
    isolation: Isolation = field(default=None, kw_only=True)
    """"process": its connections run in a process of their own; an `Annex`: in one that is shared by all who have the same."""
    connect: Callable[[str, UpstreamSpec], tuple[ChildSpec[Any], Line]] | None = field(default=None, kw_only=True)
    """Another kind of client: makes the child that is connected, and the line to it."""

    def __post_init__(self) -> None:
        if self.concurrent < 1 or self.queue < 0 or self.intensity < 0:
            raise ConfigError("concurrent is 1 or more, queue and intensity are 0 or more")
        if "tools" not in self.lists or not set(self.lists) <= set(PARTS):
            raise ConfigError(
                f"lists are some of {', '.join(PARTS)}, tools among them, not {', '.join(self.lists) or 'none'}"
            )
        check_isolation(self.isolation)
        if self.isolation is not None:
            if self.connect is not None:
                raise ConfigError("isolation is for a route: whoever makes the connection decides where it runs")
            check_travels(self.route)
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

    def connected(self, id: str, place: Place | None = None) -> tuple[ChildSpec[Any], Line]:
        """The child that keeps a connection, and the line to it. `place` is where its wires run, if not here."""
        if self.connect is not None:
            return self.connect(id, self)
        handler = None if self.handler is None else self.handler()
        line = ConnectionLine(str(id), self.settings)
        route = self.route if place is None else FarRoute(self.route, place)
        return connection_spec(route, handler, line=line), line
