"""Sending a user to a page: the address, the id by which everybody knows it later, and the error that says "go there first".

What happens on the page goes past the client. So the address is all that it sees, and what an address may be is checked here: whoever
reads it must be able to trust their eyes.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from .errors import ErrorCode, LocalProtocolError, McpError

if TYPE_CHECKING:
    from collections.abc import Sequence

PLACE: Final = "{elicitation_id}"
"""Stands in an address where the id is to be."""

_LONGEST_URL: Final = 8192
_LONGEST_ID: Final = 256
_NOT_IN_URLS: Final = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]|%(?![0-9A-Fa-f]{2})")
_ID: Final = re.compile(r"[\x21-\x7e]+")


def new_elicitation_id() -> str:
    """One that nobody has and nobody guesses."""
    return secrets.token_urlsafe(24)


def check_url(url: object) -> str:
    """The address, if a user may be sent there. Raises `LocalProtocolError` that says what is wrong with it.

    It is absolute and https; http only where it leads to this very machine. A name or password in it is refused, since it shows readers
    another host than the one that it leads to.
    """
    if not isinstance(url, str) or not url:
        raise _bad("is an address as a text")
    if len(url) > _LONGEST_URL:
        raise _bad(f"has at most {_LONGEST_URL} characters; it has {len(url)}")
    if found := _NOT_IN_URLS.search(url):
        place = f"it has {found[0]!r} at {found.start()}"
        raise _bad(f"has only the characters that addresses have: percent-encode the others ({place})")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise _bad(f"is an address: {error}") from None
    if parts.scheme not in ("https", "http") or not host or not any(letter.isalnum() for letter in host):
        raise _bad("is absolute and begins with https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise _bad(
            "has no name or password in it: they would hide where it leads, and tell the client what it must not know"
        )
    if parts.scheme == "http" and not _is_loopback(host):
        raise _bad(f"is https: http leads only to this machine itself, and {host} is another")
    return url


def _bad(needed: str) -> LocalProtocolError:
    return LocalProtocolError(f"the url of an elicitation {needed}")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_id(id: object) -> str:
    """The id, if it can be one. Raises `LocalProtocolError`."""
    if not isinstance(id, str) or len(id) > _LONGEST_ID or not _ID.fullmatch(id):
        raise LocalProtocolError(
            f"the id of an elicitation is a text of 1 to {_LONGEST_ID} visible ASCII characters; leave it out to get one"
        )
    return id


@dataclass(frozen=True, slots=True)
class UrlElicitation:
    """A page that the user is to visit, and why. `{elicitation_id}` in the address is replaced by the id."""

    message: str
    url: str = field(repr=False)
    id: str = field(default_factory=new_elicitation_id, repr=False)

    def __post_init__(self) -> None:
        """Raises `LocalProtocolError` for an address to which nobody should be sent."""
        check_message(self.message)
        if isinstance(self.url, str):  # pyright: ignore[reportUnnecessaryIsInstance] - not everybody has a checker
            object.__setattr__(self, "url", self.url.replace(PLACE, check_id(self.id)))
        check_url(self.url)
        check_id(self.id)

    def to_wire(self) -> dict[str, Any]:
        """The params of its `elicitation/create`, and its entry in the error."""
        return {"mode": "url", "message": self.message, "url": self.url, "elicitationId": self.id}


def check_message(message: object) -> None:
    """Whoever is asked is told why."""
    if not isinstance(message, str) or not message.strip():
        raise LocalProtocolError(
            "the message of an elicitation tells the user why they are asked; it is a text, and not empty"
        )


class UrlElicitationRequired(McpError):
    """Raise it where a call cannot go on before the user has been somewhere: the client sends them there, and calls again."""

    def __init__(
        self,
        elicitations: UrlElicitation | Sequence[UrlElicitation],
        message: str = "The user has to visit a page first.",
    ) -> None:
        """At least one page."""
        self.elicitations = (elicitations,) if isinstance(elicitations, UrlElicitation) else tuple(elicitations)
        if not self.elicitations:
            raise LocalProtocolError("which page? An elicitation that is required needs at least one")
        data = {"elicitations": [each.to_wire() for each in self.elicitations]}
        super().__init__(ErrorCode.URL_ELICITATION_REQUIRED, message, data)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.elicitations, self.message)
