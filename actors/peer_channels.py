"""What a handler says to the peer and asks of it, on its way through the session, and the answers on their way back.

Messages are encoded in the handler's own process, so what cannot be said is the handler's error; the session only decides where they go. A
question that the peer has not said it can answer is refused before anything is sent. The asker hears exactly once: the answer, the deadline,
the end of the call that it asked for, or the session's end.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from greenroom.errors import GreenroomError
from greenroom.protocol import methods
from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError
from greenroom.protocol.messages import Failure, encode_notification, encode_request
from greenroom.protocol.methods import Side, missing, unable
from greenroom.supervision import CallTimeout, clock, send_after

from .visits import Expects, Visited, Visits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from greenroom.protocol.messages import Response
    from greenroom.supervision import Caller, Ref, Timer

    from .calls import Call
    from .jobs import Cancellation
    from .session import Session
    from .task_collector import TaskVoice


class Said(NamedTuple):
    """A notification for the peer, on the stream of a call, or on the general one (None). `level` is that of a log message."""

    key: int | None
    body: bytes
    level: str | None = None
    voice: TaskVoice | None = None
    """The voice of a task, which goes on when the call that waits for its result is over."""


class Interrupt(NamedTuple):
    """Close the stream of that call for now; its reader should come back after so many milliseconds."""

    key: int
    retry: int | None


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for the peer. It is answered with the result."""

    key: int | None
    method: str
    params: Mapping[str, Any]
    timeout: float | None
    task: str | None = None
    """The task that asks, if it is one: the question is over when the task is."""


class GivenUp(NamedTuple):
    """The asker of that question does not wait for the answer any more."""

    ask: Ask


class Withdrawn(NamedTuple):
    """Whatever that task has asked is over, and so is the task."""

    task: str


async def asked(session: Ref[Any], ask: Ask) -> dict[str, Any]:
    """Have a session send it, and wait for the result. A caller that stops waiting withdraws the question."""
    try:
        answer: dict[str, Any] = await session.within(None).ask(ask)
    except asyncio.CancelledError:
        session.send(GivenUp(ask))
        raise
    return answer


def log_body(level: str, data: Any, logger: str | None) -> bytes:
    """A log message as the wire has it."""
    params: dict[str, Any] = {"level": level, "data": data}
    if logger is not None:
        params["logger"] = logger
    return encode_notification("notifications/message", params)


AHEAD: Final = 1024
"""How many words of one call may wait for its session; a handler that says more without a pause is told that the peer will not get them."""


class CallVoice:
    """The voice of one call."""

    __slots__ = ("_cancelled", "_key", "_loop", "_mute", "_session", "ahead", "heard")

    def __init__(self, session: Ref[Any], key: int, cancelled: Cancellation, *, mute: bool = False) -> None:
        """What is said after the call was cancelled is not sent; nor is anything of a `mute` call, whose client has no stream for it."""
        self._mute = mute
        self._session = session
        self._key = key
        self._cancelled = cancelled
        self._loop = asyncio.get_running_loop()
        self.ahead = 0
        """How many words wait for the session, which counts them down; threads may miscount a little."""
        self.heard = 0.0
        """When the handler last reported something, on the loop's clock. The session reads it when the time of silence is over."""

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification on the call's own stream. False when the peer will not get it."""
        body = encode_notification(method, params)
        return self._say(Said(self._key, body))

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message, unless the session's level is higher."""
        body = log_body(level, data, logger)
        return self._say(Said(self._key, body, level))

    def touch(self, ahead: float = 0.0) -> None:
        """Begin the time of silence anew, `ahead` seconds from now. No message: a handler may report a thousand times a second."""
        self.heard = max(self.heard, clock.now(self._loop) + ahead)

    async def ask(self, method: str, params: Mapping[str, Any], timeout: float | None) -> dict[str, Any]:
        """Send a request to the peer and wait for its result."""
        return await asked(self._session, Ask(self._key, method, params, timeout))

    def interrupt_stream(self, retry: float | None) -> bool:
        """Close the call's stream for now, asking the peer to come back after so many seconds; the call goes on."""
        wish = None if retry is None else max(0, round(retry * 1000))
        return not self._cancelled and self._session.send(Interrupt(self._key, wish))

    def _say(self, said: Said) -> bool:
        self.touch()
        if self._mute or self._cancelled or self.ahead >= AHEAD or not self._session.send(said):
            return False
        self.ahead += 1
        return True


# --- Requests from us to the peer: which are open, which caller waits for each, and until when.
# Ids are `srv-1`, `srv-2` … and mean something in this session only: an answer that another session gets is dropped. Each is answered once:
# by the peer, by its deadline, by the end of the call that it belongs to, or by the end of the session. What comes later is dropped.

PREFIX: Final = "srv-"


class NoStream(GreenroomError):
    """The peer cannot be asked: no stream leads to it just now."""


class Question:
    """One open request of ours."""

    __slots__ = ("ask", "caller", "id", "timer")

    def __init__(self, id: str, ask: Ask, caller: Caller[dict[str, Any]]) -> None:
        """`caller` waits for the answer."""
        self.id = id
        self.ask = ask
        self.caller = caller
        self.timer: Timer | None = None

    @property
    def method(self) -> str:
        """What is asked."""
        return self.ask.method

    @property
    def key(self) -> int | None:
        """The number of the call on whose behalf, or on whose stream, we ask, if it is one's."""
        return self.ask.key

    @property
    def task(self) -> str | None:
        """The task that asks, if it is one."""
        return self.ask.task

    @property
    def visit(self) -> str | None:
        """The id of the page that the user is sent to, if that is what is asked."""
        sends = self.method == "elicitation/create" and self.ask.params.get("mode") == "url"
        return self.ask.params.get("elicitationId") if sends else None


class Outbound:
    """The table of one session."""

    __slots__ = ("_count", "_open")

    def __init__(self) -> None:
        """Nothing has been asked."""
        self._count = 0
        self._open: dict[str, Question] | None = None

    def __len__(self) -> int:
        return len(self._open or ())

    def __iter__(self) -> Iterator[Question]:
        return iter(tuple((self._open or {}).values()))

    @property
    def next_id(self) -> str:
        """What the next question will be called."""
        return f"{PREFIX}{self._count + 1}"

    def begin(self, ask: Ask, caller: Caller[dict[str, Any]]) -> Question:
        """A new question, with an id that was never used before."""
        question = Question(self.next_id, ask, caller)
        self._count += 1
        if self._open is None:
            self._open = {}
        self._open[question.id] = question
        return question

    def take(self, id: object) -> Question | None:
        """Remove the question with this id; the caller that gets it answers it. None for an id that is not, or no longer, open."""
        if self._open is None or not isinstance(id, str):
            return None
        question = self._open.pop(id, None)
        if question is not None and question.timer is not None:
            question.timer.cancel()
        return question

    def asked(self, ask: Ask) -> Question | None:
        """The open question that this very wish became."""
        return next((each for each in (self._open or {}).values() if each.ask is ask), None)

    def of(self, key: int) -> list[Question]:
        """The open questions of one call."""
        return [each for each in (self._open or {}).values() if each.key == key]


# --- The part of the session's process that deals with requests of ours.


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
