"""One request over HTTP, as far as it is known, and the way back; and the notices outside of the door, which any caller may read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from .http_answers import JSON_HEADERS, Refused, field, invalid
from .open_connections import host_in, source_of

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable
    from types import TracebackType

    from .http_answers import Headers
    from .http_config import HttpConfig
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
    """The headers of an answer that other code has made. Raises `ValueError` for what is none."""
    return tuple(field(name.lower(), value) for name, value in refusal.headers)


async def forbid(exchange: Exchange, gatekeeper: Gatekeeper, answer: Answer, instance: Headers) -> None:
    """Answer a call that needs more than was granted: as the session has it, with the gatekeeper's challenge around it."""
    refusal = await gatekeeper.lacking(answer.needs, exchange.method, exchange.path, exchange.headers, exchange.peer)
    more = tuple(each for each in told(refusal) if each[0] != "content-type")
    await exchange.reply(refusal.status, (*JSON_HEADERS, *more, *instance), answer.body)


# --- The body of a request, as it comes.

NO_CONTENT: Final = 204
"""The status of an answer that has no body, and so no length either."""
LINGER: Final = 2.0
"""Seconds for which the rest of a refused body is read, so that the refusal is not lost in a reset connection."""


class PeerGone(Exception):
    """The peer has left: what reads a body raises it."""


class Incoming:
    """A request, and what of its body is still to come."""

    __slots__ = ("_config", "_rest", "gone")

    def __init__(self, config: HttpConfig) -> None:
        """Nothing has been read yet."""
        self._config = config
        self._rest = True  # whether there may be more of the body
        self.gone = False
        """Whether the peer has left."""

    async def _chunk(self) -> bytes:
        """The next piece; `_rest` says then whether there may be more. Raises `PeerGone`."""
        raise NotImplementedError

    async def _gather(self, share: BodyShare) -> bytes:
        """All of the body, within its share of the memory for bodies. Raises `Refused` and `PeerGone`."""
        limit = self._config.max_body
        chunks: list[bytes] = []
        size = 0
        while self._rest:
            chunk = await self._chunk()
            size += len(chunk)
            if size > limit:
                chunks.clear()
                raise too_large(self._config)
            if not share.take(len(chunk)):
                chunks.clear()
                raise no_room()
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def _discard(self) -> None:
        """Read what is left of a body that is not wanted."""
        left = 4 * self._config.max_body
        try:
            async with asyncio.timeout(LINGER):
                while self._rest and left > 0:
                    left -= len(await self._chunk())
        except (TimeoutError, PeerGone):
            pass
        self._rest = False


def slow() -> Refused:
    """What a body gets that does not arrive."""
    return invalid(408, "The body did not arrive in time")


def no_room() -> Refused:
    """What a body gets while others take all the memory that there is for bodies, or its caller all of its share."""
    message = "The server is reading as many bytes of requests as it has room for; try again"
    return invalid(503, message, headers=(("retry-after", "1"),))


def too_large(config: HttpConfig) -> Refused:
    """What a body gets that is larger than allowed."""
    return invalid(413, f"Payload too large: a message may have {config.max_body} bytes")


# --- A wait that another task may end, without being taken for a cancellation of the whole task.


class Interruption:
    """``with Interruption() as wait: await …``; the holder of `wait` may `interrupt()` it, and the block ends there.

    It is told apart from a real cancellation, which goes on, as `asyncio.timeout` does it.
    """

    __slots__ = ("_before", "_task", "fired")

    def __init__(self) -> None:
        """Nothing can be interrupted before the block is entered."""
        self.fired = False
        self._task: asyncio.Task[object] | None = None
        self._before = 0

    def __enter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "it is a task's wait that is interrupted"
        self._task, self._before = task, task.cancelling()
        return self

    def interrupt(self) -> None:
        """End the block, unless it is over."""
        if self._task is not None and not self.fired:
            self.fired = True
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        if not self.fired or task is None:
            return False
        return task.uncancel() <= self._before and kind is asyncio.CancelledError


# --- How many bytes of request bodies are read at once, over all connections: a budget that no caller can use up alone.
# One caller may hold as much as is free. So one alone gets half of the budget, two get a third each, and a newcomer always finds as much left as
# any of them has. A fixed share would either be small for one caller or leave nothing for others.


def _caller(peer: Peer) -> Hashable:
    """The principal; without one the address, a proxy's too: what it brings has half of the budget."""
    return ("address", source_of(host_in(peer.address))) if peer.principal is None else ("principal", peer.principal)


class BodyBudget:
    """One endpoint's."""

    def __init__(self, size: int) -> None:
        """So many bytes."""
        self.size = size
        self.used = 0
        self.held: dict[Hashable, int] = {}
        """How many bytes of it each caller has."""

    def body(self, peer: Peer) -> BodyShare:
        """For one body of a caller's. Used as a context manager, it gives back what was taken, once."""
        return BodyShare(self, _caller(peer))


class BodyShare:
    """What one body has of a budget."""

    __slots__ = ("_budget", "_caller", "size")

    def __init__(self, budget: BodyBudget, caller: Hashable) -> None:
        """Nothing yet."""
        self._budget = budget
        self._caller = caller
        self.size = 0

    def take(self, size: int) -> bool:
        """So many bytes more are in memory. False if they must not be; then nothing was taken."""
        if not size:
            return True  # else a caller that holds nothing would be remembered
        budget = self._budget
        held = budget.held.get(self._caller, 0) + size
        if held > budget.size - budget.used - size:
            return False
        budget.held[self._caller] = held
        budget.used += size
        self.size += size
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        budget, size = self._budget, self.size
        if size:
            self.size = 0
            budget.used -= size
            budget.held[self._caller] -= size
            if not budget.held[self._caller]:
                del budget.held[self._caller]
