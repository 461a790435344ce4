"""JOSE: signs and verifies JWTs, and reads JWK sets. The only file that imports joserfc.

The caller says which algorithms are accepted, never the token. A key belongs to one family, and the algorithm must be an accepted one of that family: so a
public key is never taken for an HMAC secret. `none` is not supported, and no key is fetched from a URL in a token.
"""

from __future__ import annotations

import base64
import hashlib
import re
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args
from warnings import catch_warnings

from joserfc import jwk, jws, jwt
from joserfc.errors import JoseError, SecurityWarning

from greenroom.errors import ConfigError
from greenroom.protocol.jsonrpc import is_object

from .auth_info import parse_object
from .credential_headers import LONGEST_CREDENTIAL, base64url
from .errors import Denied

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

Algorithm: TypeAlias = Literal[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA"
]

FAMILIES: Final[dict[str, str]] = {"HS": "oct", "RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
ALGORITHMS: Final[frozenset[str]] = frozenset(get_args(Algorithm))
ASYMMETRIC: Final = tuple(sorted(each for each in ALGORITHMS if not each.startswith("HS")))
"""All algorithms that are verified with a public key."""
SHORTEST_SECRET: Final = 32
"""The shortest HMAC secret in bytes: a shorter one can be found by trying."""
MOST_KEYS: Final = 100
RSA_BITS: Final = 2048
_PARTS: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\Z")
_KID: Final = 512
_LONGEST_KEY_HEADER: Final = 4096
"""The longest header, in characters, of a token that carries its key: joserfc's own limit of 512 is too short for an RSA key."""
_PUBLIC_MEMBERS: Final = {"EC": ("crv", "kty", "x", "y"), "OKP": ("crv", "kty", "x"), "RSA": ("e", "kty", "n")}
"""The members of a public key by its family, in the order of RFC 7638."""
_PRIVATE_MEMBERS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
_MEMBER: Final = re.compile(r"[A-Za-z0-9_-]{1,683}\Z")
"""A member of a public key; the longest is the modulus of an RSA key of 4096 bits."""
_LONGEST_EXPONENT: Final = 6
"""Characters of an RSA exponent, for 32 bits: verifying costs time in proportion to it."""


class InvalidKeyError(ConfigError):
    """The key is invalid, or cannot be used for that algorithm."""


@dataclass(frozen=True, slots=True)
class TokenHeader:
    """The header of a token, before the signature is verified."""

    algorithm: str
    kid: str | None


@dataclass(
    frozen=True, slots=True, eq=False
)  # compared by identity: by their fields, two keys of one name would be equal
class JsonWebKey:
    """A key and its allowed use. Its repr shows only the name."""

    family: str
    kid: str | None
    algorithm: str | None
    inner: Any = field(repr=False)

    def can_sign(self, heading: TokenHeader) -> bool:
        """Whether a token with this header can have been signed with this key."""
        if FAMILIES.get(heading.algorithm[:2]) != self.family:
            return False
        return self.algorithm is None or self.algorithm == heading.algorithm


def unverified_header(token: str) -> TokenHeader:
    """The header of a token, unverified. Raises `Denied`."""
    if len(token) > LONGEST_CREDENTIAL:
        raise Denied("invalid_token", "the token is too long")
    if not _PARTS.match(token):
        raise Denied("invalid_token", detail="the token is not three parts of base64url")
    header = decode_part(token, 0)
    if header is None:
        raise Denied("invalid_token", detail="the header is not a JSON object")
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise Denied("invalid_token", detail="no alg")
    if kid is not None and (not isinstance(kid, str) or len(kid) > _KID):
        raise Denied("invalid_token", detail="kid is not a string, or too long")
    if "crit" in header:
        raise Denied("invalid_token", detail="the header has crit, which is not supported")
    return TokenHeader(algorithm, kid)


def verified_claims(
    token: str, keys: Iterable[JsonWebKey], algorithms: Sequence[str], *, carries_key: bool = False
) -> dict[str, Any]:
    """The claims of a token that one of `keys` has signed with one of `algorithms`. Raises `Denied`.

    `carries_key` is for tokens with a key in their header, which is longer then, and may have members that are unknown here.

    """
    heading = unverified_header(token)
    if heading.algorithm not in algorithms or heading.algorithm not in ALGORITHMS:
        raise Denied(
            "invalid_token", detail=f"the token is signed with {heading.algorithm!r:.40}, which is not accepted"
        )
    registry = jws.JWSRegistry(algorithms=[heading.algorithm], strict_check_header=not carries_key)
    if carries_key:
        registry.max_header_length = _LONGEST_KEY_HEADER
    for key in keys:
        if not key.can_sign(heading):
            continue
        try:
            with _without_alias_warning(heading.algorithm):
                signed = jws.deserialize_compact(token, key.inner, registry=registry)
        except Exception:  # noqa: BLE001, S112 - the library may raise anything for a hostile token; this key has not signed it
            continue
        claims = parse_object(bytes(signed.payload))
        if claims is None:
            raise Denied("invalid_token", detail="the claims are not a JSON object")
        return claims
    raise Denied("invalid_token", detail="no known key has signed the token")


def sign(claims: Mapping[str, Any], key: JsonWebKey, algorithm: str, header: Mapping[str, Any] | None = None) -> str:
    """A signed token with these claims. Raises `InvalidKeyError` if the key cannot sign with this algorithm."""
    if not key.can_sign(TokenHeader(algorithm, None)):
        raise InvalidKeyError(f"this key cannot be used for {algorithm}")
    named = {"alg": algorithm} | ({"kid": key.kid} if key.kid is not None else {}) | dict(header or {})
    try:
        with _without_alias_warning(algorithm):
            return jwt.encode(named, dict(claims), key.inner, algorithms=[algorithm])
    except (JoseError, ValueError) as error:
        raise InvalidKeyError(f"this key cannot sign: {error}") from None


def secret_key(secret: str | bytes, *, kid: str | None = None, shortest: int = SHORTEST_SECRET) -> JsonWebKey:
    """An HMAC key. Raises `InvalidKeyError` for a short secret."""
    raw = secret.encode() if isinstance(secret, str) else bytes(secret)
    if len(raw) < shortest:
        raise InvalidKeyError(
            f"the secret has {len(raw)} bytes, and needs {shortest} or more: secrets.token_urlsafe(32) makes one"
        )
    try:
        return JsonWebKey("oct", kid, None, jwk.import_key(raw, "oct"))
    except (JoseError, ValueError) as error:
        raise InvalidKeyError(f"the secret cannot be used: {error}") from None


def public_key(pem: str | bytes, *, kid: str | None = None) -> JsonWebKey:
    """A key in PEM: a public one verifies, a private one signs as well. Raises `InvalidKeyError`."""
    raw = pem.encode() if isinstance(pem, str) else bytes(pem)
    for family in ("RSA", "EC", "OKP"):
        try:
            inner = cast("Any", jwk.import_key(raw, cast("Any", family)))
        except (JoseError, ValueError, TypeError, Warning):  # some settings turn warnings into errors
            continue
        if family == "RSA" and _bits(inner) < RSA_BITS:
            raise InvalidKeyError(f"this RSA key has {_bits(inner)} bits, and needs {RSA_BITS} or more")
        return JsonWebKey(family, kid, None, inner)
    raise InvalidKeyError("this is not an RSA, EC or Ed25519 key in PEM")


def make_key(family: Literal["RSA", "EC", "OKP"] = "EC", *, kid: str | None = None) -> JsonWebKey:
    """Generate a private key, for tests and for servers that sign."""
    size: Any = {"RSA": 2048, "EC": "P-256", "OKP": "Ed25519"}[family]
    return JsonWebKey(family, kid, None, jwk.generate_key(cast("Any", family), size))


def private_pem(key: JsonWebKey) -> str:
    """A private key in PEM, as `public_key` reads it: for a store, and nowhere else. Raises `InvalidKeyError` for a key without a private part."""
    if key.family == "oct" or not key.inner.is_private:
        raise InvalidKeyError("this is not a private key")
    pem: bytes = key.inner.as_pem(private=True)
    return pem.decode("ascii")


def public_jwk(key: JsonWebKey) -> dict[str, Any]:
    """The public part as a JWK. Raises `InvalidKeyError` for an HMAC secret."""
    if key.family == "oct":
        raise InvalidKeyError("an HMAC secret has no public part")
    return dict(key.inner.as_dict(private=False)) | ({"kid": key.kid} if key.kid else {}) | {"use": "sig"}


def parse_jwk_set(document: object) -> list[JsonWebKey]:
    """The keys of a JWK set that can verify signatures. Unsupported keys are left out. Raises `InvalidKeyError`."""
    entries = document.get("keys") if is_object(document) else None
    if not isinstance(entries, list):
        raise InvalidKeyError("this is not a JWK set")
    found = map(parse_jwk, cast("list[object]", entries)[:MOST_KEYS])
    return [key for key in found if key is not None]


def parse_jwk(entry: object) -> JsonWebKey | None:
    """The key in a JWK if it can verify signatures."""
    if not is_object(entry) or entry.get("use", "sig") != "sig" or entry.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    kid, algorithm = entry.get("kid"), entry.get("alg")
    known: dict[str, str | list[str]] = {
        name: value for name, value in entry.items() if isinstance(value, str) and name not in ("use", "alg", "kid")
    }
    try:
        inner: Any = jwk.import_key(known)
        if entry["kty"] == "RSA" and _bits(inner) < RSA_BITS:
            return None
    except Exception:  # noqa: BLE001 - the library may raise anything for a malformed key: it is left out
        return None
    return JsonWebKey(
        str(entry["kty"]),
        kid if isinstance(kid, str) else None,
        algorithm if isinstance(algorithm, str) else None,
        inner,
    )


def public_members(entry: object) -> dict[str, str] | None:
    """The members of a JWK that make up its public key, without all others. None for a private, symmetric, malformed or oversized key."""
    if not is_object(entry) or not _PRIVATE_MEMBERS.isdisjoint(entry):
        return None
    family = entry.get("kty")
    names = _PUBLIC_MEMBERS.get(family) if isinstance(family, str) else None
    if names is None:
        return None
    found = {name: entry.get(name) for name in names}
    if not all(isinstance(value, str) and _MEMBER.match(value) for value in found.values()):
        return None
    if len(str(found.get("e", ""))) > _LONGEST_EXPONENT:
        return None
    return cast("dict[str, str]", found)


def thumbprint(members: Mapping[str, str]) -> str:
    """The thumbprint of a public key (RFC 7638, SHA-256), as tokens name it in `cnf.jkt`. `members` are those of `public_members`."""
    text = ",".join(f'"{name}":"{members[name]}"' for name in sorted(members))  # nothing in them needs an escape
    return base64url(hashlib.sha256(f"{{{text}}}".encode()).digest())


def _bits(key: Any) -> int:
    size: int = key.public_key.key_size
    return size


def _without_alias_warning(algorithm: str) -> AbstractContextManager[object]:
    """Suppress joserfc's warning that RFC 9864 renamed `EdDSA`: issuers go on using the old name."""
    if algorithm != "EdDSA":
        return nullcontext()
    return catch_warnings(action="ignore", category=SecurityWarning)


def decode_part(token: str, place: int) -> dict[str, Any] | None:
    """The JSON object in one part of a token, unverified; None if there is none."""
    part = [*token.split("."), "", ""][place]
    try:
        return parse_object(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except ValueError:
        return None
