"""The main process of a worker: it runs handlers one call at a time, with the same code as workers inside the server's process.

A call is a `Job` here as well, run by `execute_job`: arguments are bound, the result is checked and encoded, and a crash is turned into its reply in this process.
Only bytes go back to the server. An `async def` runs in this process's loop, and so does a `def` without a context, which cannot send anything (`handler_spec`): the
link waits for it, and the server allows the silence. A `def` with a context runs in a thread, so that the link goes on, unless the handler holds the GIL.

The server's worker proxy sends it messages (`remote_call`). When it dies, the proxy replies for it. A call ends when its thread does, and no other starts before.
A long response is sent in parts, so that neither the server nor its other calls are held up.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.bulkheads import Bulkheads
from greenroom.actors.peer_channels import MAX_QUEUED_MESSAGES
from greenroom.actors.settings import Settings
from greenroom.actors.worker import crash_reply, execute_job
from greenroom.actors.worker_interfaces import Cancellation, Job, JobAsks, JobError, JobReply, set_company_of_calls
from greenroom.protocol.jsonrpc import encode_notification
from greenroom.protocol.serialization import to_jsonable
from greenroom.supervision import (
    SHUTDOWN,
    Crash,
    Down,
    GenServer,
    Shutdown,
    Stop,
    clock,
    current_node,
    current_process,
    exit,
    in_thread,
    monitor,
    send_after,
    start_task_alone,
    tracebacks,
)
from greenroom.supervision.cluster import Peers
from greenroom.supervision.cluster.flow_control import Credit
from greenroom.supervision.cluster.framing import LARGEST
from greenroom.supervision.event_bus import continue_trace

from . import remote_call as protocol
from .handler_spec import NOT_LOADED, NotLoaded, become_worker, load_catalogue
from .remote_call import (
    INTERRUPT_STREAM,
    SAY,
    TOUCH,
    TOUCHES,
    CallOutcome,
    SessionSnapshot,
    StartLocks,
    payload_from_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from greenroom.actors.catalogue import CatalogueRef, Kind
    from greenroom.protocol.input_required import InputRequired
    from greenroom.supervision import ExitReason, Monitor, Pid, Ref

_STOPPED: Final = Shutdown("the call is not wanted any more")
_POLL: Final = 0.01
_START_NEXT: Final = object()
_MIB: Final = 1024 * 1024
_AT_A_TIME: Final = 64
"""Send so many parts before waiting until the system has taken them: the process has no memory for the whole response twice."""


class _WorkerServices:
    """The services of a company that a job uses, in a worker."""

    def __init__(self, worker: WorkerMain, catalogue_ref: CatalogueRef, call: int) -> None:
        self.settings = worker.settings
        self.catalogue_ref = catalogue_ref
        self.bulkheads = worker.threads
        self.method_handlers: Mapping[str, Any] = {}
        self.around = None  # done by the server
        self.pools: Any = None
        self._worker = worker
        self._call = call

    def expect_elicitations(self, session_id: str, key: int | None, ids: Sequence[str]) -> None:  # noqa: ARG002 - the server knows whose call it is
        """The peer is about to get these URL elicitations."""
        self._worker.home.send([protocol.EXPECT, self._call, list(ids)])

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """A resource has changed."""
        self._tell("updated", uri, dict(extra))

    def list_changed(self, kind: Kind) -> None:
        """A list of the catalogue has changed."""
        self._tell("list_changed", kind)

    def completed(self, elicitation_id: str) -> bool:
        """A user has finished on a page: the server tells the session, which it knows."""
        return self._tell("completed", elicitation_id)

    def _tell(self, what: str, *args: Any) -> bool:
        return self._worker.home.send([protocol.BROADCAST, self._call, what, *args])


@dataclass(slots=True, eq=False)
class _Call:
    """The running call. For its job it stands in for the session, and takes the job's end."""

    number: int
    peer_channel: RemoteChannel
    cancelled: Cancellation
    ending: JobReply | JobError | JobAsks | None = None
    job: Job | None = None
    crash: BaseException | None = None
    task: Pid = field(init=False)
    watching: Monitor = field(init=False)

    def send(self, message: Any) -> bool:
        self.ending = message
        return True

    send_now = send


