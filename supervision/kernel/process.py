"""One process: its mailbox, its state of activity, what happens around each invocation, and how it dies.

An idle process is this object and nothing else: no task, no queue. A message makes it runnable; the node's pump
drains its mailbox inside the process's own context. A handler that returns a coroutine hands over to a worker task,
and the process is busy until that is done. However an invocation ends, `settle` decides what comes next: die, go on,
or be idle.

Death takes two steps. `begin_exit`: from now on nothing is delivered and nothing new begins; code that is still running is
cancelled and gets the node's kill grace to unwind. `complete_exit`: the code is done (or was abandoned), so names are free,
callers are answered, links and monitors fire. No process hears of a death before the unwinding is over, so a successor
never meets its predecessor's lock or socket.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from contextvars import Context
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from . import forks, links, watchdog
from .errors import InternalError
from .process_lookup import current, unregister_process
from .process_messages import EXEMPT, INFO, KILLED, SIGNAL, Crash, Normal, make_down, make_exit
from .reports import Leaked

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Hashable

    from .links import Monitor
    from .node import Node
    from .process_lookup import On
    from .process_messages import Down, Exit, ExitReason, MailboxEntry, NoConnection, NoProcess, Pid


# --- What the engine asks of a behaviour: how a process deals with what is in its mailbox.


READY: Final = object()
"""What `_set_up` returns when nothing more is to be done before the process can go to work."""


class Behaviour:
    """The base of GenServer and its siblings, of plain routines, and of the dead.

    The engine calls `_set_up`, and then `_handle` for each entry, inside the process's own context, and runs a coroutine that it returns in a worker; then
    `_done` or `_failed`. The names are private because users derive from the behaviours and name their methods freely.
    """

    __slots__ = ()

    _otp_methods: ClassVar[dict[Any, Callable[..., Any]]] = {}
    """Methods that a cast may name, by what the cast names: those need no look by the behaviour."""
    _otp_special: ClassVar[frozenset[type]] = frozenset()
    """Types of return values that the behaviour has to look at."""
    owns_tasks: ClassVar[bool] = True
    """Whether tasks that are started in the process's context are its own."""
    has_unbounded_stop: ClassVar[bool] = False
    """Whether a closing node waits for this one however long it takes, as it does for supervisors."""

    @property
    def inner(self) -> Behaviour:
        """The behaviour itself: this one, unless it is an observer that stands before another."""
        return self

    def _otp_set_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Begin. Unless it is `READY`, what is returned is treated as that of an entry of the kind `INIT`."""
        raise NotImplementedError

    def _otp_handle(self, entry: MailboxEntry) -> object:
        """Begin with one entry."""
        raise NotImplementedError

    def _otp_on_return(self, entry: MailboxEntry, value: object) -> None:
        """The invocation returned `value`."""

    def _otp_on_error(self, entry: MailboxEntry, error: BaseException) -> None:
        """The invocation raised."""

    def _otp_report(self, error: BaseException) -> None:
        """Tell the node that code of the process raised outside its handlers."""

    def _otp_on_exit(self, reason: ExitReason) -> None:
        """The process is gone: let go of timers and the like."""


# --- The process itself.


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


def _find_no_method(_method: object) -> None:
    """No method is known: each message has to pass the behaviour."""


class ExitWaiter(Protocol):
    """An object that is told at once when a process dies: a call in flight, a start, a join."""

    def on_exit(self, reason: ExitReason) -> None:
        """The process is gone, for this reason."""


class Process:
    """The cell behind a pid."""

    is_remote: ClassVar[bool] = False
    """Whether it is one of another node."""

    __slots__ = (
        "activity",
        "behaviour",
        "callers",
        "context",
        "exempt",
        "fast_append",
        "grace",
        "idle_activity",
        "inline_caller",
        "label",
        "life",
        "limit",
        "links",
        "mailbox",
        "message_waiter",
        "monitors",
        "names",
        "node",
        "parent",
        "pid",
        "reason",
        "tasks",
        "trap_exit",
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
        self.fast_append: Callable[[MailboxEntry], None] | None = None
        self.activity = WORKING  # until init is done
        self.idle_activity = IDLE
        self.life = ALIVE
        self.reason: ExitReason | None = None
        self.mailbox: deque[MailboxEntry] | None = None
        self.limit: int | None = None
        self.exempt = 0
        self.trap_exit = False
        self.grace: float | None = None
        self.links: Process | dict[Process, None] | None = None
        self.monitors: dict[Monitor, None] | None = None
        self.watching: dict[Monitor, None] | None = None
        self.callers: ExitWaiter | dict[ExitWaiter, None] | None = None  # one is stored bare, as a link is
        self.names: dict[Hashable, None] | None = None
        self.tasks: dict[asyncio.Task[Any], None] | None = None
        self.worker: asyncio.Task[Any] | None = None
        self.message_waiter: Callable[[], None] | None = None
        self.waiting_on: Process | None = None
        self.inline_caller: Process | None = None

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

    def deliver(self, entry: MailboxEntry) -> bool:
        """Put an entry into the mailbox; False when the process is dying or its bound is reached."""
        if self.life:
            return False
        mailbox = self.mailbox
        if mailbox is None:
            if self.limit is None:
                mailbox = self.node.spare_mailbox
                if mailbox is None:
                    self.mailbox = mailbox = deque((entry,))
                else:
                    self.node.spare_mailbox = None
                    mailbox.append(entry)
                    self.mailbox = mailbox
                self.fast_append = mailbox.append
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
        elif self.message_waiter is not None:
            self.fast_append = None
            self.message_waiter()
        return True

    def send(self, message: object, *, exempt: bool = False) -> bool:
        """Put a message into the mailbox; False when the process is dying, or its bound is reached, which does not hold for what is exempt."""
        return self.deliver_exempt((INFO, message)) if exempt else self.deliver((INFO, message))

    def deliver_exempt(self, entry: MailboxEntry) -> bool:
        """As `deliver`, for what no bound can refuse and none counts; it is in order with the rest all the same."""
        limit = self.limit
        if limit is None:
            return self.deliver(entry)
        self.limit = None
        delivered = self.deliver(entry)
        self.limit = limit
        self.fast_append = None  # which was just set, had the mailbox been empty, and knows of no bound
        self.exempt += delivered
        return delivered

    def deliver_signal(self, message: Down | Exit) -> None:
        """A `Down` or a trapped `Exit`."""
        if self.limit is None:
            self.deliver((SIGNAL, message))
        else:
            self.deliver_exempt((SIGNAL, message))

    def push_front(self, entry: MailboxEntry) -> None:
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
        handle, on_return = behaviour._otp_handle, behaviour._otp_on_return
        special = behaviour._otp_special
        known = behaviour._otp_methods.get if self.idle_activity == IDLE else _find_no_method
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
                    self.run_in_worker(value, entry)
                    return
                if self.life:
                    break  # it ended itself: what it returned is dropped
                on_return(entry, value)
            except BaseException as error:  # noqa: BLE001 - the boundary of an actor: whatever was raised is its crash
                self.on_error(entry, error)
            if self.activity != RUNNING or self.life:
                break
            known = behaviour._otp_methods.get if self.idle_activity == IDLE else _find_no_method
        self.settle()

    def handle_result(self, entry: MailboxEntry, value: object) -> None:
        """A handler that was not called by `drain` returned, perhaps a coroutine that has to run first."""
        if type(value) is COROUTINE:
            self.run_in_worker(value, entry)
        else:
            self.on_return(entry, value)

    def on_return(self, entry: MailboxEntry, value: object) -> None:
        """The invocation returned; a process that is dying already has nothing more to say."""
        if not self.life:
            try:
                self.behaviour._otp_on_return(entry, value)
            except BaseException as error:  # noqa: BLE001 - as in drain: what it returned was nonsense
                self.on_error(entry, error)

    def on_error(self, entry: MailboxEntry, error: BaseException) -> None:
        """The invocation raised. Whatever comes of that, the process must not be left as it is."""
        if self.node.forked:
            forks.exit_child(error)
        if not self.life:
            try:
                self.behaviour._otp_on_error(entry, error)
            except BaseException as broken:  # noqa: BLE001 - as in drain
                begin_exit(self, Crash(error))
                self.node.loop.call_exception_handler(
                    {"message": f"what {self} died of could not be dealt with", "exception": broken}
                )

    def run_in_worker(self, coroutine: Any, entry: MailboxEntry) -> None:
        """Let a worker run the rest of this invocation."""
        self.activity = WORKING
        self.node.workers.submit(self, coroutine, entry)

    def settle(self) -> None:
        """An invocation is over: die if that was decided meanwhile, go on, or be idle."""
        node = self.node
        if node.forked:
            forks.exit_child()
        if self.life:
            end_tasks(self)
        elif mailbox := self.mailbox:
            if self.activity != HELD:
                self.activity = QUEUED
                node.enqueue(self)
        else:
            if mailbox is not None:
                node.spare_mailbox = mailbox
                self.mailbox = self.fast_append = None
            if self.activity != HELD:
                self.activity = self.idle_activity

    # --- tasks that its code starts

    @property
    def owns_tasks(self) -> bool:
        """Whether tasks started in its context are its own; an inbox lives in a task that is not."""
        return self.behaviour.owns_tasks

    def own_task(self, task: asyncio.Task[Any]) -> None:
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
                complete_exit(self)

    def crash(self, error: BaseException) -> None:
        """Code of the process that is not its handler has raised: the process ends of it, at once."""
        if self.node.forked:
            forks.exit_child(error)
        if not self.life:
            self.behaviour._otp_report(error)
            begin_exit(self, Crash(error))

    # --- waiters

    def add_exit_waiter(self, waiter: ExitWaiter) -> None:
        """Tell `waiter` when this process is gone."""
        callers = self.callers
        if callers is None:
            self.callers = waiter
        elif isinstance(callers, dict):
            callers[waiter] = None
        else:
            self.callers = {callers: None, waiter: None}

    def remove_exit_waiter(self, waiter: ExitWaiter) -> None:
        """The waiter has what it wanted."""
        callers = self.callers
        if callers is waiter:
            self.callers = None
        elif isinstance(callers, dict):
            callers.pop(waiter, None)
            if not callers:
                self.callers = None


watchdog.mark_handler_runner(Process.drain.__code__, lambda frame: frame.get("self"))


# --- How a process dies, and how other processes hear of it.
# Burying one process can condemn the next, down a chain of any length: the graves are a queue, not a recursion.


def begin_exit(process: Process, reason: ExitReason) -> None:
    """The process is to end for this reason. The first reason stands."""
    if process.life:
        return
    process.life = DYING
    process.fast_append = None
    process.reason = reason
    if process.mailbox:
        process.mailbox.clear()  # nothing new begins; waiting callers are told at the burial
    activity = process.activity
    if activity < RUNNING:
        end_tasks(process)
    elif activity == WORKING:
        worker = process.worker
        if worker is not None:  # else it has just ended, or not begun: its worker finds the process dying
            worker.cancel()
            _arm_grace(process)
    # Else its code is below us on the stack; `settle` finds it dying.


def end_tasks(process: Process) -> None:
    """The process's own code is done; what tasks it started are cancelled and awaited too."""
    if not process.tasks:
        complete_exit(process)
    elif process.activity != UNWOUND:
        process.activity = UNWOUND
        _arm_grace(process)
        for task in tuple(process.tasks):
            task.cancel()


