"""Signed tokens: the one file that knows the library for them. The caller says which algorithms may be used, never the token.

A key is of one family, and a token's algorithm must be one that was asked for and that belongs to that family: so a public key is never
taken for a secret. `none` is not among them, and nothing is fetched from where a token says.
"""

from __future__ import annotations

import base64
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
from .credential_headers import LONGEST_CREDENTIAL
from .errors import Denied

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

Algorithm: TypeAlias = Literal[
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA"
]

FAMILIES: Final[dict[str, str]] = {"HS": "oct", "RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
ALGORITHMS: Final[frozenset[str]] = frozenset(get_args(Algorithm))
SHORTEST_SECRET: Final = 32
"""A secret of HMAC has at least so many bytes: shorter ones are found by trying."""
MOST_KEYS: Final = 100
RSA_BITS: Final = 2048
_PARTS: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*\Z")
_KID: Final = 512


class InvalidKeyError(ConfigError):
    """This is no key, or not one for that."""


@dataclass(frozen=True, slots=True)
class TokenHeader:
    """What a token says of how it was signed, before it is checked."""

    algorithm: str
    kid: str | None


@dataclass(frozen=True, slots=True, eq=False)  # by their fields, two keys of one name would be the same one
class JsonWebKey:
    """A key, and what it may be used for. Its repr has nothing of it but its name."""

    family: str
    kid: str | None
    algorithm: str | None
    inner: Any = field(repr=False)

    def can_sign(self, heading: TokenHeader) -> bool:
        """Whether a token that says this of itself could be signed with it."""
        if FAMILIES.get(heading.algorithm[:2]) != self.family:
            return False
        return self.algorithm is None or self.algorithm == heading.algorithm


def unverified_header(token: str) -> TokenHeader:
    """Read the first part of a token. Raises `Denied`."""
    if len(token) > LONGEST_CREDENTIAL:
        raise Denied("invalid_token", "the token is too long")
    if not _PARTS.match(token):
        raise Denied("invalid_token", detail="not three parts of base64url")
    header = decode_part(token, 0)
    if header is None:
        raise Denied("invalid_token", detail="a part that is no JSON object")
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise Denied("invalid_token", detail="no alg")
    if kid is not None and (not isinstance(kid, str) or len(kid) > _KID):
        raise Denied("invalid_token", detail="a kid that is none")
    if "crit" in header:
        raise Denied("invalid_token", detail="it wants to be understood in a way that is not")
    return TokenHeader(algorithm, kid)


def verified_claims(token: str, keys: Iterable[JsonWebKey], algorithms: Sequence[str]) -> dict[str, Any]:
    """The claims of a token that one of these keys has signed with one of these algorithms. Raises `Denied`."""
    heading = unverified_header(token)
    if heading.algorithm not in algorithms or heading.algorithm not in ALGORITHMS:
        raise Denied("invalid_token", detail=f"signed with {heading.algorithm!r:.40}, which is not accepted")
    for key in keys:
        if not key.can_sign(heading):
            continue
        try:
            with _without_alias_warning(heading.algorithm):
                signed = jws.deserialize_compact(token, key.inner, algorithms=[heading.algorithm])
        except Exception:  # noqa: BLE001, S112 - whatever a library has against a stranger's token, this key has not signed it
            continue
        claims = parse_object(bytes(signed.payload))
        if claims is None:
            raise Denied("invalid_token", detail="claims that are no JSON object")
        return claims
    raise Denied("invalid_token", detail="no key has signed it")


def sign(claims: Mapping[str, Any], key: JsonWebKey, algorithm: str, header: Mapping[str, Any] | None = None) -> str:
    """A token with these claims. Raises `InvalidKeyError` when the key is not for that."""
    if not key.can_sign(TokenHeader(algorithm, None)):
        raise InvalidKeyError(f"this key is not one for {algorithm}")
    named = {"alg": algorithm} | ({"kid": key.kid} if key.kid is not None else {}) | dict(header or {})
    try:
        with _without_alias_warning(algorithm):
            return jwt.encode(named, dict(claims), key.inner, algorithms=[algorithm])
    except (JoseError, ValueError) as error:
        raise InvalidKeyError(f"nothing can be signed with this key: {error}") from None


def secret_key(secret: str | bytes, *, kid: str | None = None, shortest: int = SHORTEST_SECRET) -> JsonWebKey:
    """A key of HMAC. Raises `InvalidKeyError` for a short one."""
    raw = secret.encode() if isinstance(secret, str) else bytes(secret)
    if len(raw) < shortest:
        raise InvalidKeyError(
            f"the secret has {len(raw)} bytes, and needs {shortest} or more: secrets.token_urlsafe(32) makes one"
        )
    try:
        return JsonWebKey("oct", kid, None, jwk.import_key(raw, "oct"))
    except (JoseError, ValueError) as error:
        raise InvalidKeyError(f"this is no secret: {error}") from None


def public_key(pem: str | bytes, *, kid: str | None = None) -> JsonWebKey:
    """A key of PEM: public to check with, private to sign with as well. Raises `InvalidKeyError`."""
    raw = pem.encode() if isinstance(pem, str) else bytes(pem)
    for family in ("RSA", "EC", "OKP"):
        try:
            inner = cast("Any", jwk.import_key(raw, cast("Any", family)))
        except (JoseError, ValueError, TypeError, Warning):  # some make errors of warnings
            continue
        if family == "RSA" and _bits(inner) < RSA_BITS:
            raise InvalidKeyError(f"this RSA key has {_bits(inner)} bits, and needs {RSA_BITS} or more")
        return JsonWebKey(family, kid, None, inner)
    raise InvalidKeyError("this is no key of RSA, EC or Ed25519 in PEM")


def make_key(family: Literal["RSA", "EC", "OKP"] = "EC", *, kid: str | None = None) -> JsonWebKey:
    """A new key with its private part: for tests, and for servers that sign."""
    size: Any = {"RSA": 2048, "EC": "P-256", "OKP": "Ed25519"}[family]
    return JsonWebKey(family, kid, None, jwk.generate_key(cast("Any", family), size))


def public_jwk(key: JsonWebKey) -> dict[str, Any]:
    """What others may have of it, as a JWK. Raises `InvalidKeyError` for a secret."""
    if key.family == "oct":
        raise InvalidKeyError("a secret has nothing that others may have")
    return dict(key.inner.as_dict(private=False)) | ({"kid": key.kid} if key.kid else {}) | {"use": "sig"}


def parse_jwk_set(document: object) -> list[JsonWebKey]:
    """The keys of a JWK set that can be used to check signatures. Those of unknown kinds are left out. Raises `InvalidKeyError`."""
    entries = document.get("keys") if is_object(document) else None
    if not isinstance(entries, list):
        raise InvalidKeyError("this is no set of keys")
    found = map(_parse_jwk, cast("list[object]", entries)[:MOST_KEYS])
    return [key for key in found if key is not None]


def _parse_jwk(entry: object) -> JsonWebKey | None:
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
    except Exception:  # noqa: BLE001 - a key that a library cannot take, for whatever reason, is none
        return None
    return JsonWebKey(
        str(entry["kty"]),
        kid if isinstance(kid, str) else None,
        algorithm if isinstance(algorithm, str) else None,
        inner,
    )


def _bits(key: Any) -> int:
    size: int = key.public_key.key_size
    return size


def _without_alias_warning(algorithm: str) -> AbstractContextManager[object]:
    """Suppress the library's warning that `EdDSA` has another name since RFC 9864; issuers go on to say it."""
    if algorithm != "EdDSA":
        return nullcontext()
    return catch_warnings(action="ignore", category=SecurityWarning)


def decode_part(token: str, place: int) -> dict[str, Any] | None:
    """The object in one of the parts of a token, unchecked; None where there is none."""
    part = [*token.split("."), "", ""][place]
    try:
        return parse_object(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except ValueError:
        return None
