"""Client registration: the client id and authentication of this program at an authorization server.

The id is configured, or the URL of a client metadata document, or obtained by dynamic registration (RFC 7591). Registrations are stored by issuer, and used
at no other issuer.
"""

from __future__ import annotations

import base64
import logging
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlsplit

from greenroom.auth.auth_info import number, text
from greenroom.auth.errors import SignInError
from greenroom.auth.jose import public_key, sign
from greenroom.errors import ConfigError
from greenroom.protocol.jsonrpc import encode
from greenroom.transports.client.http_address import is_local

from .login_process import LoginSettings
from .metadata_discovery import fetch_in_step
from .token_requests import DEVICE, response_object
from .token_stores import store_failures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.auth.jose import Algorithm, JsonWebKey
    from greenroom.transports.client.fetch import FetchFunction

    from .dpop_proofs import DpopUse
    from .metadata_discovery import AuthorizationServerMetadata
    from .token_stores import TokenStore

log = logging.getLogger(__name__)
_STEP: Final = "registration"


def check_metadata_url(url: str) -> str:
    """Return the URL of a client metadata document. Raises `ConfigError`."""
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.path in ("", "/") or parts.fragment:
        raise ConfigError(
            "client_metadata_url must be an https URL with a path, at which the client's metadata document is served"
        )
    return url


def check_redirect_uri(url: str) -> str:
    """Return the redirect URI of a program's own page or app. Raises `ConfigError`."""
    parts = urlsplit(url)
    is_page = parts.scheme == "https" and bool(parts.hostname)
    is_app = "." in parts.scheme and not parts.netloc  # a scheme that is a reversed domain name (RFC 8252, 7.1)
    is_loopback_page = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1")
    if not (is_page or is_app or is_loopback_page) or parts.fragment or "#" in url:
        raise ConfigError(
            "redirect_uri must be an https URL, a URL of 127.0.0.1, or one of an app (com.example.app:/callback), without a fragment"
        )
    return url


