"""A task's own process: it stands where a session stands for a call, decides once how the task ends, and writes that down.

It is linked to the worker, whose `Finished` and `Failed` come here; it sees to it that the handler's questions find a way to the peer; and
it is gone as soon as the task has ended and its worker with it. The record outlives it. When it dies before that, however that comes, the
last thing that happens is that the task has failed: `exited` runs whatever it died of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.messages import encode_notification, encode_result
from greenroom.supervision import (
    NORMAL,
    SHUTDOWN,
    Continue,
    Crash,
    Down,
    Exit,
    GenServer,
    NoReply,
    Reject,
    Shutdown,
    Stop,
    exit,
    kill,
    monitor,
    send_after,
)
from greenroom.supervision.task_supervisor import TaskSupervisor
from greenroom.transports.access_log import is_on, log_call

from .calls import CANCELLED, TIMED_OUT
from .cancellation import Cancellation
from .hooks import run_job
from .jobs import Failed, Finished, Job
from .names import shown
from .outbound import NoStream
from .task_endings import Ending, cancelled, crashed, created, error_of, finished
from .task_listeners import Listeners
from .task_record import belongs_to_session
from .task_voice import Met, Need, TaskVoice
from .task_words import Cancel, Decided, Unwait, Update, Wait
from .voice import Began, Said

if TYPE_CHECKING:
    from greenroom.supervision import Caller, ExitReason, Monitor, Pid, Ref, Timer

    from .company import Company
    from .task_record import Status, TaskRecord
    from .task_words import Plan

_BEGIN, _LATE, _LIFETIME, _AGAIN = object(), object(), object(), object()
STOPPED = "The server stopped, or what kept the task died, before it had ended"


class _Lingers(NamedTuple):
    again: bool = False


class TaskCollector(GenServer):
    """One task's."""

    traps_exit: ClassVar[bool] = True

    def __init__(
        self,
        company: Company,
        record: TaskRecord,
        plan: Plan | None,
        origin: Ref[Any] | None,
        *,
        announces: bool = True,
    ) -> None:
        """Without a `plan`, the task is the host's. `origin` is the session that it belongs to; `announces` whether that hears of it."""
        self._announces = announces
        self.record = record
        self.cancelled = Cancellation()
        self.own_ref: Ref[TaskCollector]
        self._company = company
        self._tasks = company.tasks
        self._plan = plan
        self._listeners = Listeners(record.id, origin)
        self._worker: Pid | None = None
        self._working: Monitor | None = None
        self._reason: Shutdown = CANCELLED
        self._timers: dict[object, Timer] = {}

    def init(self) -> Continue:
        """Whoever started us goes on; we do not, before the record is safe."""
        self.own_ref = self.ref()
        self._otp_process.await_death(self)
        return Continue(_BEGIN)

    async def handle_continue(self, token: Any) -> Stop | None:  # noqa: ARG002 - there is one only
        """Say that there is a task, and begin with it."""
        plan = self._plan
        try:
            await self._put(self.record)
        except Exception as error:  # noqa: BLE001 - whatever a store has: nobody was promised anything yet
            self._otp_unexpected("store", f"a new task could not be kept: {error}")
            self._tasks.store.remove(self.record.id)
            refusal = McpError(ErrorCode.INTERNAL_ERROR, "The task cannot be kept")
            self.record = error_of(refusal).of(self.record, self._tasks.now())  # so that nothing is left to be ended
            if plan is not None:
                plan.session.send(Failed(plan.key, refusal))
            return Stop(NORMAL)
        self._arm(self._company.settings.task_lifetime, _LIFETIME)
        self._listeners.begin()
        if plan is not None:
            plan.session.send(
                Finished(plan.key, encode_result(plan.request.id, created(self.record, asked=plan.asked)))
            )
        self._announce()
        return None if plan is None else await self._work(plan)

    async def _work(self, plan: Plan) -> Stop | None:
        """Have a worker do it. Whoever it is, we hear of its end, also if it dies before its first step."""
        company = self._company
        voice = TaskVoice(self.own_ref, self.record.id, plan.facts, self.cancelled)
        self._listeners.voice = voice
        self._listeners.point()
        request = plan.request
        job = Job(
            0,
            self.own_ref,
            self.record.id,
            request.method,
            request.params,
            plan.facts,
            voice,
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
            self._otp_unexpected("worker", f"a task's work could not be begun: {error}")
            busy = McpError(ErrorCode.INTERNAL_ERROR, "The server cannot work on this just now: try again")
            return await self._end(error_of(busy))
        self._working = monitor(self._worker)
        if plan.timeout is not None:
            self._arm(plan.timeout, _LATE)
        return None

    def exited(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it came
        """The process is gone, however that came: the task is not working any more."""
        for timer in self._timers.values():
            timer.cancel()
        if not self.record.terminal:
            ending = error_of(McpError(ErrorCode.INTERNAL_ERROR, STOPPED))
            self.record = ending.of(self.record, self._tasks.now())
            self._log()
            self._tasks.note(self.record)
            self.cancelled.set(STOPPED)
            self._listeners.drop_questions()
            self._announce()

    def report_state(self) -> str:
        """Nothing that the peer said."""
        return f"task {self.record.status}, {len(self._listeners)} wait for it"

    # --- what comes

    def handle_call(self, request: Any, caller: Caller[Any]) -> NoReply:
        """A handler's question wants a way to the peer."""
        if not isinstance(request, Need):
            return super().handle_call(request, caller)  # type: ignore[return-value]
        if self.record.terminal:
            raise Reject(NoStream("the task is over, so nobody can be asked on its behalf"))
        self._move("input_required")
        if self._listeners.need(request, caller):
            self._arm(self._company.settings.task_poll, _AGAIN)
        return NoReply()

    def handle_info(self, message: Any) -> Any:  # noqa: PLR0912 - one line for each message there is
        """What workers, sessions, the host and clocks send."""
        match message:
            case Finished(body=body):
                return self._end(finished(body))
            case Failed(error=error):
                return self._end(error_of(error))
            case Ending():
                return self._end(message)
            case Cancel():
                return self._cancel(message)
            case Down(ref=ref, reason=reason):
                return self._down(ref, reason)
            case Exit() | Began():
                return None  # a worker is known from its start, and its end comes as `Down`
            case Wait():
                if self.record.terminal:
                    message.session.send(Decided(message.key))
                else:
                    self._listeners.wait(message)
            case Unwait():
                self._listeners.unwait(message)
            case Met(number=number):
                self._listeners.met(number)
                if not self._listeners.asking:
                    self._move("working")
            case Update(message=text):
                self._update(text)
            case _Lingers():
                self._linger(message)
            case _ if message is _AGAIN:
                self._listeners.try_again()
            case _ if message is _LATE or message is _LIFETIME:
                return self._late(lived=message is _LIFETIME)
            case _:
                return super().handle_info(message)
        return None

    # --- the end, whatever comes first

    async def _end(self, ending: Ending, won: Cancel | None = None) -> Stop | None:
        """Decide, unless that is done; tell everybody; and stop as soon as the worker is gone."""
        if self.record.terminal:
            return self._rest()
        self.record = ending.of(self.record, self._tasks.now())
        self._log()
        self.cancelled.set(self.record.message or "the task is over")
        self._listeners.drop_questions()
        try:
            await self._put(self.record)
        except Exception as error:  # noqa: BLE001 - whatever a store has: readers have the end all the same
            self._otp_unexpected("store", f"the end of a task could not be kept: {error}")
        self._announce()
        self._listeners.tell_all()
        if won is not None and won.session is not None:
            won.session.send(Decided(won.key, won=True))
        self._tasks.trim(self.record.owner)
        if self._worker is not None:
            send_after(self._company.settings.cancel_grace, self.pid, _Lingers())
        return self._rest()

    def _log(self) -> None:
        """Log the end of a peer's task: its call was answered, and logged, when the task began."""
        plan, record = self._plan, self.record
        if plan is not None and is_on():
            facts, seconds = plan.facts, record.updated - record.created
            id = shown(record.id.removeprefix("task_"))
            log_call(record.method, record.name, record.status, seconds, facts.peer, facts.version, task=id)

    def _rest(self) -> Stop | None:
        return Stop(NORMAL) if self.record.terminal and self._worker is None else None

    async def _cancel(self, wish: Cancel) -> Stop | None:
        if not self.record.terminal:
            return await self._end(cancelled(wish.why), wish)
        if wish.session is not None:
            wish.session.send(Decided(wish.key))
        return self._rest()

    async def _late(self, *, lived: bool) -> Stop | None:
        self._reason = TIMED_OUT
        settings, plan = self._company.settings, self._plan
        limit = settings.task_lifetime if lived or plan is None else plan.timeout
        text = f"Tool {self.record.name!r} timed out after {limit:g} s{' (task_lifetime)' if lived else ''}"
        return await self._end(crashed(self.record, text, settings.crashes))

    async def _down(self, ref: Monitor, reason: ExitReason) -> Stop | None:
        if ref is self._working:
            self._worker = None
            if self.record.terminal:
                return self._rest()
            settings = self._company.settings
            detail = f": {reason.error}" if settings.expose_errors and isinstance(reason, Crash) else ""
            return await self._end(crashed(self.record, f"Tool execution failed{detail}", settings.crashes))
        if self._listeners.gone(ref) and belongs_to_session(self.record.owner):
            durable = self._tasks.store.durable
            if durable and reason == SHUTDOWN:
                return None  # the server stops, which is nobody's wish: our own turn comes, and then it has failed
            stopped = await self._end(cancelled("Its session has ended"))
            if not durable:
                self._tasks.store.remove(self.record.id)  # nobody can ask for it any more
            return stopped
        return None

    def _linger(self, message: _Lingers) -> None:
        """The worker did not notice that it is over; one that notices nothing at all is killed."""
        if self._worker is None:
            return
        if message.again:
            kill(self._worker)
            return
        exit(self._worker, self._reason)
        send_after(self._company.settings.cancel_grace, self.pid, _Lingers(again=True))

    # --- what is on record

    def _move(self, status: Status) -> None:
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
        if self._announces and self._listeners.origin is not None:
            self._listeners.origin.send(
                Said(None, encode_notification("notifications/tasks/status", self.record.to_wire()))
            )

    def _arm(self, seconds: float, message: object) -> None:
        before = self._timers.get(message)
        if before is not None:
            before.cancel()
        self._timers[message] = send_after(seconds, self.pid, message)
