"""The scheduler of a pool: it keeps the waiting calls, whose principals take turns, gives them to workers, and starts and ends workers.

::

    pool (one_for_all)
    ├─ workers     dynamic; a worker proxy for each worker, never restarted
    └─ scheduler   has the waiting calls and the free workers; starts worker proxies, and retires them

A lost worker that had a call is replaced as soon as the next call needs one. After workers that do not start, or that die idle, each further attempt waits longer,
and callers with no other worker to wait for get the reason. Jobs call the scheduler, and worker proxies send it messages. When it dies, its callers get an error,
the supervisor ends all workers with it, and its successor begins with nothing.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, cast

from greenroom.protocol.errors import RequestCancelled
from greenroom.supervision import (
    TEMPORARY,
    Backoff,
    Down,
    DynamicSupervisor,
    GenServer,
    Pid,
    Ref,
    Reject,
    Shutdown,
    Stop,
    child,
    later,
    monitor,
    send_after,
    start_child,
)
from greenroom.supervision.fair_queue import FairQueue

from .handler_spec import spec_of, specs_of
from .remote_call import CallOutcome
from .worker_proxy import WORN, WorkerEnded, WorkerProxy, WorkerReady, why_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from greenroom.actors.catalogue_entries import CatalogueEntry
    from greenroom.supervision import ExitReason, Timer

    from .pool_options import Pool
    from .pools import ProcessProvider
    from .remote_call import RemoteCall, StartLocks

_DOUBTED: Final = object()
_DOUBT: Final = 0.05
"""How long a worker whose call was ended may still have it, before another worker takes its place."""
_MOMENT: Final = 0.5
"""How often to check whether workers have started their calls."""
_TOO_LONG: Final = 0.05
"""After so long in one call, the calls behind it move to other workers."""
_STOPPING: Final = 1.5
"""How long a worker proxy may take to end its worker in order; after that its process is killed."""
UNUSED: Final = Shutdown("nothing runs in this pool any more")


@dataclass(eq=False, repr=False)
class PoolScheduler(GenServer):
    """The process that schedules the calls of one pool of a company."""

    traps_exit: ClassVar[bool] = True

    _pool: Pool
    _supervisor: Ref[DynamicSupervisor]
    _provider: ProcessProvider
    _settings: Mapping[str, Any]
    _entries: Callable[[], Sequence[CatalogueEntry]]
    """The entries that use this pool, as registered now: a worker loads them before it is ready."""

    def __post_init__(self) -> None:
        self._specs: dict[int, bytes] = {}
        self._workers: dict[Pid, WorkerState] = {}
        self._free: list[WorkerState] = []
        self._waiting: FairQueue[RemoteCall] = FairQueue()
        self._backoff = StartBackoff()
        self._is_starting = False
        self._watching = False
        self._hung_check_at: float | None = None
        self._timers: dict[Callable[[], Stop | None], Timer] = {}
        """The running timers, by the method that they call."""

    def init(self) -> None:
        """Start the warm workers."""
        self._arm(self._pool.idle, self._retire_idle)
        self._start_missing()

    def terminate(self, reason: ExitReason) -> None:
        """Cancel the timers, close the locks and reply to the waiting calls: a successor would not know them."""
        for timer in self._timers.values():
            timer.cancel()
        for worker in self._workers.values():
            if worker.locks is not None:
                worker.locks.close()
        for call in self._waiting:
            call.settle(CallOutcome(why=f"its pool was stopped ({reason})"))

    def report_state(self) -> str:
        """The numbers of workers and of waiting calls."""
        return f"{len(self._workers)} workers, {len(self._free)} of them free, {len(self._waiting)} calls wait"

    # --- calls

    def submit(self, call: RemoteCall) -> CallOutcome:
        """Run a call in a worker, now or when its turn comes. The reply is how it has ended."""
        cancelled = call.job.cancelled
        if cancelled:
            raise Reject(RequestCancelled(cancelled.reason or ""))
        call.caller = self.caller
        self._waiting.add(call.principal, call)
        self._dispatch()
        self._send_ahead()
        if call not in self._waiting:
            return later()  # type: ignore[no-any-return]
        present = [worker for worker in self._workers.values() if not worker.is_leaving]
        if not present and not self._is_starting:
            self._waiting.remove(call)
            return CallOutcome(why=self._backoff.why)
        starting = sum(worker.is_starting for worker in present) + self._is_starting
        if len(self._waiting) > self._pool.queue + starting:
            busy = f"{len(present)} process{'es are' if len(present) != 1 else ' is'} busy"
            why = f"{busy}, and {len(self._waiting) - 1} calls wait for that already; try again later"
            displaced = self._waiting.displace(call.principal, more=0)
            if displaced is None:
                self._waiting.remove(call)
                return CallOutcome(why=why, cause="refused")
            displaced.settle(CallOutcome(why=why, cause="refused"))
        return later()  # type: ignore[no-any-return]

    def cancel(self, call: RemoteCall, why: str) -> None:
        """The caller has cancelled the call: drop it while it waits, or pass the cancellation to its worker."""
        worker, waited = self._withdraw(call)
        if waited:
            call.caller.fail(RequestCancelled(why))
        elif worker is not None:
            worker.ref.cast(WorkerProxy.cancel, call, why)

    def drop(self, call: RemoteCall) -> None:
        """The caller is gone: end the call without waiting for its worker."""
        call.is_dropped = True
        worker, waited = self._withdraw(call)
        if worker is not None and not waited:
            worker.ref.cast(WorkerProxy.abandon, call)
            send_after(_DOUBT, self.pid, (_DOUBTED, call))

    def _withdraw(self, call: RemoteCall) -> tuple[WorkerState | None, bool]:
        """Take a call back. Returns the worker that has it, if any, and whether the call was not started yet."""
        worker = self._worker_of(call)
        if worker is not None and call is not worker.calls[0]:
            self._take_back(worker, [call])
        return worker, self._waiting.remove(call)

    def _worker_of(self, call: RemoteCall) -> WorkerState | None:
        worker = None if call.proxy is None else self._workers.get(call.proxy)
        return worker if worker is not None and call in worker.calls else None

    def _assign(self, worker: WorkerState, call: RemoteCall) -> bool:
        """Give a call to a worker. False when workers cannot find its handler."""
        handler_spec = self._spec_of(call)
        if handler_spec is None:
            return False
        if not worker.calls:
            worker.since = self._now()
        worker.number += 1
        worker.calls.append(call)
        call.proxy, call.number = worker.ref.pid, worker.number
        worker.ref.cast(WorkerProxy.run, call, worker.number, handler_spec)
        if self._hung_check_at is None:
            self._schedule_hung_check()
        return True

    def _spec_of(self, call: RemoteCall) -> bytes | None:
        number = call.entry.handler.number
        try:
            if number not in self._specs:
                self._specs[number] = spec_of(call.entry)
        except Exception as error:  # noqa: BLE001 - a handler that cannot be found is the error of that call alone
            call.caller.fail(error.with_traceback(None))  # the frames would keep a worker's objects alive
        return self._specs.get(number)

    def _send_ahead(self) -> None:
        """When all workers are busy and no more may be started, send them their next calls ahead, which saves a round trip after each call."""
        if self._is_starting or len(self._workers) < self._pool.most:
            return
        for worker in self._workers.values() if self._waiting else ():
            for _ in range(min(worker.room_ahead, len(self._waiting))):
                if not self._watching:
                    self._watching = True
                    self._arm(_TOO_LONG, self._reassign_behind_long_calls)
                call = self._waiting.take()
                if call is not None:
                    self._assign(worker, call)

    def _take_back(self, worker: WorkerState, calls: Sequence[RemoteCall]) -> None:
        """Put those of these calls that the worker has not started back in front of their principals' queues."""
        for call in worker.take_back(calls):
            self._wait_again(call)

    def _wait_again(self, call: RemoteCall) -> None:
        call.proxy = None
        self._waiting.add_first(call.principal, call)

    def _reassign_behind_long_calls(self) -> None:
        """Take back the calls behind one that lasts: another worker gets them, or the first that is free."""
        self._watching = False
        soon = self._now() - _TOO_LONG
        for worker in self._workers.values():
            if len(worker.calls) > 1:
                if worker.since <= soon:
                    self._take_back(worker, worker.calls)
                    worker.is_fast = False  # until it has finished that call
                else:
                    self._watching = True
        self._dispatch()
        if self._watching:
            self._arm(_TOO_LONG, self._reassign_behind_long_calls)

    def _schedule_hung_check(self) -> None:
        self._hung_check_at = self._now() + _MOMENT
        self._arm(_MOMENT, self._check_hung)

    def _check_hung(self) -> None:
        now, due = self._now(), self._hung_check_at or 0.0
        self._hung_check_at = None
        check = find_hung_workers(self._workers.values(), now, late=now - due > _MOMENT)
        for call in check.back:
            self._wait_again(call)
        for worker in check.hung:
            worker.ref.cast(WorkerProxy.give_up)
        if check.is_open:
            self._schedule_hung_check()
        self._dispatch()

    def _dispatch(self) -> None:
        """Give waiting calls to free workers, and start workers for the rest."""
        while self._free and self._waiting:
            self._give_next(self._free.pop())
        self._start_missing()

    def _give_next(self, worker: WorkerState) -> None:
        """Give a free worker the first waiting call, if there is one."""
        while (call := self._waiting.take()) is not None:
            if self._assign(worker, call):
                return
        worker.idle_since = self._now()
        self._free.append(worker)

    # --- for operators

    def recycle(self) -> int:
        """Replace all workers by new ones, those that have calls when these have ended. Returns how many."""
        found = [worker for worker in self._workers.values() if not worker.is_leaving]
        for worker in found:
            worker.is_worn = True
            if worker in self._free:
                self._free.remove(worker)
                self._retire(worker)
        self._start_missing()
        return len(found)

    def facts(self) -> PoolFacts:
        """The pool at this moment, for a view of it."""
        now = self._now()
        return PoolFacts(
            pool=self._pool,
            waiting=len(self._waiting),
            tools=[str(entry.name) for entry in self._entries()],
            workers=[worker.facts(now) for worker in self._workers.values()],
            why=self._backoff.why,
        )

    # --- workers

    def handle_info(self, message: Any) -> Stop | None:
        """Dispatch a message of a worker proxy, a monitor or a timer."""
        match message:
            case WorkerReady(proxy=pid):
                worker = self._workers.get(pid)
                if worker is not None:
                    self._on_ready(worker, message)
            case WorkerEnded(proxy=pid, why=why):
                if pid in self._workers:
                    self._workers[pid].why = why
            case Down(pid=Pid() as pid, reason=reason):
                worker = self._workers.pop(pid, None)
                if worker is not None:
                    self._on_worker_gone(worker, reason)
            case (token, call) if token is _DOUBTED:
                self._replace_doubted(call)
            case _ if callable(message) and message in self._timers:
                return cast("Stop | None", message())
            case _:
                super().handle_info(message)
        return None

    def _replace_doubted(self, call: RemoteCall) -> None:
        """A call that was ended has not stopped at once, and may never: do not count on its worker."""
        worker = self._worker_of(call)
        if worker is not None:
            worker.is_leaving = True
            self._take_back(worker, worker.calls)
            self._start_missing()

    def _on_ready(self, worker: WorkerState, ready: WorkerReady) -> None:
        if ready.call is None:
            worker.is_starting = False
            worker.locks = ready.locks
        else:
            self._backoff.succeeded()
            while worker.calls and worker.calls.popleft() is not ready.call:
                ...
        worker.is_worn = worker.is_worn or ready.worn
        worker.is_fast, worker.since = True, self._now()
        worker.is_leaving = False  # also a worker that was doubted: its call has ended in time
        worker.is_leaving = worker.is_worn or self._surplus() > 0
        if worker.is_leaving:
            self._take_back(worker, worker.calls)
        if worker.calls:
            self._send_ahead()
        elif worker.is_leaving:
            self._retire(worker)
        else:
            self._give_next(worker)
            self._send_ahead()

    def _surplus(self) -> int:
        return sum(not worker.is_leaving for worker in self._workers.values()) - self._pool.most

    def _retire(self, worker: WorkerState) -> None:
        worker.is_leaving = True
        worker.ref.cast(WorkerProxy.retire)
        self._start_missing()

    def _on_worker_gone(self, worker: WorkerState, reason: ExitReason) -> None:
        if worker in self._free:
            self._free.remove(worker)
        why = worker.why or why_lost(reason)
        if worker.calls:
            for call in worker.give_back():  # its process may live on for a while: the proxy may have died
                self._wait_again(call)
            for call in worker.calls:
                call.settle(CallOutcome(why=why))  # unless its proxy has replied
        elif reason != WORN and (worker.is_starting or not worker.is_leaving):
            self._on_start_failure(why, worker.started_at)
        self._start_missing()

    def _on_start_failure(self, why: str, began: float) -> None:
        """A worker did not start, or died idle: delay the next attempt, and fail the calls that have no other worker to wait for."""
        pause = self._backoff.failed(why, self._now(), began)
        if pause is not None and self._pool.warm:
            self._arm(pause, self._try_again)
        if not any(not worker.is_leaving for worker in self._workers.values()):
            waiting, self._waiting = self._waiting, FairQueue()
            for call in waiting:
                call.settle(CallOutcome(why=why))

    def _start_missing(self) -> None:
        """Start as many workers as are needed and allowed."""
        if not self._is_starting and self._needs_more():
            self._is_starting = True
            self.ref().cast(PoolScheduler.start_workers)

    def _needs_more(self) -> bool:
        present = [worker for worker in self._workers.values() if not worker.is_leaving]
        if len(present) >= self._pool.most or not self._backoff.is_allowed(self._now()):
            return False
        starting = sum(worker.is_starting for worker in present)
        return len(present) < self._pool.warm or starting < len(self._waiting)

    async def start_workers(self) -> None:
        """Start worker proxies, which start their processes themselves."""
        try:
            entries = self._entries()
            while self._needs_more():
                now, specs = self._now(), specs_of(entries, self._specs)
                spec = child(WorkerProxy, self.ref(), self._pool, self._provider, self._settings, specs)
                proxy: Ref[WorkerProxy] = await start_child(
                    self._supervisor, spec.but(restart=TEMPORARY, shutdown=_STOPPING)
                )
                self._workers[proxy.pid] = WorkerState(proxy, now)
                monitor(proxy)
        finally:
            self._is_starting = False

    def _retire_idle(self) -> Stop | None:
        """Retire workers that have been idle for long; stop when no handler uses the pool."""
        now, idle = self._now(), self._pool.idle
        spare = sum(not worker.is_leaving for worker in self._workers.values()) - self._pool.warm
        for worker in [each for each in self._free if now - each.idle_since >= idle][: max(0, spare)]:
            self._free.remove(worker)
            self._retire(worker)
        if not (self._workers or self._waiting or self._is_starting or self._entries()):
            return Stop(UNUSED)  # its handlers were registered again with other pools
        self._arm(idle / 2, self._retire_idle)
        return None

    def _try_again(self) -> None:
        self._backoff.allow_now()
        self._start_missing()

    def _arm(self, seconds: float, action: Callable[[], Stop | None]) -> None:
        before = self._timers.get(action)
        if before is not None:
            before.cancel()
        self._timers[action] = send_after(seconds, self.pid, action)

    def _now(self) -> float:
        return self.process.node.now()


