"""How a no is told over HTTP: a small JSON body, and the challenge that says what would have been a yes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.protocol.json import encode
from greenroom.transports.seam import Refusal

if TYPE_CHECKING:
    from .errors import Denied, Kind

GENERIC: Final[dict[Kind, str]] = {
    "missing": "Authentication required",
    "invalid_request": "The request is malformed",
    "invalid_token": "The access token is not valid",
    "expired_token": "The access token has expired",
    "invalid_credentials": "Invalid credentials",
    "insufficient_scope": "The access token does not allow this",
    "too_many_failures": "Too many failures: wait before you try again",
    "server_error": "Internal Server Error",
}
"""What is told where nobody has said anything better."""

CODES: Final[dict[Kind, str]] = {"missing": "unauthorized", "expired_token": "invalid_token"}
"""What a kind is called in the answer, where that is another word: RFC 6750 knows three."""


def told(denied: Denied) -> str:
    """The words for it."""
    return denied.message or GENERIC[denied.kind]


def refusal(denied: Denied, *challenges: str, error: str | None = None) -> Refusal:
    """Status, challenges and body. An error of the server's has no challenge: nothing that a client could send would help."""
    body = encode({"error": error or CODES.get(denied.kind, denied.kind), "error_description": told(denied)})
    headers = [("content-type", "application/json"), ("cache-control", "no-store")]
    if denied.kind not in ("server_error", "too_many_failures"):
        headers += [("www-authenticate", each) for each in challenges]
    return Refusal(denied.status, headers, body)
