"""Where the records of tasks are kept: the interface, and the store that lives as long as the program.

A store is no process, and belongs to the company: collectors write their own task's record, all processes read. Reading is at once, out of memory
and without waiting, so that peers may poll. Everything is called in the node's loop; a store with a thread of its own keeps that to
itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from greenroom.errors import GreenroomError

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Sequence

    from .task_record import TaskRecord


class TaskStoreError(GreenroomError):
    """A store cannot be used, or not be written just now: which one, why, and what to do."""

    def __init__(self, place: object, why: str) -> None:
        """`why` completes a sentence that begins with the place."""
        super().__init__(place, why)
        self.place = place

    def __str__(self) -> str:
        return f"{self.place} {self.args[1]}"


class TaskStore(Protocol):
    """What a company needs of it.

    Where several processes serve, each has one. A store that has a method `of_place(number)` is asked for that of each; any other has to keep
    apart by itself what several processes put into it.
    """

    @property
    def durable(self) -> bool:
        """Whether what it keeps outlives the program, and so the sessions that it came from."""
        raise NotImplementedError

    async def open(self, company: object) -> None:
        """Get ready to be read and written, by that company. Called before anything else, and again when its caller was restarted.

        Records that it has kept from another life are there from then on; the company decides what became of the tasks that had not ended.
        """

    def put(self, record: TaskRecord, *, at_once: bool = False) -> Future[None] | None:
        """This is how the task stands. None if that is all there is to it, else something to wait for until it is safe.

        Readers see it at once, but for a task's end: that is seen when it is safe, so that no reader is told what a restart would take back. A caller
        that cannot wait says `at_once`. Never raises: an error is raised to the task that waits, and then readers see the record nevertheless. Later calls
        for the same task win, in their order; after its end none does.
        """
        raise NotImplementedError

    def get(self, id: str) -> TaskRecord | None:
        """The newest record of that task that may be seen."""
        raise NotImplementedError

    def list(self, owner: str | None = None) -> Sequence[TaskRecord]:
        """The newest record of each task of that owner, or of all owners, the oldest task first."""
        raise NotImplementedError

    def remove(self, id: str) -> None:
        """Forget it; one that there is not is no error."""

    async def close(self) -> None:
        """End reading and writing until it is opened again; what was put is safe when this returns."""


class MemoryTaskStore:
    """Keeps everything for as long as the program runs."""

    __slots__ = ("_by_owner", "_records")

    def __init__(self) -> None:
        """Empty."""
        self._records: dict[str, TaskRecord] = {}
        self._by_owner: dict[str, dict[str, TaskRecord]] = {}

    @property
    def durable(self) -> bool:
        """They go with the program."""
        return False

    def __len__(self) -> int:
        return len(self._records)

    async def open(self, company: object = None) -> None:
        """There is nothing to do."""

    def put(self, record: TaskRecord, *, at_once: bool = True) -> None:  # noqa: ARG002 - there is nothing to wait for
        """As safe as it will ever be."""
        self._records[record.id] = record
        self._by_owner.setdefault(record.owner, {})[record.id] = record

    def get(self, id: str) -> TaskRecord | None:
        """The newest record of that task."""
        return self._records.get(id)

    def list(self, owner: str | None = None) -> Sequence[TaskRecord]:
        """In the order in which they were put first."""
        return list((self._records if owner is None else self._by_owner.get(owner, {})).values())

    def remove(self, id: str) -> None:
        """Forget it."""
        record = self._records.pop(id, None)
        if record is not None:
            mine = self._by_owner[record.owner]
            del mine[id]
            if not mine:
                del self._by_owner[record.owner]

    async def close(self) -> None:
        """There is nothing to do."""
