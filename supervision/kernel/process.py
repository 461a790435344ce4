"""One process: its mailbox, its activity, its invocations, and its exit.

An idle process is this object and nothing else: no task, no queue. A message makes it runnable; the node's pump drains its mailbox inside the process's own
context. A handler that returns a coroutine continues in a worker task, and the process is busy until that is done. However an invocation ends, `settle` decides
what comes next: exit, go on, or be idle.

An exit takes two steps. `begin_exit`: from now on nothing is delivered and nothing new begins; code that is still running is cancelled and gets the node's kill
grace to unwind. `complete_exit`: the code is done (or was abandoned), so names are free, callers get their errors, links and monitors fire. No process is told
of an exit before the unwinding is over, so a successor never meets its predecessor's lock or socket.
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


# --- The interface of a behaviour to the engine: how a process handles the entries of its mailbox.


READY: Final = object()
"""The result of `_otp_set_up` when the process is started and needs no further handling."""


class Behaviour:
    """The base of GenServer and GenStatem, of plain routines, and of exited processes.

    The engine calls `_otp_set_up`, and then `_otp_handle` for each entry, inside the process's own context. It runs a coroutine that they return in a worker, and
    passes the result to `_otp_on_return` or `_otp_on_error`. The names are private because users derive from the behaviours and name their methods freely.
    """

    __slots__ = ()

    _otp_methods: ClassVar[dict[Any, Callable[..., Any]]] = {}
    """Cache from the method that a cast names to the function to call, which `drain` calls without the behaviour."""
    _otp_special: ClassVar[frozenset[type]] = frozenset()
    """Types of return values that the behaviour has to handle."""
    owns_tasks: ClassVar[bool] = True
    """Whether tasks started in the process's context belong to the process."""
    has_unbounded_stop: ClassVar[bool] = False
    """Whether a closing node waits for this process without limit, as it does for supervisors."""

    @property
    def inner(self) -> Behaviour:
        """The behaviour itself: this one, unless it is an observer of another."""
        return self

    def _otp_kind(self) -> str:
        """The class or the function that runs."""
        return kind_name(type(self).__qualname__)

    def _otp_set_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Run the constructor and `init`. A result other than `READY` is handled as that of an `INIT` entry."""
        raise NotImplementedError

    def _otp_handle(self, entry: MailboxEntry) -> object:
        """Run the handler of one entry, and return its result or its coroutine."""
        raise NotImplementedError

    def _otp_on_return(self, entry: MailboxEntry, value: object) -> None:
        """Handle the return value of an invocation."""

    def _otp_on_error(self, entry: MailboxEntry, error: BaseException) -> None:
        """Handle the error of an invocation."""

    def _otp_report(self, error: BaseException) -> None:
        """Report that code of the process raised outside its handlers."""

    def _otp_on_exit(self, reason: ExitReason) -> None:
        """Release timers and the like: the process has exited."""


def kind_name(qualname: str) -> str:
    """The kind of processes that run a class or a function of this qualified name. It is one of few, and never holds an id or an address."""
    name = qualname.rpartition("<locals>.")[2]
    return (
        name if name.replace(".", "").isidentifier() else "function"
    )  # a lambda, or the `repr` of a callable without a name


# --- The process itself.


COROUTINE: type = CoroutineType  # typed so that checkers do not narrow to a coroutine of unknowns

# The activity of a process as one number, so that the fast path of a call tests one slot. The order matters:
# below QUEUED a message has to wake the process, above RUNNING an invocation is under way.
IDLE = 0  # nothing to do; a call may run its handler inline, on the caller's stack
DOZING = 1  # idle, but each message has to pass the mailbox: a timer is armed, or an observer is attached
QUEUED = 2  # in the run queue
HELD = 3  # suspended from outside: messages collect
RUNNING = 4  # a handler is on the stack, under the pump
INLINE = 5  # a handler is on the stack, under its caller
WORKING = 6  # a coroutine of it runs in a worker, or waits for one
UNWOUND = 7  # dying; its own code is done, tasks that it started are not
DEAD = 8

# The stages of a life.
ALIVE = 0
DYING = 1
GONE = 2


def _find_no_method(_method: object) -> None:
    """Find no method, so that each message passes through the behaviour."""


class ExitWaiter(Protocol):
    """An object whose `on_exit` is called when a process exits: a pending call, a start, a monitor of another node."""

    def on_exit(self, reason: ExitReason) -> None:
        """The process has exited, for this reason."""


class Process:
    """The object behind a pid: mailbox, links, monitors, context and behaviour of a process."""

    is_remote: ClassVar[bool] = False
    """Whether it runs on another node."""

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
        # The bound `append` of an unbounded mailbox that has entries: then the process is queued already, and `Ref.cast` calls this
        # instead of `deliver`, which would cost a cast three more calls. Everything that ends one of those conditions resets it.
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
        self.callers: ExitWaiter | dict[ExitWaiter, None] | None = None  # a single one is stored bare, as a link is
        self.names: dict[Hashable, None] | None = None
        self.tasks: dict[asyncio.Task[Any], None] | None = None
        self.worker: asyncio.Task[Any] | None = None
        self.message_waiter: Callable[[], None] | None = None
        self.waiting_on: Process | None = None
        self.inline_caller: Process | None = None

    def __str__(self) -> str:
        return f"{self.label} {self.pid}"

    __repr__ = __str__

    @property
    def kind(self) -> str:
        """The class or the function that runs, for metrics and events. A label may name more, such as a session's id."""
        return self.behaviour.inner._otp_kind()

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
            elif -self.exempt >= self.limit:
                return False  # so many entries wait in the behaviour: deferred while suspended, or postponed
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
        """Put a message into the mailbox; False when the process is dying or its bound is reached. `exempt` ignores the bound."""
        return self.deliver_exempt((INFO, message)) if exempt else self.deliver((INFO, message))

    def deliver_exempt(self, entry: MailboxEntry) -> bool:
        """As `deliver`, for entries that the bound neither refuses nor counts. They keep their order with the others."""
        limit = self.limit
        if limit is None:
            return self.deliver(entry)
        self.limit = None
        delivered = self.deliver(entry)
        self.limit = limit
        self.fast_append = None  # `deliver` has set it if the mailbox was empty, and it ignores the bound
        self.exempt += delivered
        return delivered

    def deliver_signal(self, message: Down | Exit) -> None:
        """Deliver a `Down` or a trapped `Exit`."""
        if self.limit is None:
            self.deliver((SIGNAL, message))
        else:
            self.deliver_exempt((SIGNAL, message))

    def push_front(self, entry: MailboxEntry) -> None:
        """Put an entry before all others: the next step of the current invocation."""
        if self.mailbox is None:
            self.mailbox = deque((entry,))
        else:
            self.mailbox.appendleft(entry)
        if self.activity < QUEUED:
            self.activity = QUEUED
            self.node.enqueue(self)

    # --- invocations

    def own_context(self) -> Context:
        """The context that all code of this process runs in, made at first use."""
        context = self.context
        if context is None:
            context = self.context = Context()
            context.run(current.set, self)
        return context

    def drain(self) -> None:
        """Handle the entries of the mailbox, up to the node's budget. Runs inside `context`, called by the pump."""
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
            # The clock is read at every eighth message: reading it at each one cost a twentieth of a cast.
            if not mailbox or (not step & 7 and node.loop.time() > node.turn_ends):
                break
            entry = popleft()
            try:
                # Fast path for the cast of a method, most of the traffic: the same as below, without two calls.
                if not entry[0] and (function := known(entry[1])) is not None:
                    _, _, args, kwargs = entry
                    if kwargs:
                        value = function(behaviour, *args, **kwargs)
                    elif len(args) == 1:  # unpacking `*args` costs as much as the rest of the call
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
                    break  # it ended itself: its return value is dropped
                on_return(entry, value)
            except BaseException as error:  # noqa: BLE001 - the boundary of an actor: any error is its crash
                self.on_error(entry, error)
            if self.activity != RUNNING or self.life:
                break
            known = behaviour._otp_methods.get if self.idle_activity == IDLE else _find_no_method
        self.settle()

    def handle_result(self, entry: MailboxEntry, value: object) -> None:
        """Handle the result of a handler that was not called by `drain`: a coroutine runs in a worker first."""
        if type(value) is COROUTINE:
            self.run_in_worker(value, entry)
        else:
            self.on_return(entry, value)

    def on_return(self, entry: MailboxEntry, value: object) -> None:
        """Pass the return value of an invocation to the behaviour; a no-op in a dying process."""
        if not self.life:
            try:
                self.behaviour._otp_on_return(entry, value)
            except BaseException as error:  # noqa: BLE001 - as in drain: its return value was wrong
                self.on_error(entry, error)

    def on_error(self, entry: MailboxEntry, error: BaseException) -> None:
        """Pass the error of an invocation to the behaviour. If that fails too, end the process: it must not stay half done."""
        if self.node.forked:
            forks.exit_child(error)
        if not self.life:
            try:
                self.behaviour._otp_on_error(entry, error)
            except BaseException as broken:  # noqa: BLE001 - as in drain
                begin_exit(self, Crash(error))
                self.node.loop.call_exception_handler(
                    {"message": f"the crash of {self} could not be handled", "exception": broken}
                )

    def run_in_worker(self, coroutine: Any, entry: MailboxEntry) -> None:
        """Run the rest of this invocation in a worker task."""
        self.activity = WORKING
        self.node.workers.submit(self, coroutine, entry)

    def settle(self) -> None:
        """Finish an invocation: exit if that was decided meanwhile, else go on with the mailbox, or be idle."""
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
        """Whether tasks started in its context belong to it; those of an inbox do not."""
        return self.behaviour.owns_tasks

    def own_task(self, task: asyncio.Task[Any]) -> None:
        """Tie a task to this process: it is cancelled when the process exits, which waits for its end."""
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
        """End the process because code of it outside its handlers has raised."""
        if self.node.forked:
            forks.exit_child(error)
        if not self.life:
            self.behaviour._otp_report(error)
            begin_exit(self, Crash(error))

    # --- waiters

    def add_exit_waiter(self, waiter: ExitWaiter) -> None:
        """Call `waiter.on_exit` when this process has exited."""
        callers = self.callers
        if callers is None:
            self.callers = waiter
        elif isinstance(callers, dict):
            callers[waiter] = None
        else:
            self.callers = {callers: None, waiter: None}

    def remove_exit_waiter(self, waiter: ExitWaiter) -> None:
        """Take back `add_exit_waiter`."""
        callers = self.callers
        if callers is waiter:
            self.callers = None
        elif isinstance(callers, dict):
            callers.pop(waiter, None)
            if not callers:
                self.callers = None


