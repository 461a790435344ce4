"""Bearer tokens: signed tokens are verified here, opaque ones by introspection or by a program's verifier.

::

    BearerAuth(secret=…, issuer="https://id.example", audience="https://mcp.example/mcp")     # HS256
    BearerAuth(keys=KeySet("https://id.example/jwks"), algorithms=("RS256",), audience=…)
    BearerAuth(key=pem, algorithms=("ES256",), audience=…)
    BearerAuth(verifier=look_it_up, audience=…)
    BearerAuth(introspection=Introspection(…), audience=…)

`audience` is required: without it, a server would accept tokens that were issued for other servers. `audience=None` switches the check off.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from greenroom.errors import ConfigError
from greenroom.protocol.jsonrpc import encode
from greenroom.supervision import tracebacks
from greenroom.transports.interfaces import HttpRefusal

from .auth_info import (
    awaited,
    info_from_claims,
    is_collection,
    number,
    only_given,
    refuse_offline_access,
    scope_param,
    text,
    texts,
)
from .credential_headers import checked_issuer_url, checked_resource_url, extract_access_token
from .errors import Denied
from .jose import ALGORITHMS, FAMILIES, public_key, secret_key, unverified_header, verified_claims
from .proof_of_possession import DpopVerifier
from .scope_hierarchy import ScopeHierarchy
from .shared_secrets import ExpiringCache

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from greenroom.supervision import ChildSpec

    from .auth_info import AuthInfo, AuthRequest
    from .jose import JsonWebKey
    from .jwks_and_introspection import Introspection, KeySet
    from .proof_of_possession import DpopMode

if TYPE_CHECKING:
    Claims = Mapping[str, Any]
    Verifier = Callable[[str], "Claims | Awaitable[Claims | None] | None"]

_NOT_GIVEN: Final[Any] = object()


MOST_VERIFIED: Final = 1000
"""How many verified tokens are remembered, by a digest of their header: a signature check is expensive, and a client shows the same token for an hour."""


class _VerifiedToken(NamedTuple):
    """A verified token, with the scheme that it was shown in and the keys that verified it."""

    scheme: str
    claims: Claims
    info: AuthInfo
    keys: object
    digest: bytes


class BearerAuth:
    """Identifies callers by their access token."""

    def __init__(  # noqa: PLR0913 - all the settings
        self,
        *,
        secret: str | bytes | None = None,
        key: str | bytes | None = None,
        keys: KeySet | None = None,
        verifier: Verifier | None = None,
        introspection: Introspection | None = None,
        algorithms: Sequence[str] | None = None,
        issuer: str | Sequence[str] | None = None,
        audience: str | Sequence[str] | None = _NOT_GIVEN,
        clock_skew: float = 60.0,
        scope_claim: str = "scope",
        realm: str = "mcp",
        resource_metadata: str | Mapping[str, Any] | ResourceDocument | None = None,
        scope_implies: Mapping[str, Collection[str]] | None = None,
        resource: str | None = None,
        dpop: DpopMode | None = None,
        dpop_nonce_seconds: float | None = None,
    ) -> None:
        """Exactly one of `secret`, `key` (PEM), `keys`, `verifier` and `introspection` says how tokens are verified.

        `resource_metadata` is the URL of the RFC 9728 metadata, or the metadata itself, to be served here: a mapping with `resource`,
        `authorization_servers` and optionally `metadata_url`.

        `scope_implies` names for a broad scope the narrower ones that it contains.

        A token that is bound to a key is accepted only with a proof of that key (DPoP), which names `resource`, the URL of the server as clients know it; by
        default that is the URL in `resource_metadata`. `dpop="accept"` advertises this, and `dpop="require"` accepts no other tokens. With
        `dpop_nonce_seconds`, proofs need a nonce that is not older.

        """
        self._verified_by = only_given(
            "BearerAuth", secret=secret, key=key, keys=keys, verifier=verifier, introspection=introspection
        )
        if audience is _NOT_GIVEN:
            raise ConfigError("BearerAuth needs an audience, the one that tokens must name; audience=None accepts any")
        self._algorithms = _algorithms(self._verified_by, algorithms)
        self._key = _configured_key(secret, key, self._algorithms)
        self._keys = keys
        self._verifier = verifier
        self._introspection = introspection
        self._issuers = () if issuer is None else _texts("issuer", issuer)
        self._audience = None if audience is None else _texts("audience", audience)
        if clock_skew < 0:
            raise ConfigError("clock_skew must be 0 seconds or more")
        self._verified = ExpiringCache[_VerifiedToken](MOST_VERIFIED)
        self._skew = clock_skew
        self._scope_claim = scope_claim
        self._realm = realm
        if isinstance(resource_metadata, Mapping):
            resource_metadata = ResourceDocument.of(resource_metadata)
        self.public_document = resource_metadata if isinstance(resource_metadata, ResourceDocument) else None
        """The public document to serve, if any."""
        self._metadata = None if isinstance(resource_metadata, ResourceDocument) else resource_metadata
        self._hierarchy = ScopeHierarchy(scope_implies)
        if resource is not None:
            resource = checked_resource_url(resource)
        elif self.public_document is not None:
            resource = self.public_document.resource
        self._dpop = DpopVerifier(dpop, resource=resource, nonce_seconds=dpop_nonce_seconds)
        if self.public_document is not None:
            self.public_document.advertise(self._dpop.metadata)
        self.headers = ("authorization", *self._dpop.headers)
        """The request headers that it reads."""

    def __repr__(self) -> str:
        return f"BearerAuth({self._verified_by}, issuer={self._issuers!r}, audience={self._audience!r})"

    def children(self) -> Sequence[ChildSpec[Any]]:
        """The processes of the key set and of the introspection."""
        needed = (self._keys, self._introspection)
        return [each.child_spec() for each in needed if each is not None]

    def share(self, key: bytes) -> None:
        """Use this key for nonces, so that all providers with the key accept each other's."""
        self._dpop.share(key)

    async def authenticate(self, request: AuthRequest) -> AuthInfo:
        """Identify the caller by its token, and by its proof if the token is bound to a key."""
        scheme, info = await self.verify(request)
        self._dpop.check(scheme, info, request)
        return info

    async def verify(self, request: AuthRequest) -> tuple[str, AuthInfo]:
        """The scheme of the token, and the caller that it identifies: whether this request may use a bound token is not checked."""
        place = hashlib.sha256(request.headers.get("authorization", "").encode(errors="surrogatepass")).digest()
        seen = self._verified.get(place)
        if seen is not None and self._is_unchanged(seen):
            check_validity_times(seen.claims, now=time.time(), skew=self._skew)
            return seen.scheme, seen.info
        scheme, token = extract_access_token(request.headers)
        claims = await self._claims(token)
        check_claims(claims, now=time.time(), skew=self._skew, issuers=self._issuers, audience=self._audience)
        info = self._hierarchy.widen(info_from_claims(claims, self._scope_claim))
        if self._verifier is None:  # a program's function is asked for each request
            keys = None if self._keys is None else self._keys.keys
            seen = _VerifiedToken(scheme, claims, info, keys, hashlib.sha256(token.encode()).digest())
            self._verified.keep(place, seen, math.inf)
        return scheme, info

    def _is_unchanged(self, seen: _VerifiedToken) -> bool:
        """Whether the verification still holds: the keys, or the introspection result, have not changed. The times in the claims are checked for each request."""
        if self._introspection is not None:
            known = self._introspection.known(seen.digest)
            return known is not None and known.claims is seen.claims
        return self._keys is None or seen.keys is self._keys.keys

    async def _claims(self, token: str) -> Claims:
        if self._introspection is not None:
            return await self._introspection.claims(token)
        if self._verifier is not None:
            found: Claims | None = await awaited(self._verifier(token))
            if found is None:
                raise Denied("invalid_token")
            return found
        if self._keys is not None:
            heading = unverified_header(token)
            if heading.algorithm not in self._algorithms:  # before the issuer is asked for keys
                raise Denied("invalid_token", detail="the algorithm is not accepted")
            return verified_claims(token, await self._keys.find(heading), self._algorithms)
        assert self._key is not None
        return verified_claims(token, (self._key,), self._algorithms)

    async def challenge(self, denied: Denied, request: AuthRequest) -> HttpRefusal:
        """A refusal by RFC 6750: without an `error` if the request had no credentials."""
        return self._dpop.refusal(
            denied,
            request,
            realm=self._realm,
            scope=scope_param(denied.scopes),
            resource_metadata=self._metadata
            if self.public_document is None
            else await self.public_document.url(request),
        )


