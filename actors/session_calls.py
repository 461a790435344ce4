"""The calls of one session: each runs in a worker and gets exactly one reply.

This is part of the session's process, which owns the table. Workers send their job's reply to the session; timers send deadlines. A cancelled call's flag is
raised at once, and its worker gets an exit signal after a grace period; the reply waits for neither. When a worker dies without a reply, the session replies
with a general error; the details are in the reports.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.errors import ErrorCode, McpError, not_executed
from greenroom.protocol.jsonrpc import ID_LIMIT, encode_error, encode_result, id_key
from greenroom.supervision import Ref, Shutdown, TaskSupervisor, exit, is_alive, monitor, send_after
from greenroom.transports.access_log import name_in

from .call_failures import aborted, timed_out, worker_lost
from .worker_interfaces import Cancellation, end_worker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from greenroom.event_types import Outcome
    from greenroom.protocol.jsonrpc import JsonRpcRequest
    from greenroom.supervision import Caller, ExitReason, Monitor, Pid, Timer
    from greenroom.transports.interfaces import SessionReply

    from .call_events import ObservedCall
    from .call_failures import CallFailure
    from .peer_channels import CallChannel
    from .session import SessionProcess
    from .session_streams import SessionStream

CANCELLED: Final = Shutdown("the call was cancelled")
TIMED_OUT: Final = Shutdown("the call took too long")
CHECK_DEADLINES: Final = object()
"""The message that the session's deadline timer sends to the session."""
CLOCK_TOLERANCE: Final = 1e-6
"""A deadline this close is treated as over."""


class CallWorkerLost(NamedTuple):
    """The worker of a call has died before the call had a reply."""

    call: SessionCall
    reason: ExitReason


