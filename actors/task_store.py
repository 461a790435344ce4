"""Task stores: the interface, and the one in memory.

A store is no process, and belongs to the company. Tasks' processes write their own record, all processes read. Reading is immediate, out of memory, so that
peers may poll. Everything is called in the node's loop; a store with a thread of its own hides that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from greenroom.errors import GreenroomError

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Sequence

    from .task_record import TaskRecord


class TaskStoreError(GreenroomError):
    """A store cannot be used, or cannot be written now: which one, why, and what to do."""

    def __init__(self, place: object, why: str) -> None:
        """`why` continues a sentence that begins with the place."""
        super().__init__(place, why)
        self.place = place

    def __str__(self) -> str:
        return f"{self.place} {self.args[1]}"


class TaskStore(Protocol):
    """The interface that a company uses.

    Where several processes serve, each has a store. A store that has a method `of_place(number)` is asked for that of
    each; any other has to keep the processes' tasks apart by itself.
    """

    @property
    def durable(self) -> bool:
        """Whether records outlive the program, and so their sessions."""
        raise NotImplementedError

    async def open(self, company: object) -> None:
        """Prepare for reading and writing, by that company. Called before anything else, and again when its caller was restarted.

        Records of an earlier run are there from then on; the company fails the tasks among them that had not ended.
        """

    def put(self, record: TaskRecord, *, at_once: bool = False) -> Future[None] | None:
        """Store the record. None if that is safe at once, else a future for when it is.

        Readers see the record at once, except for a task's end: they see that when it is safe, so that no reader gets
        an outcome that a restart would take back. A caller that cannot wait passes `at_once`. Never raises: errors go
        to the future, and then readers see the record nevertheless. Later calls for the same task win, in their
        order; after its end none does.
        """
        raise NotImplementedError

    def get(self, id: str) -> TaskRecord | None:
        """The newest visible record of that task."""
        raise NotImplementedError

    def list(self, owner: str | None = None) -> Sequence[TaskRecord]:
        """The newest visible record of each task of that owner, or of all owners, the oldest task first."""
        raise NotImplementedError

    def remove(self, id: str) -> None:
        """Remove a task; an unknown one is no error."""

    async def close(self) -> None:
        """Stop until the store is opened again. Everything stored is safe when this returns."""


DEFAULT_MAX_RECORDS: Final = 100_000
DEFAULT_MAX_BYTES: Final = 256 * 1024 * 1024


class MemoryTaskStore:
    """Keeps tasks for as long as the program runs."""

    __slots__ = ("_by_owner", "_bytes", "_ended", "_records", "max_bytes", "max_records")

    def __init__(self, *, max_records: int | None = None, max_bytes: int | None = None) -> None:
        """Of the tasks that have ended, the oldest go when there are more than `max_records`, or their results have more than `max_bytes`.

        The newest always stays. None is no limit.
        """
        self.max_records = max_records
        self.max_bytes = max_bytes
        self._records: dict[str, TaskRecord] = {}
        self._by_owner: dict[str, dict[str, TaskRecord]] = {}
        self._ended: dict[str, int] = {}
        """The size of each ended task, the first to end first."""
        self._bytes = 0

    @property
    def durable(self) -> bool:
        """False: records end with the program."""
        return False

    def __len__(self) -> int:
        return len(self._records)

    async def open(self, company: object = None) -> None:
        """No-op."""

    def put(self, record: TaskRecord, *, at_once: bool = True) -> None:  # noqa: ARG002 - there is nothing to wait for
        """Keep the record, which is as safe as it gets."""
        self._records[record.id] = record
        self._by_owner.setdefault(record.owner, {})[record.id] = record
        if record.terminal and record.id not in self._ended:
            self._ended[record.id] = record.size
            self._bytes += record.size
            while len(self._ended) > 1 and self._is_full():
                self.remove(next(iter(self._ended)))

    def _is_full(self) -> bool:
        return (self.max_records is not None and len(self._ended) > self.max_records) or (
            self.max_bytes is not None and self._bytes > self.max_bytes
        )

    def get(self, id: str) -> TaskRecord | None:
        """The newest record of that task."""
        return self._records.get(id)

    def list(self, owner: str | None = None) -> Sequence[TaskRecord]:
        """The records in the order of their tasks' creation."""
        return list((self._records if owner is None else self._by_owner.get(owner, {})).values())

    def remove(self, id: str) -> None:
        """Remove a task."""
        record = self._records.pop(id, None)
        if record is not None:
            self._bytes -= self._ended.pop(id, 0)
            mine = self._by_owner[record.owner]
            del mine[id]
            if not mine:
                del self._by_owner[record.owner]

    async def close(self) -> None:
        """No-op."""


def default_task_store() -> MemoryTaskStore:
    """The store of a company that was given none. It is bounded: without authentication, any client may begin tasks."""
    return MemoryTaskStore(max_records=DEFAULT_MAX_RECORDS, max_bytes=DEFAULT_MAX_BYTES)
