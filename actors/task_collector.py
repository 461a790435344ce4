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

from .calls import CANCELLED, TIMED_OUT
from .cancellation import Cancellation
from .hooks import run_job
from .jobs import Failed, Finished, Job
from .outbound import NoStream
from .task_endings import Ending, cancelled, crashed, created, error_of, finished
from .task_record import belongs_to_session
from .task_voice import Met, Need, TaskVoice, Way
from .voice import Began, Said, Withdrawn

if TYPE_CHECKING:
    from asyncio import Future

    from greenroom.protocol.messages import Request
    from greenroom.supervision import Caller, ExitReason, Monitor, Pid, Ref, Timer

    from .company import Company
    from .jobs import Facts
    from .task_record import Status, TaskRecord

_BEGIN, _LATE, _LIFETIME, _AGAIN = object(), object(), object(), object()
STOPPED = "The server stopped, or what kept the task died, before it had ended"


class Plan(NamedTuple):
    """What a peer's task is to do, and who waits to hear that it has begun."""

    session: Ref[Any]
    key: int
    """The session's number for the call that asked."""
    request: Request
    facts: Facts
    timeout: float | None
    asked: bool
    """Whether the peer wanted a task, rather than an answer."""


class Wait(NamedTuple):
    """A call of that session waits for the task's end."""

    session: Ref[Any]
    pid: Pid
    key: int


class Unwait(NamedTuple):
    """It does not any more."""

    pid: Pid
    key: int


class Cancel(NamedTuple):
    """The task is not wanted any more. Whoever says so may wait to hear what came of it."""

    why: str
    session: Ref[Any] | None = None
    key: int = 0


class Decided(NamedTuple):
    """To a session: that call of yours can be answered from the record now. `won` is whether it was its wish that decided."""

    key: int
    won: bool = False


class Update(NamedTuple):
    """The host says how it goes."""

    message: str | None


class _Lingers(NamedTuple):
    again: bool = False


