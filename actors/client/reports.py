"""What connections report: structured events on the node's bus, for logs, metrics and tests. Nothing in them is secret."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

from greenroom.supervision import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionReport(Report):
    """Something about the connection to `server`."""

    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected(ConnectionReport):
    """A handshake has succeeded; `generation` counts them."""

    level: ClassVar[int] = logging.INFO

    version: str
    generation: int

    def __str__(self) -> str:
        return f"{self.server} is ready, and speaks {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected(ConnectionReport):
    """An attempt has failed, or the wire has ended. `retry_in` is None where this connection makes no more: its owner may begin another."""

    cause: Exception
    attempts: int
    retry_in: float | None

    def __str__(self) -> str:
        then = (
            "this connection is given up" if self.retry_in is None else f"the next attempt is in {self.retry_in:.1f} s"
        )
        return f"{self.server} is away: {self.cause}; {then}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined(ConnectionReport):
    """The server has said something that is no message."""

    error: Exception
    sample: str

    def __str__(self) -> str:
        return f"{self.server} has said what is no message: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheard(ConnectionReport):
    """Notifications were dropped, since the handler does not keep up; told once until it does."""

    method: str

    def __str__(self) -> str:
        return f"the handler does not keep up with what {self.server} says: {self.method} was dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRestored(ConnectionReport):
    """After a new handshake, the server refused what it had granted before: a subscription, or the level of logs."""

    method: str
    error: BaseException

    def __str__(self) -> str:
        return f"{self.server} did not restore what {self.method} had: {self.error}"
