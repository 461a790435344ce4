"""One request over HTTP, as far as it is known, and the way back; and what hangs outside of the door, which anybody may read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .http_answers import JSON_HEADERS
from .http_checks import field

if TYPE_CHECKING:
    from collections.abc import Collection

    from .http_answers import Headers
    from .http_engine import Responder
    from .seam import Answer, Gatekeeper, Notices, Peer, Refusal


class Exchange:
    """One request, and its answer."""

    __slots__ = ("begun", "cors", "headers", "method", "path", "peer", "responder")

    def __init__(self, method: str, peer: Peer, responder: Responder) -> None:
        """Nothing is known yet but the method, and who it comes from."""
        self.method = method
        self.path = ""
        self.responder = responder
        self.peer = peer
        self.headers: dict[str, str] = {}
        self.cors: Headers = ()
        self.begun = False

    async def reply(self, status: int, headers: Headers, body: bytes = b"") -> None:
        """The answer, whole."""
        self.begun = True
        await self.responder.reply(status, (*headers, *self.cors) if self.cors else headers, body)


class Board:
    """The notices of a gatekeeper, if it has any."""

    def __init__(self, gatekeeper: Gatekeeper) -> None:
        """Which it says by itself."""
        self._notices: Notices | None = getattr(gatekeeper, "notices", None)
        self.paths: Collection[str] = () if self._notices is None else self._notices.paths

    async def show(self, exchange: Exchange, path: str) -> None:
        """Answer with one of them. `path` has its query."""
        assert self._notices is not None
        shown = await self._notices.show(exchange.method, path, exchange.headers, exchange.peer)
        await exchange.reply(shown.status, told(shown), shown.body)


def told(refusal: Refusal) -> Headers:
    """The headers of an answer that somebody else has made. Raises `ValueError` for what is none."""
    return tuple(field(name.lower(), value) for name, value in refusal.headers)


async def forbid(exchange: Exchange, gatekeeper: Gatekeeper, answer: Answer, instance: Headers) -> None:
    """Answer a call that needs more than was granted: as the session has it, with the gatekeeper's challenge around it."""
    refusal = await gatekeeper.lacking(answer.needs, exchange.method, exchange.path, exchange.headers, exchange.peer)
    more = tuple(each for each in told(refusal) if each[0] != "content-type")
    await exchange.reply(refusal.status, (*JSON_HEADERS, *more, *instance), answer.body)