def _arm_grace(process: Process) -> None:
    grace = process.node.kill_grace if process.grace is None else process.grace
    process.node.loop.call_later(grace, abandon, process, context=process.node.context)


def abandon(process: Process) -> None:
    """The grace is over and something of the process still runs: go on without it, and say so."""
    if process.life != DYING:
        return
    stuck = [task for task in (process.worker, *(process.tasks or ())) if task is not None and not task.done()]
    stack = "".join(map(watchdog.task_lines, stuck))
    assert process.reason is not None
    process.node.leaks += 1
    process.node.fast_thread = 0
    process.node.reports.emit(Leaked(pid=process.pid, label=process.label, reason=process.reason, stack=stack))
    complete_exit(process)


def complete_exit(process: Process) -> None:
    """Tell callers, links and monitors. Iterative: a process that dies of it is queued behind."""
    node = process.node
    process.life = GONE
    process.activity = DEAD
    graves = node.exit_queue
    graves.append(process)
    if node.is_completing_exits:
        return
    node.is_completing_exits = True
    # What is told of a death is told by no process, the dead one least of all: it could say nothing once a process has leaked.
    before = current.set(None)
    try:
        while graves:
            _notify_exit(graves.popleft())
    finally:
        current.reset(before)
        node.is_completing_exits = False


