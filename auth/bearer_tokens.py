"""Bearer tokens: signed ones, which are checked here, and opaque ones, about which an issuer or a verifier is asked.

::

    BearerAuth(secret=…, issuer="https://id.example", audience="https://mcp.example/mcp")     # HS256
    BearerAuth(keys=KeySet("https://id.example/jwks"), algorithms=("RS256",), audience=…)
    BearerAuth(key=pem, algorithms=("ES256",), audience=…)
    BearerAuth(verifier=look_it_up, audience=…)
    BearerAuth(introspection=Introspection(…), audience=…)

A server has to say for which audience its tokens are meant: a token for another server is as good as stolen, so `audience` is required.
`audience=None` says in so many words that it is not looked at.
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

from .auth_info import awaited, bearer_refusal, info_from_claims, is_collection, number, only_given, text, texts
from .credential_headers import checked_issuer_url, checked_resource_url, extract_bearer_token
from .errors import Denied
from .jose import ALGORITHMS, FAMILIES, public_key, secret_key, unverified_header, verified_claims
from .shared_secrets import ExpiringCache

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from greenroom.supervision import ChildSpec

    from .auth_info import AuthInfo, AuthRequest
    from .jose import JsonWebKey
    from .jwks_and_introspection import Introspection, KeySet

if TYPE_CHECKING:
    Claims = Mapping[str, Any]
    Verifier = Callable[[str], "Claims | Awaitable[Claims | None] | None"]

_NOT_GIVEN: Final[Any] = object()


MOST_VERIFIED: Final = 1000
"""How many tokens are known again, by a digest of their header: signatures are dear, and a client shows the same token for an hour."""


class _VerifiedToken(NamedTuple):
    """What came of a token."""

    claims: Claims
    info: AuthInfo
    keys: object
    digest: bytes


class BearerAuth:
    """The provider."""

    headers = ("authorization",)

    def __init__(  # noqa: PLR0913 - what can be set
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
    ) -> None:
        """One of `secret`, `key` (PEM), `keys`, `verifier` and `introspection` says who can vouch for a token.

        `resource_metadata` is the URL where a client can read which server to ask for one; or what it reads there, to have it served here: a mapping with
        `resource`, `authorization_servers` and perhaps `metadata_url`.
        """
        self._verified_by = only_given(
            "BearerAuth", secret=secret, key=key, keys=keys, verifier=verifier, introspection=introspection
        )
        if audience is _NOT_GIVEN:
            raise ConfigError("BearerAuth wants an audience: for whom a token must be meant; None looks at none")
        self._algorithms = _algorithms(self._verified_by, algorithms)
        self._key = _configured_key(secret, key, self._algorithms)
        self._keys = keys
        self._verifier = verifier
        self._introspection = introspection
        self._issuers = () if issuer is None else _texts("issuer", issuer)
        self._audience = None if audience is None else _texts("audience", audience)
        if clock_skew < 0:
            raise ConfigError("clock_skew is 0 seconds or more")
        self._verified = ExpiringCache[_VerifiedToken](MOST_VERIFIED)
        self._skew = clock_skew
        self._scope_claim = scope_claim
        self._realm = realm
        if isinstance(resource_metadata, Mapping):
            resource_metadata = ResourceDocument.of(resource_metadata)
        self.public_document = resource_metadata if isinstance(resource_metadata, ResourceDocument) else None
        """The public document, and where it is served."""
        self._metadata = None if isinstance(resource_metadata, ResourceDocument) else resource_metadata

    def __repr__(self) -> str:
        return f"BearerAuth({self._verified_by}, issuer={self._issuers!r}, audience={self._audience!r})"

    def children(self) -> Sequence[ChildSpec[Any]]:
        """The processes that keep the keys, or the answers about opaque tokens."""
        needed = (self._keys, self._introspection)
        return [each.child_spec() for each in needed if each is not None]

    async def authenticate(self, request: AuthRequest) -> AuthInfo:
        """The caller that the token identifies."""
        place = hashlib.sha256(request.headers.get("authorization", "").encode(errors="surrogatepass")).digest()
        seen = self._verified.get(place)
        if seen is not None and self._is_unchanged(seen):
            check_validity_times(seen.claims, now=time.time(), skew=self._skew)
            return seen.info
        token = extract_bearer_token(request.headers)
        claims = await self._claims(token)
        check_claims(claims, now=time.time(), skew=self._skew, issuers=self._issuers, audience=self._audience)
        info = info_from_claims(claims, self._scope_claim)
        if self._verifier is None:  # a program's function is to be asked each time
            keys = None if self._keys is None else self._keys.keys
            seen = _VerifiedToken(claims, info, keys, hashlib.sha256(token.encode()).digest())
            self._verified.keep(place, seen, math.inf)
        return info

    def _is_unchanged(self, seen: _VerifiedToken) -> bool:
        """Whether the signature need not be checked again: it is the same token, and the keys are the same. Its claims are looked at each time."""
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
                raise Denied("invalid_token", detail="an algorithm that is not accepted")
            return verified_claims(token, await self._keys.find(heading), self._algorithms)
        assert self._key is not None
        return verified_claims(token, (self._key,), self._algorithms)

    async def challenge(self, denied: Denied, request: AuthRequest) -> HttpRefusal:
        """As RFC 6750 wants it: without an error for a request that has shown nothing."""
        return bearer_refusal(
            denied,
            realm=self._realm,
            scope=" ".join(denied.scopes) or None,
            resource_metadata=self._metadata
            if self.public_document is None
            else await self.public_document.url(request),
        )


def _texts(word: str, value: Any) -> tuple[str, ...]:
    """What must not be nothing by mistake: then it would not be looked at."""
    found = texts(value)
    if not found or not all(found):
        raise ConfigError(f"{word} is a text, or a list of some, and not {value!r}")
    return found


def _algorithms(way: str, given: Sequence[str] | None) -> tuple[str, ...]:
    if way in ("verifier", "introspection"):
        if given is not None:
            raise ConfigError(f"algorithms are nothing to a {way}")
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


# --- What a token's claims must say, however they were verified: that it is still good, whose it is, and that it is meant for us. Pure.


def check_claims(
    claims: Mapping[str, Any],
    *,
    now: float,
    skew: float = 60.0,
    issuers: Sequence[str] = (),
    audience: Sequence[str] | None = None,
) -> None:
    """Raises `Denied`. With an audience of None that claim is not checked."""
    check_validity_times(claims, now=now, skew=skew)
    if issuers and text(claims.get("iss")) not in issuers:
        raise Denied("invalid_token", detail="another issuer's")
    if audience is not None and not set(audience).intersection(texts(claims.get("aud"))):
        raise Denied("invalid_token", "the access token is meant for somebody else")


def check_validity_times(claims: Mapping[str, Any], *, now: float, skew: float = 60.0) -> None:
    """That it is good now: all that can change of a token that was looked at before. Raises `Denied`."""
    expires, begins = claims.get("exp"), claims.get("nbf")
    if expires is not None:
        moment = number(expires)
        if moment is None:
            raise Denied("invalid_token", detail="exp is no time")
        if moment + skew < now:
            raise Denied("expired_token")
    if begins is not None:
        moment = number(begins)
        if moment is None:
            raise Denied("invalid_token", detail="nbf is no time")
        if moment - skew > now:
            raise Denied("invalid_token", "the access token is not valid yet")


# --- What a protected resource says of itself (RFC 9728), and where: it is public, for any page, since clients learn from it where to log in.
# It is served at the well-known place of the resource's path and at the bare one, by whatever serves the resource: `read` answers a request.

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
    """The document of one resource. It may differ by request only in its authorization servers."""

    def __init__(  # noqa: PLR0913 - what can be said of a resource
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
        """Raises `ConfigError` for URLs that are none, and for `metadata` that would say something else than the rest."""
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
        said = {
            "scopes_supported": None if self.scopes_supported is None else list(self.scopes_supported),
            "bearer_methods_supported": list(checked_words("bearer_methods_supported", bearer_methods_supported)),
            "resource_name": resource_name,
            "jwks_uri": None if jwks_uri is None else checked_resource_url(jwks_uri, "jwks_uri"),
            "resource_documentation": None
            if resource_documentation is None
            else checked_resource_url(resource_documentation, "resource_documentation"),
        }
        managed = sorted({"resource", "authorization_servers", *said} & set(metadata or {}))
        if managed:
            raise ConfigError(
                f"metadata may not say {', '.join(managed)} in another way than the argument of that name"
            )
        self._fields = {name: value for name, value in said.items() if value is not None} | dict(metadata or {})
        path = urlsplit(self.resource).path.rstrip("/")
        self.paths: frozenset[str] = frozenset({f"{WELL_KNOWN}{path}", WELL_KNOWN})
        """Where it is served."""
        encode(self._fields)  # what is no JSON is found out now

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> ResourceDocument:
        """From a mapping with `resource`, `authorization_servers`, and perhaps `metadata_url` and the rest. Raises `ConfigError`."""
        try:
            return cls(**said)
        except TypeError as error:
            raise ConfigError(f"resource_metadata: {str(error).rpartition('__init__() ')[2]}") from None

    async def authorization_servers(self, request: AuthRequest) -> tuple[str, ...]:
        """The servers that give tokens for this request. Raises `ConfigError` for what the function gave that is no list of issuers."""
        if not callable(self._servers):
            return tuple(self._servers)
        return _issuers(await awaited(self._servers(request)), insecure=self._insecure)

    async def url(self, request: AuthRequest) -> str:
        """Where the document is to be read, as a challenge names it."""
        if not callable(self._url):
            return self._url
        return checked_resource_url(await awaited(self._url(request)), "resource_metadata_url")

    async def document(self, request: AuthRequest) -> dict[str, Any]:
        """All of it."""
        servers = await self.authorization_servers(request)
        return {"resource": self.resource, "authorization_servers": list(servers), **self._fields}

    async def read(self, request: AuthRequest) -> HttpRefusal:
        """The answer to a request for it."""
        if request.method not in METHODS:
            allowed = (("allow", ", ".join(METHODS)), ("content-type", "text/plain"))
            return HttpRefusal(405, (*allowed, *_HEADERS), b"Method Not Allowed")
        if request.method == "OPTIONS":
            return HttpRefusal(204, _HEADERS)
        try:
            body = encode(await self.document(request))
        except Exception:  # noqa: BLE001 - the author's function, or what it gave
            tracebacks.log_error(log, "the metadata of %s cannot be told", self.resource)
            return HttpRefusal(500, (("content-type", "application/json"), *_HEADERS), b'{"error":"server_error"}')
        return HttpRefusal(200, (("content-type", "application/json"), *_HEADERS), body)


def checked_words(what: str, given: object) -> tuple[str, ...]:
    """A list of words. Raises `ConfigError`."""
    if not is_collection(given):
        raise ConfigError(f"{what} must be a list of texts, not {given!r}")
    if not all(isinstance(each, str) and each and " " not in each and each.isprintable() for each in given):
        raise ConfigError(f"{what} must be a list of texts without spaces, not {given!r}")
    return tuple(dict.fromkeys(given))


def _issuers(given: object, *, insecure: bool) -> tuple[str, ...]:
    if not is_collection(given):
        raise ConfigError(f"authorization_servers must be a list of URLs, not {given!r}")
    if not given:
        raise ConfigError("authorization_servers is empty: somebody has to give the tokens")
    return tuple(checked_issuer_url(each, insecure=insecure) for each in given)


def _default_url(resource: str) -> str:
    parts = urlsplit(resource)
    return urlunsplit((parts.scheme, parts.netloc, f"{WELL_KNOWN}{parts.path.rstrip('/')}", parts.query, ""))
