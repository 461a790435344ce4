"""The peer channel of a call, and the session's open questions: messages from handlers to the peer, and the peer's replies.

A message is encoded in the handler's own process, so one that cannot be encoded is the handler's error; the session only decides on which stream it goes. A
question that needs a capability which the peer has not declared is refused before anything is sent. Each question ends once: by the reply, its deadline, the
end of its call, or the end of the session.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from greenroom.errors import GreenroomError
from greenroom.protocol import methods
from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError
from greenroom.protocol.jsonrpc import JsonRpcError, encode_notification, encode_request, is_object
from greenroom.protocol.methods import PeerSide, missing_capability, unsupported_error
from greenroom.supervision import CallTimeout, clock, send_after
from greenroom.supervision.event_bus import bus

from .url_elicitations import ElicitationDone, ExpectElicitations, UrlElicitations

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from greenroom.protocol.jsonrpc import JsonRpcResponse
    from greenroom.supervision import Caller, Ref, Timer

    from .call_events import ObservedCall, ObservedQuestion
    from .session import SessionProcess
    from .session_calls import SessionCall
    from .task_channel import TaskChannel
    from .worker_interfaces import Cancellation


class PeerNotification(NamedTuple):
    """A notification for the peer, on a call's stream or on the general one (None). `level` is set for a log message."""

    key: int | None
    body: bytes
    level: str | None = None
    peer_channel: TaskChannel | None = None
    """The channel of a task, which goes on when the call that waits for its result is over."""


class InterruptStream(NamedTuple):
    """Close the stream of that call for now; its reader should reconnect after so many milliseconds."""

    key: int
    retry: int | None


@dataclass(frozen=True, slots=True)
class AskPeer:
    """A request for the peer. The answer is its result."""

    key: int | None
    method: str
    params: Mapping[str, Any]
    timeout: float | None
    task: str | None = None
    """The id of the task that asks, if one does: the question ends with the task."""
    number: int | None = None
    """The number that the question has in its task."""
    trace: dict[str, str] | None = None
    """The trace of the code that asks."""


class QuestionAbandoned(NamedTuple):
    """The asker no longer waits for the answer."""

    ask: AskPeer


class TaskQuestionsWithdrawn(NamedTuple):
    """The task is over, and its questions with it; or with a `number`, that question was answered in another way."""

    task: str
    number: int | None = None


async def ask_session(session: Ref[Any], ask: AskPeer) -> dict[str, Any]:
    """Send a question through a session, and wait for the result. Cancelling the wait withdraws the question."""
    if bus.tracer is not None:
        ask = replace(ask, trace=dict(bus.tracer.carrier(0)) or None)
    try:
        answer: dict[str, Any] = await session.within(None).ask(ask)
    except asyncio.CancelledError:
        session.send(QuestionAbandoned(ask))
        raise
    return answer


def log_body(level: str, data: Any, logger: str | None) -> bytes:
    """An encoded log message."""
    params: dict[str, Any] = {"level": level, "data": data}
    if logger is not None:
        params["logger"] = logger
    return encode_notification("notifications/message", params)


MAX_QUEUED_MESSAGES: Final = 1024
"""How many messages of one call may wait for its session. Further ones are dropped, and the handler is told so."""


