"""The authorization server's book: who may log in, which programs are known, and what was given to whom. All in memory, and in plain sight."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

from greenroom.auth.grants import text, texts

from .words import OAuthError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.auth.jose import Key

Method: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
METHODS: tuple[Method, ...] = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")


@dataclass
class Client:
    """A program that the server knows."""

    id: str
    secret: str | None = field(default=None, repr=False)
    redirect_uris: tuple[str, ...] = ()
    method: Method = "none"
    """How it shows itself at the token endpoint."""
    keys: tuple[Key, ...] = ()
    """What it signs its assertions with."""
    grants: tuple[str, ...] | None = None
    """What it may ask for; None is anything."""
    name: str = ""
    said: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """What it said of itself when it was registered."""

    def sends_back_to(self, url: str) -> bool:
        """Whether users may be sent there: exactly a known address, or one of this machine's at any port (RFC 8252)."""
        return any(url == known or _at_any_port(url, known) for known in self.redirect_uris)


class Wish(NamedTuple):
    """Somebody stands before the consent page."""

    client: Client
    scopes: tuple[str, ...]
    resource: tuple[str, ...]
    params: Mapping[str, str]


class Approve(NamedTuple):
    """Yes, as this user; with fewer scopes, if they are named."""

    user: str
    scopes: tuple[str, ...] | None = None


class Refuse(NamedTuple):
    """No: the redirect says why."""

    error: str = "access_denied"
    description: str = ""


Decision: TypeAlias = "Approve | Refuse | None"
"""None is somebody who does nothing: there is a page, and no redirect."""


@dataclass
class Grant:
    """What a user, or a program for itself, has given."""

    client_id: str
    user: str
    scopes: tuple[str, ...]
    resource: tuple[str, ...]
    family: str
    """Its tokens are taken back together."""


@dataclass
class Code:
    """A code, until it is redeemed."""

    grant: Grant
    redirect_uri: str
    challenge: str | None
    expires: float
    used: bool = False

    def proven(self, verifier: str | None) -> bool:
        """Whether whoever redeems it is who asked for it."""
        if self.challenge is None:
            return verifier is None
        digest = base64.urlsafe_b64encode(hashlib.sha256((verifier or "").encode()).digest()).decode().rstrip("=")
        return hmac.compare_digest(digest, self.challenge)


@dataclass
class Refresh:
    """A refresh token."""

    grant: Grant
    used: bool = False


@dataclass
class Device:
    """A machine without a browser that waits for its user."""

    code: str
    user_code: str
    client_id: str
    scopes: tuple[str, ...]
    resource: tuple[str, ...]
    expires: float
    decision: Decision = None
    asked: float | None = None


def client_of(said: Any, id: str, secret: str | None, keys: tuple[Key, ...]) -> Client:
    """A program that registers itself, or that a document of its own describes. Raises `OAuthError`."""
    redirects = texts(said.get("redirect_uris"))
    grants = texts(said.get("grant_types")) or ("authorization_code",)
    if "authorization_code" in grants and not redirects:
        raise OAuthError("invalid_redirect_uri", "redirect_uris is empty")
    for each in redirects:
        parts = urlsplit(each)
        if parts.fragment or not parts.scheme or parts.scheme in ("javascript", "data", "file"):
            raise OAuthError("invalid_redirect_uri", "nobody is sent there")
        if parts.scheme == "http" and not _is_local(parts.hostname or ""):
            raise OAuthError("invalid_redirect_uri", "http is for this machine alone")
    method = said.get("token_endpoint_auth_method", "client_secret_basic" if secret else "none")
    if method not in METHODS:
        raise OAuthError("invalid_client_metadata", f"token_endpoint_auth_method is one of {', '.join(METHODS)}")
    kept = secret if method in ("client_secret_basic", "client_secret_post") else None
    return Client(id, kept, redirects, method, keys, grants, text(said.get("client_name")) or "", said)


def _at_any_port(url: str, known: str) -> bool:
    one, other = urlsplit(url), urlsplit(known)
    return (
        one.scheme == other.scheme == "http"
        and _is_local(one.hostname or "")
        and (one.hostname, one.path, one.query, one.fragment) == (other.hostname, other.path, other.query, "")
    )


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
