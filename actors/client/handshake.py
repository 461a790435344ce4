"""The handshake as pure functions: what we say, what the server's answer means, and whether another try is worth while; and what is reported."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.jsonrpc import is_object
from greenroom.protocol.versions import SUPPORTED
from greenroom.supervision import Report
from greenroom.transports.client.errors import NotMcp, TransportError, Unauthorized

from .errors import InitFailed, ProtocolVersionError
from .interfaces import ServerWelcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .settings import ClientSettings

_FINAL: Final = frozenset(
    (ErrorCode.METHOD_NOT_FOUND, ErrorCode.INVALID_PARAMS, ErrorCode.UNSUPPORTED_PROTOCOL_VERSION)
)
"""What a server answers that will not answer otherwise the next time."""


def initialize_params(settings: ClientSettings, handled: Mapping[str, Any]) -> dict[str, Any]:
    """The params of `initialize`; `handled` is what the handler can do."""
    return {
        "protocolVersion": settings.protocol_version,
        "capabilities": settings.declared(handled),
        "clientInfo": dict(settings.client_info),
    }


def read_welcome(result: dict[str, Any]) -> ServerWelcome:
    """The server's answer. Raises `InitFailed`."""
    version = result.get("protocolVersion")
    if not isinstance(version, str):
        raise ProtocolVersionError("the server's answer to initialize names no protocolVersion")
    if version not in SUPPORTED:
        raise ProtocolVersionError(f"the server speaks {version[:40]!r}, and this client {', '.join(SUPPORTED)}")
    capabilities, info, instructions = (result.get(name) for name in ("capabilities", "serverInfo", "instructions"))
    return ServerWelcome(
        version,
        capabilities if is_object(capabilities) else {},
        info if is_object(info) else {},
        instructions if isinstance(instructions, str) else None,
        result,
    )


def initialize_error(error: BaseException) -> Exception:
    """Why there was no answer to `initialize`, or not a good one."""
    if isinstance(error, PeerError):
        failed = InitFailed(f"the server refused to initialize: {error}")
        failed.__cause__ = error
        return failed
    cause = getattr(error, "cause", error)
    return cause if isinstance(cause, Exception) else InitFailed(str(error))


def is_final(cause: Exception) -> bool:
    """Whether trying again is no use, until the user or an operator has changed something."""
    if isinstance(cause, InitFailed):
        said = cause.__cause__
        return isinstance(cause, ProtocolVersionError) or (isinstance(said, PeerError) and said.code in _FINAL)
    return isinstance(cause, NotMcp | Unauthorized) or (isinstance(cause, TransportError) and cause.final)


# --- What connections report: structured events on the node's bus, for logs, metrics and tests. Nothing in them is secret.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionReport(Report):
    """Something about the connection to `server`."""

    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeSucceeded(ConnectionReport):
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
class InvalidMessageReceived(ConnectionReport):
    """The server has said something that is no message."""

    error: Exception
    sample: str

    def __str__(self) -> str:
        return f"{self.server} has said what is no message: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationsDropped(ConnectionReport):
    """Notifications were dropped, since the handler does not keep up; told once until it does."""

    method: str

    def __str__(self) -> str:
        return f"the handler does not keep up with what {self.server} says: {self.method} was dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRefused(ConnectionReport):
    """After a new handshake, the server refused what it had granted before: a subscription, or the level of logs."""

    method: str
    error: BaseException

    def __str__(self) -> str:
        return f"{self.server} did not restore what {self.method} had: {self.error}"
