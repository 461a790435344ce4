"""The minder of one worker: opens its process, hands it one call at a time, passes on what comes back, and ends it.

It belongs to a pool's staff and is never restarted: the foreman, who monitors it, starts another when one is needed. It ends when its worker does,
and says why in its reason; its own end takes the worker with it. Whatever happens, the call that it has is answered.
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
    GenServer,
    Gone,
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
from greenroom.supervision.cluster import Ending, NodeFailed, NodeLost, NothingFits, RemoteError
from greenroom.supervision.cluster.node_records import EXIT_MEMORY

from . import remote_call as words
from .pool import MIB
from .remote_call import Order, Outcome
from .worker_main import Seat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.jobs import Job
    from greenroom.supervision import Caller, ExitReason, Monitor, Pid, Ref, Timer

    from .pool import Pool
    from .pools import Bench, Premises
    from .remote_call import Claims

log = logging.getLogger("greenroom.pools")

_OPEN: Final = object()
_HARD: Final = object()
_CUT: Final = object()
_PATIENCE: Final = 0.25
"""How long a call that was ended may take to be over, before its process is."""
_LAST_WORDS: Final = 3.0
"""How long it may take until it is known how a process has ended, or that its link has."""
WORN: Final = Shutdown("the worker was replaced")


class Ready(NamedTuple):
    """A minder to its foreman: the worker has come up, or has done with a call. `worn` when it had better not take another one."""

    minder: Pid
    order: Order | None = None
    worn: bool = False
    claims: Claims | None = None
    """By which calls can be taken back that were given to it before their turn; without, none can be given so."""


class Lost(NamedTuple):
    """A minder to its foreman: the worker has ended, or did not come up; why, as a clause."""

    minder: Pid
    why: str


@dataclass(eq=False, repr=False)
class Minder(GenServer):
    """Of one worker."""

    traps_exit: ClassVar[bool] = True

    _foreman: Ref[Any]
    _pool: Pool
    _premises: Premises
    _settings: Mapping[str, Any]
    _plans: Mapping[int, bytes]
    """The handlers that the worker loads before it is ready."""

    def __post_init__(self) -> None:
        self._known = set(self._plans)
        self._bench: Bench
        self._seat: Ref[Any]
        self._watching: Monitor | None = None
        self._gone: Gone
        self._orders: deque[tuple[int, Order]] = deque()
        self._timer: Timer | None = None

    def init(self) -> Continue:
        """The foreman goes on; the process takes its time."""
        return Continue(_OPEN)

    async def handle_continue(self, token: Any) -> Stop | None:  # noqa: ARG002 - there is one only
        """Open a process, and start the worker's main process there."""
        gone: Gone | None = None
        try:
            bench = self._bench = await self._premises.open(self._pool)
            gone = self._gone = _watched(bench)
            self._seat = await bench.seat(self.ref(), self._settings, self._plans)
            claims = bench.claims if await self._seat.within(None).call(Seat.takes_ahead) else None
        except Exception as error:  # noqa: BLE001 - whatever kept it from coming up, the callers hear of it
            logged = why_not_started(error, self._pool)
            why = logged if self._settings.get("expose_errors") else told_of_start(error, self._pool)
            if gone is not None and is_cut_off(error) and await gone.within(_LAST_WORDS):
                why = logged = why_not_begun(gone.future.result(), self._pool)
            log.error("a worker of %s did not come up: %s", self._pool, logged)  # noqa: TRY400 - that has the traceback
            return self._over(why)
        self._watching = monitor(self._seat)
        self._foreman.send(Ready(self.pid, claims=claims))
        return None

    # --- from the foreman

    def run(self, order: Order, number_here: int, plan: bytes) -> None:
        """Have the worker run this call, now or after those that it has; a no-op when the foreman has taken it back meanwhile."""
        # The number comes with the message. `order` has that of its last assignment: a call that was taken back and given away again before we
        # read this would go out twice under a number that is not this one's, so two workers ran it, or the next call here had no answer.
        if order.minder != self.pid or order.number != number_here:
            return
        self._orders.append((order.number, order))
        number = order.entry.handler.number
        if number not in self._known:
            self._known.add(number)
            self._seat.send([words.PLAN, number, plan])
        self._bench.busy(True)  # noqa: FBT003 - a switch
        self._seat.send([words.RUN, order.number, number, order.errand, order.facts])

    def cancel(self, order: Order, why: str) -> None:
        """Tell the worker that the caller does not want this call any more."""
        if self._has(order):
            self._seat.send([words.CANCEL, order.number, why])

    def abandon(self, order: Order) -> None:
        """It has had its time to notice that: end it, and with it the process if need be."""
        if self._has(order):
            self._seat.send([words.STOP, order.number])
            self._timer = send_after(_PATIENCE, self.pid, (_HARD, order))

    def give_up(self) -> None:
        """It does not even begin with what it is given: end its process."""
        self._bench.end()

    def _has(self, order: Order) -> bool:
        """Whether it is with this worker still: the foreman may have taken it back."""
        return order.minder == self.pid and (order.number, order) in self._orders

    def _front(self) -> Order | None:
        """What the worker is at. One that was taken back may be here again, as another call."""
        orders = self._orders
        while orders:
            number, order = orders[0]
            if order.minder == self.pid and order.number == number:
                return order
            orders.popleft()
        return None

    def retire(self) -> Stop:
        """Its time is over."""
        return Stop(WORN)

    # --- from the worker

    def handle_call(self, request: Any, caller: Caller[Any]) -> Any:
        """A handler asks the peer."""
        match request, self._front():
            case [[int() as call, str() as method, params, timeout], Order(number=number) as front] if call == number:
                front.ask(caller, method, params, timeout)
                return NoReply()
            case _:
                return super().handle_call(request, caller)

    async def _lost(self) -> Stop:
        """The seat is gone, so that it has said all there is; its process says how it ended, a moment before or after."""
        if not await self._gone.within(_LAST_WORDS):
            self._bench.end()  # a process without its seat is no use
            return self._over(why_lost(NO_CONNECTION, self._pool))
        return self._over(why_lost(self._gone.future.result(), self._pool))

    def _over(self, why: str) -> Stop:
        """The worker is gone. What it was at has this for an answer; what it had not begun is the foreman's again."""
        self._give_up_front(why)
        self._orders.clear()
        self._foreman.send(Lost(self.pid, why))
        return Stop(Shutdown(WorkerLost(why)))

    def handle_info(self, message: Any) -> Any:
        """What the worker says, and what becomes of it."""
        match message:
            case [kind, int() as call, *rest]:
                front = self._front()
                if front is not None and front.number == call:
                    self._heard(front, kind, rest)
            case Down(ref=ref) if ref is self._watching:
                return self._lost()
            case Exit(pid=pid) if self._watching is not None and pid == self._bench.who.pid:
                send_after(_LAST_WORDS, self.pid, _CUT)  # until its link is gone, and the seat with it
            case Exit():
                return None
            case _ if message is _CUT:
                return self._lost()
            case (token, order) if token is _HARD:
                if self._has(order):
                    self._bench.end()
            case _:
                super().handle_info(message)
        return None

    def _heard(self, order: Order, kind: int, rest: list[Any]) -> None:
        job = order.job
        match kind, rest:
            case words.DONE, [body, error, why, crash, worn]:
                self._done(order, Outcome(order.put_together() if body == b"" else body, error, why, crash, worn))
            case words.PART, [bytes() as piece]:
                order.take(piece)
            case words.SAY, ["emit" | "log" as what, *args]:
                if order.taken.take():
                    self._seat.send([words.HEARD, order.number, *order.taken.told()])
                getattr(job.voice, what)(*args)
            case words.TOUCH, []:
                job.voice.touch(words.TOUCHES)
            case words.EXPECT, [ids]:
                job.house.expect(job.facts.session_id, job.key if job.task is None else None, ids)
            case words.TELL, ["updated" | "list_changed" | "completed" as what, *args]:
                getattr(job.house, what)(*args)
            case words.AWAY, [retry]:
                job.voice.interrupt_stream(retry)
            case _:
                self.report_unexpected("message", str(kind))

    def _done(self, order: Order, outcome: Outcome) -> None:
        self._settle(order, outcome)
        if self._front() is None:
            self._bench.busy(False)  # noqa: FBT003 - a switch
        most = self._pool.max_calls
        self._foreman.send(Ready(self.pid, order, worn=outcome.worn or (most is not None and order.number >= most)))

    def _settle(self, order: Order, outcome: Outcome) -> None:
        """What the worker is at has come to an end."""
        self._orders.popleft()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        order.settle(outcome)

    def terminate(self, reason: ExitReason) -> None:
        """Settle the call it is at, for whatever reason it ends: no caller waits for that any longer. What lies behind that is the foreman's."""
        self._give_up_front(why_lost(reason, self._pool))

    def _give_up_front(self, why: str) -> None:
        """Where it can be known whether that was begun, the foreman looks, and answers."""
        front = self._front()
        if front is not None and self._bench.claims is None:
            self._settle(front, Outcome(why=why))


