"""The server's proxy of one worker: it starts the worker's process, sends it calls, passes on what comes back, and ends it.

It is a child of the pool's worker supervisor, and is never restarted: the scheduler, which monitors it, starts another when one is needed. It ends with its worker,
with the cause as its exit reason, and its own end takes the worker with it. However it ends, the call that the worker was running gets a reply.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.protocol.errors import ErrorCode, McpError, ToolError
from greenroom.supervision import (
    NO_CONNECTION,
    ActorError,
    Continue,
    Crash,
    Down,
    Exit,
    ExitFuture,
    GenServer,
    Killed,
    NoConnection,
    NoProcess,
    NoReply,
    ProcessExited,
    Shutdown,
    StartFailed,
    Stop,
    current_node,
    monitor,
    send_after,
)
from greenroom.supervision.cluster import NodeFailed, NodeLost, NothingFits, ProcessEnding, RemoteError
from greenroom.supervision.cluster.node_records import EXIT_MEMORY, signal_name
from greenroom.supervision.event_bus import bus

from . import remote_call as protocol
from .pool_options import MIB
from .remote_call import CallOutcome, RemoteCall
from .worker_main import WorkerMain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.worker_interfaces import Job
    from greenroom.supervision import Caller, ExitReason, Monitor, Pid, Ref, Timer

    from .pool_options import Pool
    from .pools import ProcessProvider, WorkerProcess
    from .remote_call import StartLocks

log = logging.getLogger("greenroom.pools")

_OPEN: Final = object()
_KILL_NOW: Final = object()
_LINK_LATE: Final = object()
_PATIENCE: Final = 0.25
"""How long a call that was ended may take to stop, before its process is ended."""
_EXIT_REASON_TIMEOUT: Final = 3.0
"""How long to wait for the exit reason of a process, or for the end of its link."""
WORN: Final = Shutdown("the worker was replaced")


class WorkerReady(NamedTuple):
    """To the scheduler: the worker is ready, or has finished a call. `worn` when it should be replaced."""

    proxy: Pid
    call: RemoteCall | None = None
    worn: bool = False
    locks: StartLocks | None = None
    """The locks by which calls sent ahead can be taken back; without them none are sent ahead."""


class WorkerEnded(NamedTuple):
    """To the scheduler: the worker has ended, or did not start; `why` is a clause."""

    proxy: Pid
    why: str


@dataclass(eq=False, repr=False)
class WorkerProxy(GenServer):
    """The process that stands for one worker in the server."""

    traps_exit: ClassVar[bool] = True

    _scheduler: Ref[Any]
    _pool: Pool
    _provider: ProcessProvider
    _settings: Mapping[str, Any]
    _specs: Mapping[int, bytes]
    """The handlers that the worker loads before it is ready."""

    def __post_init__(self) -> None:
        self._known = set(self._specs)
        self._worker_process: WorkerProcess
        self._worker_main: Ref[Any]
        self._watching: Monitor | None = None
        self._gone: ExitFuture
        self._calls: deque[tuple[int, RemoteCall]] = deque()
        self._timer: Timer | None = None

    @property
    def os_pid(self) -> int | None:
        """The operating system's process of its worker, once that has started."""
        worker_process: WorkerProcess | None = getattr(self, "_worker_process", None)
        return None if worker_process is None else worker_process.os_pid

    def init(self) -> Continue:
        """Let the scheduler go on: starting the process takes time."""
        return Continue(_OPEN)

    async def handle_continue(self, token: Any) -> Stop | None:  # noqa: ARG002 - there is only one token
        """Start a process, and the worker's main process in it."""
        gone: ExitFuture | None = None
        try:
            worker_process = self._worker_process = await self._provider.open(self._pool)
            gone = self._gone = _watch_process(worker_process)
            if bus.listener is not None:
                _observe_process(self._settings["name"], self._pool, worker_process)
            self._worker_main = await worker_process.start_main(self.ref(), self._settings, self._specs)
            locks = worker_process.locks if await self._worker_main.within(None).call(WorkerMain.takes_ahead) else None
        except Exception as error:  # noqa: BLE001 - the callers get the reason, whatever it is
            logged = why_not_started(error, self._pool)
            why = logged if self._settings.get("expose_errors") else start_failure_for_caller(error, self._pool)
            if gone is not None and is_unreachable(error) and await gone.within(_EXIT_REASON_TIMEOUT):
                why = logged = why_not_begun(gone.future.result(), self._pool)
            log.error("a worker of %s did not start: %s", self._pool, logged)  # noqa: TRY400 - that has the traceback
            return self._stop_lost(why)
        self._watching = monitor(self._worker_main)
        self._scheduler.send(WorkerReady(self.pid, locks=locks))
        return None

    # --- from the scheduler

    def run(self, call: RemoteCall, number_here: int, handler_spec: bytes) -> None:
        """Have the worker run this call, now or after those that it has. A no-op when the scheduler has taken it back in the meantime."""
        # The number is part of the message, since `call` carries that of its latest assignment. A call taken back and given away again before this message is read
        # would be sent here under a foreign number: two workers would run it, or the next call here would get no reply.
        if call.proxy != self.pid or call.number != number_here:
            return
        self._calls.append((call.number, call))
        if self._front() is call:
            call.note_start()
        number = call.entry.handler.number
        if number not in self._known:
            self._known.add(number)
            self._worker_main.send([protocol.PLAN, number, handler_spec])
        self._worker_process.busy(True)  # noqa: FBT003 - a switch
        self._worker_main.send([protocol.RUN, call.number, number, call.payload, call.facts])

    def cancel(self, call: RemoteCall, why: str) -> None:
        """Pass a cancellation to the worker."""
        if self._has(call):
            self._worker_main.send([protocol.CANCEL, call.number, why])

    def abandon(self, call: RemoteCall) -> None:
        """The call has not stopped on its cancellation: end it, and after a while its process."""
        if self._has(call):
            self._worker_main.send([protocol.STOP, call.number])
            self._timer = send_after(_PATIENCE, self.pid, (_KILL_NOW, call))

    def give_up(self) -> None:
        """The worker does not start its calls: end its process."""
        self._worker_process.end()

    def _has(self, call: RemoteCall) -> bool:
        """Whether this worker still has the call: the scheduler may have taken it back."""
        return call.proxy == self.pid and (call.number, call) in self._calls

    def _front(self) -> RemoteCall | None:
        """The call that the worker runs. One that was taken back may be here again under another number."""
        calls = self._calls
        while calls:
            number, call = calls[0]
            if call.proxy == self.pid and call.number == number:
                return call
            calls.popleft()
        return None

    def retire(self) -> Stop:
        """The scheduler retires the worker."""
        return Stop(WORN)

    # --- from the worker

    def handle_call(self, request: Any, caller: Caller[Any]) -> Any:
        """A handler asks the peer."""
        match request, self._front():
            case [
                [int() as number_asked, str() as method, params, timeout, key],
                RemoteCall(number=number) as front,
            ] if number_asked == number:
                front.ask(caller, method, params, timeout, key)
                return NoReply()
            case _:
                return super().handle_call(request, caller)

    async def _on_worker_lost(self) -> Stop:
        """The worker's main process has ended, so everything it sent has arrived. Its process reports how it ended, shortly before or after."""
        if not await self._gone.within(_EXIT_REASON_TIMEOUT):
            self._worker_process.end()  # a process without its main process is of no use
            return self._stop_lost(why_lost(NO_CONNECTION, self._pool))
        return self._stop_lost(why_lost(self._gone.future.result(), self._pool))

    def _stop_lost(self, why: str) -> Stop:
        """The worker has ended: reply for the call that it ran, and leave the others to the scheduler."""
        self._give_up_front(why)
        self._calls.clear()
        self._scheduler.send(WorkerEnded(self.pid, why))
        return Stop(Shutdown(WorkerLost(why)))

    def handle_info(self, message: Any) -> Any:
        """Dispatch a message of the worker, or about it."""
        match message:
            case [kind, int() as number, *rest]:
                front = self._front()
                if front is not None and front.number == number:
                    self._on_message(front, kind, rest)
            case Down(ref=ref) if ref is self._watching:
                return self._on_worker_lost()
            case Exit(pid=pid) if self._watching is not None and pid == self._worker_process.owner.pid:
                send_after(
                    _EXIT_REASON_TIMEOUT, self.pid, _LINK_LATE
                )  # until its link is gone, and the worker's main process with it
            case Exit():
                return None
            case _ if message is _LINK_LATE:
                return self._on_worker_lost()
            case (token, call) if token is _KILL_NOW:
                if self._has(call):
                    self._worker_process.end()
            case _:
                super().handle_info(message)
        return None

    def _on_message(self, call: RemoteCall, kind: int, rest: list[Any]) -> None:
        job = call.job
        match kind, rest:
            case protocol.DONE, [body, *outcome]:
                self._done(call, CallOutcome(call.put_together() if body == b"" else body, *outcome))
            case protocol.PART, [bytes() as piece]:
                call.take(piece)
            case protocol.SAY, ["emit" | "log" as what, *args]:
                if call.taken.take():
                    self._worker_main.send([protocol.CREDIT, call.number, *call.taken.drain()])
                getattr(job.peer_channel, what)(*args)
            case protocol.TOUCH, []:
                job.peer_channel.touch(protocol.TOUCHES)
            case protocol.EXPECT, [ids]:
                job.services.expect_elicitations(job.facts.session_id, job.key if job.task is None else None, ids)
            case protocol.BROADCAST, ["updated" | "list_changed" | "completed" as what, *args]:
                getattr(job.services, what)(*args)
            case protocol.INTERRUPT_STREAM, [retry]:
                job.peer_channel.interrupt_stream(retry)
            case _:
                self.report_unexpected("message", str(kind))

    def _done(self, call: RemoteCall, outcome: CallOutcome) -> None:
        self._settle(call, outcome)
        following = self._front()
        if following is None:
            self._worker_process.busy(False)  # noqa: FBT003 - a switch
        else:
            following.note_start()
        most = self._pool.max_calls
        self._scheduler.send(
            WorkerReady(self.pid, call, worn=outcome.worn or (most is not None and call.number >= most))
        )

    def _settle(self, call: RemoteCall, outcome: CallOutcome) -> None:
        """The running call has ended."""
        self._calls.popleft()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        call.settle(outcome)

    def terminate(self, reason: ExitReason) -> None:
        """Reply for the running call, whatever this process ends of; calls behind it are the scheduler's."""
        self._give_up_front(why_lost(reason, self._pool))

    def _give_up_front(self, why: str) -> None:
        """Where locks show whether the call was started, the scheduler checks them and replies."""
        front = self._front()
        if front is not None and self._worker_process.locks is None:
            self._settle(front, CallOutcome(why=why))


