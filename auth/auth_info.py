"""The identity of a caller: `AuthInfo`, how it is made of a configuration, a verifier's result or a token's claims, and the interface of providers."""

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
    """The identity that a configuration's entry describes. Raises `ConfigError` for an invalid entry."""
    if not hasattr(entry, "items"):
        raise ConfigError(
            f'an entry must be a mapping like {{"subject": "ci", "scopes": ["read"]}}, not {type(entry).__name__}'
        )
    unknown = set(entry) - _CONFIG_FIELDS
    if unknown:
        raise ConfigError(
            f"an entry may have subject, scopes and metadata, and not {', '.join(sorted(map(repr, unknown)))}"
        )
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
    """The identity that a program's verifier returned: an `AuthInfo`, or a mapping in our field names or in those of a token. Other keys are kept as claims."""
    if isinstance(found, AuthInfo):
        return found
    if not hasattr(found, "items"):
        raise ConfigError(f"a verifier must return an AuthInfo, a mapping or None, not {type(found).__name__}")
    if "subject" not in found and "sub" in found:
        return info_from_claims(found)
    info = info_from_config({word: value for word, value in found.items() if word in _INFO_FIELDS}, name)
    return replace(info, claims={word: value for word, value in found.items() if word not in _CONFIG_FIELDS})


def check_not_expired(info: AuthInfo) -> AuthInfo:
    """Return `info`. Raises `Denied` if it has expired."""
    if info.expires_at is not None and info.expires_at <= time.time():
        raise Denied("expired_token", "The credentials have expired")
    return info


def info_from_claims(claims: Mapping[str, Any], scope_claim: str = "scope") -> AuthInfo:
    """The identity in a token's claims (RFC 7519, 7662, 9068). A claim of a wrong type counts as missing."""
    # A configured claim is the only one that counts: scopes in another claim were not meant for this server.
    names = ("scope", "scp", "scopes") if scope_claim == "scope" else (scope_claim,)
    values = (claims.get(name) for name in names)
    return AuthInfo(
        subject=text(claims.get("sub")),
        issuer=text(claims.get("iss")),
        audience=texts(claims.get("aud")),
        scopes=next((scopes for each in values if (scopes := parse_scopes(each)) is not None), None),
        expires_at=number(claims.get("exp")),
        client_id=text(claims.get("client_id")) or text(claims.get("azp")),
        claims=dict(claims),
    )


def parse_scopes(value: Any) -> frozenset[str] | None:
    """Scopes from a blank-separated string or a collection of strings; None for anything else."""
    if isinstance(value, str):
        return frozenset(value.split())
    if is_collection(value) and all(isinstance(each, str) for each in value):
        return frozenset(value)
    return None


def texts(value: Any) -> tuple[str, ...]:
    """A string as a tuple, or a collection of strings; empty for anything else."""
    if isinstance(value, str):
        return (value,)
    if is_collection(value) and all(isinstance(each, str) for each in value):
        return tuple(value)
    return ()


def text(value: Any) -> str | None:
    """A string that is not empty; None for anything else."""
    return value if isinstance(value, str) and value else None


def number(value: Any) -> float | None:
    """A finite number; None for a bool, an infinity or anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def parse_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object in these bytes; None for anything else."""
    try:
        found = decode(data)
    except ProtocolError:
        return None
    return found if is_object(found) else None


async def awaited(found: Any) -> Any:
    """The result of a function that may or may not be async."""
    return await found if inspect.isawaitable(found) else found


def is_collection(value: Any) -> TypeGuard[list[Any] | tuple[Any, ...] | set[Any] | frozenset[Any]]:
    """Whether it is a list, tuple or set."""
    return isinstance(value, list | tuple | set | frozenset)


# --- Refusals over HTTP: a status, a small JSON body, and a `WWW-Authenticate` challenge that says what is needed.

ERROR_CODES: Final[dict[Kind, str]] = {"missing": "unauthorized", "expired_token": "invalid_token"}
"""The `error` code of a kind where it differs from the kind's name: RFC 6750 defines three codes."""


def refusal_text(denied: Denied) -> str:
    """The message for the caller."""
    return denied.message or KINDS[denied.kind][1]


def token_challenge(scheme: str, denied: Denied, *, realm: str | None = None, **params: str | None) -> str:
    """A challenge by RFC 6750: without an `error` if the request had no credentials."""
    shown = denied.kind != "missing"
    error = ERROR_CODES.get(denied.kind, denied.kind) if shown else None
    values = refusal_text(denied) if shown else None
    return challenge(scheme, realm=realm, error=error, error_description=values, **params)


OFFLINE_ACCESS: Final = "offline_access"
"""The scope by which a client asks for a refresh token. It is no requirement of a resource, so neither challenges nor metadata name it."""


