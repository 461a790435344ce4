"""What a registry waits for before it answers anybody: the name of a process, an event, or anything that can be awaited.

It is made once for a company, and every registrar waits for the same one: a coroutine, which can run only once, runs in a task of its own that
a registrar's crash does not end.
"""

from __future__ import annotations

import asyncio
import inspect
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from greenroom.errors import GreenroomError
from greenroom.supervision import whereis

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

POLL: Final = 0.1
"""How often a name is looked for, in seconds."""

WaitFor: TypeAlias = "Hashable | Awaitable[object] | Callable[[], Awaitable[object]] | None"
"""A name, something with an async `wait()`, an awaitable, or a function that makes one for each registrar; None for nothing."""


class NeverReady(GreenroomError):
    """What the registry waited for has failed, so it will never come."""


class Readiness:
    """Something to wait for. `passed` once it has come: no registrar after that waits for it again."""

    def __init__(self, wait_for: WaitFor) -> None:
        """Of None, there is nothing to wait for."""
        self.passed = wait_for is None
        self._task: asyncio.Task[None] | None = None
        self._wait: Callable[[], Awaitable[object]] = _waits_for(wait_for, self)

    async def wait(self) -> None:
        """Wait until it has come."""
        if not self.passed:
            await self._wait()
            self.passed = True

    def abandon(self) -> None:
        """Nobody will wait for it any more."""
        if self._task is not None:
            self._task.cancel()

    async def once(self, awaitable: Awaitable[object]) -> None:
        """Await what can be awaited only once, for however many registrars."""
        if self._task is None:
            # In a context of nobody's: a task that the first registrar's code starts would end with it.
            self._task = asyncio.get_running_loop().create_task(_contained(awaitable), context=Context())
        await asyncio.shield(self._task)


async def _contained(awaitable: Awaitable[object]) -> None:
    try:
        await awaitable
    except (SystemExit, KeyboardInterrupt) as error:  # no process's own, so nobody else is there to catch these
        raise NeverReady(f"what the registry waited for raised {error!r}") from error


def _waits_for(wait_for: Any, readiness: Readiness) -> Callable[[], Awaitable[object]]:
    """How to wait for what was given. Raises `TypeError` for what nobody can wait for."""
    if inspect.isawaitable(wait_for):
        awaitable = cast("Awaitable[object]", wait_for)
        return lambda: readiness.once(awaitable)
    wait: Any = getattr(wait_for, "wait", None)
    if wait is not None:
        if not inspect.iscoroutinefunction(wait):
            raise TypeError(
                f"wait_for: {wait_for!r} has a wait() that blocks: give an asyncio.Event, or an async function"
            )
        return cast("Callable[[], Awaitable[object]]", wait)
    if callable(wait_for):
        return cast("Callable[[], Awaitable[object]]", wait_for)
    hash(wait_for)
    return lambda: _registered(wait_for)


async def _registered(name: Hashable) -> None:
    while whereis(name) is None:  # noqa: ASYNC110 - nobody tells of names
        await asyncio.sleep(POLL)
