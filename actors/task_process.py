"""A task's process: runs the task's worker, decides once how the task ends, and writes its record.

The worker is linked to it and sends it `JobReply` or `JobError`. Sessions send it `AwaitTask` and `CancelTask`; the
handler's questions ask it for a route to the peer, and stand in the record until one of them answers. Requests of the
stateless era call `created`, `take_answers` and `questions_shown`. It stops when the task has ended and its worker is
gone; the record outlives it. If it dies earlier, for any reason, `on_exit` records that the task has failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.jsonrpc import encode_notification, encode_result
from greenroom.supervision import (
    NORMAL,
    SHUTDOWN,
    CallTimeout,
    Continue,
    Crash,
    Down,
    Exit,
    GenServer,
    NoReply,
    Reject,
    Shutdown,
    Stop,
    TaskSupervisor,
    is_alive,
    link,
    monitor,
    send_after,
)
from greenroom.supervision.event_bus import bus
from greenroom.transports.access_log import is_on

from .peer_channels import NoStream, PeerNotification, TaskQuestionsWithdrawn
from .process_names import short_task_id
from .session_calls import CANCELLED, TIMED_OUT
from .task_channel import (
    PeerAnswer,
    QuestionRoute,
    QuestionSettled,
    RouteRequest,
    TaskChannel,
    TaskQuestion,
    TaskQuestionTimeout,
)
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
)
from .worker_interfaces import Cancellation, Job, JobError, JobReply, end_worker, run_job

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.event_types import Outcome
    from greenroom.supervision import Caller, ExitReason, Monitor, Pid, Ref, Timer

    from .call_events import ObservedCall
    from .company import Company
    from .task_record import TaskRecord, TaskSpec

_START_WORK, _TIMEOUT_OVER, _LIFETIME_OVER, _RETRY_ORIGIN = object(), object(), object(), object()
STOPPED = "The server stopped, or the task's process died, before the task had ended"


class TaskProcess(GenServer):
    """The process of one task."""

    traps_exit: ClassVar[bool] = True

    def __init__(
        self,
        company: Company,
        record: TaskRecord,
        spec: TaskSpec | None,
        origin: Ref[Any] | None,
        *,
        announces: bool = True,
    ) -> None:
        """Without a `spec`, the program itself runs the task.

        `origin` is the session that asked for it; `announces` whether it gets status notifications.
        """
        self._announces = announces
        self.record = record
        self.cancelled = Cancellation()
        self.own_ref: Ref[TaskProcess]
        self._company = company
        self._tasks = company.tasks
        self._spec = spec
        self._origin = origin
        self._origin_unreachable = False  # set when a question found no reader there
        self._peer_channel: TaskChannel | None = None
        self._waiters: list[AwaitTask] = []
        self._session_monitors: dict[Monitor, Pid | None] = {}
        self._questions: dict[int, TaskQuestion] = {}
        self._worker: Pid | None = None
        self._worker_monitor: Monitor | None = None
        self._worker_exit_reason: Shutdown = CANCELLED
        self._observed: ObservedCall | None = None
        self._timers: dict[object, Timer] = {}

    def init(self) -> Continue:
        """Return at once: the supervisor goes on, while this process waits until the record is safe."""
        self.own_ref = self.ref()
        self.process.add_exit_waiter(self)
        return Continue(_START_WORK)

    async def handle_continue(self, token: Any) -> Stop | None:  # noqa: ARG002 - there is one only
        """Store the record, announce the task, and start its worker."""
        spec = self._spec
        try:
            await self._store_record(self.record)
        except Exception as error:  # noqa: BLE001 - any error of a store: the peer has no task id yet
            self.report_unexpected("store", f"a new task could not be kept: {error}")
            self._tasks.store.remove(self.record.id)
            refusal = McpError(ErrorCode.INTERNAL_ERROR, "The task cannot be kept")
            self.record = error_outcome(refusal).apply_to(
                self.record, self._tasks.now()
            )  # so that `on_exit` has nothing to do
            if spec is not None and spec.session is not None:
                spec.session.send(JobError(spec.key, refusal))
            return Stop(NORMAL)
        if bus.listener is not None:
            from .call_events import emit_task_created  # noqa: PLC0415 - only a program with a listener loads the events

            emit_task_created(self._company, self.record)
        self._set_timer(self._company.settings.task_lifetime, _LIFETIME_OVER)
        if self._origin is not None:
            self._watch(self._origin)
        if spec is not None and spec.session is not None:
            spec.session.send(
                JobReply(
                    spec.key,
                    encode_result(spec.request.id, task_created_result(self.record, wanted_task=spec.wanted_task)),
                )
            )
        self._announce()
        return None if spec is None else await self._start_job(spec)

    def created(self) -> CreatedTask:
        """The task, once its record is safe. The process of a record that could not be kept ends instead."""
        return CreatedTask(self.record, self._peer_channel, self._observed)

    async def _start_job(self, spec: TaskSpec) -> Stop | None:
        """Start a worker, or take over the one that runs. A monitor reports its end, even if it dies before its first step."""
        company = self._company
        if bus.listener is not None or is_on():
            self._observed = self._observe(spec)
        if spec.running is not None:
            self.cancelled = spec.running.cancelled
        peer_channel = TaskChannel(self.own_ref, self.record.id, spec.facts, self.cancelled, self._observed)
        self._peer_channel = peer_channel
        self._update_route()
        if spec.running is not None:
            link(spec.running.worker)
            self._on_worker_started(spec, spec.running.worker)
            return None
        request = spec.request
        job = Job(
            0,
            self.own_ref,
            self.record.id,
            request.method,
            request.params,
            spec.facts,
            peer_channel,
            self.cancelled,
            company,
            self.record.id,
            observed=self._observed,
        )
        args = (company.work, job)
        try:
            worker = await company.workers.within(None).call(
                TaskSupervisor.begin_job, run_job, args, (self.pid,), "temporary"
            )
        except Exception as error:  # noqa: BLE001 - any error of starting fails the task
            self.report_unexpected("worker", f"a task's work could not be begun: {error}")
            busy = McpError(ErrorCode.INTERNAL_ERROR, "The server cannot work on this just now: try again")
            return await self._finish(error_outcome(busy), "process_ended", busy)
        self._on_worker_started(spec, worker)
        return None

    def _observe(self, spec: TaskSpec) -> ObservedCall:
        from .call_events import ObservedCall  # noqa: PLC0415 - only a program with a listener loads the events

        request, facts = spec.request, spec.facts
        call = ObservedCall(
            self.process.node,
            self._company,
            "task",
            request.method,
            request.params,
            facts.peer,
            facts.version,
            task=short_task_id(self.record.id),
            creator=spec.creator,
        )
        if spec.running is None:
            call.wait()
        else:
            call.reached(spec.running.isolation)
        return call

    def _on_worker_started(self, spec: TaskSpec, worker: Pid) -> None:
        self._worker = worker
        self._worker_monitor = monitor(worker)
        if spec.timeout is not None:
            self._set_timer(spec.timeout, _TIMEOUT_OVER)

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - the same for every reason
        """Runs however the process ended: a task without an end has failed."""
        for timer in self._timers.values():
            timer.cancel()
        if not self.record.terminal:
            ending = error_outcome(McpError(ErrorCode.INTERNAL_ERROR, STOPPED))
            self.record = ending.apply_to(self.record, self._tasks.now())
            self._note_end("process_ended")
            self._tasks.save(self.record)
            self._tasks.watchers.announce(self.record)
            self.cancelled.set(STOPPED)
            self._cancel_questions()
            self._announce()

    def report_state(self) -> str:
        """The state in a crash report, without anything that the peer sent."""
        return f"task {self.record.status}, {len(self._waiters)} wait for it"

    # --- messages

    def handle_call(self, request: Any, caller: Caller[Any]) -> NoReply:
        """Take a route request for a handler's question."""
        if not isinstance(request, RouteRequest):
            return super().handle_call(request, caller)  # type: ignore[return-value]
        if self.record.terminal:
            raise Reject(NoStream("the task is over, so the client cannot be asked on its behalf"))
        self._on_route_request(request, caller)
        return NoReply()

    def handle_info(self, message: Any) -> Any:
        """Handle the messages of workers, sessions, the program and timers."""
        match message:
            case JobReply(body=body, outcome=outcome):
                return self._finish(reply_outcome(body), outcome)
            case JobError(error=error, outcome=outcome):
                return self._finish(error_outcome(error), outcome, error)
            case TaskOutcome():
                return self._finish(message, "result")
            case CancelTask():
                return self._on_cancel(message)
            case Down(ref=ref, reason=reason):
                return self._on_down(ref, reason)
            case Exit():
                return None  # the worker is monitored: its end arrives as `Down`
            case AwaitTask():
                if self.record.terminal:
                    message.session.send(TaskDecided(message.key))
                else:
                    self._add_waiter(message)
            case StopAwaitingTask(pid, key):
                self._waiters = [each for each in self._waiters if (each.pid, each.key) != (pid, key)]
                self._update_route()
            case QuestionSettled():
                self._on_question_settled(message)
            case TaskQuestionTimeout(number):
                self._on_question_timeout(number)
            case TaskUpdate(message=text):
                self._update(text)
            case _ if message is _RETRY_ORIGIN:
                self._origin_unreachable = False  # the origin may be reachable by now
                self._route_questions()
            case _ if message is _TIMEOUT_OVER or message is _LIFETIME_OVER:
                return self._on_timeout(lived=message is _LIFETIME_OVER)
            case _:
                return super().handle_info(message)
        return None

    # --- the end, whichever cause comes first

    async def _finish(
        self, ending: TaskOutcome, outcome: Outcome, error: McpError | None = None, won: CancelTask | None = None
    ) -> Stop | None:
        """Decide the outcome, unless that is done; tell the waiting sessions and the origin; stop as soon as the worker is gone."""
        if self.record.terminal:
            return self._stop_if_done()
        self.record = ending.apply_to(self.record, self._tasks.now())
        self._note_end(outcome, error)
        self.cancelled.set(self.record.message or "the task is over")
        self._cancel_questions()
        try:
            await self._store_record(self.record)
        except Exception as broken:  # noqa: BLE001 - any error of a store: readers see the end all the same
            self.report_unexpected("store", f"the end of a task could not be kept: {broken}")
        self._announce()
        for waiter in self._waiters:
            waiter.session.send(TaskDecided(waiter.key))
        self._waiters.clear()
        if won is not None and won.session is not None:
            won.session.send(TaskDecided(won.key, won=True))
        self._tasks.trim(self.record.owner)
        if self._worker is not None:
            grace = self._company.settings.cancel_grace
            end_worker(self._worker, self._worker_exit_reason, grace, notice=grace)
        return self._stop_if_done()

    def _note_end(self, outcome: Outcome, error: McpError | None = None) -> None:
        """Tell listeners of the end. The call that created the task has ended before."""
        if self._observed is not None:
            self._observed.end(outcome, error)
        if bus.listener is not None:
            from .call_events import emit_task_ended  # noqa: PLC0415 - only a program with a listener loads the events

            emit_task_ended(self._company, self.record)

    def _stop_if_done(self) -> Stop | None:
        return Stop(NORMAL) if self.record.terminal and self._worker is None else None

    async def _on_cancel(self, request: CancelTask) -> Stop | None:
        if not self.record.terminal:
            return await self._finish(cancel_outcome(request.why), "cancelled", won=request)
        if request.session is not None:
            request.session.send(TaskDecided(request.key))
        return self._stop_if_done()

    async def _on_timeout(self, *, lived: bool) -> Stop | None:
        self._worker_exit_reason = TIMED_OUT
        settings, spec = self._company.settings, self._spec
        limit = settings.task_lifetime if lived or spec is None else spec.timeout
        text = f"Tool {self.record.name!r} timed out after {limit:g} s{' (task_lifetime)' if lived else ''}"
        return await self._finish(crash_outcome(self.record, text, settings.crashes), "deadline")

    async def _on_down(self, ref: Monitor, reason: ExitReason) -> Stop | None:
        if ref is self._worker_monitor:
            self._worker = None
            if self.record.terminal:
                return self._stop_if_done()
            settings = self._company.settings
            detail = f": {reason.error}" if settings.expose_errors and isinstance(reason, Crash) else ""
            crashed = crash_outcome(self.record, f"Tool execution failed{detail}", settings.crashes)
            is_supervised = is_alive(self._company.workers) and self._company.exchanges.is_supervised
            return await self._finish(crashed, "worker_crashed" if is_supervised else "process_ended")
        if self._on_session_down(ref) and belongs_to_session(self.record.owner):
            durable = self._tasks.store.durable
            if durable and reason == SHUTDOWN:
                return None  # the server stops: the task is failed by `on_exit`, not cancelled
            stopped = await self._finish(cancel_outcome("Its session has ended"), "peer_gone")
            if not durable:
                self._tasks.store.remove(self.record.id)  # no peer can ask for it any more
            return stopped
        return None

    # --- the record

    def _update(self, text: str | None) -> None:
        if not self.record.terminal:
            now = max(self._tasks.now(), self.record.updated)
            self.record = msgspec.structs.replace(self.record, message=text, updated=now)
            self._tasks.save(self.record)
            self._announce()

    async def _store_record(self, record: TaskRecord) -> None:
        safe = self._tasks.store.put(record)
        if safe is not None:
            await safe

    def _announce(self, *, in_session: bool = True) -> None:
        """Announce the record to the requests that watch it, and its status in the session that asked for the task."""
        self._tasks.watchers.announce(self.record)
        if in_session and self._announces and self._origin is not None:
            self._origin.send(
                PeerNotification(None, encode_notification("notifications/tasks/status", self.record.to_wire()))
            )

    def _set_timer(self, seconds: float, message: object) -> None:
        self._stop_timer(message)
        self._timers[message] = send_after(seconds, self.pid, message)

    def _stop_timer(self, message: object) -> None:
        timer = self._timers.pop(message, None)
        if timer is not None:
            timer.cancel()

    # --- questions: each stands in the record until it is settled, and goes to a session as soon as there is a route.
    # The first answer counts, whichever way it comes.

    def take_answers(self, answers: Mapping[str, dict[str, Any]]) -> None:
        """Answer the open questions with these keys. Others are ignored: they were answered already, or never asked."""
        for question in self._questions.values():
            answer = answers.get(question.asked.input_key)
            if answer is None or question.answer is not None:
                continue
            question.answer = answer
            if question.caller is not None:
                question.caller.reply(PeerAnswer(answer))
                question.caller = None
            elif question.session is not None:
                # The session takes its question back; the asker then comes here again, and gets the answer.
                question.session.send(TaskQuestionsWithdrawn(self.record.id, question.asked.number))
        self._note_questions()

    def questions_shown(self) -> None:
        """The peer has been shown the open questions: their timeouts begin now."""
        for number, question in self._questions.items():
            timer, seconds = TaskQuestionTimeout(number), question.asked.timeout
            if question.caller is not None and seconds is not None and timer not in self._timers:
                self._set_timer(seconds, timer)

    def _on_question_timeout(self, number: int) -> None:
        question = self._questions.get(number)
        if question is not None and question.caller is not None:  # else a session has the question, and a clock
            asked = question.asked
            question.caller.fail(CallTimeout(asked.timeout or 0.0, "the client", f"answer {asked.method}"))
            question.caller = None

    def _on_question_settled(self, settled: QuestionSettled) -> None:
        self._stop_timer(TaskQuestionTimeout(settled.number))
        question = self._questions.pop(settled.number, None)
        if question is None:
            return
        if question.observed is not None:
            if settled.answer is None:
                question.observed.end("lost")
            else:
                question.observed.answered(settled.answer)
        self._note_questions()

    def _note_questions(self) -> None:
        """Write the open questions into the record."""
        if self.record.terminal:
            return
        before = self.record
        unanswered = [each.asked for each in self._questions.values() if each.answer is None]
        requests = {asked.input_key: msgspec.Raw(asked.request) for asked in unanswered}
        after = before.with_questions(requests, self._tasks.now())
        if after.input_requests == before.input_requests:
            return
        self.record = after
        self._tasks.save(after)
        self._announce(in_session=after.status != before.status)

    # --- routes: the sessions through which the task can reach its peer.
    # A call that waits for the result comes first, since its stream is open. The origin's general stream comes last,
    # and may have no reader now: then the question waits, and is retried every `task_poll` seconds.

    def _add_waiter(self, wait: AwaitTask) -> None:
        """Add a waiting call."""
        if wait.pid not in self._session_monitors.values():
            self._watch(wait.session)
        self._waiters.append(wait)
        self._update_route()
        self._route_questions()

    def _on_session_down(self, ref: Monitor) -> bool:
        """Remove a session that has ended. Whether it was the origin."""
        who = self._session_monitors.pop(ref, None)
        if who is None:
            return False
        was = self._origin is not None and self._origin.pid == who
        if was:
            self._origin = None
        self._waiters = [each for each in self._waiters if each.pid != who]
        self._update_route()
        return was

    def _watch(self, session: Ref[Any]) -> None:
        self._session_monitors[monitor(session)] = session.pid

    def _update_route(self) -> None:
        """Point the channel to the best route."""
        peer_channel, route = self._peer_channel, self._best_route()
        if peer_channel is not None and peer_channel.route != route:
            if peer_channel.route is None or route is None or peer_channel.route.session != route.session:
                peer_channel.queued = 0
            peer_channel.route = route

    def _best_route(self) -> QuestionRoute | None:
        """A waiting call, the newest of the origin first; else the origin's general stream."""
        origin = None if self._origin is None else self._origin.pid
        waiting = sorted(self._waiters, key=lambda each: each.pid == origin)  # stable: the newest stay last
        if waiting:
            return QuestionRoute(waiting[-1].session, waiting[-1].key)
        return None if self._origin is None else QuestionRoute(self._origin, None)

    def _on_route_request(self, need: RouteRequest, caller: Caller[Any]) -> None:
        """Find a route for a question; the route on which it `failed` is not used again."""
        question, failed = self._questions.get(need.number), need.failed
        if question is None:
            question = self._questions[need.number] = TaskQuestion(need)
            if bus.listener is not None:
                from .call_events import ObservedQuestion  # noqa: PLC0415 - only a program with a listener loads the events

                program, node = self._company.program, self.process.node
                question.observed = ObservedQuestion(node, program, need.method, self._observed)
            self._note_questions()
        if question.answer is not None:
            caller.reply(PeerAnswer(question.answer))
            return
        question.caller, question.session = caller, None
        if failed is not None and failed.key is None:
            self._origin_unreachable = True
            self._set_timer(self._company.settings.task_poll, _RETRY_ORIGIN)
        elif failed is not None:
            self._waiters = [each for each in self._waiters if (each.session, each.key) != failed]
            self._update_route()
        self._route_questions()

    def _route_questions(self) -> None:
        """Give the waiting questions a route, if there is one."""
        route = self._best_route()
        if route is None or (route.key is None and self._origin_unreachable):
            return
        for question in self._questions.values():
            if question.caller is not None:
                question.caller.reply(route)
                question.caller, question.session = None, route.session

    def _cancel_questions(self) -> None:
        """Cancel the open questions."""
        asked: dict[Pid | None, Ref[Any]] = {}
        for question in self._questions.values():
            if question.observed is not None:
                question.observed.end("lost")
            if question.caller is not None:
                question.caller.fail(NoStream("the task is over"))
            elif question.session is not None:
                asked[question.session.pid] = question.session
        for session in asked.values():
            session.send(TaskQuestionsWithdrawn(self.record.id))
        self._questions.clear()


class CreatedTask(NamedTuple):
    """A task whose record is safe, and the peer channel of its worker."""

    record: TaskRecord
    peer_channel: TaskChannel | None
    observed: ObservedCall | None = None
