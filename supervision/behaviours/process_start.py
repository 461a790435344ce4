"""Starting processes as OTP does: the starter goes on when `init` is done, or gets the reason why it failed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar

from greenroom.supervision.kernel import links
from greenroom.supervision.kernel import process as lifecycle
from greenroom.supervision.kernel.api import is_abandoned
from greenroom.supervision.kernel.errors import ActorError, ProcessExited, StartFailed, StartTimeout
from greenroom.supervision.kernel.process import DEAD, GONE, READY, RUNNING, WORKING, Process
from greenroom.supervision.kernel.process_lookup import (
    Via,
    check_name,
    current,
    current_node,
    current_process,
    find_process,
    is_via,
    register_process,
)
from greenroom.supervision.kernel.process_messages import INIT, KILLED, Crash, ExitReason, Shutdown

from .refs import Ref
from .task import BecomeServer, Routine, begin_routine

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable

    from greenroom.supervision.kernel.links import Monitor
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process_lookup import On

    from .gen_server import CallbackServer

P = ParamSpec("P")
S = TypeVar("S")

PENDING = object()


class PendingStart:
    """One start in progress: `outcome` becomes None when it succeeds, else the error for the starter."""

    __slots__ = ("future", "outcome", "parent", "process")

    def __init__(self, process: Process, parent: Process | None) -> None:
        """`parent` is the starter, when it is linked."""
        self.process = process
        self.parent = parent
        self.outcome: object = PENDING
        self.future: asyncio.Future[None] | None = None

    def done(self) -> None:
        """Note that `init` succeeded, and wake the starter."""
        if self.outcome is PENDING:
            self.outcome = None
            if self.future is not None:
                self.process.remove_exit_waiter(self)
                self._wake()

    def fail(self, error: ActorError) -> None:
        """Note that `init` failed; the starter gets the error when the process has exited and its name is free."""
        if self.outcome is PENDING:
            self.outcome = error
            if self.parent is not None:
                # The starter gets an exception; an exit signal along the link would end it as well.
                links.unlink(self.parent, self.process)

    def on_exit(self, reason: ExitReason) -> None:
        """Fail the start, if it is not done, and wake the starter."""
        self.fail(start_error(reason, self.process))
        self._wake()

    def _wake(self) -> None:
        if self.future is not None and not self.future.done():
            self.future.set_result(None)


def start_error(reason: ExitReason, what: object) -> StartFailed:
    """The `StartFailed` for the starter. A crash is its cause, also that of a child which a supervisor wrapped."""
    error = StartFailed(reason, what)
    root: object = reason
    while isinstance(root, Shutdown):
        root = getattr(root.detail, "reason", None)
    if isinstance(root, Crash):
        error.__cause__ = root.error
    return error


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to start a process; `await Options(name="hits").start(Counter, 2)`.

    `name` is local, or a `Via` of another registry. `timeout` bounds `init` (None: no bound). `mailbox` bounds the
    mailbox by count. `kill_grace` is how long killed code of this process may take to unwind (None: the node's).
    `label` is its name in reports and the tree, by default the class's name.
    """

    name: Hashable | Via | None = None
    timeout: float | None = None
    mailbox: int | None = None
    kill_grace: float | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None and not is_via(self.name):
            check_name(self.name)
        if self.timeout is not None and not self.timeout > 0:
            message = f"timeout must be more than 0 seconds, or None for no limit, not {self.timeout!r}"
            raise ValueError(message)
        if self.mailbox is not None and self.mailbox < 1:
            message = f"mailbox must hold at least 1 message, or be None for no bound, not {self.mailbox!r}"
            raise ValueError(message)
        if self.kill_grace is not None and self.kill_grace < 0:
            message = f"kill_grace must be 0 seconds or more, not {self.kill_grace!r}"
            raise ValueError(message)

    def but(self, **changes: Any) -> Options:
        """The same with other values for some fields."""
        return replace(self, **changes)

    def start(self, server: Callable[P, S], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Ref[S]]:
        """Start a process without a link."""
        return launch(self, server, args, kwargs)

    def start_link(self, server: Callable[P, S], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Ref[S]]:
        """Start a process linked to the calling one, its parent."""
        return launch(self, server, args, kwargs, link=True)

    async def start_monitor(
        self, server: Callable[P, S], /, *args: P.args, **kwargs: P.kwargs
    ) -> tuple[Ref[S], Monitor]:
        """Start a process that the calling one monitors."""
        watcher = current_process("monitor")
        watching: list[Monitor] = []
        try:
            ref = await launch(
                self,
                server,
                args,
                kwargs,
                made=lambda process: watching.append(links.monitor_process(watcher, process, process.pid)),
            )
        except BaseException:
            for each in watching:
                links.end_monitor(each, flush=True)
            raise
        return ref, watching[0]


