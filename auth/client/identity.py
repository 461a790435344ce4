"""As whom a program shows itself at a token endpoint: with nothing, a secret, or a signed assertion. Its repr has no secret in it."""

from __future__ import annotations

import base64
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_plus

from greenroom.auth.errors import SignInError
from greenroom.auth.jose import public_key, sign
from greenroom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.auth.jose import Key

METHODS: Final = ("client_secret_basic", "client_secret_post", "private_key_jwt", "none")
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_LIVES: Final = 300


@dataclass(frozen=True, slots=True)
class Identity:
    """One client, known to one authorization server."""

    client_id: str
    secret: str | None = field(default=None, repr=False)
    key: Key | None = None
    algorithm: str = "ES256"
    assertion: str | None = field(default=None, repr=False)
    """One that was signed elsewhere."""
    method: str | None = None
    """How it is to show itself; None: as the server likes it best of what can be done."""

    def __post_init__(self) -> None:
        """Raises `ConfigError`."""
        if not self.client_id:
            raise ConfigError("a client has a client_id")
        if self.method is not None and self.method not in METHODS:
            raise ConfigError(f"method is one of {', '.join(METHODS)}, not {self.method!r}")
        if sum(each is not None for each in (self.secret, self.key, self.assertion)) > 1:
            raise ConfigError("a client has a secret, a key or an assertion, and one of them only")

    def method_at(self, offered: Sequence[str]) -> str:
        """How to show itself at a server that offers these; nothing offered means what RFC 8414 says it does."""
        if self.method is not None:
            return self.method
        if self.key is not None or self.assertion is not None:
            return "private_key_jwt"
        if self.secret is None:
            return "none"
        if offered and "client_secret_basic" not in offered and "client_secret_post" in offered:
            return "client_secret_post"
        return "client_secret_basic"

    def show(
        self, form: dict[str, str], headers: dict[str, str], *, offered: Sequence[str] = (), audience: str, step: str
    ) -> None:
        """Put it into a request. `audience` is whom an assertion is for. Raises `SignInError`."""
        method = self.method_at(offered)
        form["client_id"] = self.client_id  # also beside a login, since some servers look for it there first
        if method == "client_secret_basic":
            login = f"{quote_plus(self.client_id)}:{quote_plus(self._needed(step))}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(login).decode('ascii')}"
        elif method == "client_secret_post":
            form["client_secret"] = self._needed(step)
        elif method == "private_key_jwt":
            form["client_assertion_type"] = _ASSERTION
            form["client_assertion"] = self.assertion or self._signed(audience, step)

    def _needed(self, step: str) -> str:
        if self.secret is None:
            raise SignInError(
                step, f"the client {self.client_id} has to show a secret, and has none: give client_secret"
            )
        return self.secret

    def _signed(self, audience: str, step: str) -> str:
        if self.key is None:
            raise SignInError(step, f"the client {self.client_id} has to sign an assertion, and has no key: give key")
        now = int(time.time())
        claims = {
            "iss": self.client_id,
            "sub": self.client_id,
            "aud": audience,
            "jti": secrets.token_urlsafe(16),
            "iat": now,
            "exp": now + _LIVES,
        }
        try:
            return sign(claims, self.key, self.algorithm, {"typ": "JWT"})
        except ConfigError as error:
            raise SignInError(step, str(error)) from None


def signing_key(pem: str | bytes, *, kid: str | None = None) -> Key:
    """A private key to sign with: of RSA, EC or Ed25519, in PEM. `kid` is its name where the authorization server knows several. Raises `ConfigError`."""
    return public_key(pem, kid=kid)
