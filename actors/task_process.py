"""A task's own process: it stands where a session stands for a call, decides once how the task ends, and writes that down.

It is linked to the worker, whose `JobReply` and `JobError` come here; it sees to it that the handler's questions find a way to the peer; and
it is gone as soon as the task has ended and its worker with it. The record outlives it. When it dies before that, however that comes, the
last thing that happens is that the task has failed: `exited` runs whatever it died of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.jsonrpc import encode_notification, encode_result
from greenroom.supervision import (
    NORMAL,
    SHUTDOWN,
    Continue,
    Crash,
    Down,
    Exit,
    GenServer,
    NoReply,
    ProcessExited,
    Reject,
    Shutdown,
    Stop,
    TaskSupervisor,
    monitor,
    send_after,
)
from greenroom.transports.access_log import is_on, log_call

from .peer_channels import (
    MAX_QUEUED_MESSAGES,
    AskPeer,
    NoStream,
    PeerNotification,
    TaskQuestionsWithdrawn,
    ask_session,
    capability_error,
)
from .process_names import short_id
from .session_calls import CANCELLED, TIMED_OUT
from .task_record import (
    AwaitTask,
    CancelTask,
    StopAwaitingTask,
    TaskDecided,
    TaskOutcome,
    TaskUpdate,
    belongs_to_session,
    cancel_outcome,
    crash_outcome,
    error_outcome,
    reply_outcome,
    task_created_result,
    with_related_task,
)
from .worker_interfaces import Cancellation, Job, JobError, JobReply, end_worker, run_job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import Caller, ExitReason, Monitor, Pid, Ref, Timer

    from .company import Company
    from .task_record import TaskRecord, TaskSpec, TaskStatus
    from .worker_interfaces import SessionFacts

_START_WORK, _TIMEOUT_OVER, _LIFETIME_OVER, _RETRY_ORIGIN = object(), object(), object(), object()
STOPPED = "The server stopped, or what kept the task died, before it had ended"


class TaskProcess(GenServer):
    """One task's."""

    traps_exit: ClassVar[bool] = True

    def __init__(
        self,
        company: Company,
        record: TaskRecord,
        plan: TaskSpec | None,
        origin: Ref[Any] | None,
        *,
        announces: bool = True,
    ) -> None:
        """Without a `plan`, the task is the host's. `origin` is the session that it belongs to; `announces` whether that hears of it."""
        self._announces = announces
        self.record = record
        self.cancelled = Cancellation()
        self.own_ref: Ref[TaskProcess]
        self._company = company
        self._tasks = company.tasks
        self._plan = plan
        self._origin = origin
        self._shut = False  # the origin could not be asked just now
        self._peer_channel: TaskChannel | None = None
        self._waiters: list[AwaitTask] = []
        self._watched: dict[Monitor, Pid | None] = {}
        self._needs: dict[int, Caller[Any] | None] = {}
        self._asked: dict[int, Ref[Any]] = {}
        self._count = 0
        self._worker: Pid | None = None
        self._working: Monitor | None = None
        self._reason: Shutdown = CANCELLED
        self._timers: dict[object, Timer] = {}

    def init(self) -> Continue:
        """The supervisor goes on; this process does not, before the record is safe."""
        self.own_ref = self.ref()
        self.process.await_death(self)
        return Continue(_START_WORK)

    async def handle_continue(self, token: Any) -> Stop | None:  # noqa: ARG002 - there is one only
        """Say that there is a task, and begin with it."""
        plan = self._plan
        try:
            await self._put(self.record)
        except Exception as error:  # noqa: BLE001 - whatever a store has: the peer was promised nothing yet
            self.report_unexpected("store", f"a new task could not be kept: {error}")
            self._tasks.store.remove(self.record.id)
            refusal = McpError(ErrorCode.INTERNAL_ERROR, "The task cannot be kept")
            self.record = error_outcome(refusal).of(
                self.record, self._tasks.now()
            )  # so that nothing is left to be ended
            if plan is not None:
                plan.session.send(JobError(plan.key, refusal))
            return Stop(NORMAL)
        self._arm(self._company.settings.task_lifetime, _LIFETIME_OVER)
        if self._origin is not None:
            self._watch(self._origin)
        if plan is not None:
            plan.session.send(
                JobReply(plan.key, encode_result(plan.request.id, task_created_result(self.record, asked=plan.asked)))
            )
        self._announce()
        return None if plan is None else await self._work(plan)

    async def _work(self, plan: TaskSpec) -> Stop | None:
        """Have a worker do it. A monitor tells of its end, also if it dies before its first step."""
        company = self._company
        peer_channel = TaskChannel(self.own_ref, self.record.id, plan.facts, self.cancelled)
        self._peer_channel = peer_channel
        self._point()
        request = plan.request
        job = Job(
            0,
            self.own_ref,
            self.record.id,
            request.method,
            request.params,
            plan.facts,
            peer_channel,
            self.cancelled,
            company,
            self.record.id,
        )
        args = (company.work, job)
        try:
            self._worker = await company.workers.within(None).call(
                TaskSupervisor.begin_job, run_job, args, (self.pid,), "temporary"
            )
        except Exception as error:  # noqa: BLE001 - whatever keeps it from starting: it has failed
            self.report_unexpected("worker", f"a task's work could not be begun: {error}")
            busy = McpError(ErrorCode.INTERNAL_ERROR, "The server cannot work on this just now: try again")
            return await self._end(error_outcome(busy))
        self._working = monitor(self._worker)
        if plan.timeout is not None:
            self._arm(plan.timeout, _TIMEOUT_OVER)
        return None

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it came
        """The process is gone, however that came: the task is not working any more."""
        for timer in self._timers.values():
            timer.cancel()
        if not self.record.terminal:
            ending = error_outcome(McpError(ErrorCode.INTERNAL_ERROR, STOPPED))
            self.record = ending.of(self.record, self._tasks.now())
            self._log()
            self._tasks.note(self.record)
            self.cancelled.set(STOPPED)
            self._drop_questions()
            self._announce()

    def report_state(self) -> str:
        """Nothing that the peer said."""
        return f"task {self.record.status}, {len(self._waiters)} wait for it"

    # --- what comes

    def handle_call(self, request: Any, caller: Caller[Any]) -> NoReply:
        """A handler's question wants a way to the peer."""
        if not isinstance(request, RouteRequest):
            return super().handle_call(request, caller)  # type: ignore[return-value]
        if self.record.terminal:
            raise Reject(NoStream("the task is over, so nobody can be asked on its behalf"))
        self._move("input_required")
        self._need(request, caller)
        return NoReply()

    def handle_info(self, message: Any) -> Any:
        """What workers, sessions, the host and clocks send."""
        match message:
            case JobReply(body=body):
                return self._end(reply_outcome(body))
            case JobError(error=error):
                return self._end(error_outcome(error))
            case TaskOutcome():
                return self._end(message)
            case CancelTask():
                return self._cancel(message)
            case Down(ref=ref, reason=reason):
                return self._down(ref, reason)
            case Exit():
                return None  # a worker is known from its start, and its end comes as `Down`
            case AwaitTask():
                if self.record.terminal:
                    message.session.send(TaskDecided(message.key))
                else:
                    self._wait(message)
            case StopAwaitingTask(pid, key):
                self._waiters = [each for each in self._waiters if (each.pid, each.key) != (pid, key)]
                self._point()
            case QuestionSettled(number):
                self._needs.pop(number, None)
                self._asked.pop(number, None)
                if not self._needs:
                    self._move("working")
            case TaskUpdate(message=text):
                self._update(text)
            case _ if message is _RETRY_ORIGIN:
                self._shut = False  # the origin may be reachable by now
                self._ask()
            case _ if message is _TIMEOUT_OVER or message is _LIFETIME_OVER:
                return self._late(lived=message is _LIFETIME_OVER)
            case _:
                return super().handle_info(message)
        return None

    # --- the end, whatever comes first

    async def _end(self, ending: TaskOutcome, won: CancelTask | None = None) -> Stop | None:
        """Decide, unless that is done; tell the sessions that wait, and the origin; and stop as soon as the worker is gone."""
        if self.record.terminal:
            return self._rest()
        self.record = ending.of(self.record, self._tasks.now())
        self._log()
        self.cancelled.set(self.record.message or "the task is over")
        self._drop_questions()
        try:
            await self._put(self.record)
        except Exception as error:  # noqa: BLE001 - whatever a store has: readers have the end all the same
            self.report_unexpected("store", f"the end of a task could not be kept: {error}")
        self._announce()
        for waiter in self._waiters:
            waiter.session.send(TaskDecided(waiter.key))
        self._waiters.clear()
        if won is not None and won.session is not None:
            won.session.send(TaskDecided(won.key, won=True))
        self._tasks.trim(self.record.owner)
        if self._worker is not None:
            grace = self._company.settings.cancel_grace
            end_worker(self._worker, self._reason, grace, notice=grace)
        return self._rest()

    def _log(self) -> None:
        """Log the end of a peer's task: its call was answered, and logged, when the task began."""
        plan, record = self._plan, self.record
        if plan is not None and is_on():
            facts, seconds = plan.facts, record.updated - record.created
            id = short_id(record.id.removeprefix("task_"))
            log_call(record.method, record.name, record.status, seconds, facts.peer, facts.version, task=id)

    def _rest(self) -> Stop | None:
        return Stop(NORMAL) if self.record.terminal and self._worker is None else None

    async def _cancel(self, wish: CancelTask) -> Stop | None:
        if not self.record.terminal:
            return await self._end(cancel_outcome(wish.why), wish)
        if wish.session is not None:
            wish.session.send(TaskDecided(wish.key))
        return self._rest()

    async def _late(self, *, lived: bool) -> Stop | None:
        self._reason = TIMED_OUT
        settings, plan = self._company.settings, self._plan
        limit = settings.task_lifetime if lived or plan is None else plan.timeout
        text = f"Tool {self.record.name!r} timed out after {limit:g} s{' (task_lifetime)' if lived else ''}"
        return await self._end(crash_outcome(self.record, text, settings.crashes))

    async def _down(self, ref: Monitor, reason: ExitReason) -> Stop | None:
        if ref is self._working:
            self._worker = None
            if self.record.terminal:
                return self._rest()
            settings = self._company.settings
            detail = f": {reason.error}" if settings.expose_errors and isinstance(reason, Crash) else ""
            return await self._end(crash_outcome(self.record, f"Tool execution failed{detail}", settings.crashes))
        if self._gone(ref) and belongs_to_session(self.record.owner):
            durable = self._tasks.store.durable
            if durable and reason == SHUTDOWN:
                return None  # the server stops, which no peer asked for: our own turn comes, and then it has failed
            stopped = await self._end(cancel_outcome("Its session has ended"))
            if not durable:
                self._tasks.store.remove(self.record.id)  # no peer can ask for it any more
            return stopped
        return None

    # --- what is on record

    def _move(self, status: TaskStatus) -> None:
        if self.record.terminal or self.record.status == status:
            return
        self.record = self.record.moved(status, self._tasks.now(), self.record.message)
        self._tasks.note(self.record)
        self._announce()

    def _update(self, text: str | None) -> None:
        if not self.record.terminal:
            now = max(self._tasks.now(), self.record.updated)
            self.record = msgspec.structs.replace(self.record, message=text, updated=now)
            self._tasks.note(self.record)
            self._announce()

    async def _put(self, record: TaskRecord) -> None:
        safe = self._tasks.store.put(record)
        if safe is not None:
            await safe

    def _announce(self) -> None:
        if self._announces and self._origin is not None:
            self._origin.send(
                PeerNotification(None, encode_notification("notifications/tasks/status", self.record.to_wire()))
            )

    def _arm(self, seconds: float, message: object) -> None:
        before = self._timers.get(message)
        if before is not None:
            before.cancel()
        self._timers[message] = send_after(seconds, self.pid, message)

    # --- its listeners: the session that it was asked for in, the calls that wait for its end, and the handler's questions on their way
    # A call that waits comes first, since its stream is open; the session as it is comes last, and may not be reachable just now: then the
    # question waits, and is tried again from time to time.

    def _wait(self, wait: AwaitTask) -> None:
        """One more call waits."""
        if wait.pid not in self._watched.values():
            self._watch(wait.session)
        self._waiters.append(wait)
        self._point()
        self._ask()

    def _gone(self, ref: Monitor) -> bool:
        """A session is gone; whether it was the origin."""
        who = self._watched.pop(ref, None)
        if who is None:
            return False
        was = self._origin is not None and self._origin.pid == who
        if was:
            self._origin = None
        self._waiters = [each for each in self._waiters if each.pid != who]
        self._point()
        return was

    def _watch(self, session: Ref[Any]) -> None:
        self._watched[monitor(session)] = session.pid

    def _point(self) -> None:
        """Have what is said go to a session that listens."""
        peer_channel, way = self._peer_channel, self._way()
        if peer_channel is not None and peer_channel.way != way:
            if peer_channel.way is None or way is None or peer_channel.way.session != way.session:
                peer_channel.ahead = 0
            peer_channel.way = way

    def _way(self) -> QuestionRoute | None:
        """To a call that waits, the newest of the origin first; else to the origin as it is."""
        origin = None if self._origin is None else self._origin.pid
        waiting = sorted(self._waiters, key=lambda each: each.pid == origin)  # stable: the newest stay last
        if waiting:
            return QuestionRoute(waiting[-1].session, waiting[-1].key)
        return None if self._origin is None else QuestionRoute(self._origin, None)

    def _need(self, need: RouteRequest, caller: Caller[Any]) -> None:
        """A question wants a way; the one on which it `failed` leads nowhere."""
        number, failed = need
        if number is None:
            self._count += 1
            number = self._count
        self._needs[number] = caller
        if failed is not None and failed.key is None:
            self._shut = True
            self._arm(self._company.settings.task_poll, _RETRY_ORIGIN)
        elif failed is not None:
            self._waiters = [each for each in self._waiters if (each.session, each.key) != failed]
            self._point()
        self._ask()

    def _ask(self) -> None:
        """Let the questions that wait be asked, if there is a way."""
        way = self._way()
        if way is None or (way.key is None and self._shut):
            return
        for number, caller in self._needs.items():
            if caller is not None:
                self._needs[number] = None
                self._asked[number] = way.session
                caller.reply((number, way))

    def _drop_questions(self) -> None:
        """The open questions need no answer any more."""
        for caller in self._needs.values():
            if caller is not None:
                caller.fail(NoStream("the task is over"))
        for session in {session.pid: session for session in self._asked.values()}.values():
            session.send(TaskQuestionsWithdrawn(self.record.id))
        self._needs.clear()
        self._asked.clear()


