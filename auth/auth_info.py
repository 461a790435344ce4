"""From what a configuration, a verifier or a token says of a caller to an `AuthInfo`, read leniently and never guessed at."""

from __future__ import annotations

import inspect
import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeGuard

from greenroom.errors import ConfigError
from greenroom.protocol.errors import ProtocolError
from greenroom.protocol.jsonrpc import decode, encode, is_object
from greenroom.transports.interfaces import HttpRefusal

from .credential_headers import challenge, covers
from .errors import KINDS, Denied

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping, Sequence

    from greenroom.supervision import ChildSpec

    from .errors import Kind

_INFO_FIELDS: Final = frozenset({"subject", "scopes", "metadata", "issuer", "audience", "expires_at", "client_id"})
_CONFIG_FIELDS: Final = _INFO_FIELDS | {"password"}


def info_from_config(entry: Mapping[str, Any], name: str) -> AuthInfo:
    """What a configuration's entry says. Raises `ConfigError` for what it cannot mean."""
    if not hasattr(entry, "items"):
        raise ConfigError(
            f'an entry is a mapping like {{"subject": "ci", "scopes": ["read"]}}, not {type(entry).__name__}'
        )
    unknown = set(entry) - _CONFIG_FIELDS
    if unknown:
        raise ConfigError(f"an entry has subject, scopes and metadata, and no {', '.join(sorted(map(repr, unknown)))}")
    return AuthInfo(
        subject=str(entry.get("subject") or name),
        issuer=entry.get("issuer"),
        audience=texts(entry.get("audience")),
        scopes=parse_scopes(entry.get("scopes", ())),
        expires_at=number(entry.get("expires_at")),
        client_id=entry.get("client_id"),
        metadata=dict(entry.get("metadata") or {}),
    )


def info_from_verifier(found: AuthInfo | Mapping[str, Any], name: str) -> AuthInfo:
    """What a program's own function says of a caller: an `AuthInfo`, or a mapping in our words or in those of a token. The rest of it is kept as claims."""
    if isinstance(found, AuthInfo):
        return found
    if not hasattr(found, "items"):
        raise ConfigError(f"a verifier returns an AuthInfo, a mapping or None, not {type(found).__name__}")
    if "subject" not in found and "sub" in found:
        return info_from_claims(found)
    info = info_from_config({word: value for word, value in found.items() if word in _INFO_FIELDS}, name)
    return replace(info, claims={word: value for word, value in found.items() if word not in _CONFIG_FIELDS})


def check_not_expired(info: AuthInfo) -> AuthInfo:
    """The same, unless its time is over: then it raises `Denied`."""
    if info.expires_at is not None and info.expires_at <= time.time():
        raise Denied("expired_token", "The credentials have expired")
    return info


def info_from_claims(claims: Mapping[str, Any], scope_claim: str = "scope") -> AuthInfo:
    """What a token's claims say: the usual ones of RFC 7519, 7662 and 9068. Those of another type count as not said."""
    # A claim that was named is the only one: what another one grants is not what was meant.
    names = ("scope", "scp", "scopes") if scope_claim == "scope" else (scope_claim,)
    said = (claims.get(name) for name in names)
    return AuthInfo(
        subject=text(claims.get("sub")),
        issuer=text(claims.get("iss")),
        audience=texts(claims.get("aud")),
        scopes=next((scopes for each in said if (scopes := parse_scopes(each)) is not None), None),
        expires_at=number(claims.get("exp")),
        client_id=text(claims.get("client_id")) or text(claims.get("azp")),
        claims=dict(claims),
    )


def parse_scopes(value: Any) -> frozenset[str] | None:
    """Scopes from a text with blanks between them, or from several texts; None for what is neither."""
    if isinstance(value, str):
        return frozenset(value.split())
    if is_collection(value) and all(isinstance(each, str) for each in value):
        return frozenset(value)
    return None


def texts(value: Any) -> tuple[str, ...]:
    """One text or several; nothing for what is neither."""
    if isinstance(value, str):
        return (value,)
    if is_collection(value) and all(isinstance(each, str) for each in value):
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


def parse_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object that these bytes are; None for anything else."""
    try:
        found = decode(data)
    except ProtocolError:
        return None
    return found if is_object(found) else None


async def awaited(found: Any) -> Any:
    """What a program's own function returned, whether it is async or not."""
    return await found if inspect.isawaitable(found) else found


def is_collection(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]]:
    """Whether it is several values."""
    return isinstance(value, list | tuple | set | frozenset)


# --- How a no is told over HTTP: a small JSON body, and the challenge that says what would have been a yes.

ERROR_CODES: Final[dict[Kind, str]] = {"missing": "unauthorized", "expired_token": "invalid_token"}
"""What a kind is called in the answer, where that is another word: RFC 6750 knows three."""


def refusal_text(denied: Denied) -> str:
    """The words for it."""
    return denied.message or KINDS[denied.kind][1]


