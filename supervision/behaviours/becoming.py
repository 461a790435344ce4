"""A process that does things of its own first, and then becomes a server: OTP's `proc_lib:start_link` and `enter_loop`.

::

    async def main(port: int) -> None:
        register("gate")
        socket = await listen(port)
        acknowledge()                      # now `start_routine_link` returns
        become(Gate(socket), name="gate")  # never returns

    ref = await start_routine_link(main, 8000)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

from greenroom.supervision.kernel.current import current_node, current_process
from greenroom.supervision.kernel.errors import ActorError, StartFailed
from greenroom.supervision.kernel.names import find
from greenroom.supervision.kernel.routine import Become, Routine, begin

from .calls import Ref
from .starting import Starting, acknowledged

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from greenroom.supervision.kernel.names import On, Via
    from greenroom.supervision.kernel.process import Process

    from .server import Server

P = ParamSpec("P")


class _Beginning(Routine):
    """A routine whose starter waits for `acknowledge`."""

    __slots__ = ("starting",)

    def __init__(self, process: Process, starting: Starting) -> None:
        super().__init__(process)
        self.starting = starting


async def start_routine(function: Callable[P, Awaitable[object]], /, *args: P.args, **kwargs: P.kwargs) -> Ref[Any]:
    """Run `function` as a process, and wait until it calls `acknowledge`.

    Raises `StartFailed` when it ends before that, with the reason.
    """
    return await _start(function, args, kwargs, link=False)


async def start_routine_link(
    function: Callable[P, Awaitable[object]], /, *args: P.args, **kwargs: P.kwargs
) -> Ref[Any]:
    """As `start_routine`, linked to the calling process, which becomes the parent."""
    return await _start(function, args, kwargs, link=True)


async def _start(function: Callable[..., Awaitable[object]], args: Any, kwargs: Any, *, link: bool) -> Ref[Any]:
    parent = current_process("start a linked process") if link else None
    process = begin(current_node(), function, args, kwargs, link=link)
    starting = Starting(process, parent)
    process.behaviour = _Beginning(process, starting)
    await acknowledged(starting, None)
    if isinstance(starting.outcome, StartFailed):
        raise starting.outcome
    return Ref.of(process)


def acknowledge() -> None:
    """Tell whoever waits in `start_routine` that this process is ready. From one that is to end already, it is void."""
    process = current_process("acknowledge its start")
    behaviour = process.behaviour
    if isinstance(behaviour, _Beginning) and not process.life:
        behaviour.starting.done()


def become(server: Server, *, name: Hashable | Via | On | None = None, first: object = None) -> NoReturn:
    """Go on as `server`, with its mailbox, its links and its names; `init` is not called. Acknowledges the start.

    Call it in the process's own function, where no `finally` or `async with` is open that has to stay open. `name` is
    the one that it goes by: it must be registered, and to this process. `first` is what `init` might have returned: a
    `NoReply` of a GenServer, the `Next` of a state machine.
    """
    process = current_process("become a server")
    behaviour = process.behaviour
    if not isinstance(behaviour, Routine) or not behaviour.adopts:
        raise ActorError(
            f"only a process made by spawn() or start_routine() can become a server, and {process} is none"
        )
    if name is not None and find(process.node, name) is not process:
        raise ActorError(f"{process} cannot go by the name {name!r}: it is not registered to this process")
    starting = behaviour.starting if isinstance(behaviour, _Beginning) else None

    def take_over() -> None:
        server._otp_take_over(process, first)
        if starting is not None:
            starting.done()

    raise Become(take_over)
