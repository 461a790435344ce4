"""The circuit breaker of one upstream: a pure machine that is told the time, and never asks for it.

Closed, it counts how requests end. When enough of the latest failed it opens, and requests are refused at once. After a
while one probe may go, and only one at a time: half open. If that comes through it closes; if not, it is open again, for longer.
Traffic is no probe: a caller's request is not sent to see whether the upstream can answer it.
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
"""In how many parts the window is counted: what is older than it goes a part at a time."""


class BreakerState(Enum):
    """Whether requests may pass."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


def _cooldown() -> Backoff:
    return Backoff(first=1.0, factor=2.0, longest=60.0, jitter=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """When it opens, and how it closes again."""

    failures: int = 5
    """It opens when so many requests have failed within the window,"""
    rate: float = 0.5
    """and they are at least this part of those that ended in it."""
    window: float = 30.0
    cooldown: Backoff = field(default_factory=_cooldown)
    """How long it is open: the first time, and each time that a probe has failed."""
    probe_timeout: float = 5.0
    """How long a probe may take. One that says nothing for so long, because its process died, is taken for failed."""
    peer_codes: Collection[int] = frozenset()
    """Codes of errors with which a server answers that count as its failures: -32603, perhaps. By itself an answer is no failure."""

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
    """Whether a request that ended so speaks against its server; None when it says nothing of it.

    An answer speaks for it, also when it is an error: that is the application's affair. Nothing can be said of a request that the
    caller withdrew, or that was never sent.
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
    """The machine. Each method takes the moment on whatever clock, as long as it is always the same."""

    __slots__ = ("_buckets", "_due", "_source", "_tries", "cause", "epoch", "settings", "state", "tripped")

    def __init__(self, settings: BreakerSettings, source: random.Random) -> None:
        """Closed. `source` is where the jitter comes from."""
        self.settings = settings
        self.state = BreakerState.CLOSED
        self.cause: BaseException | None = None
        """Why it is not closed."""
        self.tripped = False
        """Whether it is open because the server is gone: the connection tries to reach it again, so no probe is sent."""
        self._source = source
        self._buckets: list[list[int]] = []
        """[number of the part, how many ended in it, how many of those failed], oldest first"""
        self.epoch = 0
        """What a request takes along: how it ends counts only as long as this is the same."""
        self._tries = 0
        self._due = 0.0
        """When the next probe may go, or the one that is under way is taken for failed."""

    @property
    def closed(self) -> bool:
        """Whether requests may pass."""
        return self.state is BreakerState.CLOSED

    def record(self, turn: int, *, failed: bool, now: float, cause: BaseException | None = None) -> bool:
        """A request has ended. Whether the breaker opens for it."""
        if turn != self.epoch or not self.closed:
            return False  # of a time that is over: what is so late says nothing of today
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

    def record_unreachable(self, turn: int, now: float, cause: BaseException | None) -> bool:
        """The server could not be reached, which is worth any number of failures. Whether the breaker opens for it."""
        if turn != self.epoch or not self.closed:
            return False
        self._open(now, cause)
        return True

    def trip(self, now: float, cause: BaseException | None) -> None:
        """The server was there and is gone: open, until it is `restored`."""
        if not self.tripped:
            self._open(now, cause)
            self.tripped = True
        self.cause = cause

    def restore(self) -> None:
        """It is there again, or is tried once more before anything is refused."""
        if self.tripped:
            self._close()

    def retry_in(self, now: float) -> float | None:
        """In how many seconds the next probe may go; None where none is to be sent."""
        return None if self.tripped or self.closed else max(0.0, self._due - now)

    def probe(self, now: float) -> int | None:
        """The right to send the one probe, if it is time for it; give it back with `probed`."""
        if self.state is BreakerState.HALF_OPEN and now >= self._due:
            self._open(now, self.cause)  # the outcome of that probe will never be reported
        if self.state is not BreakerState.OPEN or self.tripped or now < self._due:
            return None
        self.state = BreakerState.HALF_OPEN
        self.epoch += 1
        self._due = now + 2 * self.settings.probe_timeout
        return self.epoch

    def record_probe(self, ticket: int, *, failed: bool, now: float, cause: BaseException | None = None) -> bool:
        """How that probe ended. False when it does not count any more."""
        if self.state is not BreakerState.HALF_OPEN or ticket != self.epoch:
            return False
        if failed:
            self._open(now, cause if cause is not None else self.cause)
        else:
            self._close()
        return True

    def retry_now(self, now: float) -> None:
        """A caller does not want to wait: the next probe is due now, and after it the waiting begins anew."""
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