def _watched(bench: Bench) -> Gone:
    """Told of how its process has ended, also while we cannot read our messages."""
    node = current_node()
    gone = Gone(node.loop)
    process = node.process(bench.who.pid)
    if process is not None:
        process.await_death(gone)
    return gone


# --- In words: why a call that ran in a worker has no result, as its caller is told it.
# A clause that follows "Tool execution failed:". It names signals, codes and limits, which say what to look for, and nothing of what was in the
# process.


class WorkerLost(ActorError):
    """A worker has ended with a call in it, or before it could take one; says why."""

    def __init__(self, why: str) -> None:
        """A clause."""
        super().__init__(why)
        self.why = why


def why_lost(reason: ExitReason, pool: Pool | None = None) -> str:
    """Of a worker that ended for this reason."""
    match reason:
        case Shutdown(detail=WorkerLost(why=why)) | Crash(error=WorkerLost(why=why)):
            return why
        case Crash(error=NodeLost(ending=ending)) | Shutdown(detail=NodeLost(ending=ending)):
            return f"its process {_told(ending, pool)}"
        case Crash(error=error):
            return f"whoever minds its process has crashed ({type(error).__name__})"
        case NoConnection():
            return "its process cannot be reached any more"
        case _:
            return f"its process was stopped ({reason})"


