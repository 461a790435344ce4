"""Who looks after the records of tasks: opens the store, forgets what has expired, and sees to it that nothing works for ever.

Collectors write; the keeper only writes what no collector can: that a task whose process is gone, in this life of the program or in an
earlier one, has failed. Its own death costs nothing but a moment, since nobody waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.supervision import GenServer, Shutdown, child, send_after

from .task_endings import error_of
from .tasks import Collectors
from .tree import Tree

if TYPE_CHECKING:
    from greenroom.supervision import ChildSpec, ExitReason, Ref, Timer

    from .company import Company
    from .tasks import Tasks

SWEEP: Final = 60.0
_SOON: Final = 1.0
_LOOK: Final = object()
RESTARTED: Final = "The server was restarted before the task had ended"
LOST: Final = "What kept the task is gone"


class TaskKeeper(GenServer):
    """The one of a company."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, tasks: Tasks) -> None:
        """Nothing is suspicious yet."""
        self._tasks = tasks
        self._suspects: set[str] = set()
        self._timer: Timer | None = None

    async def init(self) -> None:
        """Have the store ready before anybody asks, and settle what an earlier life has left."""
        await self._tasks.store.open(self._tasks.key)
        if not self._tasks.settled:
            self._tasks.settled = True
            for record in self._tasks.store.list():
                if not record.terminal and not self._tasks.alive(record.id):
                    self._fail(record.id, RESTARTED)
        self._look()

    async def terminate(self, reason: ExitReason) -> None:
        """The company stops: what was put is safe when we are gone."""
        if self._timer is not None:
            self._timer.cancel()
        if isinstance(reason, Shutdown):
            self._tasks.settled = False
            await self._tasks.store.close()

    def handle_info(self, message: Any) -> None:
        """It is time to look."""
        if message is _LOOK:
            self._look()
        else:
            super().handle_info(message)

    def _look(self) -> None:
        tasks = self._tasks
        for record in tasks.expired():
            tasks.store.remove(record.id)
        found = {each.id for each in tasks.store.list() if not each.terminal and not tasks.alive(each.id)}
        for id in found & self._suspects:  # it is not just about to start
            self._fail(id, LOST)
        self._suspects = found - self._suspects
        self._timer = send_after(_SOON if self._suspects else SWEEP, self.pid, _LOOK)

    def _fail(self, id: str, why: str) -> None:
        record = self._tasks.store.get(id)
        if record is not None and not record.terminal:
            error = McpError(ErrorCode.INTERNAL_ERROR, why)
            self._tasks.note(error_of(error).of(record, self._tasks.now()))


def tasks_child(company: Company) -> ChildSpec[Ref[Tree]]:
    """The company's child: the keeper, and a process for each task."""
    children: list[ChildSpec[Any]] = [
        child(TaskKeeper, company.tasks).but(id="keeper", name=company.name("keeper")),
        child(Collectors).but(id="collectors", name=company.name("collectors")),
    ]
    return child(Tree, children, intensity=5, period=10.0).but(id="tasks", name=company.name("tasks"))
