"""One process: its mailbox, its state of activity, and what happens around each invocation.

An idle process is this object and nothing else: no task, no queue. A message makes it runnable; the node's pump
drains its mailbox inside the process's own context. A handler that returns a coroutine hands over to a worker task,
and the process is busy until that is done. However an invocation ends, `settle` decides what comes next: die, go on,
or be idle. When a process dies is told in `exits`.
"""

from __future__ import annotations

from collections import deque
from contextvars import Context
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from . import exits, forks, watchdog
from .current import current
from .messages import EXEMPT, INFO, SIGNAL, Crash

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Hashable

    from .behaviour import Behaviour
    from .links import Monitor
    from .messages import Down, Entry, Exit, ExitReason, Pid
    from .node import Node

COROUTINE: type = CoroutineType  # typed so that checkers do not narrow to a coroutine of unknowns

# What a process is doing, in one number, so that the fast path of a call tests one slot. The order matters:
# below QUEUED a message has to wake the process, above RUNNING an invocation is under way.
IDLE = 0  # nothing to do; a call may run its handler on the spot
DOZING = 1  # idle, but each message has to pass the mailbox: a timer is armed, or an observer looks on
QUEUED = 2  # in the run queue
HELD = 3  # suspended from outside: messages collect
RUNNING = 4  # a handler is on the stack, under the pump
INLINE = 5  # a handler is on the stack, under its caller
WORKING = 6  # a coroutine of it runs in a worker, or waits for one
UNWOUND = 7  # dying; its code is done, tasks that it started are not
DEAD = 8

# How far a life has come.
ALIVE = 0
DYING = 1
GONE = 2


def _unknown(_method: object) -> None:
    """No method is known: each message has to pass the behaviour."""


class Waiter(Protocol):
    """An object that is told at once when a process dies: a call in flight, a start, a join."""

    def exited(self, reason: ExitReason) -> None:
        """The process is gone, for this reason."""