def _texts(word: str, value: Any) -> tuple[str, ...]:
    """One string or several. Raises `ConfigError` for an empty value, which would switch the check off by mistake."""
    found = texts(value)
    if not found or not all(found):
        raise ConfigError(f"{word} must be a text or a list of texts, not {value!r}")
    return found


def _algorithms(way: str, given: Sequence[str] | None) -> tuple[str, ...]:
    if way in ("verifier", "introspection"):
        if given is not None:
            raise ConfigError(f"algorithms do not apply to a {way}")
        return ()
    if given is None:
        if way != "secret":
            raise ConfigError('say which algorithms are accepted, as algorithms=("RS256",)')
        return ("HS256",)
    possible = sorted(each for each in ALGORITHMS if each.startswith("HS") == (way == "secret"))
    wrong = [each for each in given if each not in possible]
    if wrong or isinstance(given, str):
        raise ConfigError(f"{wrong or given!r}: with {way} these can be accepted: {', '.join(possible)}")
    return tuple(given)


def _configured_key(
    secret: str | bytes | None, key: str | bytes | None, algorithms: Sequence[str]
) -> JsonWebKey | None:
    if secret is not None:
        return secret_key(secret)
    if key is None:
        return None
    found = public_key(key)
    if not any(FAMILIES[each[:2]] == found.family for each in algorithms):
        raise ConfigError(f"a key of {found.family} cannot have signed with {', '.join(algorithms)}")
    return found


