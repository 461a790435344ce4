"""Proof that whoever redeems a code is who asked for it (RFC 7636), and the address that a user is sent to."""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from greenroom.auth.errors import SignInError

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERIFIER: Final = re.compile(r"[A-Za-z0-9\-._~]{43,128}\Z")
_LONGEST: Final = 8192


class Authorization(NamedTuple):
    """Where to send the user, and what to keep until they come back."""

    url: str
    verifier: str
    state: str


def gen_code_verifier() -> str:
    """64 random bytes, as text."""
    return _text(secrets.token_bytes(64))


def code_challenge(verifier: str) -> str:
    """What is shown of a verifier beforehand (S256). Raises `SignInError` for what is none."""
    if not _VERIFIER.match(verifier):
        raise SignInError("authorization", "a code verifier has 43 to 128 unreserved characters")
    return _text(hashlib.sha256(verifier.encode("ascii")).digest())


def build_authorization_url(
    endpoint: str, params: Mapping[str, str | None], *, verifier: str | None = None, state: str | None = None
) -> Authorization:
    """The address, with the challenge and a state in it. Params of None are left out. Raises `SignInError` for an endpoint that is none."""
    check_web(endpoint, "authorization")
    verifier = gen_code_verifier() if verifier is None else verifier
    state = secrets.token_urlsafe(32) if state is None else state
    ours = {name: value for name, value in params.items() if value is not None} | {
        "response_type": params.get("response_type") or "code",
        "code_challenge": code_challenge(verifier),
        "code_challenge_method": "S256",
        "state": state,
    }
    parts = urlsplit(endpoint)
    theirs = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in ours]
    return Authorization(urlunsplit(parts._replace(query=urlencode([*theirs, *ours.items()]))), verifier, state)


def check_web(url: str, step: str) -> None:
    """Raises `SignInError` for what no browser should be given: another scheme than http and https, and what a shell might read."""
    ok = len(url) <= _LONGEST and url.isascii() and url.isprintable() and not set(url) & set(" \"'<>\\^`{|}")
    try:
        parts = urlsplit(url)
        ok = (
            ok
            and parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and not parts.fragment
            and parts.username is None
        )
    except ValueError:
        ok = False
    if not ok:
        raise SignInError(step, "the server gives an address that is no plain http or https URL: nobody is sent there")


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")
