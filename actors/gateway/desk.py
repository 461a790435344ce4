"""Whose call is it? What an upstream asks and says while it works goes to the very client that it works for, or to nobody.

An upstream's question does not say to which of our requests it belongs. So a connection to an upstream belongs to one client, or to one
principal with several, and is told by a desk who has calls under way on it. If that is one session, it is asked. If it may be more than one,
nobody is: the upstream gets an error, since to ask the wrong user is worse. A call that was given up still counts, as the upstream may still
be at it.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.client.handler import ClientHandler
from greenroom.actors.context import CallEnded
from greenroom.actors.outbound import NoStream
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.methods import not_found
from greenroom.protocol.shapes import LEVELS
from greenroom.protocol.wire import is_object
from greenroom.supervision import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from greenroom.actors.context import Context

_CARRIED: Final = frozenset({"sampling/createMessage", "elicitation/create", "roots/list"})
_MOST_VISITS: Final = 1000
_GONE: Final = {"reason": "gone"}
_ABILITIES: Final[Mapping[str, frozenset[str]]] = {
    "sampling": frozenset({"tools", "context"}),
    "elicitation": frozenset({"form", "url"}),
    "roots": frozenset({"listChanged"}),
}


def abilities_of(declared: Mapping[str, Any]) -> dict[str, Any]:
    """What of a client's capabilities can be lent to an upstream: exactly what the client can do."""
    found: dict[str, Any] = {}
    for name, members in _ABILITIES.items():
        said = declared.get(name)
        if is_object(said):
            found[name] = {member: {} for member in sorted(members) if is_object(said.get(member))}
            if name == "roots" and said.get("listChanged") is True:
                found[name]["listChanged"] = True
    return found


class Desk:
    """Who has calls under way on one connection."""

    def __init__(self, server: str, outside: Callable[[str], Context]) -> None:
        """`outside` makes the context of a session that has no call under way."""
        self.server = server
        self.sessions: dict[str, None] = {}
        """Everybody who has used it."""
        self._outside = outside
        self._numbers = count()
        self._calls: dict[int, Context] = {}
        self._cancels: dict[int, Callable[[str], object]] = {}
        self.closed = False
        """Whether its server was removed, and the time for calls under way is over."""
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._given_up: set[str] = set()
        self._visits: dict[str, None] = {}

    @property
    def busy(self) -> bool:
        """Whether any call is under way."""
        return bool(self._calls)

    async def quiet(self) -> None:
        """Wait until no call is under way."""
        await self._quiet.wait()

    def enter(self, ctx: Context) -> int:
        """A call begins: its number."""
        number = next(self._numbers)
        self._calls[number] = ctx
        self._quiet.clear()
        self.sessions[ctx.session_id] = None
        return number

    def carries(self, number: int, cancel: Callable[[str], object]) -> None:
        """How the request is cancelled that a call has become."""
        self._cancels[number] = cancel

    def close(self) -> None:
        """Cancel all requests under way: the upstream hears of it, and its process ends without waiting for them."""
        self.closed = True
        for cancel in tuple(self._cancels.values()):
            cancel("the server was removed")

    def leave(self, number: int, *, answered: bool) -> None:
        """It is over. Without an answer, the upstream may still be at it."""
        ctx = self._calls.pop(number)
        self._cancels.pop(number, None)
        if not self._calls:
            self._quiet.set()
        if not answered:
            self._given_up.add(ctx.session_id)

    def forget(self, session: str) -> None:
        """The session has ended, and is asked nothing any more. What was given up for it may still be at work."""
        self.sessions.pop(session, None)

    def sends(self, visits: Iterable[Any]) -> None:
        """The upstream sends a user to these pages, and may say when they have done with them. It cannot say so of others' pages."""
        for id in visits:
            if isinstance(id, str):
                self._visits[id] = None
        while len(self._visits) > _MOST_VISITS:
            del self._visits[next(iter(self._visits))]

    def came_back(self, id: object) -> str | None:
        """The page, if it is one that this upstream has sent a user to."""
        return id if isinstance(id, str) and self._visits.pop(id, self) is None else None

    def begin_anew(self) -> None:
        """The upstream knows nothing of what was before."""
        self._given_up.clear()

    def whose(self) -> Context | None:
        """The one whose question it must be; None when there is nobody, or more than one."""
        working = {ctx.session_id for ctx in self._calls.values()} | self._given_up
        candidates = working or set(self.sessions)
        if len(candidates) != 1:
            return None
        (session,) = candidates
        calls = tuple(self._calls.values())
        # Of several calls of one session, the one whose stream a question took could end before the question has its answer.
        return calls[0] if len(calls) == 1 and calls[0].session_id == session else self._outside(session)


class DeskHandler(ClientHandler):
    """Hands an upstream's questions on to the client whose they are."""

    def __init__(
        self,
        desk: Desk,
        abilities: Mapping[str, Any],
        completed: Callable[[str], object],
        may_ask: Callable[[], bool] = lambda: True,
        lists_changed: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`completed` is called when an upstream says that a user has done with a page, `lists_changed` with the notification that a list has changed.

        `may_ask` is whether it may ask users anything.
        """
        self._lists_changed = lists_changed
        self._desk = desk
        self._may_ask = may_ask
        self._abilities = abilities
        self._completed = completed

    def capabilities(self) -> Mapping[str, Any]:
        """What the client can do for whom the connection was opened."""
        return self._abilities

    async def handle_request(self, method: str, params: dict[str, Any]) -> Any:
        """Ask the client."""
        if method not in _CARRIED:
            raise not_found(method)
        if method == "elicitation/create" and not self._may_ask():
            return {"action": "decline"}
        ctx = self._desk.whose()
        if ctx is None:
            raise McpError(
                ErrorCode.INVALID_REQUEST,
                f"{method}: it cannot be told which client's call this belongs to, so nobody is asked",
                {"reason": "whose_call"},
            )
        self._desk.sends([params.get("elicitationId")])
        asked = {name: value for name, value in params.items() if name not in ("_meta", "task")}
        try:
            return await ctx.request(method, asked)
        except (
            CallEnded,
            NoStream,
            ActorError,
        ) as error:  # the client is gone, or its call: nobody is left to be asked
            raise McpError(ErrorCode.INVALID_REQUEST, f"{method}: there is nobody to ask any more", _GONE) from error

    def handle_notification(self, method: str, params: dict[str, Any]) -> None:
        """Log messages go where questions would; the end of a visit to whoever was sent there."""
        match method:
            case "notifications/message":
                ctx = self._desk.whose()
                level: Any = params.get("level")
                if ctx is not None and level in LEVELS:
                    own = params.get("logger")
                    name = f"{self._desk.server}.{own}" if isinstance(own, str) and own else self._desk.server
                    _ = ctx.log(level, params.get("data"), name)
            case "notifications/elicitation/complete":
                if (id := self._desk.came_back(params.get("elicitationId"))) is not None:
                    self._completed(id)
            case _ if method.endswith("/list_changed"):
                self._lists_changed(method)
            case _:
                pass
