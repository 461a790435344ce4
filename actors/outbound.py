"""Requests from us to the peer: which are open, who waits for each, and until when.

Ids are `srv-1`, `srv-2` … and mean something in this session only: an answer that another session gets is nobody's. Each is answered once:
by the peer, by its deadline, by the end of the call that it belongs to, or by the end of the session. What comes later is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from greenroom.errors import GreenroomError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.supervision import Caller, Timer

    from .voice import Ask

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
        """The question with this id: whoever gets it answers. None for an id that is not, or no longer, open."""
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