class CallChannel:
    """The peer channel of one call."""

    __slots__ = ("_cancelled", "_key", "_loop", "_mute", "_session", "last_active", "observed", "queued")

    def __init__(self, session: Ref[Any], key: int, cancelled: Cancellation, *, mute: bool = False) -> None:
        """Nothing is sent after the call was cancelled, nor in a `mute` call, whose client has no stream for it."""
        self._mute = mute
        self._session = session
        self._key = key
        self._cancelled = cancelled
        self._loop = asyncio.get_running_loop()
        self.observed: ObservedCall | None = None
        self.queued = 0
        """How many messages wait for the session, which counts them down.

        Threads may miscount a little: a lock would cost every message one.
        """
        self.last_active = 0.0
        """When the handler last reported something, on the loop's clock. The session reads it when the timeout is over."""

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification on the call's own stream. False when the peer will not get it."""
        body = encode_notification(method, params)
        if self.observed is not None:
            self.observed.note_message(method, params)
        return self._notify(PeerNotification(self._key, body))

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message, unless the session's level is higher."""
        body = log_body(level, data, logger)
        if self.observed is not None:
            self.observed.note_message("notifications/message", {"level": level})
        return self._notify(PeerNotification(self._key, body, level))

    def touch(self, ahead: float = 0.0) -> None:
        """Restart the timeout, `ahead` seconds from now.

        An attribute and no message: a handler may report a thousand times a second.
        """
        self.last_active = max(self.last_active, clock.now(self._loop) + ahead)

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        timeout: float | None,
        key: str | None = None,  # noqa: ARG002 - a session numbers its questions
    ) -> dict[str, Any]:
        """Send a request to the peer and wait for its result."""
        return await ask_session(self._session, AskPeer(self._key, method, params, timeout))

    def interrupt_stream(self, retry: float | None) -> bool:
        """Close the call's stream and ask the peer to reconnect after so many seconds. The call goes on."""
        milliseconds = None if retry is None else max(0, round(retry * 1000))
        return not self._cancelled and self._session.send(InterruptStream(self._key, milliseconds))

    def _notify(self, notification: PeerNotification) -> bool:
        self.touch()
        if self._mute or self._cancelled or self.queued >= MAX_QUEUED_MESSAGES or not self._session.send(notification):
            return False
        self.queued += 1
        return True


# --- Questions: the server's requests to the peer, with their callers and deadlines.
# Ids are `srv-1`, `srv-2` and so on, and belong to this session: a reply that reaches another session is dropped. A
# question ends once: by the peer's reply, by its deadline, by the end of its call, or by the end of the session.
# Later replies are dropped.

QUESTION_ID_PREFIX: Final = "srv-"


class NoStream(GreenroomError):
    """The peer cannot be asked now: it has no open stream."""


class PeerQuestion:
    """One open request to the peer."""

    __slots__ = ("ask", "caller", "id", "observed", "timer")

    def __init__(self, id: str, ask: AskPeer, caller: Caller[dict[str, Any]]) -> None:
        """`caller` waits for the answer."""
        self.id = id
        self.ask = ask
        self.caller = caller
        self.observed: ObservedQuestion | None = None
        self.timer: Timer | None = None

    @property
    def method(self) -> str:
        """The request's method."""
        return self.ask.method

    @property
    def key(self) -> int | None:
        """The key of the call that asks, or on whose stream the question goes."""
        return self.ask.key

    @property
    def task(self) -> str | None:
        """The id of the task that asks, if one does."""
        return self.ask.task

    @property
    def elicitation_id(self) -> str | None:
        """The id of the URL elicitation, if the question is one."""
        sends = self.method == "elicitation/create" and self.ask.params.get("mode") == "url"
        return self.ask.params.get("elicitationId") if sends else None


class PeerQuestionTable:
    """The open questions of one session."""

    __slots__ = ("_count", "_open")

    def __init__(self) -> None:
        self._count = 0
        self._open: dict[str, PeerQuestion] | None = None

    def __len__(self) -> int:
        return len(self._open or ())

    def __iter__(self) -> Iterator[PeerQuestion]:
        return iter(tuple((self._open or {}).values()))

    @property
    def next_id(self) -> str:
        """The id of the next question."""
        return f"{QUESTION_ID_PREFIX}{self._count + 1}"

    def begin(self, ask: AskPeer, caller: Caller[dict[str, Any]]) -> PeerQuestion:
        """Add a question, with a new id."""
        question = PeerQuestion(self.next_id, ask, caller)
        self._count += 1
        if self._open is None:
            self._open = {}
        self._open[question.id] = question
        return question

    def take(self, id: object) -> PeerQuestion | None:
        """Remove the question with this id; the caller of `take` has to answer it. None if it is not open."""
        if self._open is None or not isinstance(id, str):
            return None
        question = self._open.pop(id, None)
        if question is not None and question.timer is not None:
            question.timer.cancel()
        return question

    def find_asked(self, ask: AskPeer) -> PeerQuestion | None:
        """The open question that this very request became."""
        return next((each for each in (self._open or {}).values() if each.ask is ask), None)

    def of_call(self, key: int) -> list[PeerQuestion]:
        """The open questions of one call."""
        return [each for each in (self._open or {}).values() if each.key == key]