watchdog.mark_handler_runner(Process.drain.__code__, lambda frame: frame.get("self"))


# --- How a process exits, and how other processes are told.
# The exit of one process can end the next, down a chain of any length: a queue of exits, not a recursion.


def begin_exit(process: Process, reason: ExitReason) -> None:
    """End a process for this reason; if it is dying already, its first reason stays."""
    if process.life:
        return
    process.life = DYING
    process.fast_append = None
    process.reason = reason
    if process.mailbox:
        process.mailbox.clear()  # nothing new begins; waiting callers are told in `complete_exit`
    activity = process.activity
    if activity < RUNNING:
        end_tasks(process)
    elif activity == WORKING:
        worker = process.worker
        if worker is not None:  # else the job has just ended, or is still queued: the worker finds the process dying
            worker.cancel()
            _arm_grace(process)
    # Else its code is on the stack below this call; `settle` finds it dying.


def end_tasks(process: Process) -> None:
    """Cancel and await the tasks of a dying process, whose own code is done."""
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
    """Complete the exit although code of the process still runs after its grace, and report it as `Leaked`."""
    if process.life != DYING:
        return
    stuck = [task for task in (process.worker, *(process.tasks or ())) if task is not None and not task.done()]
    stack = "".join(map(watchdog.task_lines, stuck))
    assert process.reason is not None
    process.node.leaks += 1
    process.node.fast_thread = 0
    process.node.reports.emit(
        Leaked(pid=process.pid, label=process.label, kind=process.kind, reason=process.reason, stack=stack)
    )
    complete_exit(process)


