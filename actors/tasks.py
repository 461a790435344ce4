"""The tasks of a company: access to their records and processes, the process that removes expired records, and a session's calls of tasks.

`CompanyTasks` is no process. It finds and admits tasks, and runs in the node's loop. A message that changes a task
goes to the task's process, through the supervisor of those processes, so that it arrives after the task's own start.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from greenroom.protocol import methods
from greenroom.protocol.errors import ErrorCode, McpError, PeerError, not_executed
from greenroom.protocol.jsonrpc import encode_result
from greenroom.protocol.methods import PeerSide
from greenroom.protocol.pagination import page
from greenroom.supervision import (
    ActorError,
    DynamicSupervisor,
    GenServer,
    Options,
    Ref,
    Shutdown,
    child,
    current_node,
    demonitor,
    monitor,
    send_after,
)
from greenroom.transports.access_log import log_refusal

from .exclusive_supervisor import ExclusiveSupervisor
from .process_names import ProcessName
from .task_process import CreatedTask, TaskProcess
from .task_record import (
    AwaitTask,
    CancelTask,
    ForwardedToTask,
    StopAwaitingTask,
    TaskChanged,
    TaskRecord,
    TaskSpec,
    belongs_to_session,
    error_outcome,
    is_anonymous,
    owner_of,
    task_reply,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from greenroom.event_types import Outcome
    from greenroom.protocol.jsonrpc import JsonRpcRequest
    from greenroom.supervision import ChildSpec, ExitReason, Monitor, Pid, Timer

    from .catalogue import Catalogue
    from .company import Company
    from .mounted_entries import CallableTool
    from .session import SessionProcess
    from .session_calls import SessionCall
    from .settings import Settings
    from .task_record import Era, TaskDecided
    from .task_store import TaskStore

CAPABILITY: Final[Mapping[str, Any]] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
NO_TASK: Final = "Task not found: there is none with that id, it has expired, or the process that had it is gone"
"""One text for all cases: another principal must not learn whether a task exists or existed."""


class TaskProcessSupervisor(DynamicSupervisor):
    """The supervisor of all tasks' processes."""

    def forward(self, name: ProcessName, message: object) -> None:
        """Send a message to a task's process, after the starts that were requested before.

        A session that waits for an answer is told, and monitors that process from then on. If the process is gone,
        the record answers.
        """
        Ref[Any](name).send(message)
        if isinstance(message, AwaitTask | CancelTask) and message.session is not None:
            message.session.send(ForwardedToTask(message.key))


class TaskWatchers:
    """The processes that are told of changes of tasks that have not ended."""

    __slots__ = ("_by_task",)

    def __init__(self) -> None:
        self._by_task: dict[str, dict[Pid | None, Ref[Any]]] = {}

    def __len__(self) -> int:
        return len(self._by_task)

    def watch(self, record: TaskRecord, watcher: Ref[Any]) -> None:
        """Send the watcher a `TaskChanged` after each change, the end included."""
        if not record.terminal:
            self._by_task.setdefault(record.id, {})[watcher.pid] = watcher

    def unwatch(self, ids: Iterable[str], watcher: Ref[Any]) -> None:
        """Send the watcher nothing more of these tasks."""
        for id in ids:
            watchers = self._by_task.get(id)
            if watchers is not None:
                watchers.pop(watcher.pid, None)
                if not watchers:
                    del self._by_task[id]

    def announce(self, record: TaskRecord) -> None:
        """The task has changed. After its end it has no watchers."""
        watchers = self._by_task.pop(record.id, None)
        if watchers is None:
            return
        changed = TaskChanged(record)
        reached = {pid: watcher for pid, watcher in watchers.items() if watcher.send(changed)}
        if reached and not record.terminal:
            self._by_task[record.id] = reached


class TooManyTasks(McpError):
    """An owner, or all of them, have as many unfinished tasks as the settings allow."""

    def __init__(self, why: str) -> None:
        super().__init__(ErrorCode.INTERNAL_ERROR, why, not_executed("too_many_tasks"))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.message,)


