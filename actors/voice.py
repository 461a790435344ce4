"""What a handler says to the peer, on its way through the session: the voice of one call, or of nobody's call in particular.

It owns nothing. Messages are encoded here, in the handler's own process, so what cannot be said is the handler's error; the session only
decides where they go.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.messages import encode_notification
from greenroom.supervision.kernel import clock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import Pid, Ref

    from .cancellation import Cancellation
    from .task_voice import TaskVoice


class Began(NamedTuple):
    """A worker to its session: this process works on that call."""

    key: int
    worker: Pid


class Said(NamedTuple):
    """A notification for the peer, on the stream of a call, or on the general one (None). `level` is that of a log message."""

    key: int | None
    body: bytes
    level: str | None = None
    voice: TaskVoice | None = None
    """The voice of a task, which goes on when the call that waits for its result is over."""


class Interrupt(NamedTuple):
    """Close the stream of that call for now; whoever reads it should come back after so many milliseconds."""

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
    """Whoever asked that does not wait for the answer any more."""

    ask: Ask


class Withdrawn(NamedTuple):
    """Whatever that task has asked is over, and so is the task."""

    task: str


async def asked(session: Ref[Any], ask: Ask) -> dict[str, Any]:
    """Have a session send it, and wait for the result. Whoever stops waiting takes it back."""
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
"""How many words of one call may wait for its session; a handler that says more without a pause is told that nobody gets them."""


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
        """Send a notification on the call's own stream. False when nobody will get it."""
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
