"""Asking the peer: a handler's question on its way out, and the answer on its way back.

It is the part of the session's process that deals with requests of ours. What the peer has not said it can do is refused before anything is
sent. Whoever asked hears exactly once: the answer, the deadline, the end of the call that they asked for, or the session's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from greenroom.protocol import methods
from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError
from greenroom.protocol.messages import Failure, encode_notification, encode_request
from greenroom.protocol.methods import Side
from greenroom.protocol.negotiation import missing
from greenroom.supervision import CallTimeout, send_after

from .outbound import NoStream, Outbound

if TYPE_CHECKING:
    from greenroom.protocol.messages import Response
    from greenroom.supervision import Caller

    from .inflight import Call
    from .session import Session
    from .voice import Ask


class Unanswered(NamedTuple):
    """The deadline of that question is over, after so many seconds."""

    id: str
    seconds: float


class Questions:
    """What one session has asked its peer."""

    __slots__ = ("_session", "table")

    def __init__(self, session: Session) -> None:
        """Nothing yet."""
        self.table = Outbound()
        self._session = session

    def ask(self, ask: Ask, caller: Caller[dict[str, Any]]) -> None:
        """Send it, or tell the asker why not."""
        try:
            self._send(ask, caller)
        except (McpError, NoStream, LocalProtocolError) as error:
            caller.fail(error)

    def _send(self, ask: Ask, caller: Caller[dict[str, Any]]) -> None:
        session = self._session
        call = None if ask.key is None else session.calls.table.get(ask.key)
        if ask.key is not None and call is None:
            raise NoStream(f"{ask.method}: the call is over, so nobody can be asked on its behalf")
        if (
            methods.find(ask.method) is not None
            and methods.find(ask.method, session.agreed.version, Side.CLIENT) is None
        ):
            raise McpError(
                ErrorCode.MISSING_CLIENT_CAPABILITY, f"{ask.method}: revision {session.agreed.version} does not have it"
            )
        needed = missing(ask.method, ask.params, session.card.client_capabilities, Side.CLIENT)
        if needed is not None:
            raise McpError(
                ErrorCode.MISSING_CLIENT_CAPABILITY,
                f"{ask.method} needs the capability {needed!r}, which the client has not declared",
            )
        limit = session.company.settings.max_asks
        if len(self.table) >= limit:
            raise McpError(ErrorCode.INTERNAL_ERROR, f"Too many questions at once: at most {limit} may be open")
        body = encode_request(self.table.next_id, ask.method, ask.params)
        question = self.table.begin(ask.method, caller, ask.key)
        if not session.outlet.ask(call, body, session.agreed.version):
            self.table.take(question.id)
            raise NoStream(f"{ask.method}: no stream leads to the client just now")
        if call is not None:
            call.heard = session.now()
        if ask.timeout is not None:
            question.timer = send_after(ask.timeout, session.own_ref, Unanswered(question.id, ask.timeout))

    def answered(self, answer: Response | Failure) -> None:
        """The peer has answered; an id that is not open is ignored."""
        question = self.table.take(answer.id)
        if question is None:
            return
        if isinstance(answer, Failure):
            question.caller.fail(answer.error)
            return
        try:
            if question.method in methods.METHODS:
                methods.check_result(question.method, answer.result)
        except McpError as error:
            question.caller.fail(error)
        else:
            question.caller.reply(answer.result)

    def late(self, message: Unanswered) -> None:
        """The deadline is over: the asker is told, and so is the peer."""
        question = self.table.take(message.id)
        if question is not None:
            self._take_back(message.id, question.key, "it was not answered in time")
            question.caller.fail(CallTimeout(message.seconds, "the client", f"answer {question.method}"))

    def drop(self, call: Call) -> None:
        """The call is over, and with it whatever was asked on its behalf."""
        for question in self.table.of(call.key):
            self.table.take(question.id)
            self._take_back(question.id, None, "the call that asked is over", call)
            question.caller.fail(NoStream(f"{question.method}: the call is over"))

    def abandon_all(self) -> None:
        """The session is gone; whoever asked has heard of that."""
        for question in self.table:
            if question.timer is not None:
                question.timer.cancel()

    def _take_back(self, id: str, key: int | None, why: str, call: Call | None = None) -> None:
        session = self._session
        if key is not None:
            call = session.calls.table.get(key)
        body = encode_notification("notifications/cancelled", {"requestId": id, "reason": why})
        session.outlet.say(call, body, session.agreed.version)