class SessionCalls:
    """The calls in flight of one session."""

    __slots__ = ("_alarm", "_alarm_at", "_count", "_is_over", "_session", "_supervisor_monitor", "_workers", "table")

    def __init__(self, session: SessionProcess) -> None:
        self.table = CallTable()
        self._session = session
        self._count = 0
        self._supervisor_monitor: Monitor | None = None
        self._is_over = False
        self._workers: Ref[TaskSupervisor]
        # One for all: nearly every call has a deadline, and nearly none reaches it.
        self._alarm: Timer | None = None
        self._alarm_at = NEVER

    # --- begin

    def begin(
        self,
        request: JsonRpcRequest,
        caller: Caller[SessionReply] | None,
        timeout: float | None,
        *,
        fixed_deadline: bool,
        quiet: float | None = None,
    ) -> SessionCall:
        """Add a call for this request. With `fixed_deadline`, reports of progress do not extend its timeout.

        After `quiet` seconds without a message, the reply becomes a stream.
        """
        self._count += 1
        call = SessionCall(self._count, request.id, request.method, caller)
        call.fixed_deadline = fixed_deadline
        call.observed = self._session.observed
        call.name = name_in(request.params)
        call.timeout = timeout
        if timeout is not None:
            self._set_deadline(call, timeout)
        if quiet is not None and quiet != NEVER:
            call.stream_at = self._session.now() + quiet
            self._wake_at(call.stream_at)
        self.table.add(call)
        return call

    def start(self, call: SessionCall, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        """Start a worker for the call, or reply that the server is busy."""
        if not self.run(function, *args, call=call):
            self.fail(
                call.key,
                McpError(
                    ErrorCode.INTERNAL_ERROR, "The server cannot work on this just now: try again", not_executed("busy")
                ),
                "process_ended",
            )

    def run(
        self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any, call: SessionCall | None = None
    ) -> bool:
        """Start a worker, optionally for a call. False when the workers' supervisor is not running."""
        if self._supervisor_monitor is None:
            workers = self._session.company.workers
            self._supervisor_monitor = monitor(workers)
            # The monitored process is the supervisor until its `Down` arrives, so the name is not looked up for each
            # call.
            target = self._supervisor_monitor.target
            self._workers = workers if target is None else Ref.of(target)
        if call is not None:
            call.calls = self
        worker = self._workers.now(TaskSupervisor.begin_job, function, args, (self._session.pid,), "temporary", call)
        return worker is not None or is_alive(self._workers)

    def on_worker_started(self, key: int, worker: Pid) -> None:
        """Note the worker of a call. If the call already has its reply or the session has ended, end the worker."""
        if self._is_over or not self.table.assign_worker(key, worker):
            exit(worker, CANCELLED)

    # --- the reply, whichever comes first

    def finish(self, key: int, body: bytes, outcome: Outcome = "result") -> None:
        """Reply to the call with the encoded result."""
        call = self.table.take(key)
        if call is not None:
            self.reply(call, body, outcome)

    def fail(self, key: int, error: McpError, outcome: Outcome = "error") -> None:
        """Reply to the call with an error."""
        call = self.table.take(key)
        if call is not None:
            self.reply(call, encode_error(call.id, error), outcome, _http_status(call), error)

    def cancel(self, id: str | int, reason: str, now: float) -> None:
        """Cancel a request, as its peer asks. The cancellation may arrive before the request."""
        call = self.table.find_by_id(id)
        if call is None:
            self.table.note_early_cancel(id, now)
            return
        if call.method == "initialize":
            return  # the protocol forbids to cancel it
        self.table.take(call.key)
        self._abandon(call, reason, CANCELLED)
        self.reply(call, None, "cancelled")

    def abort(self, call: SessionCall, why: str) -> None:
        """End a call for an operator: its peer gets an error."""
        if self.table.get(call.key) is call:
            self.table.take(call.key)
            self._abandon(call, why, CANCELLED)
            error = aborted()
            self.reply(call, encode_error(call.id, error), "cancelled", _http_status(call), error)

    def ask_abort(self, call: SessionCall, why: str) -> bool:
        """Have the session end a call, from outside of its process. False when the call or the session has ended."""
        session = self._session
        return self.table.get(call.key) is call and session.own_ref.cast(type(session).abort_call, call, why)

    def check_deadlines(self) -> None:
        """End overdue calls, make streams of silent ones, and set the timer for the next deadline."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, NEVER
        soon = self._session.now() + CLOCK_TOLERANCE
        for call in self.table:
            if call.deadline <= soon:
                self._on_deadline(call)
            elif call.stream_at <= soon:
                call.stream_at = NEVER
                self._session.open_stream(call)
        first = min((min(call.deadline, call.stream_at) for call in self.table), default=NEVER)
        if first < self._alarm_at:
            self._set_alarm(first, first - self._session.now())

    def _set_deadline(self, call: SessionCall, seconds: float) -> None:
        call.deadline = self._session.now() + seconds
        self._wake_at(call.deadline)

    def _wake_at(self, at: float) -> None:
        if at < self._alarm_at:
            self._set_alarm(at, at - self._session.now())

    def _set_alarm(self, at: float, seconds: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = send_after(max(0.0, seconds), self._session.own_ref, CHECK_DEADLINES)

    def _on_deadline(self, call: SessionCall) -> None:
        """End a call whose deadline is over, unless it is not fixed and the call has reported something meanwhile."""
        left = 0.0 if call.fixed_deadline else self._silence_left(call)
        if left > 0:
            self._set_deadline(call, left)
            return
        self.table.take(call.key)
        self._abandon(call, "it took too long", TIMED_OUT)
        failure = timed_out(
            call.method,
            call.name,
            call.timeout,
            self._session.company.settings,
            is_fixed=call.fixed_deadline,
            as_task=call.task is not None,
        )
        self._reply_failure(call, failure, "deadline")

    def _silence_left(self, call: SessionCall) -> float:
        """How much longer a call may be silent. The time that it waits for the peer does not count."""
        session = self._session
        limit = session.company.settings.call_timeout or 0.0
        if session.questions.table.of_call(call.key):
            return limit
        last_active = (
            call.last_active if call.peer_channel is None else max(call.last_active, call.peer_channel.last_active)
        )
        return last_active + limit - session.now()

    def on_worker_exit(self, call: SessionCall, reason: ExitReason) -> None:
        """Called wherever a worker's end is noticed. Tell the session if the call has no reply yet."""
        if call.worker is not None:
            self.table.forget_worker(call.worker)
        if self.table.get(call.key) is call:
            self._session.own_ref.send(CallWorkerLost(call, reason))

    def on_worker_lost(self, call: SessionCall, reason: ExitReason) -> None:
        """Reply to a call whose worker died without a reply."""
        if self.table.take(call.key) is not None:
            call.cancelled.set("its worker is gone")
            settings = self._session.company.settings
            failure = worker_lost(call.method, reason, settings, as_task=call.task is not None)
            self._reply_failure(call, failure, "worker_crashed" if is_alive(self._workers) else "process_ended")

    def _reply_failure(self, call: SessionCall, failure: CallFailure, outcome: Outcome) -> None:
        """Reply to a call whose worker gave no reply."""
        if isinstance(failure, McpError):
            self.reply(call, encode_error(call.id, failure), outcome, _http_status(call), failure)
        else:
            self.reply(call, encode_result(call.id, failure), outcome)

    def on_supervisor_down(self) -> None:
        """Fail the calls that the workers' supervisor had not started when it died."""
        self._supervisor_monitor = None
        for call in self.table.unstarted():
            restarted = McpError(ErrorCode.INTERNAL_ERROR, "The server was restarted during this request")
            self.fail(call.key, restarted, "process_ended")

    def is_supervisor_monitor(self, ref: Monitor) -> bool:
        """Whether this is the monitor on the workers' supervisor."""
        return ref is self._supervisor_monitor

    def on_session_end(self, why: str, reason: ExitReason) -> None:
        """The session has ended: raise every cancellation flag, which is all that reaches a thread, and end the workers."""
        self._is_over = True
        for call in self.table:
            call.cancelled.set(why)
            if call.observed is not None:
                call.observed.end("peer_gone")
        for worker in self.table.workers:
            exit(worker, reason)
        if self._alarm is not None:
            self._alarm.cancel()  # a pending timer would keep the ended session in memory
            self._alarm = None

    def _abandon(self, call: SessionCall, why: str, reason: Shutdown) -> None:
        call.cancelled.set(why)
        if call.task is not None:
            self._session.tasks.on_abandoned(call)
        if call.worker is not None:
            grace = self._session.company.settings.cancel_grace
            end_worker(call.worker, reason, grace, notice=grace)

    def reply(
        self,
        call: SessionCall,
        body: bytes | None,
        outcome: Outcome,
        status: int = 200,
        error: McpError | None = None,
    ) -> None:
        """Send the call's reply, and cancel the questions that were asked on its behalf."""
        if call.observed is not None:
            call.observed.revision = self._session.info.version or ""  # `initialize` has agreed on one
            call.observed.end(outcome, error)
        if call.task is not None:
            self._session.tasks.on_replied(call)
        self._session.questions.cancel_of(call)
        self._session.reply_sink.reply(call, body, status)
        if call.stream is not None:
            self._session.on_stream_end()


def _http_status(call: SessionCall) -> int:
    """The HTTP status of an error reply. A failed `initialize` is 500: without a session, the status is all the client sees."""
    return 500 if call.method == "initialize" else 200


# --- The table of the calls in flight.
# An entry is made when its request arrives, under the session's own number, with the peer's id beside it. The first cause
# of an end (the result, a cancellation, the deadline, the worker's death, the session's end) takes the entry, and with it
# the right to reply; later causes find nothing. A worker whose call has its reply is remembered until it has ended.

NEVER: Final = math.inf
_REMEMBERED_IDS: Final = 64
"""How many ids of finished calls, and of early cancellations, are remembered."""
_EARLY_CANCEL_SECONDS: Final = 5.0
"""How long an early cancellation waits for its request."""


class SessionCall:
    """One request in flight."""

    __slots__ = (
        "caller",
        "calls",
        "cancelled",
        "deadline",
        "fixed_deadline",
        "hook_argument",
        "id",
        "index",
        "key",
        "last_active",
        "method",
        "name",
        "observed",
        "peer_channel",
        "stream",
        "stream_at",
        "task",
        "timeout",
        "worker",
    )

    def __init__(self, key: int, id: str | int, method: str, caller: Caller[SessionReply] | None) -> None:
        """`caller` waits for the reply; on a channel there is none."""
        self.key = key
        self.id = id
        self.index = id_key(id)
        self.method = method
        self.caller = caller
        self.calls: SessionCalls | None = None
        """The calls of its session, once it has a worker."""
        self.cancelled = Cancellation()
        self.name = ""
        self.observed: ObservedCall | None = None
        """None while nothing hears of calls."""
        self.hook_argument: Any = None
        """The argument of the hook that runs for this call, for `_apply_hook_result`."""
        self.stream: SessionStream | None = None
        self.task: str | None = None
        """The id of the task that replies instead of a worker."""
        self.worker: Pid | None = None
        self.peer_channel: CallChannel | None = None
        self.deadline = NEVER
        """When its timeout is over, on the loop's clock."""
        self.stream_at = NEVER
        """When its reply becomes a stream, on the loop's clock, unless it has one already."""
        self.fixed_deadline = False
        """Whether reports of progress leave the deadline as it is."""
        self.timeout: float | None = None
        """The timeout in seconds."""
        self.last_active = 0.0
        """When a question of its handler was last settled, on the loop's clock. Reports are counted by its peer channel."""

    def abort(self, why: str) -> bool:
        """End the call for an operator: its peer gets an error. False when it has ended."""
        return self.calls is not None and self.calls.ask_abort(self, why)

    def started(self, worker: Pid) -> None:
        """Note the worker that was started for this call."""
        if self.calls is not None:
            self.calls.on_worker_started(self.key, worker)

    def on_exit(self, reason: ExitReason) -> None:
        """Note that the worker has ended."""
        if self.calls is not None:
            self.calls.on_worker_exit(self, reason)

    def __repr__(self) -> str:
        return f"<Call {self.key} {self.method} {self.name}>"


class CallTable:
    """The calls of one session, by key, by id and by worker."""

    __slots__ = ("_by_id", "_calls", "_early", "_is_over", "_workers")

    def __init__(self) -> None:
        self._calls: dict[int, SessionCall] = {}
        self._by_id: dict[str | int | bytes, SessionCall] = {}
        self._workers: dict[Pid, SessionCall] = {}
        self._early: dict[str | int | bytes, float] | None = None
        self._is_over: deque[str | int] | None = None

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[SessionCall]:
        return iter(tuple(self._calls.values()))

    @property
    def is_busy(self) -> bool:
        """Whether a call or a worker is left, workers of finished calls included."""
        return bool(self._calls or self._workers)

    def add(self, call: SessionCall) -> None:
        """Add a call."""
        self._calls[call.key] = call
        self._by_id[call.index] = call

    def has(self, id: str | int) -> bool:
        """Whether a request with this id is in flight."""
        return id_key(id) in self._by_id

    def get(self, key: int) -> SessionCall | None:
        """The call with this key, if it has no reply yet."""
        return self._calls.get(key)

    def find_by_id(self, id: str | int) -> SessionCall | None:
        """The call with the peer's id."""
        return self._by_id.get(id_key(id))

    def take(self, key: int) -> SessionCall | None:
        """Remove the call: the first `take` gets it and must send the reply, any later one gets None."""
        call = self._calls.pop(key, None)
        if call is not None:
            del self._by_id[call.index]
            if self._is_over is None:
                self._is_over = deque(maxlen=_REMEMBERED_IDS)
            self._is_over.append(call.id)
        return call

    # --- workers

    def assign_worker(self, key: int, worker: Pid) -> bool:
        """Note the worker of a call. False when the call already has its reply."""
        call = self._calls.get(key)
        if call is None:
            return False
        call.worker = worker
        self._workers[worker] = call
        return True

    @property
    def workers(self) -> tuple[Pid, ...]:
        """All live workers, those of finished calls included."""
        return tuple(self._workers)

    def forget_worker(self, worker: Pid) -> SessionCall | None:
        """Remove a worker that has ended. Returns the call it worked on."""
        return self._workers.pop(worker, None)

    def has_worker(self, worker: Pid) -> bool:
        """Whether that worker is still running."""
        return worker in self._workers

    def unstarted(self) -> list[SessionCall]:
        """The calls that have no worker yet."""
        return [call for call in self._calls.values() if call.worker is None and call.task is None]

    # --- cancellations that arrived before their requests

    def note_early_cancel(self, id: str | int, now: float) -> None:
        """Remember a cancellation whose id is not in flight: the call is over, or still to come."""
        if (self._is_over is not None and id in self._is_over) or (isinstance(id, str) and len(id) > ID_LIMIT):
            return
        if self._early is None:
            self._early = {}
        self._early[id_key(id)] = now + _EARLY_CANCEL_SECONDS
        while len(self._early) > _REMEMBERED_IDS:
            del self._early[next(iter(self._early))]

    def is_cancelled_early(self, id: str | int, now: float) -> bool:
        """Whether a cancellation arrived before this request. Clears the note."""
        if not self._early:
            return False
        until = self._early.pop(id_key(id), None)
        return until is not None and now <= until