# --- The part of the session's process that handles questions.


def capability_error(
    method: str, params: Mapping[str, Any], version: str, capabilities: Mapping[str, Any]
) -> McpError | None:
    """The error if a peer of that revision, with those capabilities, must not be asked this; None if it may be."""
    if methods.find_method(method) is not None and methods.find_method(method, version, PeerSide.CLIENT) is None:
        return unsupported_error(f"{method}: revision {version} does not have it")
    needed = missing_capability(method, params, capabilities, PeerSide.CLIENT, version)
    if needed is None:
        return None
    return unsupported_error(f"{method} needs the capability {needed!r}, which the client has not declared")


def _traced_params(ask: AskPeer, observed: ObservedQuestion | None) -> Mapping[str, Any]:
    """The params of a question, with its trace, if there is one."""
    carried: Mapping[str, str] | None = ask.trace
    if observed is not None and bus.tracer is not None:
        carried = bus.tracer.carrier(observed.number) or carried
    if not carried:
        return ask.params
    given = ask.params.get("_meta")
    return {**ask.params, "_meta": {**(given if is_object(given) else {}), **carried}}


class QuestionTimedOut(NamedTuple):
    """The deadline of that question is over, after so many seconds."""

    id: str
    seconds: float


QuestionEvent: TypeAlias = (
    QuestionTimedOut | QuestionAbandoned | TaskQuestionsWithdrawn | ExpectElicitations | ElicitationDone
)
"""The messages about questions from timers, askers, tasks and hosts."""