@dataclass(eq=False, repr=False)
class ClientRegistrar:
    """Registers the program at authorization servers, and remembers the registrations."""

    store: TokenStore
    fetch: FetchFunction
    configured: ClientIdentity | None
    """The configured client, which needs no registration."""
    metadata_url: str | None
    """The URL of the program's client metadata document."""
    client_name: str
    account: str
    binds_tokens: bool = False
    """Whether the program registers as one whose tokens are always bound to a key (DPoP)."""
    _unsaved: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, "Mapping[str, Any]"], init=False)
    """Registrations that could not be stored, by store key."""

    async def registered_identity(self, issuer: str, client_id: str) -> ClientIdentity | None:
        """The identity of that client id at the issuer, if it is still known."""
        if self.configured is not None:
            return self.configured if self.configured.client_id == client_id else None
        if client_id == self.metadata_url:
            return ClientIdentity(client_id, method="none")
        for device in (False, True):
            entry = await self._registration(issuer, device=device)
            found = None if entry is None else _identity_from(entry)
            if found is not None and found.client_id == client_id:
                return found
        return None

    async def registered_redirect(self, issuer: str) -> str | None:
        """The redirect URI that was registered at the issuer."""
        if self.configured is not None or self.metadata_url is not None:
            return None
        return text((await self._registration(issuer) or {}).get("redirect_uri"))

    async def identity(
        self, server: AuthorizationServerMetadata, redirect_uri: str | None, scopes: str | None
    ) -> ClientIdentity:
        """The identity at the authorization server; registers the program if necessary. Raises `SignInError`."""
        if self.configured is not None:
            return self.configured
        if self.metadata_url is not None and server.accepts_client_documents:
            return ClientIdentity(self.metadata_url, method="none")
        device = redirect_uri is None
        entry = await self._registration(server.issuer, device=device)
        if entry is not None and entry.get("redirect_uri") == redirect_uri:
            found = _identity_from(entry)
            if found is not None:
                return found
        if server.registration_endpoint is None:
            raise SignInError(
                _STEP,
                f"{server.issuer} has no dynamic client registration: register this program there, and give its client_id (and client_secret)",
            )
        log.info(
            "registering at %s by dynamic registration, which is deprecated: a client_metadata_url or a client_id saves that",
            server.issuer,
        )
        wanted = _registration_request(server, redirect_uri, scopes, self.client_name)
        if self.binds_tokens:
            wanted["dpop_bound_access_tokens"] = True
        headers = {"content-type": "application/json"}
        endpoint, body = server.registration_endpoint, encode(wanted)
        answer = response_object(
            await fetch_in_step(endpoint, self.fetch, _STEP, method="POST", headers=headers, body=body), _STEP
        )
        stored = {**answer, "redirect_uri": redirect_uri}
        stored.setdefault("token_endpoint_auth_method", "" if answer.get("client_secret") else "none")
        found = _identity_from(stored)
        if found is None:
            raise SignInError(_STEP, f"{server.issuer} registered this program and returned no client_id")
        key = self._key(server.issuer, device=device)
        try:
            await self.store.put(key, stored)
            self._unsaved.pop(key, None)
        except (SignInError, OSError) as error:
            self._unsaved[key] = stored
            log.warning("the new registration at %s is used, and could not be stored: %s", server.issuer, error)
        return found

    async def forget(self, issuer: str, client_id: str) -> None:
        """Drop the registration: the issuer no longer knows that client."""
        for device in (False, True):
            key = self._key(issuer, device=device)
            if (self._unsaved.get(key) or {}).get("client_id") == client_id:
                del self._unsaved[key]
            entry = await self._load(key)
            if entry is None or entry.get("client_id") != client_id:
                continue
            try:
                await self.store.put(key, None)
            except (SignInError, OSError) as error:
                self._unsaved.setdefault(key, {})  # treated as deleted
                log.warning("the rejected registration at %s could not be deleted from the store: %s", issuer, error)

    async def _registration(self, issuer: str, *, device: bool = False) -> Mapping[str, Any] | None:
        key = self._key(issuer, device=device)
        return self._unsaved[key] if key in self._unsaved else await self._load(key)

    async def _load(self, key: str) -> Mapping[str, Any] | None:
        with store_failures():
            return await self.store.get(key)

    def _key(self, issuer: str, *, device: bool) -> str:
        # Several registrations per issuer, since an issuer grants a client only the grant types and the kind of tokens for which it was registered.
        kind = f"{'device ' if device else ''}{'bound ' if self.binds_tokens else ''}"
        return f"client {kind}{issuer} {self.account}"


def _registration_request(
    server: AuthorizationServerMetadata, redirect_uri: str | None, scopes: str | None, name: str
) -> dict[str, Any]:
    order = ("none", "client_secret_basic", "client_secret_post")
    wanted: dict[str, Any] = {
        "client_name": name,
        "application_type": "web" if redirect_uri and _is_web_page(redirect_uri) else "native",
        "grant_types": ["authorization_code" if redirect_uri else DEVICE, "refresh_token"],
        "response_types": ["code"] if redirect_uri else [],
        "token_endpoint_auth_method": next((each for each in order if each in server.auth_methods), "none"),
    }
    if redirect_uri:
        wanted["redirect_uris"] = [redirect_uri]
    if scopes:
        wanted["scope"] = scopes
    return wanted


def _is_web_page(redirect_uri: str) -> bool:
    """Whether the user returns to a page of a web server, and not to this machine or to an app (SEP-837)."""
    parts = urlsplit(redirect_uri)
    return parts.scheme == "https" and not is_local(parts.hostname or "")


def _identity_from(entry: Mapping[str, Any]) -> ClientIdentity | None:
    client_id, secret, method = (
        text(entry.get(name)) for name in ("client_id", "client_secret", "token_endpoint_auth_method")
    )
    ends = number(entry.get("client_secret_expires_at"))
    if client_id is None or (secret is not None and ends and ends <= time.time()):
        return None
    usable = method if method in METHODS and method != "private_key_jwt" else None
    if usable in ("client_secret_basic", "client_secret_post") and secret is None:
        usable = None
    binds_tokens = entry.get("dpop_bound_access_tokens") is True
    return ClientIdentity(
        client_id, secret=secret if usable != "none" else None, method=usable, binds_tokens=binds_tokens
    )


# --- Client authentication at a token endpoint: none, a secret, or a signed assertion. The repr contains no secret.

