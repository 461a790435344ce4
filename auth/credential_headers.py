"""Credentials in HTTP headers: read from requests, and `WWW-Authenticate` challenges in responses. Pure, bounded, and never quoting a credential.

Header names are the lower-cased ones of `AuthRequest`; the three `extract_` functions accept any case, for programs that call them.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from greenroom.errors import ConfigError
from greenroom.transports.client.http_address import is_local

from .errors import Denied

if TYPE_CHECKING:
    from collections.abc import Mapping
    from urllib.parse import SplitResult

LONGEST_CREDENTIAL: Final = 16 * 1024
"""The longest credential in characters; a longer one is refused before anything is computed from it."""

BEARER: Final = "bearer"
DPOP: Final = "dpop"
"""The schemes of access tokens, in lower case."""
PROOF_HEADER: Final = "dpop"
"""The request header with the proof for a token of the scheme DPoP. It is another one for each request, so it identifies no caller."""

_TOKEN68: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*\Z")
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+\Z")
_SPLIT: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)(?: +(\S.*))?\Z")


def find_header(headers: Mapping[str, str], name: str) -> str | None:
    """The value of a header, whatever the case of its name."""
    name = name.lower()
    value = headers.get(name)
    if value is not None:
        return value
    return next((value for key, value in headers.items() if key.lower() == name), None)


def split_authorization(authorization: str | None) -> tuple[str, str] | None:
    """The scheme in lower case, and the credentials. None without credentials. Raises `Denied` for a malformed or oversized header."""
    if authorization is None or not authorization.strip():
        return None
    if len(authorization) > LONGEST_CREDENTIAL:
        raise Denied("invalid_request", f"the Authorization header has more than {LONGEST_CREDENTIAL} characters")
    found = _SPLIT.match(authorization.strip())
    if found is None:
        raise Denied(
            "invalid_request", "the Authorization header is malformed: write a scheme, a space and the credentials"
        )
    return None if found[2] is None else (found[1].lower(), found[2])


def extract_bearer_token(headers: Mapping[str, str]) -> str:
    """The token of ``Authorization: Bearer …``. Raises `Denied`: `missing` without one."""
    token = _credentials_of(headers, BEARER, "a bearer token is required")
    if not _TOKEN68.match(token):
        raise Denied("invalid_request", "the bearer token is malformed")
    return token


def extract_access_token(headers: Mapping[str, str]) -> tuple[str, str]:
    """The scheme, `BEARER` or `DPOP`, and the token. Raises `Denied`: `missing` without one."""
    found = split_authorization(find_header(headers, "authorization"))
    if found is None or found[0] != DPOP:
        return BEARER, extract_bearer_token(headers)
    if not _TOKEN68.match(found[1]):
        raise Denied("invalid_request", "the access token is malformed")
    return found


def _credentials_of(headers: Mapping[str, str], scheme: str, needed: str) -> str:
    """The credentials of that scheme. Raises `Denied`."""
    found = split_authorization(find_header(headers, "authorization"))
    if found is None or found[0] != scheme:
        raise Denied("missing", needed)
    return found[1]


def extract_api_key(headers: Mapping[str, str], header_name: str = "x-api-key") -> str:
    """The key of the header, or of ``Authorization: ApiKey …``. Raises `Denied`: `missing` without one."""
    key = find_header(headers, header_name)
    if key is None or not key.strip():
        key = _credentials_of(headers, "apikey", "API key required")
    key = key.strip()
    if len(key) > LONGEST_CREDENTIAL or not _VISIBLE.match(key):
        raise Denied("invalid_request", "the API key is malformed")
    return key


def extract_basic_auth(headers: Mapping[str, str]) -> tuple[str, str]:
    """User and password of ``Authorization: Basic …``. Raises `Denied`: `missing` without them."""
    login = _credentials_of(headers, "basic", "user and password are required")
    malformed = Denied("invalid_request", "the Basic credentials are malformed")
    try:
        user, colon, password = base64.b64decode(login, validate=True).decode().partition(":")
    except ValueError:  # also for what is not ASCII, or not UTF-8
        raise malformed from None
    if not colon or any(ord(letter) < ord(" ") or letter == "\x7f" for letter in user + password):
        raise malformed
    return user, password


def base64url(data: bytes) -> str:
    """URL-safe base64 without padding, as in JOSE and PKCE."""
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def quoted(value: str) -> str:
    """The value as a quoted string; characters that could end it, or the line, are escaped or replaced."""
    safe = "".join(letter if " " <= letter <= "~" else "?" for letter in value)
    return '"{}"'.format(safe.replace("\\", "\\\\").replace('"', '\\"'))


def challenge(scheme: str, **params: str | None) -> str:
    """A `WWW-Authenticate` value. Params of None are left out."""
    parameters = ", ".join(f"{name}={quoted(value)}" for name, value in params.items() if value is not None)
    return f"{scheme} {parameters}" if parameters else scheme


# --- URLs that identify servers: issuers and resources are compared by their parts, and checked before a user is sent to them. Pure.

_PORTS = {"http": 80, "https": 443}
_LONGEST = 2048
_FORBIDDEN_IN_URL = frozenset(' "<>\\^`{|}')


def covers(resource: str, server: str) -> bool:
    """Whether the resource is the server or contains it: same origin, and a path prefix."""
    try:
        one, other = urlsplit(resource), urlsplit(server)
        same = url_origin(one) == url_origin(other)
    except ValueError:
        return False
    above = one.path.rstrip("/")
    return same and one.hostname is not None and (other.path.rstrip("/") == above or other.path.startswith(f"{above}/"))


def is_same_resource(one: str, other: str) -> bool:
    """Whether two URLs name one resource: they differ at most in the case of the host, a default port, and a trailing slash."""
    return covers(one, other) and covers(other, one) and urlsplit(one).query == urlsplit(other).query


def url_origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    """Scheme, host and effective port. Raises `ValueError` for an invalid port."""
    port = parts.port
    scheme = parts.scheme.lower()
    return scheme, parts.hostname, _PORTS.get(scheme) if port is None else port


def checked_resource_url(value: Any, name: str = "resource", *, query: bool = True) -> str:
    """Return an absolute http(s) URL without a fragment. Raises `ConfigError`."""
    parts = split_web_url(value) if isinstance(value, str) else None
    if parts is None:
        raise ConfigError(f"{name} must be an absolute http or https URL, not {value!r:.200}")
    if parts.fragment or "#" in value:
        raise ConfigError(f"{name} must have no fragment: {value!r}")
    if not query and (parts.query or "?" in value):
        raise ConfigError(f"{name} must have no query: {value!r}")
    return str(value)


def checked_issuer_url(value: Any, *, insecure: bool = False) -> str:
    """Return an issuer: absolute, without query or fragment, https unless it is on this machine. Raises `ConfigError`."""
    url = checked_resource_url(value, "an authorization server", query=False)
    parts = urlsplit(url)
    if parts.scheme.lower() != "https" and not insecure and not is_local(parts.hostname or ""):
        raise ConfigError(
            f"the authorization server {url} is not https, so no user is sent there "
            "unless allow_insecure_authorization_servers=True says so"
        )
    return url


def split_web_url(value: str, longest: int = _LONGEST) -> SplitResult | None:
    """The parts of an absolute http(s) URL of plain ASCII without a user; None for anything else."""
    if len(value) > longest or not value.isascii() or not value.isprintable() or set(value) & _FORBIDDEN_IN_URL:
        return None
    try:
        parts = urlsplit(value)
        return parts if url_origin(parts)[0] in _PORTS and parts.hostname and parts.username is None else None
    except ValueError:
        return None
