"""The peer channel of a task: it lasts as long as the task, whichever of its owner's sessions listens.

It belongs to the worker; the task's process points it to a session. Every message names the task. A question sets the status to `input_required` and goes to a session
of the owner that can be reached: one that waits for the result, or the origin. If that session ends without an answer, the question is asked again through another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.errors import LocalProtocolError
from greenroom.protocol.input_required import (
    QUESTION_METHODS,
    check_key,
    missing_capability_error,
    required_capabilities,
)
from greenroom.protocol.jsonrpc import encode, encode_notification
from greenroom.supervision import ProcessExited

from .peer_channels import MAX_QUEUED_MESSAGES, AskPeer, NoStream, PeerNotification, ask_session, capability_error
from .task_record import input_request, session_params, with_related_task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import Caller, Ref

    from .call_events import ObservedCall, ObservedQuestion
    from .worker_interfaces import Cancellation, SessionFacts


class QuestionRoute(NamedTuple):
    """A session, and the call in it that waits for the task's result; None for no call."""

    session: Ref[Any]
    key: int | None


class RouteRequest(NamedTuple):
    """A question that needs a route. The reply is a `QuestionRoute`, or a `PeerAnswer` if that comes first."""

    number: int
    """The question's number: a task never uses one twice."""
    input_key: str
    """Its key in the record: neither."""
    method: str
    request: bytes
    """Its method and params, as they stand in the record."""
    timeout: float | None
    failed: QuestionRoute | None = None
    """The route on which it could not be asked."""


class PeerAnswer(NamedTuple):
    """The peer's answer, which came by `tasks/update`."""

    result: dict[str, Any]


@dataclass(slots=True)
class TaskQuestion:
    """A question that is not settled. Its asker waits here (`caller`), or has asked a session."""

    asked: RouteRequest
    caller: Caller[Any] | None = None
    session: Ref[Any] | None = None
    answer: dict[str, Any] | None = None
    """The answer that came while a session had the question."""
    observed: ObservedQuestion | None = None


class TaskQuestionTimeout(NamedTuple):
    """The peer has not answered the question that it was shown."""

    number: int


class QuestionSettled(NamedTuple):
    """The question has ended, and needs no route."""

    number: int
    answer: dict[str, Any] | None = None
    """The client's answer; None without one."""


_NUMBERED: Final = "question-"


class TaskChannel:
    """The peer channel of one task."""

    __slots__ = (
        "_cancelled",
        "_count",
        "_facts",
        "_id",
        "_keys",
        "_mute",
        "_observed",
        "_task_process",
        "queued",
        "route",
    )

    def __init__(
        self,
        task_process: Ref[Any],
        id: str,
        facts: SessionFacts,
        cancelled: Cancellation,
        observed: ObservedCall | None = None,
    ) -> None:
        """Messages after the end of the task reach no peer. In the stateless era, a task has questions and a status, and no messages."""
        self._mute = facts.dialect.is_stateless
        self._observed = observed
        self._count = 0
        self._keys: set[str] = set()
        self._task_process = task_process
        self._id = id
        self._facts = facts
        self._cancelled = cancelled
        self.route: QuestionRoute | None = None
        """The route of messages. The task's process sets it."""
        self.queued = 0
        """How many messages wait for a session, which counts them down."""

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification. False when the peer will not get it."""
        if self._observed is not None:
            self._observed.note_message(method, params)
        return self._notify(encode_notification(method, with_related_task(params, self._id)))

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message, unless the session's level is higher."""
        if self._observed is not None:
            self._observed.note_message("notifications/message", {"level": level})
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        return self._notify(encode_notification("notifications/message", with_related_task(params, self._id)), level)

    def touch(self, ahead: float = 0.0) -> None:
        """No-op: a task may be silent."""

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        timeout: float | None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Ask the peer. The timeout starts when the question is sent or shown: a peer that polls has to come by first.

        The first question with a `key` has it in the record; a later one gets another, since a task uses no key twice.
        """
        self._check(method, params)
        self._count += 1
        number, input_key = self._count, f"{_NUMBERED}{self._count}"
        if key is not None and check_key(key) not in self._keys and not key.startswith(_NUMBERED):
            self._keys.add(key)
            input_key = key
        need = RouteRequest(number, input_key, method, encode(input_request(method, params)), timeout)
        params = session_params(params, self._id)
        answer: dict[str, Any] | None = None
        try:
            while True:
                found = await self._task_process.within(None).ask(need)
                if isinstance(found, PeerAnswer):
                    answer = found.result
                    return answer
                try:
                    answer = await ask_session(
                        found.session, AskPeer(found.key, method, params, timeout, self._id, number)
                    )
                except (NoStream, ProcessExited):
                    need = need._replace(failed=found)
                else:
                    return answer
        finally:
            self._task_process.send(QuestionSettled(number, answer))

    def _check(self, method: str, params: Mapping[str, Any]) -> None:
        """Refuse a question that the peer must not be asked."""
        facts = self._facts
        if facts.dialect.is_stateless:
            if method not in QUESTION_METHODS:
                raise LocalProtocolError(f"{method} cannot be asked: only {', '.join(sorted(QUESTION_METHODS))}")
            needed = required_capabilities(method, params, facts.client_capabilities)
            if needed is not None:
                raise missing_capability_error(needed, method)
        elif (refused := capability_error(method, params, facts.version, facts.client_capabilities)) is not None:
            raise refused

    def interrupt_stream(self, retry: float | None) -> bool:  # noqa: ARG002 - no peer waits for its answer
        """False: a task has no stream of its own."""
        return False

    def _notify(self, body: bytes, level: str | None = None) -> bool:
        route = self.route
        if self._mute or route is None or self._cancelled or self.queued >= MAX_QUEUED_MESSAGES:
            return False
        if not route.session.send(PeerNotification(route.key, body, level, self)):
            return False
        self.queued += 1
        return True
