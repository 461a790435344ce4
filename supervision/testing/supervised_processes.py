"""Processes under the supervisor of a test: started, stopped, killed on purpose, and awaited until they restart."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload
from weakref import WeakKeyDictionary

from greenroom.supervision.behaviours.process_start import Options
from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.kernel import api, clock
from greenroom.supervision.kernel.errors import CallTimeout, NotRegistered
from greenroom.supervision.kernel.node import ExitFuture
from greenroom.supervision.kernel.process_lookup import current_node, find_process
from greenroom.supervision.kernel.process_messages import NO_PROCESS, Pid
from greenroom.supervision.supervisors import supervision_tree as clients
from greenroom.supervision.supervisors.child_spec import child, is_spec
from greenroom.supervision.supervisors.supervisor import Supervisor
from greenroom.supervision.supervisors.supervisor_base import BaseSupervisor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Hashable

    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.process_messages import ExitReason
    from greenroom.supervision.supervisors.child_spec import ChildSpec

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

WITHIN = 5.0  # the default timeout for an exit and a restart, by the loop's clock
_TURNS = 64  # loop iterations in which most restarts are complete
_POLL_SECONDS = 0.01  # the interval of later checks; each report triggers one too

_supervisors: WeakKeyDictionary[Node, Ref[Supervisor]] = WeakKeyDictionary()


async def own_supervisor() -> Ref[Supervisor]:
    """The test's own supervisor in this node; it never gives up, and stops with the node."""
    node = current_node()
    ref = _supervisors.get(node)
    if ref is None or not api.is_alive(ref):
        ref = await Options(label="test-supervisor").start(Supervisor, (), intensity=1_000_000, period=1)
        _supervisors[node] = ref
    return ref


@overload
async def start_supervised(spec: ChildSpec[R], /) -> R: ...
@overload
async def start_supervised(server: Callable[P, S], /, *args: P.args, **kwargs: P.kwargs) -> Ref[S]: ...
async def start_supervised(what: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Start a child of the test's own supervisor: a spec, or a server class with its constructor's arguments.

    It is restarted as its spec says (permanent by default). At the end of the test the children are stopped in reverse order. A class may be started several times.

    """
    supervisor = await own_supervisor()
    if is_spec(what):
        return await clients.start_child(supervisor, what)
    spec: ChildSpec[Any] = child(what, *args, **kwargs)
    taken = {each.id for each in await clients.which_children(supervisor)}
    number = 1
    while spec.id in taken:
        number += 1
        spec = spec.but(id=f"{what.__name__} {number}")
    return await clients.start_child(supervisor, spec)


async def stop_supervised(who: Ref[Any] | Pid | Hashable) -> None:
    """Stop and remove a child of the test's supervisor: by ref, pid or id."""
    supervisor = await own_supervisor()
    handle: Any = who
    pid = handle if isinstance(handle, Pid) else getattr(handle, "pid", None)
    for each in await clients.which_children(supervisor):
        if each.id == who or (pid is not None and each.pid == pid):
            await clients.terminate_child(supervisor, each.id)
            if any(left.id == each.id for left in await clients.which_children(supervisor)):
                await clients.delete_child(supervisor, each.id)
            return
    raise NotRegistered(NO_PROCESS, handle)


@overload
async def kill(who: Ref[S], *, successor: Literal[True], within: float = WITHIN) -> Ref[S]: ...
@overload
async def kill(who: object, *, successor: Literal[True], within: float = WITHIN) -> Ref[Any]: ...
@overload
async def kill(who: object, *, successor: Literal[False] = False, within: float = WITHIN) -> ExitReason: ...
async def kill(who: object, *, successor: bool = False, within: float = WITHIN) -> Any:
    """Kill a process and wait for its exit. Returns the reason, which differs from killed if it was exiting already.

    With `successor`, also wait until its supervisor has restarted it, or another process has its name, and return a `Ref` to that one.

    """
    if successor:
        async with restart_of(who, within=within) as again:
            api.kill(who)
        return again.ref
    process = _process_of(who)
    gone = ExitFuture(process.node.loop)
    process.add_exit_waiter(gone)
    api.kill(process)
    if not await gone.within(within):
        raise CallTimeout(within, process, "end")
    return gone.future.result()


def _process_of(who: object) -> Process:
    process, pid, name = api.resolve(current_node(), who)
    if process is None:
        raise NotRegistered(NO_PROCESS, name if pid is None else pid)
    return process


class RestartedProcess:
    """The process that `restart_of` follows; the successor is known after the block."""

    def __init__(self, old: Pid) -> None:
        """`old` is the process to follow."""
        self.old = old
        self.pid: Pid | None = None

    @property
    def ref(self) -> Ref[Any]:
        """A ref to the successor."""
        if self.pid is None:
            raise RuntimeError("the successor is known when the block of restart_of() is over")
        return Ref(self.pid)


@asynccontextmanager
async def restart_of(who: object, *, within: float = WITHIN) -> AsyncGenerator[RestartedProcess]:
    """A block that makes a process exit; it is left when the successor runs.

    ::

        async with restart_of(counter) as again:
            counter.cast(Counter.crash)
        assert await again.ref.call(Counter.value) == 0

    The successor is the process with the same place under the same supervisor, or else with the same name.

    """
    process = _process_of(who)
    find_successor = _successor_finder(process)
    found = RestartedProcess(process.pid)
    yield found
    found.pid = await _wait_for_successor(process, find_successor, within)


def _successor_finder(process: Process) -> Callable[[], Pid | None]:
    """A function that returns the successor of this process, once there is one."""
    old = process.pid
    parent = process.parent
    supervisor = None if parent is None else parent.behaviour
    if isinstance(supervisor, BaseSupervisor):
        children = [each for each in supervisor.children() if each.pid == old]
        if children:
            return lambda: None if children[0].pid == old else children[0].pid
    names: tuple[Hashable, ...] = tuple(process.names or ())
    if not names:
        raise LookupError(f"{process} has no supervisor and no name, so it has no successor")

    def by_name() -> Pid | None:
        for name in names:
            heir = find_process(process.node, name)
            if heir is not None and heir.pid != old:
                return heir.pid
        return None

    return by_name


async def _wait_for_successor(process: Process, found: Callable[[], Pid | None], within: float) -> Pid:
    node = process.node
    deadline = clock.now(node.loop) + within
    turns = 0
    news = asyncio.Event()
    unsubscribe = node.reports.subscribe(lambda _: news.set())
    try:
        while True:
            pid = found()
            if pid is not None:
                return pid
            if clock.now(node.loop) >= deadline:
                raise CallTimeout(within, process, "end" if process.reason is None else "come back")
            turns += 1
            if turns < _TURNS:
                await asyncio.sleep(0)
                continue
            news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await news.wait()
    finally:
        unsubscribe()
