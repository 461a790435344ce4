"""The scheduler of a pool: the calls that wait for a worker, whose principals take turns, and how many workers there are.

::

    pool (one_for_all)
    ├─ staff       dynamic; a worker proxy for each worker, never restarted
    └─ scheduler     has the waiting calls and the free workers; starts worker proxies, and lets them go

A worker that is lost while it had a call is replaced when the next call needs one, at once. One that does not come up, or that dies with
nothing to do, is not tried again and again: the callers that have no other worker to wait for get the reason, and each further attempt waits
longer. Jobs call it; when it dies, they hear so, and its successor begins with nothing.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, cast

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

    from .pool import Pool
    from .pools import ProcessProvider
    from .remote_call import RemoteCall, StartLocks

_DOUBTED: Final = object()
_DOUBT: Final = 0.05
"""How long a worker whose call was ended may have it still, before another takes its place."""
_MOMENT: Final = 0.5
"""How often it is looked whether workers have begun with what they were given."""
_TOO_LONG: Final = 0.05
"""How long a call may last, before those that lie behind it go elsewhere."""
_STOPPING: Final = 1.5
"""How long a worker proxy may take to end its worker in order; then its process is killed."""
UNUSED: Final = Shutdown("nothing runs in this pool any more")


@dataclass(eq=False, repr=False)
class PoolScheduler(GenServer):
    """Of one pool, in one company."""

    traps_exit: ClassVar[bool] = True

    _pool: Pool
    _supervisor: Ref[DynamicSupervisor]
    _provider: ProcessProvider
    _settings: Mapping[str, Any]
    _entries: Callable[[], Sequence[CatalogueEntry]]
    """Those that run here, as they are registered now: a worker has loaded them before it is ready."""

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
        """By what is to be done then."""

    def init(self) -> None:
        """Those that are to be warm are started now."""
        self._arm(self._pool.idle, self._retire_idle)
        self._start_missing()

    def terminate(self, reason: ExitReason) -> None:
        """Cancel the timers, close the claims, settle the calls: a successor would not know of these."""
        for timer in self._timers.values():
            timer.cancel()
        for worker in self._workers.values():
            if worker.locks is not None:
                worker.locks.close()
        for call in self._waiting:
            call.settle(CallOutcome(why=f"its pool was stopped ({reason})"))

    def report_state(self) -> str:
        """The number of workers, and of calls that wait."""
        return f"{len(self._workers)} workers, {len(self._free)} of them free, {len(self._waiting)} calls wait"

    # --- calls

    def submit(self, call: RemoteCall) -> CallOutcome:
        """Have it done: now, or when its turn comes. The answer is how it has ended."""
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
                return CallOutcome(why=why)
            displaced.settle(CallOutcome(why=why))
        return later()  # type: ignore[no-any-return]

    def cancel(self, call: RemoteCall, why: str) -> None:
        """Cancel a call that its caller does not want any more; if it runs, it may notice."""
        worker, waited = self._withdraw(call)
        if waited:
            call.caller.fail(RequestCancelled(why))
        elif worker is not None:
            worker.ref.cast(WorkerProxy.cancel, call, why)

    def drop(self, call: RemoteCall) -> None:
        """The caller is gone: its worker is not waited for."""
        call.is_dropped = True
        worker, waited = self._withdraw(call)
        if worker is not None and not waited:
            worker.ref.cast(WorkerProxy.abandon, call)
            send_after(_DOUBT, self.pid, (_DOUBTED, call))

    def _withdraw(self, call: RemoteCall) -> tuple[WorkerState | None, bool]:
        """The worker that had it, and whether it waited here, or had not been begun there; then it does so no more."""
        worker = self._worker_of(call)
        if worker is not None and call is not worker.calls[0]:
            self._take_back(worker, [call])
        return worker, self._waiting.remove(call)

    def _worker_of(self, call: RemoteCall) -> WorkerState | None:
        worker = None if call.proxy is None else self._workers.get(call.proxy)
        return worker if worker is not None and call in worker.calls else None

    def _assign(self, worker: WorkerState, call: RemoteCall) -> bool:
        """Have it do that. False when no worker could find the handler."""
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
        except Exception as error:  # noqa: BLE001 - what cannot be found there is its own call's failure
            call.caller.fail(error.with_traceback(None))  # its frames would hold a worker
        return self._specs.get(number)

    def _send_ahead(self) -> None:
        """Where all are busy, and there will not be more, those have their next calls lying before them."""
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
        """These wait again, before all others of their owner; those of them that its worker has not begun."""
        for call in worker.take_back(calls):
            self._wait_again(call)

    def _wait_again(self, call: RemoteCall) -> None:
        call.proxy = None
        self._waiting.add_first(call.principal, call)

    def _reassign_behind_long_calls(self) -> None:
        """Take back the calls behind one that lasts: they go to another worker, or wait for the first that is free."""
        self._watching = False
        soon = self._now() - _TOO_LONG
        for worker in self._workers.values():
            if len(worker.calls) > 1:
                if worker.since <= soon:
                    self._take_back(worker, worker.calls)
                    worker.is_fast = False  # until it has come to an end of it
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
        """It can take a call: the first that waits, or none."""
        while (call := self._waiting.take()) is not None:
            if self._assign(worker, call):
                return
        worker.idle_since = self._now()
        self._free.append(worker)

    # --- workers

    def handle_info(self, message: Any) -> Stop | None:
        """What worker proxies and clocks say."""
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
        """A call that was ended has not noticed at once, and may never: its worker is not waited for."""
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
        worker.is_leaving = False  # also one that was doubted: its call has ended in time
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
            for call in worker.give_back():  # its process may live for a while: it has lost its worker proxy, perhaps
                self._wait_again(call)
            for call in worker.calls:
                call.settle(CallOutcome(why=why))  # if its worker proxy has not
        elif reason != WORN and (worker.is_starting or not worker.is_leaving):
            self._on_start_failure(why, worker.started_at)
        self._start_missing()

    def _on_start_failure(self, why: str, began: float) -> None:
        """A worker did not come up, or died idle: the next attempt has to wait. Callers fail if they have only that to wait for."""
        pause = self._backoff.failed(why, self._now(), began)
        if pause is not None and self._pool.warm:
            self._arm(pause, self._try_again)
        if not any(not worker.is_leaving for worker in self._workers.values()):
            waiting, self._waiting = self._waiting, FairQueue()
            for call in waiting:
                call.settle(CallOutcome(why=why))

    def _start_missing(self) -> None:
        """See to it that there are as many as are needed, as far as there may be."""
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
        """Start worker proxies, which open their processes by themselves."""
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
        """Let workers go that have been idle for long; and stop, if no handler uses the pool."""
        now, idle = self._now(), self._pool.idle
        spare = sum(not worker.is_leaving for worker in self._workers.values()) - self._pool.warm
        for worker in [each for each in self._free if now - each.idle_since >= idle][: max(0, spare)]:
            self._free.remove(worker)
            self._retire(worker)
        if not (self._workers or self._waiting or self._is_starting or self._entries()):
            return Stop(UNUSED)  # its handlers were registered anew, with other pools
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


# --- A worker, as the scheduler of its pool sees it: what it is at, what it was given ahead, and whether it counts.

_AHEAD: Final = 16
"""How many calls may be with one worker, the one that it is at included;"""
_FEW: Final = 8
"""and when it has so few, it gets more: several go out in one piece."""
_MOVES: Final = 3
"""How many workers may be lost before they began with a call, until that is its answer."""
_BEGINS: Final = 1.0
"""How long a worker that has nothing else to do may take to begin with a call; twice as long when the call was another's before."""


