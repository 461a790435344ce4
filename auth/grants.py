"""From what a configuration, a verifier or a token says of somebody to an `AuthInfo`, read leniently and never guessed at."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from greenroom.errors import ConfigError

from .info import AuthInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

_GRANT: Final = frozenset(
    {"subject", "scopes", "metadata", "issuer", "audience", "expires_at", "client_id", "password"}
)


def granted(entry: Mapping[str, Any], name: str) -> AuthInfo:
    """What a configuration's entry says. Raises `ConfigError` for what it cannot mean."""
    unknown = set(entry) - _GRANT
    if unknown:
        raise ConfigError(f"an entry has subject, scopes and metadata, and no {', '.join(sorted(map(repr, unknown)))}")
    return AuthInfo(
        subject=str(entry.get("subject") or name),
        issuer=entry.get("issuer"),
        audience=texts(entry.get("audience")),
        scopes=scopes_of(entry.get("scopes", ())),
        expires_at=number(entry.get("expires_at")),
        client_id=entry.get("client_id"),
        metadata=dict(entry.get("metadata") or {}),
    )


def from_claims(claims: Mapping[str, Any], scope_claim: str = "scope") -> AuthInfo:
    """What a token's claims say: the usual ones of RFC 7519, 7662 and 9068. Those of another type count as not said."""
    said = (claims.get(name) for name in dict.fromkeys((scope_claim, "scope", "scp", "scopes")))
    return AuthInfo(
        subject=text(claims.get("sub")),
        issuer=text(claims.get("iss")),
        audience=texts(claims.get("aud")),
        scopes=next((scopes for each in said if (scopes := scopes_of(each)) is not None), None),
        expires_at=number(claims.get("exp")),
        client_id=text(claims.get("client_id")) or text(claims.get("azp")),
        claims=dict(claims),
    )


def scopes_of(value: Any) -> frozenset[str] | None:
    """Scopes from a text with blanks between them, or from several texts; None for what is neither."""
    if isinstance(value, str):
        return frozenset(value.split())
    if is_many(value) and all(isinstance(each, str) for each in value):
        return frozenset(value)
    return None


def texts(value: Any) -> tuple[str, ...]:
    """One text or several; nothing for what is neither."""
    if isinstance(value, str):
        return (value,)
    if is_many(value) and all(isinstance(each, str) for each in value):
        return tuple(value)
    return ()


def text(value: Any) -> str | None:
    """A text that says something."""
    return value if isinstance(value, str) and value else None


def number(value: Any) -> float | None:
    """A number that is one: no truth value, no infinity."""
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if ok else None


def is_many(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]]:
    """Whether it is several values."""
    return isinstance(value, list | tuple | set | frozenset)
