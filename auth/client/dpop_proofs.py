"""DPoP at a client (RFC 9449, SEP-1932): the keys of grants, the proofs that are signed with them, and the nonces of servers.

Each new grant gets a key of its own, which is stored with its tokens and sent nowhere: requests carry proofs, each for one method and URL, and each
made anew. A proof contains the newest nonce of the server that it is for, if that has named one.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from greenroom.auth.credential_headers import base64url
from greenroom.auth.errors import SignInError
from greenroom.auth.jose import (
    InvalidKeyError,
    make_key,
    private_pem,
    public_jwk,
    public_key,
    public_members,
    sign,
    thumbprint,
)

from .metadata_discovery import DPOP_ALGORITHM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.auth.jose import JsonWebKey

    from .metadata_discovery import AuthorizationServerMetadata

DpopUse: TypeAlias = Literal["auto", "require", "never"]
"""Whether tokens are bound to a key: where the server accepts such tokens and the authorization server can issue them; always; or never."""

_MOST_ORIGINS: Final = 16
_NONCE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,1024}\Z")
"""A nonce (RFC 9449, 8.1), and the longest that is sent back."""


class ProofKey:
    """The key of one grant. Its repr shows nothing of it."""

    def __init__(self, key: JsonWebKey | None = None) -> None:
        """Generates a key if none is given."""
        self._key = make_key("EC") if key is None else key
        members = public_members(public_jwk(self._key))
        assert members is not None
        self._header = {"typ": "dpop+jwt", "jwk": members}
        self.thumbprint = thumbprint(members)
        """The thumbprint that tokens name as `cnf.jkt`."""

    def __repr__(self) -> str:
        return "ProofKey()"

    @classmethod
    def read(cls, stored: object) -> ProofKey | None:
        """The key in a store entry; None for anything else."""
        if not isinstance(stored, str):
            return None
        try:
            key = public_key(stored)
            if key.family != "EC":
                return None
            made = cls(key)
            made.proof("GET", "https://self.invalid/")  # raises for a public key, and for one of another curve
        except InvalidKeyError:
            return None
        return made

    @property
    def pem(self) -> str:
        """The private key, for the store entry of its tokens."""
        return private_pem(self._key)

    def proof(self, method: str, url: str, *, nonce: str | None = None, token: str | None = None) -> str:
        """A new proof for one request; `token` is the access token that goes with it."""
        parts = urlsplit(url)
        claims: dict[str, str | int] = {
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path or "/", "", "")),
            "iat": int(time.time()),
        }
        if token is not None:
            claims["ath"] = base64url(hashlib.sha256(token.encode()).digest())
        if nonce is not None:
            claims["nonce"] = nonce
        return sign(claims, self._key, DPOP_ALGORITHM, self._header)


class ServerNonces:
    """The newest nonce of each origin, of a few origins."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], str] = {}

    def note(self, url: str, nonce: str | None) -> None:
        """A response from that URL named this nonce, or none."""
        if nonce is None or not _NONCE.match(nonce):
            return
        origin = urlsplit(url)[:2]
        self._newest.pop(origin, None)
        self._newest[origin] = nonce
        if len(self._newest) > _MOST_ORIGINS:
            del self._newest[next(iter(self._newest))]

    def newest(self, url: str) -> str | None:
        """The nonce for a request to that URL."""
        return self._newest.get(urlsplit(url)[:2])


class TokenProver(NamedTuple):
    """Signs the token requests of one grant, so that its tokens are bound to the key."""

    key: ProofKey
    nonces: ServerNonces
    required: bool
    """Whether a token that is bound to no key is refused."""


class GrantBinding(NamedTuple):
    """Whether the tokens of a new grant are to be bound."""

    use: DpopUse
    nonces: ServerNonces

    def prover(self, server: AuthorizationServerMetadata, *, registered: bool = False) -> TokenProver | None:
        """A prover with a new key; None for bearer tokens. `registered`: the client may have bound tokens only. Raises `SignInError` where the server issues none."""
        algorithms = server.proof_algorithms
        must = registered or self.use == "require"
        if self.use == "never" and not registered:
            return None
        if algorithms is not None and DPOP_ALGORITHM in algorithms:
            return TokenProver(ProofKey(), self.nonces, must)
        if not must:
            return None
        if algorithms is not None:
            raise SignInError(
                "token",
                f"tokens have to be bound to a key (DPoP), and {server.issuer} issues none for keys of {DPOP_ALGORITHM}: its operator has to enable that",
            )
        return TokenProver(ProofKey(), self.nonces, must)  # it does not say what it supports


UNBOUND: Final = GrantBinding("never", ServerNonces())
"""Bearer tokens, as a rule."""
_ORDER: Final[tuple[DpopUse, ...]] = ("never", "auto", "require")


def strongest(uses: Sequence[DpopUse]) -> DpopUse:
    """The use that satisfies all of them."""
    return max(uses, key=_ORDER.index)