METHODS: Final = ("client_secret_basic", "client_secret_post", "private_key_jwt", "none")
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_SECONDS: Final = 300


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """A client at one authorization server, and how it authenticates there."""

    client_id: str
    secret: str | None = field(default=None, repr=False)
    key: JsonWebKey | None = None
    algorithm: str = "ES256"
    assertion: str | None = field(default=None, repr=False)
    """An assertion that was signed elsewhere."""
    method: str | None = None
    """The authentication method; None: the best that the server supports."""
    binds_tokens: bool = False
    """Whether it is registered to get tokens that are bound to a key, and no others."""

    def __post_init__(self) -> None:
        """Raises `ConfigError`."""
        if not self.client_id:
            raise ConfigError("a client needs a client_id")
        if self.method is not None and self.method not in METHODS:
            raise ConfigError(f"method must be one of {', '.join(METHODS)}, not {self.method!r}")
        if sum(each is not None for each in (self.secret, self.key, self.assertion)) > 1:
            raise ConfigError("give a client only one of a secret, a key and an assertion")

    def auth_method(self, offered: Sequence[str]) -> str:
        """The authentication method for a server that offers these; an empty list means RFC 8414's default."""
        if self.method is not None:
            return self.method
        if self.key is not None or self.assertion is not None:
            return "private_key_jwt"
        if self.secret is None:
            return "none"
        if offered and "client_secret_basic" not in offered and "client_secret_post" in offered:
            return "client_secret_post"
        return "client_secret_basic"

    def add_to_request(
        self, form: dict[str, str], headers: dict[str, str], *, offered: Sequence[str] = (), audience: str, step: str
    ) -> None:
        """Add the client authentication to a request. `audience` is the audience of an assertion. Raises `SignInError`."""
        method = self.auth_method(offered)
        form["client_id"] = (
            self.client_id
        )  # also with Basic authentication, since some servers read it from the form first
        if method == "client_secret_basic":
            login = f"{quote_plus(self.client_id)}:{quote_plus(self._required_secret(step))}".encode()
            headers["authorization"] = f"Basic {base64.b64encode(login).decode('ascii')}"
        elif method == "client_secret_post":
            form["client_secret"] = self._required_secret(step)
        elif method == "private_key_jwt":
            form["client_assertion_type"] = _ASSERTION
            form["client_assertion"] = self.assertion or self._signed_assertion(audience, step)

    def _required_secret(self, step: str) -> str:
        if self.secret is None:
            raise SignInError(step, f"the client {self.client_id} needs a secret to authenticate: give client_secret")
        return self.secret

    def _signed_assertion(self, audience: str, step: str) -> str:
        if self.key is None:
            raise SignInError(step, f"the client {self.client_id} needs a key to sign its assertion: give key")
        now = int(time.time())
        claims = {
            "iss": self.client_id,
            "sub": self.client_id,
            "aud": audience,
            "jti": secrets.token_urlsafe(16),
            "iat": now,
            "exp": now + _ASSERTION_SECONDS,
        }
        try:
            return sign(claims, self.key, self.algorithm, {"typ": "JWT"})
        except ConfigError as error:
            raise SignInError(step, str(error)) from None


@dataclass(frozen=True, kw_only=True)
class OAuthClientSettings(LoginSettings):
    """Settings of a login by a registered client."""

    client_secret: str | None = field(default=None, repr=False)
    key: JsonWebKey | None = None
    """The signing key, instead of a secret."""
    algorithm: Algorithm = "ES256"
    issuer: str | None = None
    """The authorization server at which this program is registered; no other one is sent its id or its secret."""
    dpop: DpopUse = "auto"
    """Whether tokens are bound to a key (DPoP): "auto" where the server accepts such tokens, "require" always, or "never"."""

    def client_identity(self, client_id: str) -> ClientIdentity:
        """The identity of the client with that id."""
        return ClientIdentity(client_id, secret=self.client_secret, key=self.key, algorithm=self.algorithm)


def signing_key(pem: str | bytes, *, kid: str | None = None) -> JsonWebKey:
    """A private key to sign assertions with: RSA, EC or Ed25519, in PEM. `kid` is its name, if the authorization server knows several. Raises `ConfigError`."""
    return public_key(pem, kid=kid)
