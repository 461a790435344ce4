"""How a connection opens, as pure functions: `server/discover` and `initialize`, what their outcomes say of the server's era, and whether a failure is final.

Also the connection's reports.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.protocol.dialect import HANDSHAKE_VERSIONS, STATELESS_DIALECT, is_handshake_version
from greenroom.protocol.envelope import SERVER_INFO_KEY
from greenroom.protocol.errors import BadAnswer, ErrorCode, PeerError
from greenroom.protocol.jsonrpc import is_object
from greenroom.protocol.serialization import is_array
from greenroom.supervision import Report
from greenroom.transports.client.errors import HttpError, NotMcp, TransportError, Unauthorized

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
        "protocolVersion": settings.handshake_version,
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
    return _welcome(version, result.get("serverInfo"), result)


def _welcome(version: str, info: object, result: Mapping[str, Any]) -> ServerWelcome:
    capabilities, instructions = result.get("capabilities"), result.get("instructions")
    return ServerWelcome(
        version,
        capabilities if is_object(capabilities) else {},
        info if is_object(info) else {},
        instructions if isinstance(instructions, str) else None,
        result,
    )


# --- `server/discover`, and the era that its outcome is evidence of.

_LONGEST_SHOWN: Final = 128
_LONGEST_WHY: Final = 400
DISCOVER: Final = "server/discover"
INITIALIZE: Final = "initialize"
_OWN_REASONS: Final = frozenset({401, 402, 403, 407, 408, 413, 421, 425, 426, 429, 431})
"""Statuses that say something else than that the server does not know the request."""
_STATELESS_CODES: Final = frozenset(
    (ErrorCode.HEADER_MISMATCH, ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY, ErrorCode.UNSUPPORTED_PROTOCOL_VERSION)
)
_SERVER_ERROR: Final = 500
_NOT_KNOWN: Final = 501
_SHOWN_VERSIONS: Final = 5


class Discovery(NamedTuple):
    """The outcome of `server/discover`: the server's welcome; or the error, and whether a handshake may work."""

    welcome: ServerWelcome | None
    error: Exception | None = None
    may_initialize: bool = False
    ask_again: bool = False
    """Whether the server speaks the revision that it was asked for, and yet refused the question."""


def read_discovery(result: Mapping[str, Any] | None, error: BaseException | None) -> Discovery:
    """Judge the outcome of `server/discover`.

    Any reply that is no discovery is that of a server with a handshake. A server that cannot be reached, wants a login or has no time says
    nothing of its era.
    """
    if result is not None:
        return _read_discovered(result)
    if isinstance(error, PeerError):
        if error.code == ErrorCode.UNSUPPORTED_PROTOCOL_VERSION:
            named = _versions(is_object(error.data) and error.data.get("supported"))
            if STATELESS_DIALECT.version in named:
                return Discovery(None, initialize_error(error, DISCOVER), ask_again=True)
            return Discovery(None, _no_version(named), not named or any(map(is_handshake_version, named)))
        return Discovery(None, initialize_error(error, DISCOVER), error.code not in _STATELESS_CODES)
    cause: Any = getattr(error, "cause", error)
    if isinstance(cause, HttpError):
        status = cause.status
        return Discovery(None, cause, status not in _OWN_REASONS and (status < _SERVER_ERROR or status == _NOT_KNOWN))
    why = cause if isinstance(cause, Exception) else InitFailed(f"{DISCOVER}: {cause}")
    return Discovery(None, why, isinstance(cause, BadAnswer))


def _read_discovered(result: Mapping[str, Any]) -> Discovery:
    versions = _versions(result.get("supportedVersions"))
    if STATELESS_DIALECT.version not in versions:
        may_initialize = not versions or any(map(is_handshake_version, versions))
        return Discovery(None, _no_version(versions), may_initialize)
    if result.get("resultType", "complete") != "complete":
        wrong = InitFailed(f"the server's answer to {DISCOVER} has a resultType that is not complete")
        return Discovery(None, wrong)
    meta = result.get("_meta")
    info = meta.get(SERVER_INFO_KEY) if is_object(meta) else None
    if info is None:
        info = result.get("serverInfo")  # where some servers have it, as in a handshake
    return Discovery(_welcome(STATELESS_DIALECT.version, info, result))


def names_stateless(error: BaseException | None) -> bool:
    """Whether an error answer says that the server speaks the stateless revision."""
    if not isinstance(error, PeerError):
        return False
    if error.code in (ErrorCode.HEADER_MISMATCH, ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY):
        return True
    return is_object(error.data) and STATELESS_DIALECT.version in _versions(error.data.get("supported"))


def _versions(said: object) -> list[str]:
    return [each for each in said if isinstance(each, str)] if is_array(said) else []


def _no_version(named: list[str]) -> ProtocolVersionError:
    shown = ", ".join(each[:40] for each in named[:_SHOWN_VERSIONS]) or "no revision that it names"
    ours = ", ".join((STATELESS_DIALECT.version, *HANDSHAKE_VERSIONS))
    return ProtocolVersionError(f"the server speaks {shown}, and this client {ours}")


def initialize_error(error: BaseException, method: str = INITIALIZE) -> Exception:
    """The exception for a failed opening by that method."""
    if isinstance(error, PeerError):
        failed = InitFailed(
            f"the server refused {method}: {error}"
            if method != INITIALIZE
            else f"the server refused to initialize: {error}"
        )
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
class ToolLeftOut(ConnectionReport):
    """A tool was left out of the server's list, since its calls would need headers that cannot be written."""

    level: ClassVar[int] = logging.WARNING

    name: str
    why: str

    def __str__(self) -> str:
        return (
            f"{self.server} lists the tool {self.name[:_LONGEST_SHOWN]!r}, which is left out: {self.why[:_LONGEST_WHY]}"
        )


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