def _notify_exit(process: Process) -> None:
    node, pid, reason = process.node, process.pid, process.reason
    assert reason is not None
    if not process.is_remote:
        node.processes.pop(pid.serial, None)
    if process.names is not None:
        for name in tuple(process.names):
            unregister_process(process, name)
    process.mailbox = None
    if (waiter := process.message_waiter) is not None:
        process.message_waiter = None
        waiter()
    if (callers := process.callers) is not None:
        process.callers = None
        for caller in callers if isinstance(callers, dict) else (callers,):
            caller.on_exit(reason)
    if (watching := process.watching) is not None:
        process.watching = None
        for monitor in tuple(watching):
            target, monitor.target = monitor.target, None
            if target is not None:
                links.drop_monitor(target, monitor)
    if (linked := process.links) is not None:
        process.links = None
        for other in linked if isinstance(linked, dict) else (linked,):
            links.forget_link(other, process)
            if links.is_remote(other):
                other.send_linked_exit(process, reason)
            else:
                signal(other, pid, reason)
    if (monitors := process.monitors) is not None:
        process.monitors = None
        for monitor in monitors:
            monitor.target = None
            links.forget_monitor(monitor)
            whose = monitor.pid if process.is_remote else pid  # a name on another node may have been any process's
            monitor.watcher.deliver_signal(make_down(monitor, whose, reason, monitor.name))
    process.behaviour._otp_on_exit(reason)
    # What is left of it is an address: let go of the rest now, instead of leaving cycles to the garbage collector.
    process.behaviour = EXITED_BEHAVIOUR
    process.context = node.context
    process.parent = process.inline_caller = process.waiting_on = None


