"""Bearer tokens: signed ones, which are checked here, and opaque ones, which somebody else is asked about.

::

    BearerAuth(secret=…, issuer="https://id.example", audience="https://mcp.example/mcp")     # HS256
    BearerAuth(keys=KeySet("https://id.example/jwks"), algorithms=("RS256",), audience=…)
    BearerAuth(key=pem, algorithms=("ES256",), audience=…)
    BearerAuth(verifier=look_it_up, audience=…)
    BearerAuth(introspection=Introspection(…), audience=…)

Who must be told for whom a token is meant: a token for somebody else is as good as stolen, so `audience` is required. `audience=None` says in so
many words that it is not looked at.
"""

from __future__ import annotations

import hashlib
import inspect
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.errors import ConfigError

from .answers import CODES, refusal, told
from .claims import check_claims, check_times
from .errors import Denied
from .grants import from_claims, texts
from .headers import challenge, extract_bearer_token
from .jose import ALGORITHMS, check, heading_of, public_key, secret_key
from .resource_document import ResourceDocument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from greenroom.supervision import ChildSpec
    from greenroom.transports.seam import Refusal

    from .info import AuthInfo
    from .introspection import Introspection
    from .jose import Key
    from .keyset import KeySet
    from .seam import Asking

    Claims = Mapping[str, Any]
    Verifier = Callable[[str], "Claims | Awaitable[Claims | None] | None"]

_UNSAID: Final[Any] = object()


SEEN: Final = 1000
"""How many tokens are known again, by a digest of their header: signatures are dear, and a client shows the same token for an hour."""


class _Seen(NamedTuple):
    """What came of a token."""

    claims: Claims
    info: AuthInfo
    version: object
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
        audience: str | Sequence[str] | None = _UNSAID,
        clock_skew: float = 60.0,
        scope_claim: str = "scope",
        realm: str = "mcp",
        resource_metadata: str | Mapping[str, Any] | ResourceDocument | None = None,
    ) -> None:
        """One of `secret`, `key` (PEM), `keys`, `verifier` and `introspection` says who can vouch for a token.

        `resource_metadata` is the URL where a client can read whom to ask for one; or what it reads there, to have it served here: a mapping with
        `resource`, `authorization_servers` and perhaps `metadata_url`.
        """
        ways = {"secret": secret, "key": key, "keys": keys, "verifier": verifier, "introspection": introspection}
        chosen = [name for name, way in ways.items() if way is not None]
        if len(chosen) != 1:
            raise ConfigError(f"BearerAuth wants one of {', '.join(ways)}, and was given {', '.join(chosen) or 'none'}")
        if audience is _UNSAID:
            raise ConfigError("BearerAuth wants an audience: for whom a token must be meant; None looks at none")
        self._way = chosen[0]
        self._algorithms = _algorithms(self._way, algorithms)
        self._key = _fixed(secret, key, self._algorithms)
        self._keys = keys
        self._verifier = verifier
        self._introspection = introspection
        self._issuers = () if issuer is None else _texts("issuer", issuer)
        self._audience = None if audience is None else _texts("audience", audience)
        if clock_skew < 0:
            raise ConfigError("clock_skew is 0 seconds or more")
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()
        self._skew = clock_skew
        self._scope_claim = scope_claim
        self._realm = realm
        if isinstance(resource_metadata, Mapping):
            resource_metadata = ResourceDocument.of(resource_metadata)
        self.notice = resource_metadata if isinstance(resource_metadata, ResourceDocument) else None
        """What anybody may read, and where."""
        self._metadata = None if isinstance(resource_metadata, ResourceDocument) else resource_metadata

    def __repr__(self) -> str:
        return f"BearerAuth({self._way}, issuer={self._issuers!r}, audience={self._audience!r})"

    def children(self) -> Sequence[ChildSpec[Any]]:
        """Whoever keeps the keys, or the answers about opaque tokens."""
        needed = (self._keys, self._introspection)
        return [each.child_spec() for each in needed if each is not None]

    async def authenticate(self, asking: Asking) -> AuthInfo:
        """Whose token it is."""
        place = _digest(asking.headers.get("authorization", ""))
        seen = self._seen.get(place)
        if seen is not None and self._still(seen):
            check_times(seen.claims, now=time.time(), skew=self._skew)
            return seen.info
        token = extract_bearer_token(asking.headers)
        claims = await self._claims(token)
        check_claims(claims, now=time.time(), skew=self._skew, issuers=self._issuers, audience=self._audience)
        info = from_claims(claims, self._scope_claim)
        if self._verifier is None:  # who asks a function wants it to be asked each time
            version = None if self._keys is None else self._keys.version
            self._seen[place] = _Seen(claims, info, version, hashlib.sha256(token.encode()).digest())
            while len(self._seen) > SEEN:
                self._seen.popitem(last=False)
        return info

    def _still(self, seen: _Seen) -> bool:
        """Whether nobody need look at the signature again: it is the same token, and the keys are the same. Its claims are looked at each time."""
        if self._introspection is not None:
            known = self._introspection.known(seen.digest)
            return known is not None and known.claims is seen.claims
        return self._keys is None or seen.version is self._keys.version

    async def _claims(self, token: str) -> Claims:
        if self._introspection is not None:
            return await self._introspection.claims(token)
        if self._verifier is not None:
            found = self._verifier(token)
            if inspect.isawaitable(found):
                found = await found
            if found is None:
                raise Denied("invalid_token")
            return found
        if self._keys is not None:
            heading = heading_of(token)
            if heading.algorithm not in self._algorithms:  # before anybody is asked for keys
                raise Denied("invalid_token", detail="an algorithm that is not accepted")
            return check(token, await self._keys.find(heading), self._algorithms)
        assert self._key is not None
        return check(token, (self._key,), self._algorithms)

    async def challenge(self, denied: Denied, asking: Asking) -> Refusal:
        """As RFC 6750 wants it: without an error for those who have shown nothing."""
        shown = denied.kind != "missing"
        scopes = " ".join(denied.scopes) or None
        asked = challenge(
            "Bearer",
            realm=self._realm,
            error=CODES.get(denied.kind, denied.kind) if shown else None,
            error_description=told(denied) if shown else None,
            scope=scopes,
            resource_metadata=self._metadata if self.notice is None else await self.notice.url(asking),
        )
        return refusal(denied, asked)


def _digest(header: str) -> bytes:
    return hashlib.sha256(header.encode(errors="surrogatepass")).digest()


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
    wrong = [each for each in given if each not in ALGORITHMS or each.startswith("HS") != (way == "secret")]
    if wrong or isinstance(given, str):
        raise ConfigError(f"{wrong or given!r}: with {way} these can be accepted: {_accepted(way)}")
    return tuple(given)


def _accepted(way: str) -> str:
    return ", ".join(sorted(each for each in ALGORITHMS if each.startswith("HS") == (way == "secret")))


def _fixed(secret: str | bytes | None, key: str | bytes | None, algorithms: Sequence[str]) -> Key | None:
    if secret is not None:
        return secret_key(secret)
    if key is None:
        return None
    found = public_key(key)
    if not any(each.startswith(_prefixes(found)) for each in algorithms):
        raise ConfigError(f"a key of {found.family} cannot have signed with {', '.join(algorithms)}")
    return found


def _prefixes(key: Key) -> tuple[str, ...]:
    return {"RSA": ("RS", "PS"), "EC": ("ES",), "OKP": ("Ed",)}[key.family]
