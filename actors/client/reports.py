"""What connections report: structured events on the node's bus, for logs, metrics and tests. Nothing in them is secret."""

from __future__ import annotations

from dataclasses import dataclass

from greenroom.supervision import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionReport(Report):
    """Something about the connection to `server`."""

    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected(ConnectionReport):
    """A handshake has succeeded; `generation` counts them."""

    version: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnected(ConnectionReport):
    """An attempt has failed, or the wire has ended. `retry_in` is None where nobody tries any more."""

    cause: Exception
    attempts: int
    retry_in: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined(ConnectionReport):
    """The server has said something that is no message."""

    error: Exception
    sample: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overheard(ConnectionReport):
    """Notifications were dropped, since the handler does not keep up; told once until it does."""

    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRestored(ConnectionReport):
    """After a new handshake, the server refused what it had granted before: a subscription, or the level of logs."""

    method: str
    error: BaseException
