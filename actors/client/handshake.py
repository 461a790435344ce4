"""The handshake as pure functions: the params of `initialize`, the reading of the reply, and whether a failure is final; and the connection's reports."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.protocol.dialect import HANDSHAKE_VERSIONS
from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.jsonrpc import is_object
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
"""Error codes of `initialize` after which another attempt is useless."""


def initialize_params(settings: ClientSettings, handled: Mapping[str, Any]) -> dict[str, Any]:
    """The params of `initialize`; `handled` are the handler's capabilities."""
    return {
        "protocolVersion": settings.protocol_version,
        "capabilities": settings.declared(handled),
        "clientInfo": dict(settings.client_info),
    }


def read_welcome(result: dict[str, Any]) -> ServerWelcome:
    """Read the reply to `initialize`. Raises `InitFailed`."""
    version = result.get("protocolVersion")
    if not isinstance(version, str):
        raise ProtocolVersionError("the server's answer to initialize names no protocolVersion")
    if version not in HANDSHAKE_VERSIONS:
        raise ProtocolVersionError(
            f"the server speaks {version[:40]!r}, and this client {', '.join(HANDSHAKE_VERSIONS)}"
        )
    capabilities, info, instructions = (result.get(name) for name in ("capabilities", "serverInfo", "instructions"))
    return ServerWelcome(
        version,
        capabilities if is_object(capabilities) else {},
        info if is_object(info) else {},
        instructions if isinstance(instructions, str) else None,
        result,
    )


def initialize_error(error: BaseException) -> Exception:
    """The exception for a failed `initialize`."""
    if isinstance(error, PeerError):
        failed = InitFailed(f"the server refused to initialize: {error}")
        failed.__cause__ = error
        return failed
    cause = getattr(error, "cause", error)
    return cause if isinstance(cause, Exception) else InitFailed(str(error))


def is_final(cause: Exception) -> bool:
    """Whether another attempt is useless until a user or an operator changes something."""
    if isinstance(cause, InitFailed):
        reply = cause.__cause__
        return isinstance(cause, ProtocolVersionError) or (isinstance(reply, PeerError) and reply.code in _FINAL)
    return isinstance(cause, NotMcp | Unauthorized) or (isinstance(cause, TransportError) and cause.final)


# --- Reports of connections: structured events on the node's bus, for logs, metrics and tests. They contain no secrets.


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionReport(Report):
    """A report about the connection to `server`."""

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
    """An attempt has failed, or the wire has ended. `retry_in` is None when the connection makes no further attempt of its own."""

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
    """The server has sent something that is not a JSON-RPC message."""

    error: Exception
    sample: str

    def __str__(self) -> str:
        return f"{self.server} has sent an invalid message: {self.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationsDropped(ConnectionReport):
    """Notifications were dropped because the handler does not keep up; reported once until it does."""

    method: str

    def __str__(self) -> str:
        return f"the handler does not keep up with the notifications of {self.server}: {self.method} was dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreRefused(ConnectionReport):
    """After a new handshake the server refused a subscription or a log level that it had granted before."""

    method: str
    error: BaseException

    def __str__(self) -> str:
        return f"{self.server} refused to restore {self.method}: {self.error}"
