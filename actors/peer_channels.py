"""What a handler says to the peer, on its way through the session: the voice of one call, or of no call in particular.

It owns nothing. Messages are encoded here, in the handler's own process, so what cannot be said is the handler's error; the session only
decides where they go.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.errors import GreenroomError
from greenroom.protocol.messages import encode_notification
from greenroom.supervision import clock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from greenroom.supervision import Caller, Ref, Timer

    from .cancellation import Cancellation
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
