"""The tasks of a company: who may have one, where its record is, and how to reach the process that keeps it.

`Tasks` is no process, and holds nothing but the store: it finds what is asked for, and refuses what is too much. It runs in the node's loop.
Everything that changes a task goes to its collector, through the collectors' supervisor, so that it comes behind the task's own start.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.errors import ErrorCode, McpError, not_done
from greenroom.supervision import DynamicSupervisor, Options, Ref, child
from greenroom.supervision.kernel.current import current_node
from greenroom.supervision.kernel.names import find

from .names import Name
from .task_collector import TaskCollector
from .task_record import TaskRecord, belongs_to_session
from .task_words import Cancel, Kept, Wait

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .catalogue import Catalogue
    from .company import Company
    from .settings import Settings
    from .task_store import TaskStore
    from .task_words import Plan

CAPABILITY: Final[Mapping[str, Any]] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
NO_TASK: Final = "Task not found: there is none with that id, it has expired, or the process that had it is gone"
"""One text for all of it: of a task of another principal, nothing shows that it is or was there."""


class Collectors(DynamicSupervisor):
    """The supervisor of all tasks' processes."""

    def pass_on(self, name: Name, message: object) -> None:
        """Send something to one of them, behind whatever was asked of us before.

        Who waits for an answer is told, and watches from then on whoever is to give it. If that one is gone, the record speaks.
        """
        Ref[Any](name).send(message)
        if isinstance(message, Wait | Cancel) and message.session is not None:
            message.session.send(Kept(message.key))


class Tasks:
    """Those of one company."""

    __slots__ = ("_clock", "_company", "collectors", "key", "settled", "store")

    def __init__(self, company: Company, store: TaskStore) -> None:
        """Nothing is read yet: the keeper opens the store."""
        self._company = company
        self._clock: tuple[asyncio.AbstractEventLoop, float] | None = None
        self.store = store
        self.key = company.key
        self.settled = False
        """Whether what an earlier life of the store left unfinished has been looked at."""
        self.collectors: Ref[Collectors] = Ref(company.name("collectors"), None)

    def now(self) -> float:
        """Seconds since 1970, by a clock that never goes back: the loop's, set when it was first looked at."""
        loop = asyncio.get_running_loop()
        if self._clock is None or self._clock[0] is not loop:
            self._clock = (loop, time.time() - loop.time())
        return self._clock[1] + loop.time()

    # --- looking

    def find(self, id: str, owner: str) -> TaskRecord:
        """That task of that owner. Raises `McpError` where there is none, or none any more; nobody learns of others'."""
        record = self.store.get(id)
        if record is None or not self._may_see(owner, record) or record.expires <= self.now():
            raise McpError(ErrorCode.INVALID_PARAMS, NO_TASK)
        return record

    def _may_see(self, owner: str, record: TaskRecord) -> bool:
        """Its owner may. Where nobody says who they are, and records outlive sessions, the id alone is the ticket once the session is gone."""
        if record.owner == owner:
            return True
        if not (self.store.durable and belongs_to_session(record.owner) and belongs_to_session(owner)):
            return False
        return find(current_node(), Name(self.key, "session", record.session_id)) is None

    def of(self, owner: str) -> list[TaskRecord]:
        """All of that owner's, the oldest first."""
        now = self.now()
        return [record for record in self.store.list(owner) if record.expires > now]

    def alive(self, id: str) -> bool:
        """Whether a process keeps that task."""
        process = find(current_node(), self.name(id))
        return process is not None and not process.life

    def name(self, id: str) -> Name:
        """What that process is registered as."""
        return Name(self._company.key, "task", id)

    def note(self, record: TaskRecord) -> None:
        """This is how it stands, and nobody waits until that is safe; what goes wrong is the store's to tell."""
        safe = self.store.put(record, at_once=True)
        if safe is not None:
            safe.add_done_callback(_overlook)

    # --- beginning

    def admit(self, owner: str, *, method: str, name: str, session_id: str, ttl: float | None) -> TaskRecord:
        """A new task, on record from now on. Raises `McpError` when its owner has too many."""
        settings = self._company.settings
        unfinished = sum(not record.terminal for record in self.store.list(owner))
        if unfinished >= settings.max_tasks:
            raise McpError(
                ErrorCode.INTERNAL_ERROR,
                f"Too many tasks at once: at most {settings.max_tasks} may be unfinished",
                not_done("too_many_tasks"),
            )
        now = self.now()
        record = TaskRecord(
            id=self._company.new_id("task"),
            owner=owner,
            session_id=session_id,
            method=method,
            name=name,
            created=now,
            updated=now,
            ttl=settings.task_ttl if ttl is None else min(ttl, settings.task_ttl_max),
            poll=settings.task_poll,
        )
        self.note(record)
        return record

    def launch(self, record: TaskRecord, plan: Plan | None, origin: Ref[Any] | None, *, announces: bool = True) -> bool:
        """Start the process that keeps it, some time. False when there is nobody to do so: then it never was."""
        options = Options(name=self.name(record.id), label="task")
        spec = child(TaskCollector, self._company, record, plan, origin, announces=announces).but(
            restart="temporary", options=options
        )
        begun = self.collectors.cast(DynamicSupervisor.start_child, spec)
        if not begun:
            self.store.remove(record.id)
        return begun

    def tell(self, id: str, message: object) -> bool:
        """Send something to the process that keeps it. False when that cannot be."""
        return self.collectors.cast(Collectors.pass_on, self.name(id), message)

    # --- forgetting

    def trim(self, owner: str) -> None:
        """Keep no more of what has ended than each owner may; the newest always stays."""
        settings = self._company.settings
        ended = sorted((each for each in self.store.list(owner) if each.terminal), key=_end)
        size = sum(each.size for each in ended)
        while len(ended) > 1 and (len(ended) > settings.max_tasks_kept or size > settings.task_bytes):
            oldest = ended.pop(0)
            size -= oldest.size
            self.store.remove(oldest.id)

    def orphan(self, owner: str) -> None:
        """Whoever owned these is gone for good: what has ended goes as well; what runs is ended by its collector."""
        if belongs_to_session(owner) and not self.store.durable:
            for record in self.store.list(owner):
                if record.terminal:
                    self.store.remove(record.id)

    def expired(self) -> Sequence[TaskRecord]:
        """Those that need not be kept any longer."""
        now = self.now()
        return [record for record in self.store.list() if record.expires <= now]


def declared(settings: Settings, catalogue: Catalogue) -> bool:
    """Whether the server says that tools can be called as tasks."""
    said = settings.capabilities.get("tasks")
    if "tasks" in settings.capabilities:
        return said is not None and said is not False
    found = catalogue.pages.get("tasks")
    if found is None:
        tools: Any = catalogue.all("tool").values()
        found = catalogue.pages["tasks"] = any(tool.as_task != "forbidden" for tool in tools)
    return bool(found)


def _end(record: TaskRecord) -> float:
    return record.ended or 0.0


def _overlook(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()