@dataclass(eq=False, repr=False)
class WorkerMain(GenServer):
    """Runs the calls of one worker process. Started by the worker's proxy in the server."""

    home: Ref[Any]
    given: InitVar[Mapping[str, Any]]
    """The company's settings that running a handler needs."""
    specs: InitVar[Mapping[int, bytes]]
    """The handlers to load before it is ready."""
    cpu: float | None = field(default=None, kw_only=True)
    memory: int | None = field(default=None, kw_only=True)
    locks: InitVar[str | None] = field(default=None, kw_only=True)

    def __post_init__(self, given: Mapping[str, Any], specs: Mapping[int, bytes], locks: str | None) -> None:
        self.settings = Settings(**given)
        self.threads = Bulkheads(per_tool=1_000_000, per_principal=1_000_000)
        self._specs = dict(specs)
        self._catalogues: dict[int, CatalogueRef] = {}
        self._call: _Call | None = None
        self._next: deque[tuple[int, int, bytes, Any]] = deque()
        self._locks = StartLocks.opened(locks)

    async def init(self) -> None:
        """Load the known handlers. When that fails the start fails, and its caller gets the reason."""
        become_worker()
        watchdog = current_node().watchdog
        if watchdog is not None and self._locks is not None:
            watchdog.stop()  # handlers may hold up this loop for any time
        monitor(self.home)
        for number in self._specs:
            await self._catalogue_of(number)

    async def _catalogue_of(self, number: int) -> CatalogueRef:
        catalogue_ref = self._catalogues.get(number)
        if catalogue_ref is None:
            # In a thread: a program may run a loop of its own before it gets to what stops its import.
            catalogue_ref = self._catalogues[number] = await in_thread(
                lambda: None, load_catalogue, self._specs[number]
            )
        return catalogue_ref

    def handle_info(self, message: Any) -> Any:
        """Dispatch a message of the server."""
        match message:
            case [protocol.PLAN, int() as number, data]:
                self._specs[number] = data
            case [protocol.RUN, int() as number, int() as spec_number, bytes() as payload, facts]:
                self._next.append((number, spec_number, payload, facts))
                if self._call is None:
                    self._start_next()
            case [kind, number, *rest] if kind in (protocol.CANCEL, protocol.STOP, protocol.CREDIT):
                call = self._call
                if call is not None and call.number == number:
                    self._on_control(call, kind, rest)
            case Down(ref=ref, reason=reason) if self._call is not None and ref is self._call.watching:
                return self._on_task_down(self._call, reason)
            case _ if message is _START_NEXT:
                if self._call is None:
                    self._start_next()
            case Down():
                return Stop(SHUTDOWN)  # the worker's proxy is gone: there is no receiver for results
            case _:
                super().handle_info(message)
        return None

    def _on_control(self, call: _Call, kind: int, rest: list[Any]) -> None:
        match kind, rest:
            case protocol.CANCEL, [str() as why]:
                call.cancelled.set(why)
            case protocol.STOP, []:
                call.cancelled.set("the call is not wanted any more")
                exit(call.task, _STOPPED)
            case protocol.CREDIT, [int() as count, int() as size]:
                call.peer_channel.credit.earn(count, size)
            case _:
                self.report_unexpected("message", str(kind))

    def takes_ahead(self) -> bool:
        """Whether calls may be sent here ahead."""
        return self._locks is not None

    def _start_next(self) -> None:
        """Start the next call that the server has not taken back; but first have everything about the last one sent."""
        if self._next and not self._is_flushed():
            send_after(_POLL, self.pid, _START_NEXT)
            return
        while self._next:
            number, spec_number, payload, facts = self._next.popleft()
            if self._locks is None or self._locks.begin(number):
                self._begin(number, spec_number, payload, facts)
                return

    def _is_flushed(self) -> bool:
        """Whether the system has taken all that was sent to the server, so that it arrives even if this process dies now."""
        peers = current_node().remote_nodes
        return not isinstance(peers, Peers) or peers.drained(self.home.pid.node)

    def _begin(self, number: int, spec_number: int, payload: bytes, facts: Any) -> None:
        cancelled = Cancellation()
        call = self._call = _Call(number, RemoteChannel(self.home, number, cancelled), cancelled)
        self._limit_processor()
        task = start_task_alone(self._run_call, call, spec_number, payload, facts)
        call.task = task.pid
        call.watching = monitor(task.pid)

    async def _run_call(self, call: _Call, spec_number: int, data: bytes, facts: Any) -> None:
        """Run a call. An exception is sent to the server, which reports it: a crash of this task would be in the log twice."""
        try:
            catalogue_ref = self._catalogues.get(spec_number) or await self._catalogue_of(spec_number)
            payload = payload_from_bytes(data)
            if payload.carried is not None:
                continue_trace(*payload.carried)
            seen: Any = SessionSnapshot(payload, facts)
            session: Any = call
            services = _WorkerServices(self, catalogue_ref, call.number)
            set_company_of_calls(services)
            call.job = Job(
                call.number,
                session,
                payload.request_id,
                payload.method,
                payload.params,
                seen,
                call.peer_channel,
                call.cancelled,
                services,
                payload.task,
                input=payload.input,
            )
            await execute_job(call.job)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError | GeneratorExit) or current_process("run a call").life:
                raise
            if call.job is None or self._is_limit(error):
                raise  # the server gets a clause for these, and no more: the report is made here
            call.crash = error

    def _is_limit(self, error: BaseException) -> bool:
        """Whether the error means that the process has reached its memory limit."""
        return isinstance(error, MemoryError) and self.memory is not None

    def _on_task_down(self, call: _Call, reason: ExitReason) -> Any:
        return self._end_call(call, reason) if self.threads.running == 0 else self._wait_for_thread(call, reason)

    async def _wait_for_thread(self, call: _Call, reason: ExitReason) -> None:
        """The call was ended while its function runs on in a thread. The server decides how long it waits for that."""
        while self.threads.running:  # noqa: ASYNC110 - threads send no event
            await asyncio.sleep(_POLL)
        sending = self._end_call(call, reason)
        if sending is not None:
            await sending

    def _end_call(self, call: _Call, reason: ExitReason) -> Awaitable[None] | None:
        self._limit_processor(off=True)
        outcome = self._outcome(call, reason)
        call.job = None  # the job refers to the call as its session: without this the arguments stay until the garbage collector runs
        if outcome.body is not None and len(outcome.body) > protocol.PIECE:
            return self._send_in_parts(call.number, outcome, outcome.body)
        self._send_outcome(call.number, outcome)
        return None

    async def _send_in_parts(self, call: int, outcome: CallOutcome, body: bytes) -> None:
        if len(body) > LARGEST:
            self._send_outcome(
                call,
                CallOutcome(
                    why=f"its result has {len(body) // _MIB} MiB, and may have {LARGEST // _MIB}",
                    cause="worker_crashed",
                ),
            )
            return
        for sent, start in enumerate(range(0, len(body), protocol.PIECE), start=1):
            self.home.send([protocol.PART, call, body[start : start + protocol.PIECE]])
            while sent % _AT_A_TIME == 0 and not self._is_flushed():  # noqa: ASYNC110 - the system sends no event for it
                await asyncio.sleep(_POLL)
        self._send_outcome(call, outcome._replace(body=b""))

    def _send_outcome(self, call: int, outcome: CallOutcome) -> None:
        self._call = None
        self.home.send([protocol.DONE, call, *outcome])
        self._start_next()

    def _outcome(self, call: _Call, reason: ExitReason) -> CallOutcome:
        error = reason.error if isinstance(reason, Crash) else call.crash
        crash = None if error is None else _crash_report(error)
        if error is not None and self._is_limit(error) and self.memory is not None:
            limit = f"{self.memory // _MIB} MiB"
            why = f"it needed more than the {limit} of memory that its process may have"
            return CallOutcome(why=why, worn=True, cause="worker_crashed")
        if isinstance(error, NotLoaded):
            why = str(error) if self.settings.expose_errors else NOT_LOADED
            return CallOutcome(why=why, crash=crash, cause="worker_crashed")
        ending = call.ending
        if ending is None and error is not None and call.job is not None:
            ending = crash_reply(call.job, error)
        match ending:
            case JobReply(body=body, outcome=outcome):
                return CallOutcome(body=body, crash=crash, is_error=outcome == "tool_error")
            case JobError(error=answer):
                return CallOutcome(error=[int(answer.code), str(answer.message), to_jsonable(answer.data)], crash=crash)
            case JobAsks(required=required):
                return CallOutcome(asks=_asks(required))
            case None:
                return CallOutcome(why=f"its worker ended it ({reason})", crash=crash, cause="worker_crashed")

    def _limit_processor(self, *, off: bool = False) -> None:
        """Set the limit of processor time for the next call. It counts from the start of the process, so it is moved on before each call."""
        if self.cpu is None:
            return
        import resource  # noqa: PLC0415 - the module is missing where there are no such limits

        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        soft = hard
        if not off:
            used = resource.getrusage(resource.RUSAGE_SELF)
            soft = math.ceil(used.ru_utime + used.ru_stime + self.cpu)
            if hard != resource.RLIM_INFINITY:
                soft = min(soft, hard)
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def _asks(required: InputRequired) -> list[Any]:
    questions = [[each.key, each.method, to_jsonable(each.params)] for each in required.questions]
    recorded = None if required.answers is None else required.answers.recorded
    answers = None if recorded is None else [[each.question, each.answer] for each in recorded]
    return [questions, required.state, answers]


