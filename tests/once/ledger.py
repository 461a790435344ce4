"""Callers, whose calls have one outcome each, and the ledger that compares the executed calls with these outcomes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from greenroom import GreenroomError, RequestLost, RequestTimeout, ToolError
from greenroom.actors.client.errors import ClientError
from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.transports.client.errors import ConnectFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from random import Random

    from greenroom.actors.client.interfaces import Progress
    from greenroom.client import ClientTools

DEADLINE: Final = 3.0
LATE: Final = 12.0
"""How many seconds after its deadline a call counts as one without an outcome; generous, because the machine may be busy."""
RESULT: Final = "result"
NOT_DONE: Final = "not done"
MAYBE: Final = "maybe"
NONE: Final = "no outcome"
OUTCOMES: Final = (RESULT, NOT_DONE, MAYBE, NONE)
_NOT_SENT: Final = frozenset({"unavailable", "circuit_open", "parked", "not_ready", "closed", "busy", "unsupported"})


def outcome_of(error: BaseException) -> str:
    """The outcome that an error reports: the call was not executed, or it may have been."""
    match error:
        case RequestLost():
            return MAYBE if error.maybe_done else NOT_DONE
        case RequestTimeout() | ToolError():
            return MAYBE
        case PeerError(data=dict()):
            data: dict[str, Any] = error.data
            return NOT_DONE if data.get("maybeDone") is False or data.get("reason") in _NOT_SENT else MAYBE
        case PeerError(code=ErrorCode.INVALID_PARAMS):
            return NOT_DONE  # a gateway that has just started does not know the tool yet
        case PeerError():
            return MAYBE
        case ClientError() | ConnectFailed():
            return NOT_DONE
        case _:
            return NONE


class Books:
    """The ledger of one leg."""

    def __init__(self, leg: str, path: Path) -> None:
        """`path` is the file to which the tools append their tokens."""
        self.leg = leg
        self.path = path
        path.touch()
        self.fates: dict[str, list[tuple[str, str]]] = {}
        """By token, each outcome of its calls with its text."""

    def tell(self, token: str, outcome: str, text: str = "") -> None:
        """Record the outcome of a call."""
        self.fates.setdefault(token, []).append((outcome, text))

    @property
    def done(self) -> Counter[str]:
        """By token, how often the file has it so far."""
        return Counter(self.path.read_text().split())

    def counts(self) -> Counter[str]:
        """The number of calls by outcome."""
        return Counter(outcome for fates in self.fates.values() for outcome, _ in fates)

    def wrong(self) -> list[str]:
        """The violations, one line each: executed twice, executed or not against the outcome, or not one outcome."""
        done = self.done
        found = [f"{token}: done, and never called" for token in done.keys() - self.fates.keys()]
        for token, fates in self.fates.items():
            times = done[token]
            said = "; ".join(f"{outcome} {text}".strip() for outcome, text in fates)
            if len(fates) != 1:
                found.append(f"{token}: {len(fates)} outcomes: {said}")
                continue
            outcome = fates[0][0]
            if times > 1:
                found.append(f"{token}: done {times} times: {said}")
            elif outcome == NONE:
                found.append(f"{token}: {said}")
            elif outcome == RESULT and times != 1:
                found.append(f"{token}: answered, and not done")
            elif outcome == NOT_DONE and times:
                found.append(f"{token}: done: {said}")
        return found


def _ignore(step: Progress) -> None:
    """Do nothing: the request for progress alone makes the answer an event stream."""


async def call(words: ClientTools, tool: str, token: str, books: Books) -> bool:
    """Make a call and record its outcome. Returns whether it had a result."""
    progress: Callable[[Progress], None] | None = _ignore if tool.endswith("told") else None
    try:
        async with asyncio.timeout(DEADLINE + LATE):
            reply = await words.call_tool(tool, {"token": token, "path": str(books.path)}, on_progress=progress)
    except TimeoutError as error:
        if not isinstance(error, RequestTimeout):
            books.tell(token, NONE, f"nothing within {DEADLINE + LATE:g} s")
            return False
        books.tell(token, MAYBE, f"RequestTimeout: {error}")
    except GreenroomError as error:
        books.tell(token, outcome_of(error), f"{type(error).__name__}: {error}"[:300])
    except Exception as error:  # noqa: BLE001 - an unexpected error counts as no outcome
        books.tell(token, NONE, f"{type(error).__name__}: {error}"[:300])
    else:
        books.tell(token, RESULT if reply.text == token else NONE, "" if reply.text == token else reply.text[:100])
        return reply.text == token
    return False


class Load:
    """A number of calls, made by concurrent callers."""

    def __init__(self, words: ClientTools, tools: Sequence[str], books: Books, calls: int, chance: Random) -> None:
        """`chance` chooses the tool of each call."""
        self._words = words
        self._books = books
        self._plan = [(chance.choice(tools), f"{books.leg}-{number}") for number in range(calls)]
        self.begun = 0
        self._news = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether all calls have begun."""
        return self.begun >= len(self._plan)

    async def run(self, callers: int) -> None:
        """Make all calls."""
        await asyncio.gather(*(self._call() for _ in range(callers)))

    async def _call(self) -> None:
        while not self.over:
            tool, token = self._plan[self.begun]
            self.begun += 1
            self._news.set()
            if not await call(self._words, tool, token, self._books):
                await asyncio.sleep(0.1)  # an immediate next call would be spent on a server that is still away

    async def until(self, begun: int) -> None:
        """Wait until this many calls have begun."""
        while self.begun < begun and not self.over:
            self._news.clear()
            await self._news.wait()