class TaskCollector(GenServer):
    """One task's."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, company: Company, record: TaskRecord, plan: Plan | None, origin: Ref[Any] | None) -> None:
        """Without a `plan`, the task is the host's. `origin` is the session that it belongs to."""
        self.record = record
        self.cancelled = Cancellation()
        self.own_ref: Ref[TaskCollector]
        self._company = company
        self._tasks = company.tasks
        self._plan = plan
        self._origin = origin
        self._shut = False  # the origin could not be asked just now
        self._voice: TaskVoice | None = None
        self._worker: Pid | None = None
        self._reason: Shutdown = CANCELLED
        self._waiters: list[Wait] = []
        self._asked: dict[int, Ref[Any]] = {}
        self._needs: dict[int, Caller[Any] | None] = {}
        self._count = 0
        self._watched: dict[Monitor, Pid | None] = {}
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
            if plan is not None:
                plan.session.send(Failed(plan.key, McpError(ErrorCode.INTERNAL_ERROR, "The task cannot be kept")))
            return Stop(NORMAL)
        self._arm(self._company.settings.task_lifetime, _LIFETIME)
        if self._origin is not None:
            self._watch(self._origin)
        if plan is not None:
            plan.session.send(
                Finished(plan.key, encode_result(plan.request.id, created(self.record, asked=plan.asked)))
            )
        self._announce()
        return None if plan is None else await self._work(plan)

    async def _work(self, plan: Plan) -> Stop | None:
        """Have a worker do it. Whoever it is, we hear of its end, also if it dies before its first step."""
        company = self._company
        voice = self._voice = TaskVoice(self.own_ref, self.record.id, plan.facts, self.cancelled)
        self._point()
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
        self._watched[monitor(self._worker)] = self._worker
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
            _noted(self._tasks.store.put(self.record))
            self.cancelled.set(STOPPED)
            self._announce()

    def report_state(self) -> str:
        """Nothing that the peer said."""
        return f"task {self.record.status}, {len(self._waiters)} wait for it"

    # --- what comes

    def handle_call(self, request: Any, caller: Caller[Any]) -> NoReply:
        """A handler's question wants a way to the peer."""
        if not isinstance(request, Need):
            return super().handle_call(request, caller)  # type: ignore[return-value]
        if self.record.terminal:
            raise Reject(NoStream("the task is over, so nobody can be asked on its behalf"))
        number, failed = request
        if number is None:
            self._count += 1
            number = self._count
        elif failed is not None:
            self._lost(failed)
        self._needs[number] = caller
        self._move("input_required")
        self._ask()
        return NoReply()

    def handle_info(self, message: Any) -> Any:
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
                self._wait(message)
            case Unwait(pid=pid, key=key):
                self._waiters = [each for each in self._waiters if (each.pid, each.key) != (pid, key)]
                self._point()
            case Met(number=number):
                self._met(number)
            case Update(message=text):
                self._update(text)
            case _Lingers():
                self._linger(message)
            case _ if message is _AGAIN:
                self._shut = False
                self._ask()
            case _ if message is _LATE or message is _LIFETIME:
                return self._late()
            case _:
                return super().handle_info(message)
        return None

    # --- the end, whatever comes first

    async def _end(self, ending: Ending, won: Cancel | None = None) -> Stop | None:
        """Decide, unless that is done; tell everybody; and stop as soon as the worker is gone."""
        if self.record.terminal:
            return self._rest()
        self.record = ending.of(self.record, self._tasks.now())
        self.cancelled.set(self.record.message or "the task is over")
        for caller in self._needs.values():
            if caller is not None:
                caller.fail(NoStream("the task is over"))
        for session in self._asked.values():
            session.send(Withdrawn(self.record.id))
        try:
            await self._put(self.record)
        except Exception as error:  # noqa: BLE001 - whatever a store has: readers have the end all the same
            self._otp_unexpected("store", f"the end of a task could not be kept: {error}")
        self._announce()
        for waiter in self._waiters:
            waiter.session.send(Decided(waiter.key))
        if won is not None and won.session is not None:
            won.session.send(Decided(won.key, won=True))
        self._waiters.clear()
        self._tasks.trim(self.record.owner)
        if self._worker is not None:
            send_after(self._company.settings.cancel_grace, self.pid, _Lingers())
        return self._rest()

    def _rest(self) -> Stop | None:
        return Stop(NORMAL) if self.record.terminal and self._worker is None else None

    async def _cancel(self, wish: Cancel) -> Stop | None:
        if not self.record.terminal:
            return await self._end(cancelled(wish.why), wish)
        if wish.session is not None:
            wish.session.send(Decided(wish.key))
        return self._rest()

    async def _late(self) -> Stop | None:
        self._reason = TIMED_OUT
        return await self._end(error_of(McpError(ErrorCode.INTERNAL_ERROR, "Request timed out")))

    async def _down(self, ref: Monitor, reason: ExitReason) -> Stop | None:
        who = self._watched.pop(ref, None)
        if who is not None and who == self._worker:
            self._worker = None
            if self.record.terminal:
                return self._rest()
            settings = self._company.settings
            detail = f": {reason.error}" if settings.expose_errors and isinstance(reason, Crash) else ""
            return await self._end(crashed(self.record, detail, settings.crashes))
        self._waiters = [each for each in self._waiters if each.pid != who]
        if self._origin is not None and self._origin.pid == who:
            self._origin = None
            if belongs_to_session(self.record.owner):
                stopped = await self._end(cancelled("Its session has ended"))
                self._tasks.store.remove(self.record.id)  # nobody can ask for it any more
                return stopped
        self._point()
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

    # --- who waits, and who can be asked

    def _wait(self, wait: Wait) -> None:
        if self.record.terminal:
            wait.session.send(Decided(wait.key))
            return
        if wait.pid not in self._watched.values():
            self._watch(wait.session)
        self._waiters.append(wait)
        self._point()
        self._ask()

    def _watch(self, session: Ref[Any]) -> None:
        self._watched[monitor(session)] = session.pid

    def _way(self) -> Way | None:
        """To whoever waits, the newest of its own session first; else to that session as it is."""
        origin = None if self._origin is None else self._origin.pid
        waiting = sorted(self._waiters, key=lambda each: each.pid == origin)  # stable: the newest stay last
        if waiting:
            return Way(waiting[-1].session, waiting[-1].key)
        return None if self._origin is None else Way(self._origin, None)

    def _point(self) -> None:
        """Have what is said go where somebody listens."""
        voice, way = self._voice, self._way()
        if voice is not None and voice.way != way:
            if voice.way is None or way is None or voice.way.session != way.session:
                voice.ahead = 0
            voice.way = way

    def _ask(self) -> None:
        """Let those ask who want to, if there is a way."""
        for number, caller in self._needs.items():
            if caller is None:
                continue
            way = self._way()
            if way is None or (way.key is None and self._shut):
                return
            self._needs[number] = None
            self._asked[number] = way.session
            caller.reply((number, way))

    def _lost(self, way: Way) -> None:
        """That way led nowhere."""
        if way.key is None:
            self._shut = True
            self._arm(self._company.settings.task_poll, _AGAIN)
        else:
            self._waiters = [each for each in self._waiters if (each.session, each.key) != (way.session, way.key)]
            self._point()

    def _met(self, number: int) -> None:
        self._needs.pop(number, None)
        self._asked.pop(number, None)
        if not self._needs:
            self._move("working")

    # --- what is on record

    def _move(self, status: Status) -> None:
        if self.record.terminal or self.record.status == status:
            return
        self.record = self.record.moved(status, self._tasks.now(), self.record.message)
        _noted(self._tasks.store.put(self.record))
        self._announce()

    def _update(self, text: str | None) -> None:
        if not self.record.terminal:
            now = max(self._tasks.now(), self.record.updated)
            self.record = msgspec.structs.replace(self.record, message=text, updated=now)
            _noted(self._tasks.store.put(self.record))
            self._announce()

    async def _put(self, record: TaskRecord) -> None:
        safe = self._tasks.store.put(record)
        if safe is not None:
            await safe

    def _announce(self) -> None:
        if self._origin is not None:
            self._origin.send(Said(None, encode_notification("notifications/tasks/status", self.record.to_wire())))

    def _arm(self, seconds: float, message: object) -> None:
        before = self._timers.get(message)
        if before is not None:
            before.cancel()
        self._timers[message] = send_after(seconds, self.pid, message)


def _noted(safe: Future[None] | None) -> None:
    """Nobody waits for it; what went wrong is the store's to tell."""
    if safe is not None:
        safe.add_done_callback(lambda done: done.cancelled() or done.exception())