def _told(ending: Ending, pool: Pool | None = None) -> str:
    """Without its last words, which are for readers of the reports; and with a limit only where that can have had to do with it."""
    narrow = pool is not None and pool.memory != "half"
    limit = ending.memory if narrow or ending.code == EXIT_MEMORY else None
    return str(replace(ending, memory=limit, words=""))


NOT_STARTED: Final = "its process could not be started"


def why_not_begun(reason: ExitReason, pool: Pool) -> str:
    """Of a worker that ended for this reason before it could take a call."""
    text = f"{why_lost(reason, pool)} when it was to begin"
    match reason:
        # An import in C that gets no memory may end its process so, as OpenBLAS does. A handler that ends with 1 does not come here.
        case Crash(error=NodeLost(ending=Ending(code=1))) if isinstance(pool.memory, int):
            return f"{text}; its memory limit is {pool.memory // MIB} MiB, which may be too little for what it imports"
        case _:
            return text


_SHORT_OF_MEMORY: Final = ("MemoryError", "failed to map segment", "Cannot allocate memory")
"""What an import says that gets no memory: Python's own code, the system's loader, and the system."""


def why_not_started(error: BaseException, pool: Pool | None = None) -> str:
    """Of a worker that did not come up, for the log: with what an import has raised, word for word, and the limit if that can be why."""
    return _why_not_started(error, pool) + _limit_of(error, pool)


def _limit_of(error: BaseException, pool: Pool | None) -> str:
    """The limit of memory that the worker had, if what it ended of speaks of memory."""
    limit = None if pool is None else pool.memory_limit
    if limit is None or not any(each in _why_not_started(error) for each in _SHORT_OF_MEMORY):
        return ""
    return f"; its memory limit is {limit // MIB} MiB, which is too little for what it imports"


def _cause(error: BaseException) -> BaseException:
    """What the end of a start comes down to: the crash that is in it, if one is."""
    while isinstance(error, StartFailed | ProcessExited) and isinstance(error.reason, Crash):
        error = error.reason.error
    return error


def _why_not_started(error: BaseException, pool: Pool | None = None) -> str:
    match _cause(error):
        case NodeLost(ending=ending):
            return f"{NOT_STARTED}: it {_told(ending, pool)}"
        case NodeFailed(why=why):
            said = why.partition("; its last words:")[0].strip().splitlines()
            return f"{NOT_STARTED}: {said[-1] if said else why}"
        case StartFailed(reason=reason) | ProcessExited(reason=reason):
            return f"{NOT_STARTED}: {reason}"
        case RemoteError(text=text):
            return f"{NOT_STARTED}: {text}"
        case cause:
            return f"{NOT_STARTED}: {cause}"


def told_of_start(error: BaseException, pool: Pool | None = None) -> str:
    """The same for callers: how the process ended or that no machine takes it, and nothing of what any code has raised there."""
    match _cause(error):
        case NothingFits(full=full):  # its own text names each machine and what it has
            return f"{NOT_STARTED}: {'every machine that fits is full' if full else 'no machine of the cluster fits'}"
        case NodeLost() | StartFailed(reason=Killed()) | ProcessExited(reason=Killed()):
            return why_not_started(error, pool)
        case cause if is_cut_off(cause):
            return why_not_started(error, pool)
        case _:
            return NOT_STARTED + _limit_of(error, pool)


def is_cut_off(error: BaseException) -> bool:
    """Whether the error says only that a process could not be reached any more."""
    return isinstance(getattr(error, "reason", None), NoConnection | NoProcess)


def loss_of(job: Job, why: str) -> ToolError | McpError:
    """What to raise for it."""
    if job.method != "tools/call":
        return McpError(ErrorCode.INTERNAL_ERROR, f"Internal error: {why}")
    text = f"Tool execution failed: {why}"
    return ToolError(text) if job.house.settings.crashes == "tool" else McpError(ErrorCode.TOOL_ERROR, text)
