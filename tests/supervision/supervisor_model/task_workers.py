"""Workers that are tasks: plain routines that acknowledge their start, and run until they are told to stop."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from greenroom.supervision import Exit, Quit, Stop, acknowledge, receive, trap_exit

from .server_workers import PlanWorker

if TYPE_CHECKING:
    from .run_log import RunLog


async def run_task_worker(log: RunLog, role: str) -> None:
    """Run a task worker."""
    await TaskWorker(log, role).run()


class TaskWorker(PlanWorker):
    """A worker without a behaviour: it receives its messages itself, and answers no calls."""

    def first(self, seconds: float) -> float:
        """Pause after a long init, if necessary."""
        return seconds

    async def run(self) -> None:
        """Acknowledge the start, and handle one message after the other."""
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
    """Await awaitables, and exit on a `Stop`, as a behaviour does."""
    outcome = await doing if inspect.isawaitable(doing) else doing
    if isinstance(outcome, Stop):
        raise Quit(outcome.reason)
    return outcome