def _watch_process(worker_process: WorkerProcess) -> ExitFuture:
    """Watch its process directly, which works also while this process cannot read its messages."""
    node = current_node()
    gone = ExitFuture(node.loop)
    process = node.process(worker_process.owner.pid)
    if process is not None:
        process.add_exit_waiter(gone)
    return gone


def _observe_process(program: str, pool: Pool, worker_process: WorkerProcess) -> None:
    """Emit that the process has started, and later how it has ended."""
    process = current_node().process(worker_process.owner.pid)
    if process is not None:
        process.add_exit_waiter(_ObservedProcess(program, str(pool.serial), worker_process.os_pid))


class _ObservedProcess:
    """The process of a worker, which a listener of events follows."""

    __slots__ = ("_os_pid", "_pool", "_program")

    def __init__(self, program: str, pool: str, os_pid: int) -> None:
        from greenroom.event_types import PoolWorkerStarted  # noqa: PLC0415 - only a program with a listener loads the events

        self._program = program
        self._pool = pool
        self._os_pid = os_pid
        if bus.listener is not None:
            bus.listener(PoolWorkerStarted(program=program, pool=pool, process=os_pid))

    def on_exit(self, reason: ExitReason) -> None:
        """Emit how it has ended."""
        from greenroom.event_types import PoolWorkerEnded  # noqa: PLC0415 - as above

        listener = bus.listener
        if listener is None:
            return
        signal, status, is_failure = "", None, False
        match reason:
            case Crash(error=NodeLost(ending=ending)) | Shutdown(detail=NodeLost(ending=ending)):
                signal = "" if ending.signal is None else signal_name(ending.signal)
                status = ending.code
                is_failure = not (ending.orderly or ending.asked)
            case _:
                is_failure = isinstance(reason, Crash)
        listener(
            PoolWorkerEnded(
                program=self._program,
                pool=self._pool,
                process=self._os_pid,
                signal=signal,
                status=status,
                is_failure=is_failure,
            )
        )


