"""The voice of a task: what its handler says and asks, for as long as it lasts, whoever of its owner listens meanwhile.

It belongs to the worker; the task's collector points it to where somebody listens. Every message says which task it belongs to. A question
moves the task to `input_required` and goes to whoever of its owner can be reached: a peer that waits for the result, or the session
that the task was asked for in. When that one leaves without an answer, the question is asked again elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from greenroom.protocol.messages import encode_notification
from greenroom.supervision import ProcessExited

from .asking import refusal
from .outbound import NoStream
from .task_record import related
from .voice import AHEAD, Ask, Said, asked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import Ref

    from .cancellation import Cancellation
    from .jobs import Facts


class Way(NamedTuple):
    """Where a question can go: a session, and the call of it that waits for the task's result; None for no call in particular."""

    session: Ref[Any]
    key: int | None


class Need(NamedTuple):
    """A handler has a question: where to? Answered with the question's number and a `Way`, as soon as there is one."""

    number: int | None = None
    """Which question, when it could not be asked…"""
    failed: Way | None = None
    """…on this way."""


class Met(NamedTuple):
    """That question needs nobody any more."""

    number: int


class TaskVoice:
    """One task's."""

    __slots__ = ("_cancelled", "_collector", "_facts", "_id", "ahead", "way")

    def __init__(self, collector: Ref[Any], id: str, facts: Facts, cancelled: Cancellation) -> None:
        """What is said after the task has ended reaches nobody."""
        self._collector = collector
        self._id = id
        self._facts = facts
        self._cancelled = cancelled
        self.way: Way | None = None
        """Where what is said goes. The collector writes it."""
        self.ahead = 0
        """How many words wait for a session, which counts them down."""

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification. False when nobody will get it."""
        return self._say(encode_notification(method, related(params, self._id)))

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message, unless the session's level is higher."""
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        return self._say(encode_notification("notifications/message", related(params, self._id)), level)

    def touch(self, ahead: float = 0.0) -> None:
        """A task may be silent."""

    async def ask(self, method: str, params: Mapping[str, Any], timeout: float | None) -> dict[str, Any]:
        """Ask the peer. The time runs from when it is asked: a peer that polls has to come by first."""
        refused = refusal(method, params, self._facts.version, self._facts.client_capabilities)
        if refused is not None:
            raise refused
        params = related(params, self._id)
        number, way = await self._collector.within(None).ask(Need())
        try:
            while True:
                try:
                    return await asked(way.session, Ask(way.key, method, params, timeout, self._id))
                except (NoStream, ProcessExited):
                    number, way = await self._collector.within(None).ask(Need(number, way))
        finally:
            self._collector.send(Met(number))

    def interrupt_stream(self, retry: float | None) -> bool:  # noqa: ARG002 - there is no answer that anybody waits for
        """A task has no stream of its own."""
        return False

    def _say(self, body: bytes, level: str | None = None) -> bool:
        way = self.way
        if way is None or self._cancelled or self.ahead >= AHEAD:
            return False
        if not way.session.send(Said(way.key, body, level, self)):
            return False
        self.ahead += 1
        return True
