"""The envelope of a request of the stateless era: what `params._meta` says about the client that sends it.

A request with a revision in its `_meta` is enveloped, and is judged by its envelope alone: nothing is remembered from earlier requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from .errors import ErrorCode, McpError
from .jsonrpc import is_object
from .versions import STATELESS, SUPPORTED
from .wire_shapes import LOG_LEVELS, LogLevel

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX: Final = "io.modelcontextprotocol/"
PROTOCOL_VERSION_KEY: Final = f"{_PREFIX}protocolVersion"
CLIENT_INFO_KEY: Final = f"{_PREFIX}clientInfo"
CLIENT_CAPABILITIES_KEY: Final = f"{_PREFIX}clientCapabilities"
LOG_LEVEL_KEY: Final = f"{_PREFIX}logLevel"
SERVER_INFO_KEY: Final = f"{_PREFIX}serverInfo"
SUBSCRIPTION_ID_KEY: Final = f"{_PREFIX}subscriptionId"

_LONGEST_SHOWN: Final = 32
_LONGEST_REQUESTED: Final = 1024
"""The longest revision that an error repeats whole."""
_NO_INFO: Final[dict[str, Any]] = {}


class Envelope(NamedTuple):
    """The facts in the `_meta` of one request."""

    version: str
    client_capabilities: dict[str, Any]
    client_info: dict[str, Any]
    log_level: LogLevel | None
    """The lowest level of the log messages that this request asks for; None for no messages."""


def is_enveloped(params: Mapping[str, Any]) -> bool:
    """Whether a request or notification names its revision itself."""
    meta = params.get("_meta")
    return type(meta) is dict and PROTOCOL_VERSION_KEY in meta


def read_envelope(params: Mapping[str, Any]) -> Envelope:
    """Read the envelope. Raises `McpError` (-32602) that names the wrong member.

    The revision may be one that this side does not speak: see `check_spoken`.
    """
    meta: Any = params.get("_meta")
    if type(meta) is not dict:
        raise _invalid(f'"{PROTOCOL_VERSION_KEY}" is missing')
    members = cast("dict[str, Any]", meta)
    version = members.get(PROTOCOL_VERSION_KEY)
    if type(version) is not str:
        raise _wrong(members, PROTOCOL_VERSION_KEY, "a string")
    capabilities = members.get(CLIENT_CAPABILITIES_KEY)
    if not is_object(capabilities):
        raise _wrong(members, CLIENT_CAPABILITIES_KEY, "an object")
    info = members.get(CLIENT_INFO_KEY, _NO_INFO)
    if not is_object(info):
        raise _wrong(members, CLIENT_INFO_KEY, "an object")
    level = members.get(LOG_LEVEL_KEY)
    if level is not None and level not in LOG_LEVELS:
        raise _wrong(members, LOG_LEVEL_KEY, f"one of {', '.join(LOG_LEVELS)}")
    return Envelope(version, capabilities, info, level)


def check_spoken(version: str) -> None:
    """Refuse a revision that is not spoken by envelopes, as those of the handshake era are not. Raises `McpError` (-32022)."""
    if version != STATELESS:
        shown = version if len(version) <= _LONGEST_SHOWN else version[:_LONGEST_SHOWN] + "…"
        raise McpError(
            ErrorCode.UNSUPPORTED_PROTOCOL_VERSION,
            f"Unsupported protocol version {shown!r}: write {STATELESS} for requests that stand alone; sessions begin with initialize, and speak {', '.join(SUPPORTED)}",
            {"supported": [STATELESS], "requested": version if len(version) <= _LONGEST_REQUESTED else shown},
        )


def _wrong(members: Mapping[str, Any], key: str, wanted: str) -> McpError:
    if key not in members:
        return _invalid(f'"{key}" is missing')
    return _invalid(f'"{key}" must be {wanted}')


def _invalid(problem: str) -> McpError:
    return McpError(ErrorCode.INVALID_PARAMS, f"Invalid params: _meta: {problem}")