def _crash_report(error: BaseException) -> list[str]:
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - an error must be reported whatever a user's __str__ does
        text = "(its str raised)"
    return [type(error).__qualname__, text, tracebacks.format_traceback(error)[-20_000:]]


# --- The channel of a call at the worker's end of the link.
# Sending does not wait for the server, so it is unknown whether the peer gets a message. But the server acknowledges, and a handler that is too far ahead is told
# that the peer will not get it.


class RemoteChannel:
    """The channel of one call."""

    __slots__ = ("_call", "_cancelled", "_home", "_loop", "_touched", "credit")

    def __init__(self, home: Ref[Any], call: int, cancelled: Cancellation) -> None:
        """`home` is the worker's proxy in the server."""
        self._home = home
        self._call = call
        self._cancelled = cancelled
        self._loop = asyncio.get_running_loop()
        self._touched = -math.inf
        self.credit = Credit(MAX_QUEUED_MESSAGES)
        """For messages that the server has not acknowledged; threads may miscount a little."""

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification. False when the peer will not get it."""
        encode_notification(
            method, params
        )  # a value that cannot be encoded is the handler's own error, raised in its call
        return self._say("emit", method, dict(params))

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message."""
        encode_notification("notifications/message", {"data": data})
        return self._say("log", level, data, logger)

    def touch(self, ahead: float = 0.0) -> None:  # noqa: ARG002 - the server adds the time itself
        """Restart the call's allowed silence. Sent a few times a second at most, however often a handler reports."""
        now = clock.now(self._loop)
        if now - self._touched >= TOUCHES and not self._cancelled:
            self._touched = now
            self._home.send([TOUCH, self._call])

    async def ask(
        self, method: str, params: Mapping[str, Any], timeout: float | None, key: str | None = None
    ) -> dict[str, Any]:
        """Send a request to the peer, and wait for its result."""
        asked = [self._call, method, dict(params), timeout, key]
        result: dict[str, Any] = await self._home.within(None).ask(asked)
        return result

    def interrupt_stream(self, retry: float | None) -> bool:
        """Close the call's stream for now."""
        return not self._cancelled and self._home.send([INTERRUPT_STREAM, self._call, retry])

    def _say(self, what: str, *args: Any) -> bool:
        if self._cancelled:
            return False
        if not self.credit.has_room():
            self.touch()
            return False
        if not self._home.send([SAY, self._call, what, *args]):
            return False
        self.credit.spend()
        return True