class CompanyTasks:
    """The tasks of one company."""

    __slots__ = ("_clock", "_company", "is_recovered", "key", "processes", "store", "watchers")

    def __init__(self, company: Company, store: TaskStore) -> None:
        """`store` is opened by the sweeper, before any session reads it."""
        self._company = company
        self._clock: tuple[asyncio.AbstractEventLoop, float] | None = None
        self.store = store
        self.key = company.key
        self.is_recovered = False
        """Whether the unfinished tasks of an earlier run of the program have been failed."""
        self.processes: Ref[TaskProcessSupervisor] = Ref(company.name("task_processes"), None)
        self.watchers = TaskWatchers()

    def now(self) -> float:
        """Seconds since 1970, by a clock that never goes back: the loop's, set when it was first read."""
        loop = asyncio.get_running_loop()
        if self._clock is None or self._clock[0] is not loop:
            self._clock = (loop, time.time() - loop.time())
        return self._clock[1] + loop.time()

    # --- reading

    def find(self, id: str, owner: str) -> TaskRecord:
        """That task of that owner. Raises `McpError` if there is none, or none that this owner may know of."""
        record = self.find_or_none(id, owner)
        if record is None:
            raise McpError(ErrorCode.INVALID_PARAMS, NO_TASK)
        return record

    def find_or_none(self, id: str, owner: str) -> TaskRecord | None:
        """That task of that owner. None if there is none, or none that this owner may know of."""
        record = self.store.get(id)
        if record is None or not self._may_see(owner, record) or record.expires <= self.now():
            return None
        return record

    def _may_see(self, owner: str, record: TaskRecord) -> bool:
        """Whether the owner may see the record.

        Where peers are anonymous, the id alone gives access to a task that was begun without a session, and where
        records outlive sessions, also to a task whose session is gone.
        """
        if record.owner == owner:
            return True
        if not (belongs_to_session(owner) or is_anonymous(owner)):
            return False
        if is_anonymous(record.owner):
            return True
        if not (self.store.durable and belongs_to_session(record.owner)):
            return False
        return current_node().named(ProcessName(self.key, "session", record.session_id)) is None

    def of_owner(self, owner: str) -> list[TaskRecord]:
        """All tasks of that owner, the oldest first."""
        now = self.now()
        return [record for record in self.store.list(owner) if record.expires > now]

    def alive(self, id: str) -> bool:
        """Whether the task's process is running."""
        process = current_node().named(self.name(id))
        return process is not None and not process.life

    def name(self, id: str) -> ProcessName:
        """The registered name of the task's process."""
        return ProcessName(self._company.key, "task", id)

    def wraps_result(self, record: TaskRecord) -> bool:
        """Whether the tool's structured results are under `result` in handshake revisions, as far as it is still registered."""
        if record.method != "tools/call":
            return False
        catalogue = self._company.catalogue_ref.current
        tool: CallableTool | None = catalogue.tool(record.name)
        if tool is None and catalogue.mounted is not None:
            tool = catalogue.mounted.tool(record.name)
        return tool is not None and tool.wraps_result

    def save(self, record: TaskRecord) -> None:
        """Store the record, without waiting until that is safe. The store reports errors."""
        safe = self.store.put(record, at_once=True)
        if safe is not None:
            safe.add_done_callback(_ignore_error)

    # --- beginning

    def admit(
        self,
        owner: str,
        *,
        method: str,
        name: str,
        session_id: str,
        ttl: float | None,
        era: Era = "handshake",
    ) -> TaskRecord:
        """Create and store the record of a new task. Raises `TooManyTasks`."""
        settings = self._company.settings
        limit = settings.max_tasks_in_all
        if limit is not None and self._running() >= limit:
            raise TooManyTasks(f"Too many tasks at once: at most {limit} of all owners may be unfinished")
        unfinished = sum(not record.terminal for record in self.store.list(owner))
        if unfinished >= settings.max_tasks:
            raise TooManyTasks(f"Too many tasks at once: at most {settings.max_tasks} may be unfinished")
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
            era=era,
        )
        self.save(record)
        return record

    def _running(self) -> int:
        """How many tasks have a process, read without asking their supervisor."""
        process = current_node().named(self._company.name("task_processes"))
        supervisor = None if process is None else process.behaviour
        return len(supervisor) if isinstance(supervisor, TaskProcessSupervisor) else 0

    def start_process(
        self, record: TaskRecord, spec: TaskSpec | None, origin: Ref[Any] | None, *, announces: bool = True
    ) -> bool:
        """Have the task's process started, without waiting.

        False when its supervisor is not running: then the record is removed.
        """
        child_spec = self._process_spec(record, spec, origin, announces=announces)
        begun = self.processes.cast(DynamicSupervisor.start_child, child_spec)
        if not begun:
            self.store.remove(record.id)
        return begun

    async def create(self, record: TaskRecord, spec: TaskSpec) -> CreatedTask:
        """Start the task's process, and wait until the record is safe. Raises `McpError`: then there is no task.

        Cancelling the wait cancels the task, whose id is known to no peer.
        """
        try:
            process: Ref[TaskProcess] = await self.processes.call(
                DynamicSupervisor.start_child, self._process_spec(record, spec, None, announces=False)
            )
            return await process.within(None).call(TaskProcess.created)
        except ActorError as error:
            kept = self.store.get(record.id)
            if kept is not None and kept.terminal:
                return CreatedTask(kept, None)  # it has ended already, and its process with it
            self.store.remove(record.id)
            raise McpError(
                ErrorCode.INTERNAL_ERROR, "The task cannot be kept just now: try again", not_executed("busy")
            ) from error
        except asyncio.CancelledError:
            self.send(record.id, CancelTask("the call was cancelled"))
            raise

    def _process_spec(
        self, record: TaskRecord, spec: TaskSpec | None, origin: Ref[Any] | None, *, announces: bool
    ) -> ChildSpec[Ref[TaskProcess]]:
        options = Options(name=self.name(record.id), label="task")
        return child(TaskProcess, self._company, record, spec, origin, announces=announces).but(
            restart="temporary", options=options
        )

    def send(self, id: str, message: object) -> bool:
        """Send a message to the task's process. False when its supervisor is not running."""
        return self.processes.cast(TaskProcessSupervisor.forward, self.name(id), message)

    # --- removing

    def trim(self, owner: str) -> None:
        """Remove the oldest ended tasks beyond the owner's limits; the newest always stays."""
        settings = self._company.settings
        ended = sorted((each for each in self.store.list(owner) if each.terminal), key=_end_time)
        size = sum(each.size for each in ended)
        while len(ended) > 1 and (len(ended) > settings.max_tasks_kept or size > settings.task_bytes):
            oldest = ended.pop(0)
            size -= oldest.size
            self.store.remove(oldest.id)