_DEFAULT = Options()


def start(server: Callable[P, S], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Ref[S]]:
    """Start a server and wait for its `init`; the arguments are its constructor's.

    Raises `StartFailed` with the reason when it does not start, `StartIgnored` when its `init` returned `IGNORE`.
    """
    return launch(_DEFAULT, server, args, kwargs)


def start_link(server: Callable[P, S], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Ref[S]]:
    """As `start`, linked to the calling process, which becomes the parent."""
    return launch(_DEFAULT, server, args, kwargs, link=True)


async def start_monitor(server: Callable[P, S], /, *args: P.args, **kwargs: P.kwargs) -> tuple[Ref[S], Monitor]:
    """As `start`, monitored by the calling process from the first moment."""
    return await _DEFAULT.start_monitor(server, *args, **kwargs)


async def launch(  # noqa: PLR0913 - one internal function behind several public ones
    options: Options,
    server: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    link: bool = False,
    made: Callable[[Process], object] | None = None,
    parent: Process | None = None,
) -> Ref[Any]:
    """Make a process, run its constructor and `init`, and return its `Ref`. `made` is called before its code runs.

    `link` links it to the calling process; `parent` to a process that requested it, which may be on another node.
    """
    if link:
        parent = current_process("start a linked process")
        node = parent.node
    else:
        node = current_node()
    if not node.inline_left and node.inline_budget:
        node.inline_left = node.inline_budget
        await asyncio.sleep(0)
    node.inline_left -= 1 if node.inline_left else 0
    begin = getattr(server, "_otp_begin", None)
    if (
        begin is None
        or begin.__self__ is not server
        or (node.leaks and is_abandoned())
        or (parent is not None and parent.life)
    ):
        raise _refusal_error(node, server, parent)
    process = node.create(parent, options.label or server.__name__)
    if options is not _DEFAULT:
        process.limit = options.mailbox
        process.grace = options.kill_grace
    try:
        begin(process)
        if options.name is not None:
            register_process(process, options.name)
    except BaseException:
        node.discard(process)
        raise
    if parent is not None:
        links.link(parent, process)
    if made is not None:
        made(process)
    starting = _set_up(process, parent, args, kwargs)
    if starting is not None:
        await _raise_outcome(starting, options)
    return Ref.of(process)