class SessionQuestions:
    """The questions of one session."""

    __slots__ = ("_session", "table", "url_elicitations")

    def __init__(self, session: SessionProcess) -> None:
        self.table = PeerQuestionTable()
        self.url_elicitations = UrlElicitations(session)
        self._session = session

    def ask(self, ask: AskPeer, caller: Caller[dict[str, Any]]) -> None:
        """Send a question, or fail its caller."""
        try:
            self._send(ask, caller)
        except (McpError, NoStream, LocalProtocolError) as error:
            caller.fail(error)

    def _send(self, ask: AskPeer, caller: Caller[dict[str, Any]]) -> None:
        session = self._session
        call = None if ask.key is None else session.calls.table.get(ask.key)
        if ask.key is not None and call is None:
            raise NoStream(f"{ask.method}: the call is over, so the client cannot be asked on its behalf")
        self._check(ask)
        observed = self._observe(ask, call)
        try:
            self._send_request(ask, caller, call, observed)
        except BaseException:
            if observed is not None:
                observed.end("error")
            raise

    def _send_request(
        self, ask: AskPeer, caller: Caller[dict[str, Any]], call: SessionCall | None, observed: ObservedQuestion | None
    ) -> None:
        session = self._session
        body = encode_request(self.table.next_id, ask.method, _traced_params(ask, observed))
        question = self.table.begin(ask, caller)
        elicitation_id = question.elicitation_id
        if elicitation_id is not None and not self.url_elicitations.expect(elicitation_id, ask.key):
            self.table.take(question.id)
            raise LocalProtocolError("an elicitation needs a new id: this one belongs to another session")
        if not session.reply_sink.request(call, body, session.dialect):
            self._take(question.id)
            raise NoStream(f"{ask.method}: the client has no open stream")
        question.observed = observed
        if ask.timeout is not None:
            question.timer = send_after(ask.timeout, session.own_ref, QuestionTimedOut(question.id, ask.timeout))

    def _observe(self, ask: AskPeer, call: SessionCall | None) -> ObservedQuestion | None:
        if bus.listener is None or ask.task is not None:  # the process of a task tells of the task's questions
            return None
        from .call_events import ObservedQuestion  # noqa: PLC0415 - only a program with a listener loads the events

        session = self._session
        return ObservedQuestion(
            session.process.node,
            session.company.program,
            ask.method,
            None if call is None else call.observed,
            request=self.table.next_id,
            facts=session.facts,
            trace=ask.trace,
        )

    def _check(self, ask: AskPeer) -> None:
        """Refuse a question that needs an undeclared capability, and one beyond `max_asks`."""
        session = self._session
        refused = capability_error(ask.method, ask.params, session.version, session.info.client_capabilities)
        if refused is not None:
            # The client that asked for a task has declared what its questions need. This is another one of the same
            # owner, and the question waits for a client that can answer it.
            raise refused if ask.task is None else NoStream(refused.message)
        limit = session.company.settings.max_asks
        if len(self.table) >= limit:
            raise McpError(ErrorCode.INTERNAL_ERROR, f"Too many questions at once: at most {limit} may be open")

    def on_reply(self, answer: JsonRpcResponse | JsonRpcError) -> None:
        """The peer has replied. A reply with an unknown id is ignored."""
        question = self._close(answer.id)
        if question is None:
            return
        try:
            if isinstance(answer, JsonRpcError):
                raise answer.error
            if question.method in methods.METHODS:
                methods.check_result(question.method, answer.result)
        except McpError as error:
            self._forget_elicitation(question)
            if question.observed is not None:
                question.observed.end("error")
            question.caller.fail(error)
        else:
            if question.observed is not None:
                question.observed.answered(answer.result)
            if answer.result.get("action") != "accept":
                self._forget_elicitation(question)
            question.caller.reply(answer.result)

    def on_event(self, message: QuestionEvent) -> None:
        """Handle a message that is not a reply."""
        match message:
            case QuestionTimedOut():
                self._on_timeout(message)
            case QuestionAbandoned(ask):
                question = self.table.find_asked(ask)
                if question is not None:
                    self._take(question.id)
                    self._send_cancelled(question.id, question.key, "the server no longer waits for the answer")
            case TaskQuestionsWithdrawn(task, number):
                why = "the task that asked is over" if number is None else "it was answered in another way"
                for question in self.table:
                    its = question.task == task and number in (None, question.ask.number)
                    if its and self._take(question.id) is not None:
                        self._send_cancelled(question.id, question.key, why)
                        question.caller.fail(NoStream(f"{question.method}: {why}"))
            case ExpectElicitations(key, ids):
                for id in ids:
                    self.url_elicitations.expect(id, key)
            case ElicitationDone(id):
                self.url_elicitations.on_done(id)

    def _on_timeout(self, message: QuestionTimedOut) -> None:
        """The deadline is over: fail the caller, and cancel the question at the peer."""
        question = self._take(message.id)
        if question is not None:
            self._send_cancelled(message.id, question.key, "it was not answered in time")
            question.caller.fail(CallTimeout(message.seconds, "the client", f"answer {question.method}"))

    def cancel_of(self, call: SessionCall) -> None:
        """Cancel the questions of a call that is over."""
        for question in self.table.of_call(call.key):
            self._take(question.id)
            self._send_cancelled(question.id, None, "the call that asked is over", call)
            question.caller.fail(NoStream(f"{question.method}: the call is over"))

    def on_session_end(self) -> None:
        """Stop the timers. The callers get `ProcessExited` from the session's end."""
        for question in self.table:
            if question.observed is not None:
                question.observed.end("lost")
            if question.timer is not None:
                question.timer.cancel()

    def _close(self, id: str | int | None) -> PeerQuestion | None:
        """Remove the question. The timeout of the call that asked restarts now, as waiting does not count."""
        question = self.table.take(id)
        if question is not None and question.key is not None:
            call = self._session.calls.table.get(question.key)
            if call is not None:
                call.last_active = self._session.now()
        return question

    def _take(self, id: str) -> PeerQuestion | None:
        """Remove a question that ends without a reply."""
        question = self._close(id)
        if question is not None:
            self._forget_elicitation(question)
            if question.observed is not None:
                question.observed.end("lost")
        return question

    def _forget_elicitation(self, question: PeerQuestion) -> None:
        """Forget the URL elicitation of the question: the user does not go to the page."""
        if question.elicitation_id is not None:
            self.url_elicitations.forget(question.elicitation_id)

    def _send_cancelled(self, id: str, key: int | None, why: str, call: SessionCall | None = None) -> None:
        session = self._session
        if key is not None:
            call = session.calls.table.get(key)
        body = encode_notification("notifications/cancelled", {"requestId": id, "reason": why})
        session.reply_sink.notify(call, body, session.dialect)