def complete_exit(process: Process) -> None:
    """Notify callers, links and monitors. Iterative: processes that die of it are queued."""
    node = process.node
    process.life = GONE
    process.activity = DEAD
    exit_queue = node.exit_queue
    exit_queue.append(process)
    if node.is_completing_exits:
        return
    node.is_completing_exits = True
    # The notifications are sent by no process: in the context of an abandoned process all sends are no-ops.
    before = current.set(None)
    try:
        while exit_queue:
            _notify_exit(exit_queue.popleft())
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
            exited_pid = (
                monitor.pid if process.is_remote else pid
            )  # behind a name on another node may have been any process
            monitor.watcher.deliver_signal(make_down(monitor, exited_pid, reason, monitor.name))
    process.behaviour._otp_on_exit(reason)
    # A deliberate cycle break. Process, behaviour and context refer to one another; handles may keep the process for long, and
    # without this a dead actor's state would wait for the cyclic garbage collector. The process keeps its address only.
    process.behaviour = EXITED_BEHAVIOUR
    process.context = node.context
    process.parent = process.inline_caller = process.waiting_on = None


class _ExitedBehaviour(Behaviour):
    """The behaviour of an exited process: it gets no entries."""

    __slots__ = ()

    def _otp_handle(self, entry: MailboxEntry) -> object:
        raise InternalError(f"a dead process was asked to handle {entry!r}")


