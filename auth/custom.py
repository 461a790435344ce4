"""A provider of somebody's own: an object with `authenticate(token)`, or a function, that says who it is."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from greenroom.errors import ConfigError
from greenroom.transports.seam import Refusal

from .errors import STATUS, Denied
from .grants import from_claims, granted
from .headers import challenge, extract_api_key, extract_bearer_token
from .info import AuthInfo

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from .seam import Asking

    Found = AuthInfo | Mapping[str, Any] | None


class CustomAuth:
    """Asks a function about the bearer token, or else the API key, of a request. What it gives is believed as it is.

    It returns an `AuthInfo`, a mapping (`subject`, `scopes`, `metadata`; whatever else is in it is kept as claims), or None for nobody. What it
    raises is logged, and never told.
    """

    headers = ("authorization", "x-api-key")

    def __init__(self, authenticate: Callable[[str], Found | Awaitable[Found]], *, realm: str = "mcp") -> None:
        """`authenticate` may be async. A `Denied` that it raises is the answer."""
        if not callable(authenticate):
            raise ConfigError(f"CustomAuth wants a function of the token, not {authenticate!r}")
        self._ask = authenticate
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
        return found if isinstance(found, AuthInfo) else _info(found)

    async def challenge(self, denied: Denied, asking: Asking) -> Refusal:  # noqa: ARG002 - it is the same for all
        """No word of why."""
        return Refusal(STATUS[denied.kind], [("www-authenticate", challenge("Bearer", realm=self._realm))])


_SAID = frozenset({"subject", "scopes", "metadata", "issuer", "audience", "expires_at", "client_id"})


def _info(found: Mapping[str, Any]) -> AuthInfo:
    """What a mapping says, in our words or in those of a token."""
    if "subject" not in found and "sub" in found:
        return from_claims(found)
    info = granted({name: value for name, value in found.items() if name in _SAID}, "somebody")
    rest = {name: value for name, value in found.items() if name not in _SAID}
    return AuthInfo(
        info.subject, info.issuer, info.audience, info.scopes, info.expires_at, info.client_id, rest, info.metadata
    )
