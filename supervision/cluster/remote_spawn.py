"""Starting processes on other nodes, and looking up names there: the spawn server that each node has, and the functions that call it.

A start over a link behaves like a local one: it returns when `init` is done, or raises what `start` would. When the starter has gone in the meantime, or its node
was lost, the started process is killed, since nothing would know of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, ParamSpec, TypeVar

from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.behaviours.process_start import Options, launch, start_error
from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.behaviours.replies import NoReply, Reject, Reply
from greenroom.supervision.behaviours.task import spawn
from greenroom.supervision.kernel import process as lifecycle
from greenroom.supervision.kernel.api import kill
from greenroom.supervision.kernel.process_lookup import On, current_node, current_process
from greenroom.supervision.kernel.process_messages import NO_PROCESS
from greenroom.supervision.supervisors.child_spec import ChildSpec, StartLink, child

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from greenroom.supervision.behaviours.replies import Caller
    from greenroom.supervision.kernel.process_messages import Pid

P = ParamSpec("P")
S = TypeVar("S")

SPAWN_SERVER: Final = "greenroom.spawn_server"


class SpawnRequest(NamedTuple):
    """The process to start, and the process to link it to."""

    server: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: Options
    parent: Pid | None


class NameLookup(NamedTuple):
    """Ask which process has a name."""

    name: Any


class SpawnServer(GenServer):
    """Starts processes for other nodes. Each start runs in a process of its own, so that a slow `init` delays no other start."""

    traps_exit: ClassVar[bool] = True
    """To end with its starter, also when that ends in order."""

    def handle_call(self, request: Any, caller: Caller[Any]) -> Any:
        """Start a server, or look up a name."""
        if isinstance(request, SpawnRequest):
            spawn(_start_for_caller, request, caller)
            return NoReply()
        if isinstance(request, NameLookup):
            process = current_node().names.get(request.name)
            return Reply(None if process is None else process.pid)
        raise Reject(TypeError(f"a spawn server starts processes and knows names; {request!r} is neither of these"))


async def _start_for_caller(request: SpawnRequest, caller: Caller[Any]) -> None:
    node, me = current_node(), current_process("start a process for another node")
    parent = None if request.parent is None else node.process(request.parent)
    if request.parent is not None and parent is None:
        return  # the node of the starter was lost
    # When the caller stops waiting, the start is cancelled, however long its `init` would take.
    caller.on_over(lambda: lifecycle.kill(me))
    try:
        ref = await launch(request.options, request.server, request.args, request.kwargs, parent=parent)
    except Exception as error:  # noqa: BLE001 - passed to the starter
        caller.fail(error)
        return
    process = node.process(ref.pid)
    if caller.over:
        kill(ref)
    elif process is None or process.life:
        caller.fail(start_error(NO_PROCESS if process is None or process.reason is None else process.reason, ref))
    else:
        caller.reply(ref.pid)


async def start_on(
    node: str,
    server: Callable[P, S],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Ref[S]:
    """Start a server on another node, and wait for its `init`. Raises what `start` does, and `ProcessExited` for a node that is lost."""
    return await launch_on(node, Options(), server, args, kwargs)


async def launch_on(
    node: str,
    options: Options,
    server: Any,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    link: bool = False,
) -> Ref[Any]:
    """As `start_on`, with start options; `link` links it to the calling process."""
    me = current_process("start a linked process") if link else None
    if node == current_node().name:
        return await launch(options, server, args, kwargs or {}, link=link)
    request = SpawnRequest(server, args, kwargs or {}, options, None if me is None else me.pid)
    pid: Pid = await Ref[Any](On(SPAWN_SERVER, node), None).ask(request)
    return Ref(pid)


async def start_link_on(
    node: str,
    server: Callable[P, S],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Ref[S]:
    """As `start_on`, linked to the calling process, which becomes the parent."""
    return await launch_on(node, Options(), server, args, kwargs, link=True)


@dataclass(frozen=True, slots=True)
class StartLinkOn(StartLink):
    """The start function of a child on another node, made by `child_on`."""

    node: str

    async def __call__(self, *more: Any, **named: Any) -> Ref[Any]:
        """Start the child there, linked to the calling process."""
        kwargs = {**self.kwargs, **named}
        return await launch_on(self.node, self.options, self.server, self.args + more, kwargs, link=True)


def child_on(node: str, server: Callable[P, S], /, *args: P.args, **kwargs: P.kwargs) -> ChildSpec[Ref[S]]:
    """As `child`, for one that runs on another node: the loss of that node ends it, and a restart is tried there again."""
    spec = child(server, *args, **kwargs)
    made: Any = spec.start
    return replace(spec, start=StartLinkOn(made.server, made.args, made.kwargs, made.options, node))


async def whereis_on(node: str, name: Hashable, timeout: float | None = 5.0) -> Pid | None:
    """The process that has this name on another node, or None."""
    pid: Pid | None = await Ref[Any](On(SPAWN_SERVER, node), timeout).ask(NameLookup(name))
    return pid