def bearer_refusal(denied: Denied, *, realm: str | None = None, **params: str | None) -> HttpRefusal:
    """A refusal as RFC 6750 wants it: without an error for a request that has shown nothing."""
    shown = denied.kind != "missing"
    error = ERROR_CODES.get(denied.kind, denied.kind) if shown else None
    said = refusal_text(denied) if shown else None
    return refusal(denied, challenge("Bearer", realm=realm, error=error, error_description=said, **params))


def only_given(provider: str, **ways: object) -> str:
    """The one way that was given. Raises `ConfigError` for none, and for several."""
    chosen = [name for name, way in ways.items() if way is not None]
    if len(chosen) != 1:
        raise ConfigError(f"{provider} wants one of {', '.join(ways)}, and was given {', '.join(chosen) or 'none'}")
    return chosen[0]


def refusal(denied: Denied, *challenges: str, error: str | None = None) -> HttpRefusal:
    """Status, challenges and body. An error of the server's has no challenge: nothing that a client could send would help."""
    body = encode(
        {"error": error or ERROR_CODES.get(denied.kind, denied.kind), "error_description": refusal_text(denied)}
    )
    headers = [("content-type", "application/json"), ("cache-control", "no-store")]
    if denied.kind not in ("server_error", "too_many_failures"):
        headers += [("www-authenticate", each) for each in challenges]
    return HttpRefusal(denied.status, headers, body)


# --- The caller, as far as it is known: one value, made by a provider, and what handlers see as `ctx.auth`.
# It never holds the credential itself: a handler that has it cannot pass on the caller's token.


@dataclass(frozen=True, slots=True)
class AuthInfo:
    """A caller that a provider has found to be genuine."""

    subject: str | None
    """Whom it is about, as the issuer calls them; None where that is unknown."""
    issuer: str | None = None
    audience: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None
    """What they may do; None when that is unknown, which is less than nothing: every requirement fails."""
    expires_at: float | None = None
    """In seconds of the epoch."""
    client_id: str | None = None
    """The program that acts for the subject."""
    claims: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """All that the credential said, as it said it."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """What the server's own configuration says of them."""
    anonymous: bool = False
    """Whether the caller is unidentified: then nothing is theirs, and a session is all that tells them from others."""

    @property
    def principal(self) -> Hashable:
        """Whose sessions, tasks and streams these are: two callers with equal principals are the same one. None for a caller without an identity."""
        if self.anonymous or (self.subject is None and self.client_id is None):
            return None
        return (self.issuer or "", self.subject or "", self.client_id or "" if self.subject is None else "")

    def has(self, scopes: Collection[str]) -> bool:
        """Whether all of these were granted. False where nothing is known of scopes, unless none are asked for."""
        return not scopes or (self.scopes is not None and self.scopes.issuperset(scopes))

    def lacks(self, scopes: Collection[str]) -> frozenset[str]:
        """Which of these were not granted."""
        return frozenset(scopes) - (self.scopes or frozenset())

    def has_scope(self, scope: str) -> bool:
        """Whether this was granted."""
        return self.has((scope,))

    def has_scopes(self, scopes: Collection[str]) -> bool:
        """Whether all of these were granted: the same as `has`."""
        return self.has(scopes)

    def covers_resource(self, resource: str) -> bool:
        """Whether it was meant for this resource, or for something that it is part of: same origin, and a path that leads to it."""
        return any(covers(each, resource) for each in self.audience)

    @classmethod
    def from_map(cls, claims: Mapping[str, Any]) -> AuthInfo:
        """What a token's claims say: for programs that have verified a token in a way of their own. It verifies nothing."""
        return info_from_claims(claims)


# --- What a provider is: an object that looks at a request's headers, and says who the caller is, or why it is refused.


class AuthRequest(NamedTuple):
    """The request that wants to come in. Header names are lower-cased."""

    method: str
    path: str
    headers: Mapping[str, str]
    address: str = ""
    query: str = ""


class PublicDocument(Protocol):
    """A public document. A provider that has one has it as `notice`."""

    @property
    def paths(self) -> Collection[str]:
        """Where it is to be found, from the root of whatever is served."""
        ...

    async def read(self, request: AuthRequest) -> HttpRefusal:
        """The answer to a request for it, by whatever method."""
        ...


class AuthProvider(Protocol):
    """One way to identify callers."""

    @property
    def headers(self) -> Sequence[str]:
        """The request headers that it reads, lower-cased: browsers have to be told of them."""
        ...

    def children(self) -> Sequence[ChildSpec[Any]]:
        """The processes that it needs: the server that uses it starts them."""
        ...

    async def authenticate(self, request: AuthRequest) -> AuthInfo:
        """Who the caller is. Raises `Denied`; anything else that it raises is its own bug, and lets no caller in."""
        ...

    async def challenge(self, denied: Denied, request: AuthRequest) -> HttpRefusal:
        """How the no is told: status, `WWW-Authenticate`, body."""
        ...