# --- Checks of a token's claims, however they were verified: validity times, issuer and audience. Pure.


def check_claims(
    claims: Mapping[str, Any],
    *,
    now: float,
    skew: float = 60.0,
    issuers: Sequence[str] = (),
    audience: Sequence[str] | None = None,
) -> None:
    """Raises `Denied`. With an audience of None, the claim is not checked."""
    check_validity_times(claims, now=now, skew=skew)
    if issuers and text(claims.get("iss")) not in issuers:
        raise Denied("invalid_token", detail="another issuer's")
    if audience is not None and not set(audience).intersection(texts(claims.get("aud"))):
        raise Denied("invalid_token", "the access token is meant for another resource")


def check_validity_times(claims: Mapping[str, Any], *, now: float, skew: float = 60.0) -> None:
    """Check `exp` and `nbf`, which must be repeated for a token that was verified before. Raises `Denied`."""
    expires, begins = claims.get("exp"), claims.get("nbf")
    if expires is not None:
        moment = number(expires)
        if moment is None:
            raise Denied("invalid_token", detail="exp is not a time")
        if moment + skew < now:
            raise Denied("expired_token")
    if begins is not None:
        moment = number(begins)
        if moment is None:
            raise Denied("invalid_token", detail="nbf is not a time")
        if moment - skew > now:
            raise Denied("invalid_token", "the access token is not valid yet")


# --- Protected resource metadata (RFC 9728): public, for any origin, since clients learn from it where to log in.
# It is served at the well-known path of the resource's path and at the bare one; `read` answers a request.

if TYPE_CHECKING:
    Servers: TypeAlias = Sequence[str] | Callable[[AuthRequest], Sequence[str] | Awaitable[Sequence[str]]]
    MetadataUrl: TypeAlias = str | Callable[[AuthRequest], str | Awaitable[str]]

log = logging.getLogger(__name__)

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
METHODS: Final = ("GET", "HEAD", "OPTIONS")
_HEADERS: Final = (
    ("access-control-allow-origin", "*"),
    ("access-control-allow-methods", ", ".join(METHODS)),
    ("access-control-allow-headers", "*"),
    ("cache-control", "no-store"),
)


