"""The circuit breaker of one upstream: a pure state machine whose methods take the time as an argument.

While closed, it counts outcomes. When enough of the latest requests have failed it opens, and requests are refused at once. After the
cooldown one probe may be sent, one at a time (half open). If it succeeds the breaker closes; if not, it opens again for longer.
A probe is a ping: no caller's request is sent to find out whether the upstream can answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from greenroom.actors.client.errors import InitFailed, RequestLost, RequestTimeout
from greenroom.auth.errors import SignInError
from greenroom.errors import ConfigError
from greenroom.protocol.errors import PeerError, RemoteProtocolError
from greenroom.supervision import Backoff
from greenroom.transports.client.errors import TransportError, WireFull

if TYPE_CHECKING:
    import random
    from collections.abc import Collection

BUCKETS: Final = 10
"""The number of parts in which the window is counted; outcomes leave the window one part at a time."""


class BreakerState(Enum):
    """Whether requests may pass."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


def _cooldown() -> Backoff:
    return Backoff(first=1.0, factor=2.0, longest=60.0, jitter=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """When the breaker opens, and how it closes again."""

    failures: int = 5
    """The breaker opens when this many requests have failed within the window,"""
    rate: float = 0.5
    """and they are at least this part of the requests that ended in it."""
    window: float = 30.0
    cooldown: Backoff = field(default_factory=_cooldown)
    """How long it stays open: the first time, and after each failed probe."""
    probe_timeout: float = 5.0
    """How long a probe may take. A probe without an outcome after twice that time, because its process died, counts as failed."""
    peer_codes: Collection[int] = frozenset()
    """Codes of error replies that count as failures, such as -32603. By default no reply is a failure."""

    def __post_init__(self) -> None:
        if self.failures < 1:
            raise ConfigError(f"a breaker opens after 1 failure or more, not {self.failures!r}")
        if not 0 <= self.rate <= 1:
            raise ConfigError(f"the rate of failures is between 0 and 1, not {self.rate!r}")
        for name in ("window", "probe_timeout"):
            value: float = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"{name} must be more than 0 seconds, not {value!r}")


def is_failure(error: BaseException | None, peer_codes: Collection[int] = frozenset()) -> bool | None:
    """Whether a request with this outcome counts as a failure of its server; None when it does not count at all.

    A reply is a success, also an error reply: that is the application's matter. Requests that the caller cancelled, or that were
    never sent, do not count.
    """
    match error:
        case None:
            return False
        case PeerError():
            return error.code in peer_codes
        case WireFull() | SignInError() | RequestLost(cause=WireFull() | SignInError()):
            return None
        case RequestTimeout() | RequestLost() | InitFailed() | TransportError() | RemoteProtocolError():
            return True
        case _:
            return None


class Breaker:
    """The state machine. `now` is a time in seconds on any clock, as long as it is always the same one."""

    __slots__ = ("_buckets", "_due", "_source", "_tries", "cause", "epoch", "settings", "state", "tripped")

    def __init__(self, settings: BreakerSettings, source: random.Random) -> None:
        """`source` gives the jitter."""
        self.settings = settings
        self.state = BreakerState.CLOSED
        self.cause: BaseException | None = None
        """The error that opened it."""
        self.tripped = False
        """Whether it is open because the connection was lost: that reconnects by itself, so no probe is sent."""
        self._source = source
        self._buckets: list[list[int]] = []
        """[number of the part, requests that ended in it, failures among them], oldest first"""
        self.epoch = 0
        """Counts the transitions. A request keeps the epoch in which it was sent, and its outcome counts in that epoch only."""
        self._tries = 0
        self._due = 0.0
        """When the next probe may be sent, or when the one under way counts as failed."""

    @property
    def closed(self) -> bool:
        """Whether requests may pass."""
        return self.state is BreakerState.CLOSED

    def record(self, epoch: int, *, failed: bool, now: float, cause: BaseException | None = None) -> bool:
        """Count the outcome of a request. Returns whether the breaker opens for it."""
        if epoch != self.epoch or not self.closed:
            return False  # sent before the last transition: such a late outcome says nothing about now
        part = math.floor(now * BUCKETS / self.settings.window)
        buckets = self._buckets
        while buckets and buckets[0][0] <= part - BUCKETS:
            del buckets[0]
        if not buckets or buckets[-1][0] < part:
            buckets.append([part, 0, 0])
        buckets[-1][1] += 1
        if not failed:
            return False
        buckets[-1][2] += 1
        bad = sum(each[2] for each in buckets)
        if bad < self.settings.failures or bad < self.settings.rate * sum(each[1] for each in buckets):
            return False
        self._open(now, cause)
        return True

    def record_unreachable(self, epoch: int, now: float, cause: BaseException | None) -> bool:
        """The server could not be reached, which alone is enough to open. Returns whether the breaker opens for it."""
        if epoch != self.epoch or not self.closed:
            return False
        self._open(now, cause)
        return True

    def trip(self, now: float, cause: BaseException | None) -> None:
        """The connection was lost: open until `restore`."""
        if not self.tripped:
            self._open(now, cause)
            self.tripped = True
        self.cause = cause

    def restore(self) -> None:
        """The connection is back, or requests may wait for a new attempt: close a tripped breaker."""
        if self.tripped:
            self._close()

    def retry_in(self, now: float) -> float | None:
        """Seconds until the next probe may be sent; None when none is to be sent."""
        return None if self.tripped or self.closed else max(0.0, self._due - now)

    def probe(self, now: float) -> int | None:
        """A ticket for the one probe, if it is due; report the outcome with `record_probe`."""
        if self.state is BreakerState.HALF_OPEN and now >= self._due:
            self._open(now, self.cause)  # the process of that probe died, so its outcome will never be reported
        if self.state is not BreakerState.OPEN or self.tripped or now < self._due:
            return None
        self.state = BreakerState.HALF_OPEN
        self.epoch += 1
        self._due = now + 2 * self.settings.probe_timeout
        return self.epoch

    def record_probe(self, ticket: int, *, failed: bool, now: float, cause: BaseException | None = None) -> bool:
        """Report how a probe ended. False when its ticket is outdated."""
        if self.state is not BreakerState.HALF_OPEN or ticket != self.epoch:
            return False
        if failed:
            self._open(now, cause if cause is not None else self.cause)
        else:
            self._close()
        return True

    def retry_now(self, now: float) -> None:
        """Make the next probe due now, and start the cooldowns from the shortest again."""
        self._tries = 0
        if self.state is BreakerState.OPEN:
            self._due = now

    def _open(self, now: float, cause: BaseException | None) -> None:
        self.state = BreakerState.OPEN
        self.cause = cause
        self.epoch += 1
        self._buckets.clear()
        self._due = now + self.settings.cooldown.delay(self._tries, self._source)
        self._tries += 1

    def _close(self) -> None:
        self.state = BreakerState.CLOSED
        self.tripped = False
        self.cause = None
        self.epoch += 1
        self._tries = 0