# --- The scheduler's record of a worker: its calls, those sent ahead, and whether it counts as present.

_AHEAD: Final = 16
"""How many calls a worker may have, including the one that it runs."""
_FEW: Final = 8
"""A worker with at most so many gets more, so that several are sent in one piece."""
_MOVES: Final = 3
"""After so many workers were lost without starting a call, the call fails."""
_BEGINS: Final = 1.0
"""How long a worker may take to start a call when it runs no other; doubled for each worker that had the call before."""


PoolWorkerState: TypeAlias = Literal["starting", "idle", "busy", "leaving"]


class PoolWorkerFacts(NamedTuple):
    """A worker, for a view of its pool."""

    proxy: Pid | None
    state: PoolWorkerState
    calls: int
    """How many calls it has been given."""
    tool: str
    """What it runs."""
    seconds: float
    """For how long it has been in this state."""


class PoolFacts(NamedTuple):
    """A pool, for a view of it."""

    pool: Pool
    waiting: int
    tools: list[str]
    workers: list[PoolWorkerFacts]
    why: str
    """Why the last attempt to start a worker failed."""


@dataclass(slots=True, eq=False)
class WorkerState:
    """A worker, from the moment when its proxy was started."""

    ref: Ref[WorkerProxy]
    started_at: float = 0.0
    is_starting: bool = True
    is_fast: bool = True
    """Whether its current call has not lasted long, so that calls may be sent ahead."""
    is_worn: bool = False
    """Whether it should be replaced."""
    is_leaving: bool = False
    """Whether it is about to end, and does not count any more."""
    locks: StartLocks | None = None
    number: int = 0
    """How many calls it has been given."""
    calls: deque[RemoteCall] = field(default_factory=deque["RemoteCall"])
    """The call that it runs, and those sent ahead."""
    begun: int = 0
    """The number of the last call that it is known to have started."""
    since: float = 0.0
    """When it started the first of these, as far as can be known here."""
    idle_since: float = 0.0
    why: str = ""
    """How it ended, from its proxy."""

    @property
    def room_ahead(self) -> int:
        """How many calls may be sent ahead to it now."""
        goes_on = self.locks is not None and self.is_fast and not self.is_leaving
        return _AHEAD - len(self.calls) if goes_on and 0 < len(self.calls) <= _FEW else 0

    def facts(self, now: float) -> PoolWorkerFacts:
        """What it does, and since how many seconds."""
        tool = str(self.calls[0].entry.name) if self.calls else ""
        since = self.started_at if self.is_starting else self.since if self.calls else self.idle_since
        state: PoolWorkerState = (
            "starting" if self.is_starting else "leaving" if self.is_leaving else "busy" if self.calls else "idle"
        )
        return PoolWorkerFacts(self.ref.pid, state, self.number, tool, max(0.0, now - since))

    def take_back(self, calls: Sequence[RemoteCall]) -> list[RemoteCall]:
        """Take back those of these calls that are behind the running one and were not started."""
        locks = self.locks
        behind = [call for call in tuple(self.calls)[1:] if call in calls]
        taken = [call for call in reversed(behind) if locks is not None and locks.take(call.number)]
        for call in taken:
            self.calls.remove(call)
        return taken

    def give_back(self) -> list[RemoteCall]:
        """After its end: take back all calls that it has not started, the first of them last. Those it may have started stay."""
        back = self.take_back(self.calls)
        first = self.calls[0]
        may_move = self.locks is not None and not first.is_unwanted and first.moves < _MOVES
        if may_move and not self.has_begun():
            first.moves += 1
            back.append(self.calls.popleft())
        return back

    @property
    def is_in_question(self) -> bool:
        """Whether it has a call that it may not have started, and that could move to another worker."""
        if not self.calls or self.locks is None or self.is_leaving:
            return False
        first = self.calls[0]
        return first.number != self.begun and not first.is_unwanted

    def has_begun(self) -> bool:
        """Whether it has started its first call. When it has not, it cannot any more: the lock is taken."""
        assert self.locks is not None
        first = self.calls[0]
        if self.locks.take(first.number):
            return False
        self.begun = first.number
        return True