def scope_param(scopes: Collection[str]) -> str | None:
    """The scopes as the parameter of a challenge; None if it names none."""
    return " ".join(each for each in scopes if each != OFFLINE_ACCESS) or None


def refuse_offline_access(what: str, scopes: Collection[str]) -> None:
    """Raise `ConfigError` if `offline_access` is among the scopes: it could never be named to a client that lacks it."""
    if OFFLINE_ACCESS in scopes:
        raise ConfigError(
            f"{what} must not have offline_access, by which a client asks for a refresh token: leave it out, clients ask by themselves"
        )


def only_given(provider: str, **ways: object) -> str:
    """The name of the only option that was given. Raises `ConfigError` for none and for several."""
    chosen = [name for name, way in ways.items() if way is not None]
    if len(chosen) != 1:
        raise ConfigError(
            f"{provider} needs exactly one of {', '.join(ways)}, and was given {', '.join(chosen) or 'none'}"
        )
    return chosen[0]


def refusal(denied: Denied, *challenges: str, error: str | None = None) -> HttpRefusal:
    """Status, challenges and body. Server errors carry no challenge, since no credentials would help."""
    body = encode(
        {"error": error or ERROR_CODES.get(denied.kind, denied.kind), "error_description": refusal_text(denied)}
    )
    headers = [("content-type", "application/json"), ("cache-control", "no-store")]
    if denied.kind not in ("server_error", "too_many_failures"):
        headers += [("www-authenticate", each) for each in challenges]
    return HttpRefusal(denied.status, headers, body)


# --- The identity of a caller: a value, made by a provider, that handlers see as `ctx.auth`.
# It never holds the credential, so that a handler cannot pass the caller's token on.


@dataclass(frozen=True, slots=True)
class AuthInfo:
    """An identified caller."""

    subject: str | None
    """The subject, as the issuer names it; None if unknown."""
    issuer: str | None = None
    audience: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None
    """The granted scopes; None if unknown, and then every requirement fails."""
    expires_at: float | None = None
    """Unix time."""
    client_id: str | None = None
    """The client that acts for the subject."""
    claims: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """All claims of the credential, unchanged."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """The server's own settings for the subject."""
    anonymous: bool = False
    """Whether the caller is unidentified: it owns nothing beyond its session."""

    @property
    def principal(self) -> Hashable:
        """The owner of sessions, tasks and streams: callers with equal principals are the same owner. None for a caller without an identity."""
        if self.anonymous or (self.subject is None and self.client_id is None):
            return None
        return (self.issuer or "", self.subject or "", self.client_id or "" if self.subject is None else "")

    def has(self, scopes: Collection[str]) -> bool:
        """Whether all of these were granted. False if the scopes are unknown, unless `scopes` is empty."""
        return not scopes or (self.scopes is not None and self.scopes.issuperset(scopes))

    def lacks(self, scopes: Collection[str]) -> frozenset[str]:
        """Those of `scopes` that were not granted."""
        return frozenset(scopes) - (self.scopes or frozenset())

    def has_scope(self, scope: str) -> bool:
        """Whether this scope was granted."""
        return self.has((scope,))

    def has_scopes(self, scopes: Collection[str]) -> bool:
        """The same as `has`."""
        return self.has(scopes)

    def covers_resource(self, resource: str) -> bool:
        """Whether the token's audience is this resource, or one that contains it: same origin, and a path prefix."""
        return any(covers(each, resource) for each in self.audience)

    @classmethod
    def from_map(cls, claims: Mapping[str, Any]) -> AuthInfo:
        """The identity in these claims, for programs that verify tokens themselves. It verifies nothing."""
        return info_from_claims(claims)


# --- The interface of providers: `authenticate` reads a request's headers and identifies the caller, `challenge` builds the refusal.


class AuthRequest(NamedTuple):
    """The request to authenticate. Header names are lower-cased."""

    method: str
    path: str
    headers: Mapping[str, str]
    address: str = ""
    query: str = ""


class PublicDocument(Protocol):
    """A public document of a provider, in its attribute `public_document`."""

    @property
    def paths(self) -> Collection[str]:
        """Where it is served, from the root of the application."""
        ...

    async def read(self, request: AuthRequest) -> HttpRefusal:
        """The response to a request for it, by any method."""
        ...


class AuthProvider(Protocol):
    """A way to identify callers."""

    @property
    def headers(self) -> Sequence[str]:
        """The request headers that it reads, in lower case; browsers need the list for CORS."""
        ...

    def children(self) -> Sequence[ChildSpec[Any]]:
        """The processes that it needs; the server starts them."""
        ...

    async def authenticate(self, request: AuthRequest) -> AuthInfo:
        """Identify the caller. Raises `Denied`; any other exception counts as a bug of the provider and refuses the request."""
        ...

    async def challenge(self, denied: Denied, request: AuthRequest) -> HttpRefusal:
        """Build the refusal: status, `WWW-Authenticate`, body."""
        ...