def _set_up(
    process: Process, parent: Process | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> PendingStart | None:
    """Run the constructor and `init` until they first wait; None when that was all."""
    starting: PendingStart | None = None  # most starts need none: their `init` does not wait
    context = process.own_context()
    process.activity = RUNNING
    try:
        value = context.run(process.behaviour._otp_set_up, args, kwargs)
    except BaseException as error:  # noqa: BLE001 - the boundary of an actor: whatever was raised is its crash
        starting = PendingStart(process, parent)
        context.run(process.on_error, (INIT, args, kwargs, starting), error)
    else:
        if value is not READY or process.life:
            starting = PendingStart(process, parent)
            context.run(process.handle_result, (INIT, args, kwargs, starting), value)
    if process.activity != WORKING:  # pyright: ignore[reportUnnecessaryComparison] - what was called may have changed it
        if len(context) == 1:
            process.context = None  # it holds only the current process, and is most of an idle process's memory: made again when needed
        if starting is not None and process.life:
            process.add_exit_waiter(starting)  # called before the link fires, so that the starter gets no exit signal
        if process.life or process.mailbox is not None:
            process.settle()
        else:
            process.activity = process.idle_activity
    return starting


def _refusal_error(node: Node, server: Any, parent: Process | None) -> Exception:
    """The error for a start that cannot begin."""
    if node.leaks and is_abandoned():
        return ActorError("the starting process is gone: its code was abandoned when it did not unwind in time")
    if parent is not None and parent.life:
        return ProcessExited(parent.reason or KILLED, parent)
    if hasattr(server, "_otp_begin"):
        name = type(server).__name__
        return TypeError(f"an instance of {name} cannot be started: give the class, and what its constructor needs")
    return TypeError(f"{server!r} cannot be started: give a class that derives from GenServer or another behaviour")


async def _raise_outcome(starting: PendingStart, options: Options) -> None:
    """Wait for a start that was not done at once, and raise its error."""
    process = starting.process
    if process.life != GONE and starting.outcome is not None:
        await wait_until_started(starting, options.timeout)
    if starting.outcome is None:
        return
    if is_via(options.name):
        options.name.unregister(process.pid)  # the node frees names of its own table
    assert isinstance(starting.outcome, ActorError)
    raise starting.outcome


async def wait_until_started(starting: PendingStart, seconds: float | None) -> None:
    """Wait until the process has started or exited; it is killed after `seconds`."""
    process = starting.process
    future = starting.future = process.node.loop.create_future()
    process.add_exit_waiter(starting)
    starter = current.get()
    if starter is None or starter.worker is not asyncio.current_task():
        starter = None
    else:
        starter.waiting_on = process  # an `init` that calls its starter is refused as a cycle of calls
    try:
        if seconds is None:
            await future
            return
        await asyncio.wait((future,), timeout=seconds)
        timed_out = starting.outcome is PENDING
        if timed_out:
            lifecycle.kill(process)
        if starting.outcome is not None:
            await future
            if timed_out and isinstance(starting.outcome, StartFailed):
                starting.outcome = StartTimeout(seconds, starting.outcome.reason, process)
    except asyncio.CancelledError:
        # The caller will never get a handle: end the process again, without an exit signal to the starter.
        if process.activity != DEAD:
            if starting.parent is not None:
                links.unlink(starting.parent, process)
            lifecycle.kill(process)
        raise
    finally:
        if starter is not None:
            starter.waiting_on = None


# --- A process that runs its own function first, and then becomes a server: OTP's `proc_lib:start_link` and `enter_loop`.


class _StartingRoutine(Routine):
    """A routine whose starter waits for `acknowledge`."""

    __slots__ = ("starting",)

    def __init__(self, process: Process, starting: PendingStart) -> None:
        super().__init__(process)
        self.starting = starting


async def start_routine(function: Callable[P, Awaitable[object]], /, *args: P.args, **kwargs: P.kwargs) -> Ref[Any]:
    """Run `function` as a process, and wait until it calls `acknowledge`.

    Raises `StartFailed` with the reason when it exits before that.
    """
    return await _start_routine(function, args, kwargs, link=False)


async def start_routine_link(
    function: Callable[P, Awaitable[object]], /, *args: P.args, **kwargs: P.kwargs
) -> Ref[Any]:
    """As `start_routine`, linked to the calling process, which becomes the parent."""
    return await _start_routine(function, args, kwargs, link=True)


async def _start_routine(function: Callable[..., Awaitable[object]], args: Any, kwargs: Any, *, link: bool) -> Ref[Any]:
    parent = current_process("start a linked process") if link else None
    process = begin_routine(current_node(), function, args, kwargs, link=link)
    starting = PendingStart(process, parent)
    process.behaviour = _StartingRoutine(process, starting)
    await wait_until_started(starting, None)
    if isinstance(starting.outcome, StartFailed):
        raise starting.outcome
    return Ref.of(process)


def acknowledge() -> None:
    """Tell the waiting `start_routine` that this process is ready. A no-op in a dying process."""
    process = current_process("acknowledge its start")
    behaviour = process.behaviour
    if isinstance(behaviour, _StartingRoutine) and not process.life:
        behaviour.starting.done()


def become(server: CallbackServer, *, name: Hashable | Via | On | None = None, first: object = None) -> NoReturn:
    """Make the calling process go on as `server`, with its mailbox, links and names. Acknowledges the start.

    It raises, so call it in the process's own function, outside of any `finally` or `async with` that has to stay open.
    `init` is not called. `name`, if given, must be registered to this process. `first` is what `init` might have
    returned: a `NoReply` of a GenServer, the `Next` of a state machine.
    """
    process = current_process("become a server")
    behaviour = process.behaviour
    if not isinstance(behaviour, Routine) or not behaviour.owns_tasks:
        raise ActorError(
            f"only a process made by spawn() or start_routine() can become a server, and {process} is none"
        )
    if name is not None and find_process(process.node, name) is not process:
        raise ActorError(f"{process} cannot go by the name {name!r}: it is not registered to this process")
    starting = behaviour.starting if isinstance(behaviour, _StartingRoutine) else None

    def take_over() -> None:
        server._otp_enter_loop(process, first)
        if starting is not None:
            starting.done()

    raise BecomeServer(take_over)