class HangCheck(NamedTuple):
    """The result of a check for workers that hang."""

    hung: list[WorkerState]
    """Workers that do not start their calls: their processes are to be ended."""
    back: list[RemoteCall]
    """Calls taken from them, in reverse order."""
    is_open: bool
    """Whether it is too early to tell of some workers."""


def find_hung_workers(workers: Iterable[WorkerState], now: float, *, late: bool) -> HangCheck:
    """Find workers that hang before a call. Silence does not show it, since a worker with a call may be silent.

    `late`: the scheduler itself was held up, so no worker is checked this time. Where everything is slow, each next worker of a call has twice as long.
    """
    hung: list[WorkerState] = []
    back: list[RemoteCall] = []
    is_open = False
    for worker in workers:
        if not worker.is_in_question:
            continue
        first = worker.calls[0]
        if late or now - worker.since < _BEGINS * 2**first.moves:
            is_open = True
        elif not worker.has_begun():
            back += [*worker.take_back(worker.calls), worker.calls.popleft()]
            first.moves += 1
            if worker.calls:
                worker.since = now  # it has just started another of its calls, so it does not hang
            else:
                worker.is_leaving = True
                hung.append(worker)
    return HangCheck(hung, back, is_open)


# --- The delay between attempts to start workers, which grows while those that were started fail to start, or die idle.

_PAUSES: Final = Backoff(first=0.25, longest=30.0)


class StartBackoff:
    """The back-off of one pool."""

    def __init__(self) -> None:
        self._failures = 0
        self._failed_at = -math.inf
        self._again_at = 0.0
        self.why = ""
        """Why the last attempt failed."""

    def succeeded(self) -> None:
        """A worker has finished a call; to have started is not enough."""
        self._failures = 0

    def failed(self, why: str, now: float, began: float) -> float | None:
        """A worker that was started at `began` has failed. Returns how long to wait before the next attempt; None when that is known already, or nothing has to be waited for.

        Workers that are lost together, as all are with the process that had forked them, count as one failure: none of them was an attempt after another.
        """
        self.why = why
        if began < self._failed_at:
            return None
        self._failures += 1
        self._failed_at = now
        if self._failures == 1:
            return None
        pause = _PAUSES.most(self._failures - 2)
        self._again_at = now + pause
        return pause

    def is_allowed(self, now: float) -> bool:
        """Whether the next attempt may be made."""
        return self._failures <= 1 or now >= self._again_at

    def allow_now(self) -> None:
        """Allow the next attempt."""
        self._again_at = 0.0
