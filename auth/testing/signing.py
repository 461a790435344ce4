"""The authorization server's keys and tokens: signed as they should be, or in one of the ways that nobody must accept."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from typing import TYPE_CHECKING, Any, Literal

from greenroom.auth.jose import make_key, shown_key, sign

from .faults import changed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.auth.jose import Key

    from .faults import Faults

    Family = Literal["RSA", "EC", "OKP"]

ALGORITHMS: dict[str, str] = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}


class Keys:
    """A key to sign with, and those from before that are still shown."""

    def __init__(self, family: Family) -> None:
        """One new key."""
        self._family: Family = family
        self.all = [self._new()]

    @property
    def current(self) -> Key:
        """What is signed with now."""
        return self.all[-1]

    @property
    def algorithm(self) -> str:
        """How."""
        return ALGORITHMS[self._family]

    def rotate(self, *, keep: bool = True) -> Key:
        """Sign with a new one; without `keep`, nobody is shown the old ones any more."""
        self.all = [*(self.all if keep else ()), self._new()]
        return self.current

    def document(self) -> dict[str, Any]:
        """What everybody may have of them."""
        return {"keys": [shown_key(key) for key in self.all]}

    def sign(self, claims: Mapping[str, Any], faults: Faults, header: Mapping[str, Any] | None = None) -> str:
        """A token."""
        kind = faults.signature
        extra = {**(header or {}), **faults.header}
        if kind == "none":
            return f"{_part(changed({'alg': 'none', 'typ': 'JWT'}, extra))}.{_part(claims)}."
        if kind == "confused":
            public = self.current.inner.as_pem(private=False)
            begun = f"{_part(changed({'alg': 'HS256', 'kid': self.current.kid}, extra))}.{_part(claims)}"
            return f"{begun}.{_text(hmac.new(public, begun.encode(), hashlib.sha256).digest())}"
        key = self._new(self.current.kid) if kind == "foreign" else self.current
        token = sign(claims, key, self.algorithm, extra)
        if kind == "broken":
            begun, _, signature = token.rpartition(".")
            token = f"{begun}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}"
        return token

    def _new(self, kid: str | None = None) -> Key:
        return make_key(self._family, kid=kid or secrets.token_hex(4))


def _part(value: Mapping[str, Any]) -> str:
    return _text(json.dumps(value).encode())


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