@dataclass(slots=True, eq=False)
class WorkerState:
    """A worker, as the scheduler sees it: at first it was just told to come up."""

    ref: Ref[WorkerProxy]
    started_at: float = 0.0
    is_starting: bool = True
    is_fast: bool = True
    """Whether it goes on: what it is at has not lasted for long."""
    is_worn: bool = False
    """It was said that it had better be replaced."""
    is_leaving: bool = False
    """It is about to end, or to be ended, and counts no more."""
    locks: StartLocks | None = None
    number: int = 0
    """How many calls it was given."""
    calls: deque[RemoteCall] = field(default_factory=deque["RemoteCall"])
    """What it is at, and what it was given ahead."""
    begun: int = 0
    """Which of its calls it is known to have begun, the last of them."""
    since: float = 0.0
    """When it began with the first of these, as far as can be known here."""
    idle_since: float = 0.0
    why: str = ""
    """How it ended, as its worker proxy knows it."""

    @property
    def room_ahead(self) -> int:
        """How many calls may be given to it now that it will come to later."""
        goes_on = self.locks is not None and self.is_fast and not self.is_leaving
        return _AHEAD - len(self.calls) if goes_on and 0 < len(self.calls) <= _FEW else 0

    def take_back(self, calls: Sequence[RemoteCall]) -> list[RemoteCall]:
        """Of these, the ones that lie behind what it is at, and that it has not begun: it has them no more."""
        locks = self.locks
        behind = [call for call in tuple(self.calls)[1:] if call in calls]
        taken = [call for call in reversed(behind) if locks is not None and locks.take(call.number)]
        for call in taken:
            self.calls.remove(call)
        return taken

    def give_back(self) -> list[RemoteCall]:
        """It is gone: what it has not begun, the first of them last. What it may have begun stays here."""
        back = self.take_back(self.calls)
        first = self.calls[0]
        may_move = self.locks is not None and not first.is_unwanted and first.moves < _MOVES
        if may_move and not self.has_begun():
            first.moves += 1
            back.append(self.calls.popleft())
        return back

    @property
    def is_in_question(self) -> bool:
        """Whether it has a call that it may not have begun, and that could be given to another."""
        if not self.calls or self.locks is None or self.is_leaving:
            return False
        first = self.calls[0]
        return first.number != self.begun and not first.is_unwanted

    def has_begun(self) -> bool:
        """Whether it has begun its first call. If not, it never will."""
        assert self.locks is not None
        first = self.calls[0]
        if self.locks.take(first.number):
            return False
        self.begun = first.number
        return True