class Process:
    """The cell behind a pid."""

    away: ClassVar[bool] = False
    """Whether it is one of another node."""

    __slots__ = (
        "activity",
        "asker",
        "behaviour",
        "callers",
        "context",
        "exempt",
        "grace",
        "label",
        "life",
        "limit",
        "links",
        "mailbox",
        "monitors",
        "names",
        "node",
        "parent",
        "pid",
        "quick",
        "reason",
        "resting",
        "tasks",
        "trap_exit",
        "waiter",
        "waiting_on",
        "watching",
        "worker",
    )

    def __init__(self, node: Node, pid: Pid, parent: Process | None, label: str) -> None:
        """Processes are made by `Node.create`, which also enters them into its table."""
        self.node = node
        self.pid = pid
        self.parent = parent
        self.label = label
        self.behaviour: Behaviour
        self.context: Context | None = None  # made when its code first runs
        self.quick: Callable[[Entry], None] | None = None
        self.activity = WORKING  # until init is done
        self.resting = IDLE
        self.life = ALIVE
        self.reason: ExitReason | None = None
        self.mailbox: deque[Entry] | None = None
        self.limit: int | None = None
        self.exempt = 0
        self.trap_exit = False
        self.grace: float | None = None
        self.links: Process | dict[Process, None] | None = None
        self.monitors: dict[Monitor, None] | None = None
        self.watching: dict[Monitor, None] | None = None
        self.callers: Waiter | dict[Waiter, None] | None = None  # one is stored bare, as a link is
        self.names: dict[Hashable, None] | None = None
        self.tasks: dict[asyncio.Task[Any], None] | None = None
        self.worker: asyncio.Task[Any] | None = None
        self.waiter: Callable[[], None] | None = None
        self.waiting_on: Process | None = None
        self.asker: Process | None = None

    def __str__(self) -> str:
        return f"{self.label} {self.pid}"

    __repr__ = __str__

    def ancestors(self) -> list[Process]:
        """The process that started this one, the one that started that, and so on, nearest first."""
        found: list[Process] = []
        parent = self.parent
        while parent is not None:
            found.append(parent)
            parent = parent.parent
        return found

    # --- messages in

    def deliver(self, entry: Entry) -> bool:
        """Put an entry into the mailbox; False when the process is dying or its bound is reached."""
        if self.life:
            return False
        mailbox = self.mailbox
        if mailbox is None:
            if self.limit is None:
                mailbox = self.node.spare
                if mailbox is None:
                    self.mailbox = mailbox = deque((entry,))
                else:
                    self.node.spare = None
                    mailbox.append(entry)
                    self.mailbox = mailbox
                self.quick = mailbox.append
            elif -self.exempt >= self.limit:  # so many wait inside: kept while suspended, or postponed
                return False
            else:
                self.mailbox = deque((entry,))
        elif self.limit is not None and len(mailbox) - self.exempt >= self.limit:
            return False
        else:
            mailbox.append(entry)
        if self.activity < QUEUED:
            self.activity = QUEUED
            self.node.enqueue(self)
        elif self.waiter is not None:
            self.quick = None
            self.waiter()
        return True

    def send(self, message: object, *, exempt: bool = False) -> bool:
        """Put a message into the mailbox; False when the process is dying, or its bound is reached, which does not hold for what is exempt."""
        return self.deliver_exempt((INFO, message)) if exempt else self.deliver((INFO, message))

    def deliver_exempt(self, entry: Entry) -> bool:
        """As `deliver`, for what no bound can refuse and none counts; it is in order with the rest all the same."""
        limit = self.limit
        if limit is None:
            return self.deliver(entry)
        self.limit = None
        delivered = self.deliver(entry)
        self.limit = limit
        self.quick = None  # which was just set, had the mailbox been empty, and knows of no bound
        self.exempt += delivered
        return delivered

    def deliver_signal(self, message: Down | Exit) -> None:
        """A `Down` or a trapped `Exit`."""
        if self.limit is None:
            self.deliver((SIGNAL, message))
        else:
            self.deliver_exempt((SIGNAL, message))

    def push_front(self, entry: Entry) -> None:
        """What has to come before anything that already waits: the next step of what is being done."""
        if self.mailbox is None:
            self.mailbox = deque((entry,))
        else:
            self.mailbox.appendleft(entry)
        if self.activity < QUEUED:
            self.activity = QUEUED
            self.node.enqueue(self)

    # --- invocations

    def own_context(self) -> Context:
        """The context that all code of this process runs in, for as long as it lives."""
        context = self.context
        if context is None:
            context = self.context = Context()
            context.run(current.set, self)
        return context

    def drain(self) -> None:
        """Handle what lies in the mailbox, up to the node's budget. Runs inside `context`, under the pump."""
        self.activity = RUNNING
        mailbox = self.mailbox
        assert mailbox is not None
        behaviour = self.behaviour
        handle, done = behaviour._otp_handle, behaviour._otp_done
        special = behaviour._otp_special
        known = behaviour._otp_methods.get if self.resting == IDLE else _unknown
        popleft = mailbox.popleft
        node = self.node
        for step in range(1, node.drain_budget + 1):
            # The clock is asked at every eighth message: at each one it cost a twentieth of a cast.
            if not mailbox or (not step & 7 and node.loop.time() > node.turn_ends):
                break
            entry = popleft()
            try:
                # A cast of a method is most of the traffic: the same as below, without the two calls.
                if not entry[0] and (function := known(entry[1])) is not None:
                    _, _, args, kwargs = entry
                    if kwargs:
                        value = function(behaviour, *args, **kwargs)
                    elif len(args) == 1:  # to spread one argument costs as much as the rest of the call
                        value = function(behaviour, args[0])
                    else:
                        value = function(behaviour, *args)
                    if type(value) not in special:
                        continue
                else:
                    if self.limit is not None and entry[0] in EXEMPT:
                        self.exempt -= 1
                    value = handle(entry)
                if type(value) is COROUTINE:
                    self.hand_over(value, entry)
                    return
                if self.life:
                    break  # it ended itself: what it returned is dropped
                done(entry, value)
            except BaseException as error:  # noqa: BLE001 - the boundary of an actor: whatever was raised is its crash
                self.failed(entry, error)
            if self.activity != RUNNING or self.life:
                break
            known = behaviour._otp_methods.get if self.resting == IDLE else _unknown
        self.settle()

    def returned(self, entry: Entry, value: object) -> None:
        """A handler that was not called by `drain` returned, perhaps a coroutine that has to run first."""
        if type(value) is COROUTINE:
            self.hand_over(value, entry)
        else:
            self.done(entry, value)

    def done(self, entry: Entry, value: object) -> None:
        """The invocation returned; a process that is dying already has nothing more to say."""
        if not self.life:
            try:
                self.behaviour._otp_done(entry, value)
            except BaseException as error:  # noqa: BLE001 - as in drain: what it returned was nonsense
                self.failed(entry, error)

    def failed(self, entry: Entry, error: BaseException) -> None:
        """The invocation raised. Whatever comes of that, the process must not be left as it is."""
        if self.node.forked:
            forks.leave(error)
        if not self.life:
            try:
                self.behaviour._otp_failed(entry, error)
            except BaseException as broken:  # noqa: BLE001 - as in drain
                exits.condemn(self, Crash(error))
                self.node.loop.call_exception_handler(
                    {"message": f"what {self} died of could not be dealt with", "exception": broken}
                )

    def hand_over(self, coroutine: Any, entry: Entry) -> None:
        """Let a worker run the rest of this invocation."""
        self.activity = WORKING
        self.node.workers.submit(self, coroutine, entry)

    def settle(self) -> None:
        """An invocation is over: die if that was decided meanwhile, go on, or be idle."""
        node = self.node
        if node.forked:
            forks.leave()
        if self.life:
            exits.unwound(self)
        elif mailbox := self.mailbox:
            if self.activity != HELD:
                self.activity = QUEUED
                node.enqueue(self)
        else:
            if mailbox is not None:
                node.spare = mailbox
                self.mailbox = self.quick = None
            if self.activity != HELD:
                self.activity = self.resting

    # --- tasks that its code starts

    @property
    def adopts(self) -> bool:
        """Whether tasks started in its context are its own; an inbox lives in a task that is not."""
        return self.behaviour.adopts

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """The task ends with this process, and the process is not gone before the task is."""
        if self.tasks is None:
            self.tasks = {}
        self.tasks[task] = None
        task.add_done_callback(self._task_done, context=self.node.context)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        tasks = self.tasks
        if tasks is None:
            return
        tasks.pop(task, None)
        if not tasks:
            self.tasks = None
            if self.activity == UNWOUND:
                exits.bury(self)

    def crash(self, error: BaseException) -> None:
        """Code of the process that is not its handler has raised: the process ends of it, at once."""
        if self.node.forked:
            forks.leave(error)
        if not self.life:
            self.behaviour._otp_report(error)
            exits.condemn(self, Crash(error))

    # --- waiters

    def await_death(self, waiter: Waiter) -> None:
        """Tell `waiter` when this process is gone."""
        callers = self.callers
        if callers is None:
            self.callers = waiter
        elif isinstance(callers, dict):
            callers[waiter] = None
        else:
            self.callers = {callers: None, waiter: None}

    def forget(self, waiter: Waiter) -> None:
        """The waiter has what it wanted."""
        callers = self.callers
        if callers is waiter:
            self.callers = None
        elif isinstance(callers, dict):
            callers.pop(waiter, None)
            if not callers:
                self.callers = None


watchdog.runs_handlers(Process.drain.__code__, lambda frame: frame.get("self"))
