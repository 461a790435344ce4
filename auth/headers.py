"""Credentials out of request headers, and what may stand in an answer's: pure, bounded, and never quoting what it was given.

Names of headers are the lower-cased ones of `Asking`; the three `extract_` functions take any case, for programs of their own.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final

from .errors import Denied

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST: Final = 16 * 1024
"""No credential has more characters; whatever does is refused before anything is computed from it."""

_TOKEN68: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*\Z")
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+\Z")
_SPLIT: Final = re.compile(r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)(?: +(\S.*))?\Z")


def header(headers: Mapping[str, str], name: str) -> str | None:
    """A header's value, whatever the case of its name."""
    name = name.lower()
    value = headers.get(name)
    if value is not None:
        return value
    return next((value for key, value in headers.items() if key.lower() == name), None)


def scheme_of(authorization: str | None) -> tuple[str, str] | None:
    """The scheme in lower case, and the rest. None where nothing is shown. Raises `Denied` for what is malformed, or too long."""
    if authorization is None or not authorization.strip():
        return None
    if len(authorization) > LONGEST:
        raise Denied("invalid_request", f"the Authorization header has more than {LONGEST} characters")
    found = _SPLIT.match(authorization.strip())
    if found is None:
        raise Denied(
            "invalid_request", "the Authorization header is malformed: write a scheme, a space and the credentials"
        )
    return None if found[2] is None else (found[1].lower(), found[2])


def extract_bearer_token(headers: Mapping[str, str]) -> str:
    """The token of ``Authorization: Bearer …``. Raises `Denied`: `missing` where there is none."""
    found = scheme_of(header(headers, "authorization"))
    if found is None or found[0] != "bearer":
        raise Denied("missing", "a bearer token is required")
    if not _TOKEN68.match(found[1]):
        raise Denied("invalid_request", "the bearer token is malformed")
    return found[1]


def extract_api_key(headers: Mapping[str, str], header_name: str = "x-api-key") -> str:
    """The key of the header, or of ``Authorization: ApiKey …``. Raises `Denied`: `missing` where there is none."""
    key = header(headers, header_name)
    if key is None or not key.strip():
        found = scheme_of(header(headers, "authorization"))
        if found is None or found[0] != "apikey":
            raise Denied("missing", "API key required")
        key = found[1]
    key = key.strip()
    if len(key) > LONGEST or not _VISIBLE.match(key):
        raise Denied("invalid_request", "the API key is malformed")
    return key


def extract_basic_auth(headers: Mapping[str, str]) -> tuple[str, str]:
    """User and password of ``Authorization: Basic …``. Raises `Denied`: `missing` where there are none."""
    found = scheme_of(header(headers, "authorization"))
    if found is None or found[0] != "basic":
        raise Denied("missing", "user and password are required")
    malformed = Denied("invalid_request", "the Basic credentials are malformed")
    try:
        user, colon, password = base64.b64decode(found[1], validate=True).decode().partition(":")
    except ValueError:  # also for what is not ASCII, or not UTF-8
        raise malformed from None
    if not colon or any(ord(letter) < ord(" ") or letter == "\x7f" for letter in user + password):
        raise malformed
    return user, password


def quoted(value: str) -> str:
    """A value as a quoted string: what could end it, or the line, does not get in."""
    safe = "".join(letter if " " <= letter <= "~" else "?" for letter in value)
    return '"{}"'.format(safe.replace("\\", "\\\\").replace('"', '\\"'))


def challenge(scheme: str, **params: str | None) -> str:
    """A `WWW-Authenticate` value. Params of None are left out."""
    told = ", ".join(f"{name}={quoted(value)}" for name, value in params.items() if value is not None)
    return f"{scheme} {told}" if told else scheme