class HangCheck(NamedTuple):
    """What became of the workers that could have been hanging."""

    hung: list[WorkerState]
    """These do not even begin with what they are given: their processes are to be ended."""
    back: list[RemoteCall]
    """Calls that were taken from them, in reverse: the last here was the first."""
    is_open: bool
    """Whether it is too early to say of some."""


def find_hung_workers(workers: Iterable[WorkerState], now: float, *, late: bool) -> HangCheck:
    """Which workers hang, which their silence would not show: a worker that has a call may be silent.

    `late` when the scheduler itself was held up: then no worker is judged in this turn. Where all are slow, each next worker has longer to begin.
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
                worker.since = now  # it has come to itself in this moment, and begun with another
            else:
                worker.is_leaving = True
                hung.append(worker)
    return HangCheck(hung, back, is_open)


# --- How often it is tried to have a worker, when those that were started do not come up, or die with nothing to do: more and more seldom.

_PAUSES: Final = Backoff(first=0.25, longest=30.0)


class StartBackoff:
    """Of one pool."""

    def __init__(self) -> None:
        """None has failed yet."""
        self._failures = 0
        self._failed_at = -math.inf
        self._again_at = 0.0
        self.why = ""
        """Why the last one has."""

    def succeeded(self) -> None:
        """A worker has done what it is for; to have come up is not enough."""
        self._failures = 0

    def failed(self, why: str, now: float, began: float) -> float | None:
        """One more has, that began then: how long to wait for the next; None when that is known already, or need not wait.

        Workers that are lost together, as all are with the process that had started them, are one failure: none of them was an attempt after another.
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
        """Whether it is time for the next one."""
        return self._failures <= 1 or now >= self._again_at

    def allow_now(self) -> None:
        """It is."""
        self._again_at = 0.0