# --- Texts: why a call in a worker has no result, as its caller is told it.
# Clauses that follow "Tool execution failed:". They name signals, exit codes and limits, which tell where to look, and nothing that was in the process.


class WorkerLost(ActorError):
    """A worker has ended with a call, or before it could take one; the message says why."""

    def __init__(self, why: str) -> None:
        """`why` is a clause."""
        super().__init__(why)
        self.why = why


def why_lost(reason: ExitReason, pool: Pool | None = None) -> str:
    """The text for a worker that ended for this reason."""
    match reason:
        case Shutdown(detail=WorkerLost(why=why)) | Crash(error=WorkerLost(why=why)):
            return why
        case Crash(error=NodeLost(ending=ending)) | Shutdown(detail=NodeLost(ending=ending)):
            return f"its process {_ending_text(ending, pool)}"
        case Crash(error=error):
            return f"the proxy of its process has crashed ({type(error).__name__})"
        case NoConnection():
            return "its process cannot be reached any more"
        case _:
            return f"its process was stopped ({reason})"


def _ending_text(ending: ProcessEnding, pool: Pool | None = None) -> str:
    """Without the last output, which is for readers of the log; and with a limit only where that may be the cause."""
    narrow = pool is not None and pool.memory != "half"
    limit = ending.memory if narrow or ending.code == EXIT_MEMORY else None
    return str(replace(ending, memory=limit, words=""))