def declared(settings: Settings, catalogue: Catalogue) -> bool:
    """Whether the server declares that tools can be called as tasks."""
    value = settings.capabilities.get("tasks")
    if "tasks" in settings.capabilities:
        return value is not None and value is not False
    if catalogue.mounted is not None:
        return True  # upstreams with tasks may come later than a client's handshake
    found = catalogue.pages.get("tasks")
    if found is None:
        tools: Any = catalogue.all("tool").values()
        found = catalogue.pages["tasks"] = any(tool.as_task != "forbidden" for tool in tools)
    return bool(found)


def _end_time(record: TaskRecord) -> float:
    return record.ended or 0.0


def _ignore_error(done: asyncio.Future[None]) -> None:
    # Marks the exception as retrieved, so that asyncio does not log it: the store has.
    if not done.cancelled():
        done.exception()


# --- The sweeper: opens the store, removes expired records, and fails tasks that have lost their process.
# Tasks' processes write their own records. The sweeper writes only for tasks without a process, lost in this run of
# the program or an earlier one. Its death costs a moment, since no process waits for it.

SWEEP_SECONDS: Final = 60.0
_RECHECK_SECONDS: Final = 1.0
_SWEEP: Final = object()
RESTARTED: Final = "The server was restarted before the task had ended"
LOST: Final = "The task's process is gone"


