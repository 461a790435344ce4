"""The handshake as pure functions: what we say, what the server's answer means, and whether another try is worth while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.json import is_object
from greenroom.protocol.versions import SUPPORTED
from greenroom.transports.client.errors import NotMcp, TransportError, Unauthorized

from .errors import InitFailed, ProtocolVersionError
from .seam import Welcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .settings import ClientSettings

_FINAL: Final = frozenset(
    (ErrorCode.METHOD_NOT_FOUND, ErrorCode.INVALID_PARAMS, ErrorCode.UNSUPPORTED_PROTOCOL_VERSION)
)
"""What a server answers that will not answer otherwise the next time."""


def greeting(settings: ClientSettings, handled: Mapping[str, Any]) -> dict[str, Any]:
    """The params of `initialize`; `handled` is what the handler can do."""
    return {
        "protocolVersion": settings.protocol_version,
        "capabilities": settings.declared(handled),
        "clientInfo": dict(settings.client_info),
    }


def read_welcome(result: dict[str, Any]) -> Welcome:
    """The server's answer. Raises `InitFailed`."""
    version = result.get("protocolVersion")
    if not isinstance(version, str):
        raise ProtocolVersionError("the server's answer to initialize names no protocolVersion")
    if version not in SUPPORTED:
        raise ProtocolVersionError(f"the server speaks {version[:40]!r}, and this client {', '.join(SUPPORTED)}")
    capabilities, info, instructions = (result.get(name) for name in ("capabilities", "serverInfo", "instructions"))
    return Welcome(
        version,
        capabilities if is_object(capabilities) else {},
        info if is_object(info) else {},
        instructions if isinstance(instructions, str) else None,
        result,
    )


def refused(error: BaseException) -> Exception:
    """Why there was no answer to `initialize`, or not a good one."""
    if isinstance(error, PeerError):
        failed = InitFailed(f"the server refused to initialize: {error}")
        failed.__cause__ = error
        return failed
    cause = getattr(error, "cause", error)
    return cause if isinstance(cause, Exception) else InitFailed(str(error))


def is_final(cause: Exception) -> bool:
    """Whether trying again is no use, until somebody has changed something."""
    if isinstance(cause, InitFailed):
        said = cause.__cause__
        return isinstance(cause, ProtocolVersionError) or (isinstance(said, PeerError) and said.code in _FINAL)
    return isinstance(cause, NotMcp | Unauthorized) or (isinstance(cause, TransportError) and cause.final)