NOT_STARTED: Final = "its process could not be started"


def why_not_begun(reason: ExitReason, pool: Pool) -> str:
    """The text for a worker that ended for this reason before it could take a call."""
    text = f"{why_lost(reason, pool)} before it could take a call"
    match reason:
        # An import of C code that gets no memory may exit so, as OpenBLAS does. A handler that exits with 1 does not come here.
        case Crash(error=NodeLost(ending=ProcessEnding(code=1))) if isinstance(pool.memory, int):
            return f"{text}; its memory limit is {pool.memory // MIB} MiB, which may be too little for what it imports"
        case _:
            return text


_SHORT_OF_MEMORY: Final = ("MemoryError", "failed to map segment", "Cannot allocate memory")
"""In the error of an import that got no memory: from Python's own code, from the dynamic loader, from the system."""


def why_not_started(error: BaseException, pool: Pool | None = None) -> str:
    """The text for the log of a worker that did not start: with the import's own error, and the memory limit if that may be the cause."""
    return _why_not_started(error, pool) + _limit_of(error, pool)


def _limit_of(error: BaseException, pool: Pool | None) -> str:
    """The worker's memory limit, as a clause, if its error speaks of memory."""
    limit = None if pool is None else pool.memory_limit
    if limit is None or not any(each in _why_not_started(error) for each in _SHORT_OF_MEMORY):
        return ""
    return f"; its memory limit is {limit // MIB} MiB, which is too little for what it imports"


def _cause(error: BaseException) -> BaseException:
    """The cause at the bottom of a failed start: the crash in it, if there is one."""
    while isinstance(error, StartFailed | ProcessExited) and isinstance(error.reason, Crash):
        error = error.reason.error
    return error


def _why_not_started(error: BaseException, pool: Pool | None = None) -> str:
    match _cause(error):
        case NodeLost(ending=ending):
            return f"{NOT_STARTED}: it {_ending_text(ending, pool)}"
        case NodeFailed(why=why):
            lines = why.partition("; its last words:")[0].strip().splitlines()
            return f"{NOT_STARTED}: {lines[-1] if lines else why}"
        case StartFailed(reason=reason) | ProcessExited(reason=reason):
            return f"{NOT_STARTED}: {reason}"
        case RemoteError(text=text):
            return f"{NOT_STARTED}: {text}"
        case cause:
            return f"{NOT_STARTED}: {cause}"


def start_failure_for_caller(error: BaseException, pool: Pool | None = None) -> str:
    """The same text for callers: how the process ended, or that no machine takes it, and nothing that the code there has raised."""
    match _cause(error):
        case NothingFits(full=full):  # its own text names each machine and what it has
            return f"{NOT_STARTED}: {'every machine that fits is full' if full else 'no machine of the cluster fits'}"
        case NodeLost() | StartFailed(reason=Killed()) | ProcessExited(reason=Killed()):
            return why_not_started(error, pool)
        case cause if is_unreachable(cause):
            return why_not_started(error, pool)
        case _:
            return NOT_STARTED + _limit_of(error, pool)


def is_unreachable(error: BaseException) -> bool:
    """Whether the error only says that a process cannot be reached any more."""
    return isinstance(getattr(error, "reason", None), NoConnection | NoProcess)


def error_of_loss(job: Job, why: str) -> ToolError | McpError:
    """The error to raise for a lost call."""
    if job.method != "tools/call":
        return McpError(ErrorCode.INTERNAL_ERROR, f"Internal error: {why}")
    text = f"Tool execution failed: {why}"
    return ToolError(text) if job.services.settings.crashes == "tool" else McpError(ErrorCode.TOOL_ERROR, text)