class TaskSweeper(GenServer):
    """The sweeper of a company."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, tasks: CompanyTasks) -> None:
        self._tasks = tasks
        self._suspects: set[str] = set()
        self._timer: Timer | None = None

    async def init(self) -> None:
        """Open the store before any session asks, and fail the unfinished tasks of an earlier run."""
        await self._tasks.store.open(self._tasks.key)
        if not self._tasks.is_recovered:
            self._tasks.is_recovered = True
            for record in self._tasks.store.list():
                if not record.terminal and not self._tasks.alive(record.id):
                    self._fail(record.id, RESTARTED)
        self._sweep()

    async def terminate(self, reason: ExitReason) -> None:
        """Close the store: everything stored is safe when this returns."""
        if self._timer is not None:
            self._timer.cancel()
        if isinstance(reason, Shutdown):
            self._tasks.is_recovered = False
            await self._tasks.store.close()

    def handle_info(self, message: Any) -> None:
        """Sweep when the timer fires."""
        if message is _SWEEP:
            self._sweep()
        else:
            super().handle_info(message)

    def _sweep(self) -> None:
        tasks = self._tasks
        now = tasks.now()
        for record in [each for each in tasks.store.list() if each.expires <= now]:
            tasks.store.remove(record.id)
        found = {each.id for each in tasks.store.list() if not each.terminal and not tasks.alive(each.id)}
        for id in found & self._suspects:  # seen twice: at first it may have been about to start
            self._fail(id, LOST)
        self._suspects = found - self._suspects
        self._timer = send_after(_RECHECK_SECONDS if self._suspects else SWEEP_SECONDS, self.pid, _SWEEP)

    def _fail(self, id: str, why: str) -> None:
        record = self._tasks.store.get(id)
        if record is not None and not record.terminal:
            error = McpError(ErrorCode.INTERNAL_ERROR, why)
            failed = error_outcome(error).apply_to(record, self._tasks.now())
            self._tasks.save(failed)
            self._tasks.watchers.announce(failed)


def tasks_child(company: Company) -> ChildSpec[Ref[ExclusiveSupervisor]]:
    """The child spec of the sweeper and the tasks' processes."""
    children: list[ChildSpec[Any]] = [
        child(TaskSweeper, company.tasks).but(id="sweeper", name=company.name("task_sweeper")),
        child(TaskProcessSupervisor).but(id="processes", name=company.name("task_processes")),
    ]
    return child(ExclusiveSupervisor, children, intensity=5, period=10.0).but(id="tasks", name=company.name("tasks"))


# --- Calls of a session that concern tasks: tool calls that become one, and `tasks/*`.
# Part of the session's process. Reading tasks is answered from their records. A call that has to wait, or to cancel,
# is answered when the task's process sends a message, or dies. Either way the session makes the reply, from the
# record, and once.

_SUPERSEDED: Final = "Another tasks/result of yours waits for this task, and this one has no reader"
_PROCESS_LOST: Final = "The server was restarted during this request"


