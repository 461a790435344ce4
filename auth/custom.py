"""A provider of somebody's own: an object with `authenticate(token)`, or a function, that says who it is."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from greenroom.errors import ConfigError
from greenroom.transports.seam import Refusal

from .errors import STATUS, Denied
from .grants import check_alive, found_by
from .hashing import key_name
from .headers import challenge, extract_api_key, extract_bearer_token

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from .info import AuthInfo
    from .seam import Asking

    Found = AuthInfo | Mapping[str, Any] | None


class CustomAuth:
    """Asks a function about the bearer token, or else the API key, of a request. What it gives is believed as it is.

    It returns an `AuthInfo`, a mapping (`subject`, `scopes`, `metadata`; whatever else is in it is kept as claims), or None for nobody. What it
    raises is logged, and never told.
    """

    headers = ("authorization", "x-api-key")

    def __init__(self, authenticate: Callable[[str], Found | Awaitable[Found]], *, realm: str = "mcp") -> None:
        """`authenticate` may be async, or an object that has it as a method. A `Denied` that it raises is the answer."""
        asked: Any = getattr(authenticate, "authenticate", authenticate)
        if not callable(asked):
            raise ConfigError(f"CustomAuth wants a function of the token, not a {type(authenticate).__name__}")
        self._ask: Any = asked
        self._realm = realm

    def __repr__(self) -> str:
        return "CustomAuth()"

    def children(self) -> tuple[()]:
        """It needs no process."""
        return ()

    async def authenticate(self, asking: Asking) -> AuthInfo:
        """Whoever the function says."""
        try:
            token = extract_bearer_token(asking.headers)
        except Denied as denied:
            if denied.kind != "missing":
                raise
            token = extract_api_key(asking.headers)
        found = self._ask(token)
        if inspect.isawaitable(found):
            found = await found
        if found is None:
            raise Denied("invalid_token")
        return check_alive(found_by(found, key_name(token)))

    async def challenge(self, denied: Denied, asking: Asking) -> Refusal:  # noqa: ARG002 - it is the same for all
        """No word of why; only which scopes are missing, since nobody could ask for more otherwise."""
        if denied.kind in ("server_error", "too_many_failures"):
            return Refusal(STATUS[denied.kind])
        lacking = denied.kind == "insufficient_scope"
        asked = challenge(
            "Bearer",
            realm=self._realm,
            error=denied.kind if lacking else None,
            scope=" ".join(denied.scopes) or None if lacking else None,
        )
        return Refusal(STATUS[denied.kind], [("www-authenticate", asked)])
