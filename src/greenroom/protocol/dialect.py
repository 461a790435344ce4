"""The dialect of a revision: one value that is asked for whatever differs between revisions.

Revisions belong to two eras. In the handshake era (up to 2025-11-25) a session agrees on a revision once. In the stateless era each request names its own
revision and stands alone. Code outside this package asks the dialect of a session or request, and never compares versions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .cache_hints import CACHEABLE, NO_HINT
from .envelope import SERVER_INFO_KEY
from .errors import ErrorCode, McpError
from .jsonrpc import is_object
from .methods import find_method, method_not_found
from .revision_downgrade import downgrade
from .serialization import UnderResult
from .versions import DEFAULT_NEGOTIATED, LATEST, STATELESS, SUPPORTED, V2024_11_05, V2025_11_25, is_supported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .methods import Method, PeerSide

_RESERVED_CODES: Final = range(-32099, -31999)
_STATELESS_CODES: Final = frozenset(
    {
        ErrorCode.HEADER_MISMATCH,
        ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY,
        ErrorCode.UNSUPPORTED_PROTOCOL_VERSION,
    }
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The rules of one revision."""

    version: str
    is_stateless: bool = False
    """Whether each request stands alone: no sessions, no requests of the server's own."""
    has_event_ids: bool = False
    """Whether streams begin with an event to resume from, and may be interrupted."""
    has_url_error: bool = False
    """Whether an error may ask the user to open URLs first (`URL_ELICITATION_REQUIRED`)."""
    wraps_values: bool = True
    """Whether a structured result that is no object is wrapped in one, as `result`."""

    def find_method(self, name: str, receiver: PeerSide | None = None) -> Method:
        """The method of that name that may be sent to that side. Raises `McpError` (-32601) if the revision has none."""
        method = find_method(name, self.version, receiver)
        if method is None:
            raise method_not_found(name)
        return method

    def finish(
        self,
        method: str,
        result: dict[str, Any],
        server_info: Mapping[str, Any] | None = None,
        hint: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The result of a method as this revision sends it. The given value is not modified.

        `hint` are the cache hints of a result that may be cached: not at all unless given.
        """
        if not self.is_stateless:
            return downgrade(method, result, self.version)
        finished = {"resultType": "complete", **result}
        if type(data := finished.get("structuredContent")) is UnderResult:
            finished["structuredContent"] = data["result"]
        if method in CACHEABLE and finished["resultType"] == "complete":
            finished = {**(NO_HINT if hint is None else hint), **finished}
        if method == "tools/list":
            finished["tools"] = [_without_execution(tool) for tool in finished["tools"]]
        if server_info is not None:
            meta: Any = finished.get("_meta")
            finished["_meta"] = {**(meta if is_object(meta) else {}), SERVER_INFO_KEY: server_info}
        return finished

    def fit_error(self, error: McpError) -> McpError:
        """The error with a code that this revision has.

        In the stateless era a resource that does not exist is a wrong parameter, and of the codes that JSON-RPC reserves for servers only
        the protocol's own are sent.
        """
        if not self.is_stateless or error.code not in _RESERVED_CODES or error.code in _STATELESS_CODES:
            return error
        missing = error.code == ErrorCode.RESOURCE_NOT_FOUND
        return McpError(ErrorCode.INVALID_PARAMS if missing else ErrorCode.INTERNAL_ERROR, error.message, error.data)


def _without_execution(tool: Any) -> Any:
    return {name: value for name, value in tool.items() if name != "execution"} if "execution" in tool else tool


DIALECTS: Final[Mapping[str, Dialect]] = {
    **{
        version: Dialect(
            version,
            has_event_ids=version >= V2025_11_25,
            has_url_error=version >= V2025_11_25,
        )
        for version in SUPPORTED
    },
    STATELESS: Dialect(STATELESS, is_stateless=True, wraps_values=False),
}
"""The dialects by revision."""

HANDSHAKE_VERSIONS: Final = SUPPORTED
"""The revisions that a handshake can negotiate, newest first."""
STATELESS_DIALECT: Final = DIALECTS[STATELESS]
LATEST_DIALECT: Final = DIALECTS[LATEST]
"""The newest revision with a handshake."""
ASSUMED_DIALECT: Final = DIALECTS[DEFAULT_NEGOTIATED]
"""The dialect of an HTTP request that names no revision."""
OLDEST_DIALECT: Final = DIALECTS[V2024_11_05]


def dialect_of(version: str | None) -> Dialect:
    """The dialect of a revision; the newest one with a handshake for a revision that is unknown, or not agreed on yet."""
    return DIALECTS.get(version, LATEST_DIALECT) if version is not None else LATEST_DIALECT


is_handshake_version: Final = is_supported
"""Whether a handshake can negotiate a revision."""
