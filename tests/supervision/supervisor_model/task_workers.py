"""Workers that are tasks: plain routines that acknowledge their start, and run until they are told to stop."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from greenroom.supervision import Exit, Quit, Stop, acknowledge, receive, trap_exit

from .server_workers import Habits

if TYPE_CHECKING:
    from .run_log import Book


async def errand(book: Book, role: str) -> None:
    """The whole of a task's life."""
    await Errand(book, role).run()


class Errand(Habits):
    """A worker that has no behaviour: it takes its messages itself, and answers no calls."""

    def first(self, seconds: float) -> float:
        """It has to rest, or not."""
        return seconds

    async def run(self) -> None:
        """Begin, and take one message after the other."""
        trap_exit(self.plan.traps)
        seconds = await _done(self.init())
        acknowledge()
        if seconds:
            await self.rest(seconds)
        parent = self.own_process.parent
        assert parent is not None
        while True:
            match await receive():
                case Exit(pid=source, reason=reason) if source == parent.pid:
                    raise Quit(reason)
                case ("trouble", kind, after, other):
                    await _done(self.suffer(kind, after, other))
                case (reason,):  # a request to stop
                    raise Quit(reason)
                case _:
                    pass


async def _done(doing: Any) -> Any:
    """As a behaviour does it: what is to be awaited is awaited, and a `Stop` is the end."""
    outcome = await doing if inspect.isawaitable(doing) else doing
    if isinstance(outcome, Stop):
        raise Quit(outcome.reason)
    return outcome
