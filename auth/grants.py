"""From what a configuration, a verifier or a token says of somebody to an `AuthInfo`, read leniently and never guessed at."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from greenroom.errors import ConfigError

from .errors import Denied
from .info import AuthInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

_SAID: Final = frozenset({"subject", "scopes", "metadata", "issuer", "audience", "expires_at", "client_id"})
_GRANT: Final = _SAID | {"password"}


def granted(entry: Mapping[str, Any], name: str) -> AuthInfo:
    """What a configuration's entry says. Raises `ConfigError` for what it cannot mean."""
    if not hasattr(entry, "items"):
        raise ConfigError(
            f'an entry is a mapping like {{"subject": "ci", "scopes": ["read"]}}, not {type(entry).__name__}'
        )
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


def found_by(found: AuthInfo | Mapping[str, Any], name: str) -> AuthInfo:
    """What somebody's own function says of a caller: an `AuthInfo`, or a mapping in our words or in those of a token. The rest of it is kept as claims."""
    if isinstance(found, AuthInfo):
        return found
    if not hasattr(found, "items"):
        raise ConfigError(f"a verifier returns an AuthInfo, a mapping or None, not {type(found).__name__}")
    if "subject" not in found and "sub" in found:
        return from_claims(found)
    info = granted({word: value for word, value in found.items() if word in _SAID}, name)
    return replace(info, claims={word: value for word, value in found.items() if word not in _GRANT})


def check_alive(info: AuthInfo) -> AuthInfo:
    """The same, unless its time is over: then it raises `Denied`."""
    if info.expires_at is not None and info.expires_at <= time.time():
        raise Denied("expired_token", "The credentials have expired")
    return info


def from_claims(claims: Mapping[str, Any], scope_claim: str = "scope") -> AuthInfo:
    """What a token's claims say: the usual ones of RFC 7519, 7662 and 9068. Those of another type count as not said."""
    # A claim that was named is the only one: what another one grants is not what was meant.
    names = ("scope", "scp", "scopes") if scope_claim == "scope" else (scope_claim,)
    said = (claims.get(name) for name in names)
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
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def is_many(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]]:
    """Whether it is several values."""
    return isinstance(value, list | tuple | set | frozenset)
