"""Speaking to peers when no call of theirs is under way: to one session by its id, to all, or to whoever can do something.

Sessions are found by name, or listed by the supervisor that has them; nothing here remembers any. What is told goes onto the general stream of a
session (`g0`), or its channel, and is kept there for a while when nobody listens.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from greenroom.protocol.fitting import fit
from greenroom.protocol.messages import encode_notification
from greenroom.protocol.negotiation import declares
from greenroom.protocol.outgoing import prepared
from greenroom.protocol.shapes import LEVELS
from greenroom.protocol.versions import LATEST
from greenroom.protocol.wire import plain
from greenroom.supervision import ProcessExited, current_node

from .session import ENDED, Session
from .sessions import Sessions, card_of, find_session
from .subscriptions import Subscriptions
from .visits import Visited, find_visited
from .voice import Ask, asked, log_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import Pid, Ref

    from .card import Card
    from .company import Company


class UnknownSession(ProcessExited):
    """No session has that id, or it is gone."""

    def __str__(self) -> str:
        return f"there is no session {self.who!r}: it has ended, or never was"


class Peers:
    """Everybody that a company talks to."""

    __slots__ = ("_company",)

    def __init__(self, company: Company) -> None:
        """Of that company."""
        self._company = company

    # --- who is there

    async def all(self) -> list[Card]:
        """The sessions that have been initialized, the oldest first."""
        cards = await self._company.sessions.within(None).call(Sessions.cards)
        return [card for card in cards if card.ready]

    async def able_to(self, capability: str) -> list[Card]:
        """Those whose client has declared a capability: `sampling`, `elicitation`, `elicitation.url`, `roots`."""
        return [card for card in await self.all() if declares(card.client_capabilities, capability)]

    def whereis(self, session_id: str) -> Pid | None:
        """The process of a session."""
        found = find_session(self._company, session_id)
        return None if found is None else found[0].pid

    def ref(self, session_id: str) -> Ref[Session]:
        """A handle on a session's process. Raises `UnknownSession`."""
        return self._find(session_id)[0]

    def card(self, session_id: str) -> Card:
        """What is known of a session. Raises `UnknownSession`."""
        return self._find(session_id)[1]

    async def snapshot(self, session_id: str) -> dict[str, Any]:
        """What a session is at."""
        return await self.ref(session_id).call(Session.snapshot)

    async def subscriptions(self, session_id: str) -> list[str]:
        """The resources that a session has subscribed to."""
        return await self._company.subscriptions.call(Subscriptions.subscriptions, self.ref(session_id).pid)

    async def end(self, session_id: str) -> None:
        """End a session, as its peer could. One that is gone already is no error."""
        found = find_session(self._company, session_id)
        if found is not None:
            try:
                await found[0].call(Session.end)
            except ProcessExited:
                return

    # --- telling

    def notify(self, session_id: str, method: str, params: Mapping[str, Any] | None = None) -> bool:
        """Send a notification to one peer. False when its session is gone."""
        found = find_session(self._company, session_id)
        if found is None:
            return False
        fitted = fit(method, dict(params or {}), found[1].version)
        return found[0].cast(Session.tell, encode_notification(method, fitted))

    def progress(
        self, session_id: str, token: str | int, progress: float, total: float | None = None, message: str | None = None
    ) -> bool:
        """Tell one peer how far something has come that it has given a token to."""
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        return self.notify(session_id, "notifications/progress", params)

    def log(self, session_id: str, level: str, data: Any, logger: str | None = None) -> bool:
        """Send a log message to one peer, unless its level is higher. A level that there is not is nobody's."""
        found = find_session(self._company, session_id) if level in LEVELS else None
        return found is not None and found[0].cast(Session.tell, log_body(level, data, logger), level)

    async def set_log_level(self, session_id: str, level: str) -> None:
        """What one peer hears of from now on."""
        await self.ref(session_id).call(Session.set_level, level)

    async def broadcast(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a notification to everybody, on whichever node they are; returns to how many sessions."""
        others, said = self._company.others, dict(params or {})
        if others is None:
            return await self.broadcast_here(method, said)
        return sum(await asyncio.gather(self.broadcast_here(method, said), others.broadcast(method, said)))

    async def broadcast_here(self, method: str, params: Mapping[str, Any]) -> int:
        """The same, to those of this node."""
        bodies: dict[str | None, bytes] = {}
        reached = 0
        for card in await self.all():
            body = bodies.get(card.version)
            if body is None:
                fitted = fit(method, dict(params), card.version)
                body = bodies[card.version] = encode_notification(method, fitted)
            found = find_session(self._company, card.id)
            reached += found is not None and found[0].cast(Session.tell, body)
        return reached

    # --- asking

    async def ask(
        self, session_id: str, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Send a request to one peer, and wait for its result.

        Raises `McpError` (its answer, or that it has not said it can do this), `NoStream` when it cannot be reached just now, `CallTimeout`
        after `timeout` seconds (the company's `ask_timeout` unless given; `math.inf` waits for ever), `ProcessExited` when its session ends,
        `LocalProtocolError` for what no client would take.
        """
        seconds = self._company.settings.ask_timeout if timeout is None else timeout
        ref, card = self._find(session_id)
        said = prepared(method, plain(dict(params or {})), card.version or LATEST)
        return await asked(ref, Ask(None, method, said, None if seconds == math.inf else seconds))

    async def sample(self, session_id: str, params: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Have the client's model go on (`sampling/createMessage`)."""
        return await self.ask(session_id, "sampling/createMessage", params, timeout)

    async def elicit(self, session_id: str, params: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Ask the user (`elicitation/create`)."""
        return await self.ask(session_id, "elicitation/create", params, timeout)

    def elicitation_complete(self, elicitation_id: str) -> bool:
        """A user has done with the page that they were sent to: the one client that was asked to send them is told.

        False when nobody was sent there, or is any more: the session has ended, the user declined, or it was told already. Where there are
        other nodes, True as well when they were asked to tell it.
        """
        company = self._company
        found = find_visited(current_node(), company, elicitation_id)
        if found is not None:
            return found.send(Visited(elicitation_id))
        if company.others is not None:
            company.others.completed(elicitation_id)
        return company.others is not None

    def elicited(self, elicitation_id: str) -> Card | None:
        """Who was asked to send their user to a page: whoever opens it has to be that principal. None when nobody was, or is any more."""
        found = find_visited(current_node(), self._company, elicitation_id)
        process = None if found is None else current_node().process(found.pid)
        return None if process is None else card_of(process)

    async def roots(self, session_id: str, timeout: float | None = None) -> list[dict[str, Any]]:
        """The client's roots."""
        result = await self.ask(session_id, "roots/list", {}, timeout)
        roots: list[dict[str, Any]] = result["roots"]
        return roots

    def _find(self, session_id: str) -> tuple[Ref[Session], Card]:
        found = find_session(self._company, session_id)
        if found is None:
            raise UnknownSession(ENDED, session_id)
        return found
