"""The client's side of DPoP for tests: a key, the tokens that are bound to it, and its proofs, right ones and wrong ones."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import time
from typing import TYPE_CHECKING, Any, Final

from greenroom.auth.jose import make_key, public_jwk, public_members, sign, thumbprint

from .auth_test_server import AUDIENCE, KEY, claims

if TYPE_CHECKING:
    from greenroom.auth.jose import JsonWebKey

ALGORITHM: Final = {"EC": "ES256", "OKP": "EdDSA", "RSA": "RS256"}
_ids = itertools.count()


def base64url(data: bytes) -> str:
    """Text as JOSE writes bytes."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Prover:
    """A client with one key."""

    def __init__(self, key: JsonWebKey, algorithm: str = "") -> None:
        self.key = key
        self.algorithm = algorithm or ALGORITHM[key.family]
        members = public_members(public_jwk(key))
        assert members is not None
        self.members = members
        self.jkt = thumbprint(members)

    def token(self, subject: str = "ann", **more: Any) -> str:
        """A token that is bound to this key; `cnf` replaces the binding."""
        return sign(claims(subject, **({"cnf": {"jkt": self.jkt}} | more)), KEY, "ES256")

    def claims(self, token: str, **changes: Any) -> dict[str, Any]:
        """The claims of a right proof for a POST, with changes; None removes one."""
        right = {
            "jti": f"proof-{next(_ids)}",
            "htm": "POST",
            "htu": AUDIENCE,
            "iat": int(time.time()),
            "ath": base64url(hashlib.sha256(token.encode()).digest()),
        }
        return {name: value for name, value in (right | changes).items() if value is not None}

    def header(self, **changes: Any) -> dict[str, Any]:
        """The header of a right proof, with changes; None removes a member."""
        right = {"typ": "dpop+jwt", "jwk": self.members} | changes
        return {name: value for name, value in right.items() if value is not None}

    def proof(self, token: str, *, header: dict[str, Any] | None = None, **changes: Any) -> str:
        """A proof for the token, with changed claims, and with a changed header."""
        return sign(self.claims(token, **changes), self.key, self.algorithm, self.header(**(header or {})))

    def forged(self, token: str, signature: bytes = b"x" * 64, *, alg: Any = "ES256", **changes: Any) -> str:
        """A proof with a signature of the caller's."""
        header = json.dumps(self.header(alg=alg)).encode()
        return ".".join(map(base64url, (header, json.dumps(self.claims(token, **changes)).encode(), signature)))

    def shown(self, token: str, proof: str | None = None, scheme: str = "DPoP") -> dict[str, str]:
        """The headers of a request with this token and proof; by default a right one."""
        return {"authorization": f"{scheme} {token}", "dpop": self.proof(token) if proof is None else proof}


ANN: Final = Prover(make_key("EC"))
BOB: Final = Prover(make_key("EC"))
"""Two clients."""
