"""What a handler in a worker says to the peer: the voice of its call, at the far end of the link.

Telling does not wait for home, so nobody can say whether the peer will get it; but home says how much has arrived, and a handler that is
too far ahead is told that it speaks to nobody.
"""

from __future__ import annotations

import asyncio
import math
from itertools import count
from typing import TYPE_CHECKING, Any

from greenroom.actors.voice import AHEAD
from greenroom.protocol.messages import encode_notification
from greenroom.supervision.kernel import clock

from .words import ASK, AWAY, LOG, SAID, TOUCH, TOUCHES, UNASK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.cancellation import Cancellation
    from greenroom.supervision import Ref


class FarVoice:
    """The voice of one call."""

    __slots__ = ("_call", "_cancelled", "_home", "_loop", "_numbers", "_questions", "_said", "_touched", "heard")

    def __init__(self, home: Ref[Any], call: int, cancelled: Cancellation) -> None:
        """`home` is whoever passes it on."""
        self._home = home
        self._call = call
        self._cancelled = cancelled
        self._said = 0
        self._loop = asyncio.get_running_loop()
        self._touched = -math.inf
        self._numbers = count(1)
        self._questions: dict[int, asyncio.Future[Any]] = {}
        self.heard = 0
        """How many words have arrived at home; threads may miscount a little."""

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification. False when nobody will get it."""
        encode_notification(
            method, params
        )  # what cannot be said is the handler's own error, and raised where it says it
        return self._say([SAID, self._call, method, dict(params)])

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message."""
        encode_notification("notifications/message", {"data": data})
        return self._say([LOG, self._call, level, data, logger])

    def touch(self, ahead: float = 0.0) -> None:  # noqa: ARG002 - home adds what is to be added
        """Begin the call's time of silence anew. Home is told a few times a second at most, however often a handler reports."""
        now = clock.now(self._loop)
        if now - self._touched >= TOUCHES and not self._cancelled:
            self._touched = now
            self._home.send([TOUCH, self._call])

    async def ask(self, method: str, params: Mapping[str, Any], timeout: float | None) -> dict[str, Any]:
        """Send a request to the peer, and wait for its result."""
        number = next(self._numbers)
        answer = self._questions[number] = asyncio.get_running_loop().create_future()
        try:
            self._home.send([ASK, self._call, number, method, dict(params), timeout])
            result: dict[str, Any] = await answer
        except asyncio.CancelledError:
            self._home.send([UNASK, self._call, number])
            raise
        finally:
            del self._questions[number]
        return result

    def interrupt_stream(self, retry: float | None) -> bool:
        """Close the call's stream for now."""
        return not self._cancelled and self._home.send([AWAY, self._call, retry])

    def answered(self, number: int, value: Any, *, ok: bool) -> None:
        """The peer has answered, or home says why it has not."""
        question = self._questions.get(number)
        if question is None or question.done():
            return
        if ok:
            question.set_result(value)
        else:
            question.set_exception(value)

    def _say(self, word: list[Any]) -> bool:
        if self._cancelled:
            return False
        if self._said - self.heard >= AHEAD:
            self.touch()
            return False
        if not self._home.send(word):
            return False
        self._said += 1
        return True