# --- The peer_channel of a task: what its handler says and asks, for as long as it lasts, whichever of its owner's sessions listens.
# It belongs to the worker; the task's collector points it to a session that listens. Every message says which task it belongs to. A question
# moves the task to `input_required` and goes to a session of its owner that can be reached: one that waits for the result, or the session
# that the task was asked for in. When that one leaves without an answer, the question is asked again elsewhere.


class QuestionRoute(NamedTuple):
    """Where a question can go: a session, and the call of it that waits for the task's result; None for no call in particular."""

    session: Ref[Any]
    key: int | None


class RouteRequest(NamedTuple):
    """A handler has a question: where to? Answered with the question's number and a `QuestionRoute`, as soon as there is one."""

    number: int | None = None
    """Which question, when it could not be asked…"""
    failed: QuestionRoute | None = None
    """…on this way."""


class QuestionSettled(NamedTuple):
    """That question is over, and needs no way to a peer any more."""

    number: int


class TaskChannel:
    """One task's."""

    __slots__ = ("_cancelled", "_collector", "_facts", "_id", "ahead", "way")

    def __init__(self, collector: Ref[Any], id: str, facts: SessionFacts, cancelled: Cancellation) -> None:
        """What is said after the task has ended reaches no peer."""
        self._collector = collector
        self._id = id
        self._facts = facts
        self._cancelled = cancelled
        self.way: QuestionRoute | None = None
        """Where what is said goes. The collector writes it."""
        self.ahead = 0
        """How many words wait for a session, which counts them down."""

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification. False when the peer will not get it."""
        return self._say(encode_notification(method, with_related_task(params, self._id)))

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message, unless the session's level is higher."""
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        return self._say(encode_notification("notifications/message", with_related_task(params, self._id)), level)

    def touch(self, ahead: float = 0.0) -> None:
        """A task may be silent."""

    async def ask(self, method: str, params: Mapping[str, Any], timeout: float | None) -> dict[str, Any]:
        """Ask the peer. The time runs from when it is asked: a peer that polls has to come by first."""
        refused = capability_error(method, params, self._facts.version, self._facts.client_capabilities)
        if refused is not None:
            raise refused
        params = with_related_task(params, self._id)
        number, way = await self._collector.within(None).ask(RouteRequest())
        try:
            while True:
                try:
                    return await ask_session(way.session, AskPeer(way.key, method, params, timeout, self._id))
                except (NoStream, ProcessExited):
                    number, way = await self._collector.within(None).ask(RouteRequest(number, way))
        finally:
            self._collector.send(QuestionSettled(number))

    def interrupt_stream(self, retry: float | None) -> bool:  # noqa: ARG002 - no peer waits for its answer
        """A task has no stream of its own."""
        return False

    def _say(self, body: bytes, level: str | None = None) -> bool:
        way = self.way
        if way is None or self._cancelled or self.ahead >= MAX_QUEUED_MESSAGES:
            return False
        if not way.session.send(PeerNotification(way.key, body, level, self)):
            return False
        self.ahead += 1
        return True