class ResourceDocument:
    """The metadata of one protected resource. Only its authorization servers may depend on the request."""

    def __init__(  # noqa: PLR0913 - all the metadata of a resource
        self,
        resource: str,
        authorization_servers: Servers,
        *,
        scopes_supported: Sequence[str] | None = None,
        bearer_methods_supported: Sequence[str] = ("header",),
        resource_name: str | None = None,
        jwks_uri: str | None = None,
        resource_documentation: str | None = None,
        metadata_url: MetadataUrl | None = None,
        metadata: Mapping[str, Any] | None = None,
        insecure: bool = False,
    ) -> None:
        """Raises `ConfigError` for invalid URLs, and for `metadata` that contradicts another argument."""
        self.resource = checked_resource_url(resource)
        self._insecure = insecure
        self._servers: Servers = (
            authorization_servers
            if callable(authorization_servers)
            else _issuers(authorization_servers, insecure=insecure)
        )
        self._url: MetadataUrl = _default_url(self.resource) if metadata_url is None else metadata_url
        if not callable(self._url):
            checked_resource_url(self._url, "resource_metadata_url")
        self.scopes_supported = (
            None if scopes_supported is None else checked_words("scopes_supported", scopes_supported)
        )
        refuse_offline_access("scopes_supported", self.scopes_supported or ())
        fields = {
            "scopes_supported": None if self.scopes_supported is None else list(self.scopes_supported),
            "bearer_methods_supported": list(checked_words("bearer_methods_supported", bearer_methods_supported)),
            "resource_name": resource_name,
            "jwks_uri": None if jwks_uri is None else checked_resource_url(jwks_uri, "jwks_uri"),
            "resource_documentation": None
            if resource_documentation is None
            else checked_resource_url(resource_documentation, "resource_documentation"),
        }
        managed = sorted({"resource", "authorization_servers", *fields} & set(metadata or {}))
        if managed:
            raise ConfigError(f"metadata may not contain {', '.join(managed)}: use the argument of that name")
        self._fields = {name: value for name, value in fields.items() if value is not None} | dict(metadata or {})
        path = urlsplit(self.resource).path.rstrip("/")
        self.paths: frozenset[str] = frozenset({f"{WELL_KNOWN}{path}", WELL_KNOWN})
        """The paths at which it is served."""
        encode(self._fields)  # raises here what is not JSON

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> ResourceDocument:
        """From a mapping with `resource`, `authorization_servers`, and optionally `metadata_url` and more. Raises `ConfigError`."""
        try:
            return cls(**fields)
        except TypeError as error:
            raise ConfigError(f"resource_metadata: {str(error).rpartition('__init__() ')[2]}") from None

    def advertise(self, fields: Mapping[str, Any]) -> None:
        """Add members. Raises `ConfigError` for one that `metadata` has too."""
        if twice := sorted(fields.keys() & self._fields.keys()):
            raise ConfigError(f"metadata may not contain {', '.join(twice)}: use the argument dpop")
        self._fields.update(fields)

    async def authorization_servers(self, request: AuthRequest) -> tuple[str, ...]:
        """The authorization servers for this request. Raises `ConfigError` if the program's function returned no list of issuers."""
        if not callable(self._servers):
            return tuple(self._servers)
        return _issuers(await awaited(self._servers(request)), insecure=self._insecure)

    async def url(self, request: AuthRequest) -> str:
        """The URL of the metadata, as challenges name it."""
        if not callable(self._url):
            return self._url
        return checked_resource_url(await awaited(self._url(request)), "resource_metadata_url")

    async def document(self, request: AuthRequest) -> dict[str, Any]:
        """The metadata for this request."""
        servers = await self.authorization_servers(request)
        return {"resource": self.resource, "authorization_servers": list(servers), **self._fields}

    async def read(self, request: AuthRequest) -> HttpRefusal:
        """The response to a request for the metadata."""
        if request.method not in METHODS:
            allowed = (("allow", ", ".join(METHODS)), ("content-type", "text/plain"))
            return HttpRefusal(405, (*allowed, *_HEADERS), b"Method Not Allowed")
        if request.method == "OPTIONS":
            return HttpRefusal(204, _HEADERS)
        try:
            body = encode(await self.document(request))
        except Exception:  # noqa: BLE001 - the program's function may raise anything, or return what is not JSON
            tracebacks.log_error(log, "the metadata of %s cannot be served", self.resource)
            return HttpRefusal(500, (("content-type", "application/json"), *_HEADERS), b'{"error":"server_error"}')
        return HttpRefusal(200, (("content-type", "application/json"), *_HEADERS), body)


def checked_words(what: str, given: object) -> tuple[str, ...]:
    """A list of words without spaces. Raises `ConfigError`."""
    if not is_collection(given):
        raise ConfigError(f"{what} must be a list of texts, not {given!r}")
    if not all(isinstance(each, str) and each and " " not in each and each.isprintable() for each in given):
        raise ConfigError(f"{what} must be a list of texts without spaces, not {given!r}")
    return tuple(dict.fromkeys(given))


def _issuers(given: object, *, insecure: bool) -> tuple[str, ...]:
    if not is_collection(given):
        raise ConfigError(f"authorization_servers must be a list of URLs, not {given!r}")
    if not given:
        raise ConfigError("authorization_servers is empty: name at least one")
    return tuple(checked_issuer_url(each, insecure=insecure) for each in given)


def _default_url(resource: str) -> str:
    parts = urlsplit(resource)
    return urlunsplit((parts.scheme, parts.netloc, f"{WELL_KNOWN}{parts.path.rstrip('/')}", parts.query, ""))
