"""Limits on threads: how many calls of one tool, and of one principal, run in threads at a time.

A call waits until both limits have room, and holds neither slot before. So forty slow calls of one tool delay no other tool, and one principal's flood holds no
slot that another could use. Principals that wait for one tool take turns, and so do the tools that one principal waits for. A slot is released when the thread
has really ended, not when its call was cancelled: a thread that never returns costs its own tool and its own principal one slot each.

The object belongs to a company and runs in its loop. No process owns it, since a slot must outlive the worker that took it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from greenroom.supervision import in_thread
from greenroom.supervision.fair_queue import FairQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

P = ParamSpec("P")
R = TypeVar("R")

PER_TOOL = 8
PER_PRINCIPAL = 16


class _Admission:
    """One call that waits for both of its slots."""

    __slots__ = ("admitted", "limit", "principal", "tool")

    admitted: asyncio.Future[None]

    def __init__(self, tool: Hashable, principal: Hashable, limit: int) -> None:
        self.tool = tool
        self.principal = principal
        self.limit = limit


class _Slots:
    """The taken slots and the waiting calls of one kind of limit. Empty entries are removed."""

    __slots__ = ("taken", "waiting")

    def __init__(self) -> None:
        self.taken: dict[Hashable, int] = {}
        self.waiting: dict[Hashable, FairQueue[_Admission]] = {}

    def take(self, key: Hashable) -> None:
        self.taken[key] = self.taken.get(key, 0) + 1

    def give_back(self, key: Hashable) -> None:
        left = self.taken[key] - 1
        if left:
            self.taken[key] = left
        else:
            del self.taken[key]

    def enqueue(self, key: Hashable, owner: Hashable, admission: _Admission) -> None:
        self.waiting.setdefault(key, FairQueue()).add(owner, admission)

    def dequeue(self, key: Hashable, admission: _Admission) -> None:
        queue = self.waiting.get(key)
        if queue is not None:
            queue.remove(admission)
            if not queue:
                del self.waiting[key]


class Bulkheads:
    """The thread limits of one company."""

    def __init__(self, per_tool: int = PER_TOOL, per_principal: int = PER_PRINCIPAL) -> None:
        """`per_tool` is the limit of tools that set none."""
        for name, bound in (("per_tool", per_tool), ("per_principal", per_principal)):
            if bound < 1:
                raise ValueError(f"{name} must be at least 1 thread, not {bound!r}")
        self.per_tool = per_tool
        self.per_principal = per_principal
        self._tools = _Slots()
        self._principals = _Slots()

    @property
    def running(self) -> int:
        """How many threads run, those of cancelled calls included."""
        return sum(self._tools.taken.values())

    @property
    def waiting(self) -> int:
        """How many calls wait for a slot."""
        return sum(len(queue) for queue in self._tools.waiting.values())

    async def run(
        self,
        tool: Hashable,
        principal: Hashable,
        limit: int | None,
        function: Callable[P, R],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        """Call `function` in a thread when there is room; `limit` is the tool's own limit, if it has one.

        Cancelling the wait leaves the thread running, and its slots taken.
        """
        admission = await self._acquire(tool, principal, limit or self.per_tool)
        return await in_thread(lambda: self._release(admission), function, *args, **kwargs)

    async def _acquire(self, tool: Hashable, principal: Hashable, limit: int) -> _Admission:
        admission = _Admission(tool, principal, limit)
        # Every waiting call that could run was already started, so admitting this one cannot jump a queue.
        if self._has_room(admission):
            self._take(admission)
            return admission
        admission.admitted = asyncio.get_running_loop().create_future()
        self._tools.enqueue(tool, principal, admission)
        self._principals.enqueue(principal, tool, admission)
        try:
            await admission.admitted
        except asyncio.CancelledError:
            if admission.admitted.done() and not admission.admitted.cancelled():
                self._release(admission)  # admitted and cancelled at once: the slots are ours to release
            else:
                self._dequeue(admission)
            raise
        return admission

    def _has_room(self, admission: _Admission) -> bool:
        return (
            self._tools.taken.get(admission.tool, 0) < admission.limit
            and self._principals.taken.get(admission.principal, 0) < self.per_principal
        )

    def _take(self, admission: _Admission) -> None:
        self._tools.take(admission.tool)
        self._principals.take(admission.principal)

    def _dequeue(self, admission: _Admission) -> None:
        self._tools.dequeue(admission.tool, admission)
        self._principals.dequeue(admission.principal, admission)

    def _release(self, admission: _Admission) -> None:
        self._tools.give_back(admission.tool)
        self._principals.give_back(admission.principal)
        self._admit_next(self._tools.waiting.get(admission.tool))
        self._admit_next(self._principals.waiting.get(admission.principal))

    def _admit_next(self, queue: FairQueue[_Admission] | None) -> None:
        """Start the first waiting call that may run. One slot came free, so at most one call can start for each of its two limits.

        If an owner's first call may not start, its others may not either: they wait for the same two limits.
        """
        while queue and (admission := queue.take(self._has_room)) is not None:
            self._dequeue(admission)
            if not admission.admitted.done():  # else cancelled in this turn of the loop: still queued, takes no slot
                self._take(admission)
                admission.admitted.set_result(None)
                return