EXITED_BEHAVIOUR = _ExitedBehaviour()


def signal(process: Process, source: Pid, reason: ExitReason) -> None:
    """Handle an exit signal: a message if the process traps exits, else its end unless the reason is `Normal`.

    As in OTP, `Normal` from the process itself ends it too.
    """
    if links.is_remote(process):
        process.send_exit_signal(source, reason)
    elif process.trap_exit:
        process.deliver_signal(make_exit(source, reason))
    elif not isinstance(reason, Normal) or source == process.pid:
        begin_exit(process, reason)


def kill(process: Process) -> None:
    """End a process with the reason `Killed`, which cannot be trapped."""
    if links.is_remote(process):
        process.send_kill()
    else:
        begin_exit(process, KILLED)


# --- A process of another node, as this one sees it: the interface of the kernel to the object that carries messages there.
# Links, monitors and handles hold it like a local `Process`, with a wire in place of its mailbox. It is in no table of this node, and exits by
# the same code as a local process when it dies or its node is lost.


class RemoteProcessBase(Process):
    """The local representative of a process on another node."""

    __slots__ = ("__weakref__",)

    is_remote: ClassVar[bool] = True

    def check_link(self) -> None:
        """Raise `ActorError` if it cannot be linked."""

    @abstractmethod
    def send_link(self, other: Process) -> None:
        """Tell it that a process of this node has linked itself to it."""

    @abstractmethod
    def send_unlink(self, other: Process) -> None:
        """Tell it that the link was removed."""

    @abstractmethod
    def send_linked_exit(self, other: Process, reason: ExitReason) -> None:
        """Tell it that the linked process of this node has exited."""

    @abstractmethod
    def send_exit_signal(self, source: Pid, reason: ExitReason) -> None:
        """Send it an exit signal."""

    @abstractmethod
    def send_kill(self) -> None:
        """Kill it."""

    @abstractmethod
    def add_watch(self) -> None:
        """Note that a process of this node monitors it."""

    @abstractmethod
    def drop_watch(self) -> None:
        """Note that a monitor of it was removed."""


class RemoteNodes(Protocol):
    """The other nodes that one node is connected to."""

    def process(self, pid: Pid) -> RemoteProcessBase | None:
        """The process behind a pid of another node; None when that node cannot be reached or was restarted."""

    def named(self, name: On) -> RemoteProcessBase | None:
        """A process for a name on another node, which need not exist there; None when that node cannot be reached."""

    def absence(self, node: str) -> NoProcess | NoConnection | Any:
        """The exit reason to use after None."""
