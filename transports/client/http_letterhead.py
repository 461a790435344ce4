"""What stands at the head of every request of a wire: what is accepted, who we are, which session and which revision it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .http_carrier import Order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .http_carrier import Headers
    from .http_visit import Visit

_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VISIBLE: Final = re.compile(r"[\x21-\x7e]{1,1024}")
_BOTH: Final = ("accept", "application/json, text/event-stream")
_STREAM: Final = ("accept", "text/event-stream")
_JSON: Final = ("content-type", "application/json")


def can_be_sent_back(session: str) -> bool:
    """Whether that is a session's id as it has to be: visible characters of ASCII, and not too many."""
    return _VISIBLE.fullmatch(session) is not None


class Letterhead:
    """One wire's."""

    __slots__ = ("_last", "_own", "session", "version")

    def __init__(self, own: Headers) -> None:
        """`own` go with every request."""
        self._own = own
        self.session = ""
        self.version = ""
        self._last: tuple[Mapping[str, str], str, str, Headers] | None = None

    def order(self, visit: Visit, credentials: Mapping[str, str]) -> Order:
        """What is to be carried for a visit. Raises `ValueError` for credentials that are no headers."""
        method, address = visit.method, visit.address
        if method != "POST":
            return Order(
                method, address, (_STREAM, *visit.extra(), *self._common(credentials, address.login)), urgent=True
            )
        last = self._last
        if last is None or last[0] != credentials or last[1] is not self.session or last[2] is not self.version:
            headers = (_BOTH, _JSON, *self._common(credentials, address.login))
            last = self._last = dict(credentials), self.session, self.version, headers
        return Order(method, address, last[3], visit.frame, visit.urgent)

    def _common(self, credentials: Mapping[str, str], login: str) -> Headers:
        given = {name.lower() for name in credentials}
        found = [each for each in self._own if each[0] not in given]  # a server that sees two refuses both
        if login and not any(name == "authorization" for name in (*given, *(name for name, _ in found))):
            found.append(("authorization", login))
        for name, value in credentials.items():
            if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
                raise ValueError("no header can be made of them")
            found.append((name.lower(), value))
        if self.session:
            found.append(("mcp-session-id", self.session))
        if self.version:
            found.append(("mcp-protocol-version", self.version))
        return tuple(found)