class _ExitedBehaviour(Behaviour):
    """The behaviour of the dead: nothing reaches it."""

    __slots__ = ()

    def _otp_handle(self, entry: MailboxEntry) -> object:
        raise InternalError(f"a dead process was asked to handle {entry!r}")


EXITED_BEHAVIOUR = _ExitedBehaviour()


def signal(process: Process, source: Pid, reason: ExitReason) -> None:
    """An exit signal arrives: trapped it is a message, else all but `Normal` is the end.

    `Normal` from oneself ends too, as OTP has it.
    """
    if links.is_remote(process):
        process.send_exit_signal(source, reason)
    elif process.trap_exit:
        process.deliver_signal(make_exit(source, reason))
    elif not isinstance(reason, Normal) or source == process.pid:
        begin_exit(process, reason)


def kill(process: Process) -> None:
    """The one exit that nothing can trap."""
    if links.is_remote(process):
        process.send_kill()
    else:
        begin_exit(process, KILLED)


# --- A process of another node, as this one sees it: what the kernel asks of the object that carries messages there.
# It is a `Process` in everything that holds processes (a link, a monitor, a handle), with a wire where its mailbox would be. It stands in no table of
# this node, and is buried like any other when it dies or its node is lost: links, monitors and callers hear of it by the same code.


class RemoteProcessBase(Process):
    """The near end of a process that is elsewhere."""

    __slots__ = ("__weakref__",)

    is_remote: ClassVar[bool] = True

    def check_link(self) -> None:
        """Refuse to be linked, saying why, if it cannot be."""

    @abstractmethod
    def send_link(self, other: Process) -> None:
        """A process of this node has linked itself to it."""

    @abstractmethod
    def send_unlink(self, other: Process) -> None:
        """That link was taken away."""

    @abstractmethod
    def send_linked_exit(self, other: Process, reason: ExitReason) -> None:
        """The process of this node that was linked to it has ended."""

    @abstractmethod
    def send_exit_signal(self, source: Pid, reason: ExitReason) -> None:
        """An exit signal is sent to it."""

    @abstractmethod
    def send_kill(self) -> None:
        """It is killed."""

    @abstractmethod
    def add_watch(self) -> None:
        """A process of this node monitors it."""

    @abstractmethod
    def drop_watch(self) -> None:
        """One monitor of it is no more."""


class RemoteNodes(Protocol):
    """The other nodes, as one node knows them."""

    def process(self, pid: Pid) -> RemoteProcessBase | None:
        """The process behind a pid of another node; None when that node cannot be reached, or has begun a new life."""

    def named(self, name: On) -> RemoteProcessBase | None:
        """The process with a name on another node, whether or not there is one; None when that node cannot be reached."""

    def absence(self, node: str) -> NoProcess | NoConnection | Any:
        """Why there was None."""
