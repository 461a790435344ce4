"""Asking the peer: a handler's question on its way out, and the answer on its way back.

It is the part of the session's process that deals with requests of ours. A question that the peer has not said it can answer is refused before
anything is sent. The asker hears exactly once: the answer, the deadline, the end of the call that it asked for, or the session's end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from greenroom.protocol import methods
from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError
from greenroom.protocol.messages import Failure, encode_notification, encode_request
from greenroom.protocol.methods import Side, missing, unable
from greenroom.supervision import CallTimeout, send_after

from .peer_channels import GivenUp, NoStream, Outbound, Withdrawn
from .visits import Expects, Visited, Visits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.protocol.messages import Response
    from greenroom.supervision import Caller

    from .calls import Call
    from .peer_channels import Ask, Question
    from .session import Session


def refusal(method: str, params: Mapping[str, Any], version: str, capabilities: Mapping[str, Any]) -> McpError | None:
    """Why a peer of that revision, with those capabilities, must not be asked that; None when it may be."""
    if methods.find(method) is not None and methods.find(method, version, Side.CLIENT) is None:
        return unable(f"{method}: revision {version} does not have it")
    needed = missing(method, params, capabilities, Side.CLIENT, version)
    if needed is None:
        return None
    return unable(f"{method} needs the capability {needed!r}, which the client has not declared")


class Unanswered(NamedTuple):
    """The deadline of that question is over, after so many seconds."""

    id: str
    seconds: float


Heard: TypeAlias = Unanswered | GivenUp | Withdrawn | Expects | Visited
"""What clocks, askers, tasks and hosts tell of questions."""


class Questions:
    """What one session has asked its peer."""

    __slots__ = ("_session", "table", "visits")

    def __init__(self, session: Session) -> None:
        """Nothing yet."""
        self.table = Outbound()
        self.visits = Visits(session)
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
        self._check(ask)
        body = encode_request(self.table.next_id, ask.method, ask.params)
        question = self.table.begin(ask, caller)
        visit = question.visit
        if visit is not None and not self.visits.expect(visit, ask.key):
            self.table.take(question.id)
            raise LocalProtocolError("the id of an elicitation is new; this one belongs to another session")
        if not session.outlet.ask(call, body, session.version):
            self._take(question.id)
            raise NoStream(f"{ask.method}: no stream leads to the client just now")
        if ask.timeout is not None:
            question.timer = send_after(ask.timeout, session.own_ref, Unanswered(question.id, ask.timeout))

    def _check(self, ask: Ask) -> None:
        """Only what the peer has said it can do, and only so much at once."""
        session = self._session
        refused = refusal(ask.method, ask.params, session.version, session.card.client_capabilities)
        if refused is not None:
            raise refused
        limit = session.company.settings.max_asks
        if len(self.table) >= limit:
            raise McpError(ErrorCode.INTERNAL_ERROR, f"Too many questions at once: at most {limit} may be open")

    def answered(self, answer: Response | Failure) -> None:
        """The peer has answered; an id that is not open is ignored."""
        question = self._ended(answer.id)
        if question is None:
            return
        try:
            if isinstance(answer, Failure):
                raise answer.error
            if question.method in methods.METHODS:
                methods.check_result(question.method, answer.result)
        except McpError as error:
            self._stays(question)
            question.caller.fail(error)
        else:
            if answer.result.get("action") != "accept":
                self._stays(question)
            question.caller.reply(answer.result)

    def hear(self, message: Heard) -> None:
        """What is no answer."""
        match message:
            case Unanswered():
                self._late(message)
            case GivenUp(ask):
                question = self.table.asked(ask)
                if question is not None:
                    self._take(question.id)
                    self._take_back(question.id, question.key, "nobody waits for the answer any more")
            case Withdrawn(task):
                for question in self.table:
                    if question.task == task and self._take(question.id) is not None:
                        self._take_back(question.id, question.key, "the task that asked is over")
                        question.caller.fail(NoStream(f"{question.method}: the task is over"))
            case Expects(key, ids):
                for id in ids:
                    self.visits.expect(id, key)
            case Visited(id):
                self.visits.done(id)

    def _late(self, message: Unanswered) -> None:
        """The deadline is over: the asker is told, and so is the peer."""
        question = self._take(message.id)
        if question is not None:
            self._take_back(message.id, question.key, "it was not answered in time")
            question.caller.fail(CallTimeout(message.seconds, "the client", f"answer {question.method}"))

    def drop(self, call: Call) -> None:
        """The call is over, and with it whatever was asked on its behalf."""
        for question in self.table.of(call.key):
            self._take(question.id)
            self._take_back(question.id, None, "the call that asked is over", call)
            question.caller.fail(NoStream(f"{question.method}: the call is over"))

    def abandon_all(self) -> None:
        """The session is gone; the askers have heard of that."""
        for question in self.table:
            if question.timer is not None:
                question.timer.cancel()

    def _ended(self, id: str | int | None) -> Question | None:
        """The question, which is open no more: the time of silence of the call that asked begins now, as waiting does not count."""
        question = self.table.take(id)
        if question is not None and question.key is not None:
            call = self._session.calls.table.get(question.key)
            if call is not None:
                call.heard = self._session.now()
        return question

    def _take(self, id: str) -> Question | None:
        """Remove the question, which ends without an answer."""
        question = self._ended(id)
        if question is not None:
            self._stays(question)
        return question

    def _stays(self, question: Question) -> None:
        """The user does not go to the page that the question was to send them to."""
        if question.visit is not None:
            self.visits.forget(question.visit)

    def _take_back(self, id: str, key: int | None, why: str, call: Call | None = None) -> None:
        session = self._session
        if key is not None:
            call = session.calls.table.get(key)
        body = encode_notification("notifications/cancelled", {"requestId": id, "reason": why})
        session.outlet.say(call, body, session.version)