class TaskCalls:
    """The task calls of one session."""

    __slots__ = ("_monitors", "_session")

    def __init__(self, session: SessionProcess) -> None:
        self._session = session
        self._monitors: dict[Monitor, int] | None = None

    @property
    def _tasks(self) -> CompanyTasks:
        return self._session.company.tasks

    @property
    def owner(self) -> str:
        """The owner of this session's tasks."""
        info = self._session.info
        return owner_of(info.peer, info.id)

    # --- calling a tool as a task

    def begin(self, request: JsonRpcRequest, tool: CallableTool) -> bool:
        """Whether this call of a tool becomes a task.

        Raises `McpError` if it must not, or if it must and the peer did not ask for one.
        """
        requested, support = request.params.get("task"), tool.as_task
        if requested is None and support == "forbidden":
            return False  # nearly all calls
        session = self._session
        company = session.company
        catalogue = company.catalogue_ref.current
        if methods.find_method("tasks/get", session.version, PeerSide.SERVER) is None:
            return False
        owner = self.owner
        if not session.gated and belongs_to_session(owner) and session.reply_sink.channel is None:
            return False  # a request without a session: no peer could ask for the task later
        if not declared(company.settings, catalogue):
            return False
        if requested is None:
            if support == "required":
                raise McpError(ErrorCode.METHOD_NOT_FOUND, f"{tool.name} runs as a task only: call it with params.task")
            if not tool.long_running:
                return False
        elif support == "forbidden":
            raise McpError(
                ErrorCode.METHOD_NOT_FOUND, f"{tool.name} does not run as a task: call it without params.task"
            )
        ttl = None if requested is None else _seconds(requested)
        call = session.begin(request, company.settings.call_timeout, fixed_deadline=True)
        try:
            record = self._tasks.admit(
                owner, method=request.method, name=tool.name, session_id=session.info.id, ttl=ttl
            )
        except TooManyTasks as error:
            log_refusal(
                error.message,
                peer=session.facts.peer,
                setting="max_tasks",
                method=request.method,
                program=company.program,
            )
            session.calls.fail(call.key, error, "refused")
            return True
        call.task = record.id
        spec = TaskSpec(
            session.own_ref,
            call.key,
            request,
            session.facts,
            tool.task_timeout,
            requested is not None,
            creator=0 if call.observed is None else call.observed.number,
        )
        if self._tasks.start_process(record, spec, session.own_ref):
            self._watch(self._tasks.processes, call)
        else:
            session.calls.fail(
                call.key,
                McpError(ErrorCode.INTERNAL_ERROR, "No task can be started just now: try again", not_executed("busy")),
                "process_ended",
            )
        return True

    # --- tasks/*

    def take(self, request: JsonRpcRequest) -> bytes | None:
        """The reply to one of the methods; None when it comes later."""
        return _ANSWERS[request.method](self, request)

    def _get(self, request: JsonRpcRequest) -> bytes:
        return encode_result(request.id, self._find(request).to_wire())

    def _list(self, request: JsonRpcRequest) -> bytes:
        """The tasks in the order of their creation."""
        records = sorted(self._tasks.of_owner(self.owner), key=_sort_key)
        size = self._session.company.settings.page_size
        part, following = page([_sort_key(each) for each in records], request.params.get("cursor"), size, "task")
        result: dict[str, Any] = {"tasks": [each.to_wire() for each in records[part]]}
        if following is not None:
            result["nextCursor"] = following
        return encode_result(request.id, result)

    def _result(self, request: JsonRpcRequest) -> bytes | None:
        """Wait until the task has ended. An earlier call whose reader has gone away stops waiting."""
        record = self._find(request)
        session = self._session
        if record.terminal:
            if session.observed is not None:
                session.observed.end(*_ending_of(record))
            return self._result_reply(record, request.id)
        for call in session.calls.table:
            if call.method == "tasks/result" and call.task == record.id and _has_no_reader(call):
                self.on_abandoned(call)
                session.calls.fail(call.key, McpError(ErrorCode.INTERNAL_ERROR, _SUPERSEDED))
        call = session.begin(request, None, fixed_deadline=True)
        self._await_task(call, record, AwaitTask(session.own_ref, session.pid, call.key))
        return None

    def _cancel(self, request: JsonRpcRequest) -> bytes | None:
        """Cancel the task. The first request that reaches its process before the end wins."""
        record = self._find(request)
        if record.terminal:
            raise _already_ended(record)
        session = self._session
        call = session.begin(request, session.company.settings.call_timeout)
        self._await_task(call, record, CancelTask("by request", session.own_ref, call.key))
        return None

    def _result_reply(self, record: TaskRecord, id: str | int) -> bytes:
        return task_reply(record, id, wrapped=record.era == "stateless" and self._tasks.wraps_result(record))

    def _find(self, request: JsonRpcRequest) -> TaskRecord:
        return self._tasks.find(request.params["taskId"], self.owner)

    def _await_task(self, call: SessionCall, record: TaskRecord, word: AwaitTask | CancelTask) -> None:
        """Monitor the supervisor that forwards the message, and then the task's process, which may be about to start or to end."""
        call.task = record.id
        self._watch(self._tasks.processes, call)
        self._tasks.send(record.id, word)

    def _watch(self, who: Ref[Any], call: SessionCall) -> None:
        if self._monitors is None:
            self._monitors = {}
        self._monitors[monitor(who)] = call.key

    def on_forwarded(self, word: ForwardedToTask) -> None:
        """The task's process has the message: monitor that process."""
        call = self._session.calls.table.get(word.key)
        if call is not None and call.task is not None:
            self.on_replied(call)
            self._watch(Ref[Any](self._tasks.name(call.task)), call)

    # --- replies

    def on_decided(self, word: TaskDecided) -> None:
        """A task's process has decided one of our calls."""
        call = self._session.calls.table.get(word.key)
        if call is not None:
            self._reply_to(call, won=word.won)

    def on_process_down(self, ref: Monitor) -> bool:
        """Reply to the call that this process was to answer. Whether there was one."""
        key = None if self._monitors is None else self._monitors.pop(ref, None)
        if key is None:
            return False
        call = self._session.calls.table.get(key)
        if call is not None:
            self._reply_to(call, won=True)
        return True

    def _reply_to(self, call: SessionCall, *, won: bool) -> None:
        calls = self._session.calls
        record = self._tasks.store.get(call.task or "")
        if record is None or not record.terminal:
            if record is not None and call.method == "tools/call" and not self._tasks.alive(record.id):
                self._tasks.store.remove(record.id)  # no client was told of it
            calls.fail(call.key, McpError(ErrorCode.INTERNAL_ERROR, _PROCESS_LOST), "process_ended")
        elif call.method == "tasks/result":
            if call.observed is not None:
                call.observed.end(*_ending_of(record))
            calls.finish(call.key, self._result_reply(record, call.id))
        elif call.method == "tasks/cancel":
            if won and record.status == "cancelled":
                calls.finish(call.key, encode_result(call.id, record.to_wire()))
            else:
                calls.fail(call.key, _already_ended(record))
        else:
            calls.fail(call.key, McpError(ErrorCode.INTERNAL_ERROR, _PROCESS_LOST), "process_ended")

    def on_abandoned(self, call: SessionCall) -> None:
        """The caller stopped waiting. Withdraw its wait for a result; cancel a task whose id it was never sent."""
        if call.method == "tasks/result":
            self._tasks.send(call.task or "", StopAwaitingTask(self._session.pid, call.key))
        elif call.method == "tools/call":
            self._tasks.send(call.task or "", CancelTask("the call was cancelled"))

    def on_replied(self, call: SessionCall) -> None:
        """Stop monitoring the process that was to answer this call."""
        for ref, key in tuple((self._monitors or {}).items()):
            if key == call.key:
                assert self._monitors is not None
                del self._monitors[ref]
                demonitor(ref, flush=True)

    def on_session_end(self) -> None:
        """The session has ended: remove its ended tasks, unless another owner has them. Their processes end the running ones."""
        store, owner = self._tasks.store, self.owner
        if belongs_to_session(owner) and not store.durable:
            for record in store.list(owner):
                if record.terminal:
                    store.remove(record.id)


