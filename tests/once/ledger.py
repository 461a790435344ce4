"""Callers, each call of which has one outcome, and the ledger that compares what was done with what the callers were told."""

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
"""By how much an outcome may come after the deadline, on a machine that has other things to do, before the call counts as one without an outcome."""
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
            return NOT_DONE  # a gateway that has just begun does not know the tool yet
        case PeerError():
            return MAYBE
        case ClientError() | ConnectFailed():
            return NOT_DONE
        case _:
            return NONE


class Books:
    """Of one leg."""

    def __init__(self, leg: str, path: Path) -> None:
        """The tools write into that file."""
        self.leg = leg
        self.path = path
        path.touch()
        self.fates: dict[str, list[tuple[str, str]]] = {}
        """By token, each outcome that was told, with its words."""

    def tell(self, token: str, outcome: str, text: str = "") -> None:
        """One call has ended."""
        self.fates.setdefault(token, []).append((outcome, text))

    @property
    def done(self) -> Counter[str]:
        """How often each token was done, as far as is known by now."""
        return Counter(self.path.read_text().split())

    def counts(self) -> Counter[str]:
        """How many calls had which outcome."""
        return Counter(outcome for fates in self.fates.values() for outcome, _ in fates)

    def wrong(self) -> list[str]:
        """All that must not be, a line for each."""
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
    """To ask for progress is what makes the answer a stream."""


async def call(words: ClientTools, tool: str, token: str, books: Books) -> bool:
    """One call, and what became of it; whether there was a result."""
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
    except Exception as error:  # noqa: BLE001 - an outcome of a kind that no caller expects
        books.tell(token, NONE, f"{type(error).__name__}: {error}"[:300])
    else:
        books.tell(token, RESULT if reply.text == token else NONE, "" if reply.text == token else reply.text[:100])
        return reply.text == token
    return False


class Load:
    """So many calls in all, by so many callers."""

    def __init__(self, words: ClientTools, tools: Sequence[str], books: Books, calls: int, chance: Random) -> None:
        """Tools are taken at random, by `chance`."""
        self._words = words
        self._books = books
        self._plan = [(chance.choice(tools), f"{books.leg}-{number}") for number in range(calls)]
        self.begun = 0
        self._news = asyncio.Event()

    @property
    def over(self) -> bool:
        """Whether all have begun."""
        return self.begun >= len(self._plan)

    async def run(self, callers: int) -> None:
        """Make them all."""
        await asyncio.gather(*(self._call() for _ in range(callers)))

    async def _call(self) -> None:
        while not self.over:
            tool, token = self._plan[self.begun]
            self.begun += 1
            self._news.set()
            if not await call(self._words, tool, token, self._books):
                await asyncio.sleep(
                    0.1
                )  # a caller that comes back at once would spend its calls on a server that is away

    async def until(self, begun: int) -> None:
        """Wait for so many to have begun."""
        while self.begun < begun and not self.over:
            self._news.clear()
            await self._news.wait()