def _seconds(requested: Mapping[str, Any]) -> float | None:
    ttl = requested.get("ttl")
    if ttl is None:
        return None
    if not (math.isfinite(ttl) and ttl >= 0):
        raise McpError(ErrorCode.INVALID_PARAMS, f"Invalid params: task.ttl is a number of milliseconds, not {ttl!r}")
    return float(ttl) / 1000


def _ending_of(record: TaskRecord) -> tuple[Outcome, McpError | None]:
    """The outcome of a `tasks/result`: what it returns is the result or the error of the task's call."""
    if record.result is not None:
        return ("tool_error" if record.status == "failed" else "result"), None
    return "error", PeerError.from_wire(msgspec.json.decode(record.error or b"{}"))


def _sort_key(record: TaskRecord) -> str:
    return f"{record.created:018.6f} {record.id}"


def _has_no_reader(call: SessionCall) -> bool:
    if call.stream is not None:
        return call.stream.reader is None
    return call.caller is not None and call.caller.over


def _already_ended(record: TaskRecord) -> McpError:
    return McpError(ErrorCode.INVALID_PARAMS, f"Cannot cancel the task: it has ended already, and is {record.status}")


_ANSWERS: Final[Mapping[str, Callable[[TaskCalls, JsonRpcRequest], bytes | None]]] = {
    "tasks/get": TaskCalls._get,  # noqa: SLF001 - the table of this file
    "tasks/list": TaskCalls._list,  # noqa: SLF001 - same
    "tasks/result": TaskCalls._result,  # noqa: SLF001 - same
    "tasks/cancel": TaskCalls._cancel,  # noqa: SLF001 - same
}
