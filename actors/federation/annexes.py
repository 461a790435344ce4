"""The annexes of a federation: processes beside the program, in which connections run that must not be able to harm it.

::

    annexes (rest_for_one)        a child of the federation's upstreams, begun with the first connection that wants one
    ├─ cluster                    what starts processes, and ends them
    ├─ keepers                    dynamic; one keeper for each annex that has tenants
    └─ porter                     the last to be begun, and so the first to be stopped: waits until all tenants have left

A keeper has the process of its annex started, and ends when that does, for the same reason; the last tenant to leave has it stopped. It is
never started again by itself: the tenants of an upstream hear why it ended, their supervisor counts that, and the next tenant has another
process started. So each upstream says how often that may be, and a server that takes its annex down again and again is parked. When
there is no machine for it, after one was lost for instance, no process has died: the tenant looks again later, as the connection does.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.actors.names import Name
from greenroom.actors.tree import Tree, ensured
from greenroom.supervision import (
    NORMAL,
    ActorError,
    Continue,
    Crash,
    Down,
    DynamicSupervisor,
    GenServer,
    Options,
    ProcessExited,
    Ref,
    Shutdown,
    StartFailed,
    Stop,
    child,
    monitor,
    send_after,
    stop,
    wait_down,
    whereis,
    which_children,
)
from greenroom.supervision.cluster import Cluster, Host, NodeSpec, NothingFits
from greenroom.transports.client.remote_wire import Lodging

if TYPE_CHECKING:
    from greenroom.actors.names import Key
    from greenroom.supervision import ChildSpec, ExitReason, Monitor

    from .specs import Annex

PRELOAD: Final = tuple(f"greenroom.transports.client.{name}" for name in ("remote_wire", "command", "http_route"))
_TRIES: Final = 5
"""How often to ask again for an annex that was just being closed."""
_LEAVING: Final = 10.0
"""How long all tenants may take to leave when the federation's annexes are stopped."""
_STOPPING: Final = 10.0
_LOOK_AGAIN: Final = object()
_PAUSE: Final = 30.0
"""How long a tenant waits where there is no machine for it. Meanwhile the connection asks with pauses of its own, and is in before."""


class Premises:
    """Where the processes of annexes come from: a cluster of the federation's own, unless an annex has one of the program's."""

    def __init__(self) -> None:
        """Nothing runs yet."""
        self._cluster = Cluster()

    def child_spec(self) -> ChildSpec[Any]:
        """What has to run before there can be any."""
        return self._cluster.child_spec()

    async def open(self, annex: Annex) -> tuple[Ref[Any], str]:
        """A new one: the process here that stands for it, linked to the calling one, and its node's name."""
        spec = NodeSpec(limits=annex.limits, preload=PRELOAD, start_timeout=annex.start, requires=annex.requires)
        options = Options(label=f"node of {annex.name}")
        host = await options.start_link(Host, (annex.cluster or self._cluster).engine, spec)
        return host, await host.call(Host.node_name)


class Annexes:
    """Those of one federation. No process: it holds where they are found."""

    def __init__(self, key: Key, upstreams: Ref[DynamicSupervisor]) -> None:
        """`upstreams` is the supervisor under which they run."""
        self._key = key
        self._upstreams = upstreams
        self._keepers: Ref[DynamicSupervisor] = Ref(Name(key, "keepers"), None)
        self._premises = Premises()

    def room(self, annex: Annex) -> Room:
        """Where wires find room in it."""
        return Room(self, annex)

    async def keeper(self, annex: Annex) -> Ref[Keeper]:
        """The keeper of an annex, started if need be."""
        name = Name(self._key, f"annex-{annex.serial}")
        found = whereis(name)
        if found is not None:
            return Ref(found, None)
        if whereis(self._keepers.target) is None:
            await ensured(self._upstreams, self._tree())
        options = Options(label=f"annex {annex.name}")
        spec = child(Keeper, self._premises, annex).but(id=name, name=name, restart="temporary", options=options)
        await ensured(self._keepers, spec)
        return Ref(name, None)

    def _tree(self) -> ChildSpec[Any]:
        children: list[ChildSpec[Any]] = [
            self._premises.child_spec(),
            child(DynamicSupervisor).but(id="keepers", name=self._keepers.target),
            child(Porter, self._keepers).but(id="porter", shutdown=_LEAVING + 1.0),
        ]
        name = Name(self._key, "annexes")
        tree = child(Tree, children, intensity=3, period=60.0, strategy="rest_for_one")
        return tree.but(id=name, name=name, restart="temporary")


@dataclass(frozen=True, slots=True)
class Room:
    """In one annex."""

    annexes: Annexes
    annex: Annex

    def tenant(self) -> ChildSpec[Any]:
        """For the tree of an upstream."""
        return child(Tenant, self).but(id="tenant")

    async def process_id(self) -> int:
        """The process, as the system knows it; begun if need be."""
        return await (await self.annexes.keeper(self.annex)).call(Keeper.process_id)

    async def lodge(self) -> Lodging:
        """Have a node for the calling process, for as long as that lives. Raises what keeps one from coming up, or has ended it at once."""
        tries = 0
        while True:
            tries += 1
            try:
                keeper = await self.annexes.keeper(self.annex)
                return await keeper.call(Keeper.lodge)
            except ProcessExited as gone:
                match gone.reason:
                    case Shutdown(detail=Exception() as error) | Crash(error=Exception() as error):
                        raise error from None
                    case _ if tries >= _TRIES:
                        raise
                    case _:
                        await asyncio.sleep(0)  # it was just being closed


class Keeper(GenServer):
    """The process that owns one annex; it runs while the annex has tenants."""

    def __init__(self, premises: Premises, annex: Annex) -> None:
        """Nothing runs yet."""
        self._premises = premises
        self._annex = annex
        self._host: Ref[Any]
        self._node = ""
        self._tenants: set[Monitor] = set()

    def init(self) -> Continue:
        """The caller that starts the keeper goes on; callers of `lodge` wait until the annex runs."""
        return Continue(None)

    async def handle_continue(self, token: Any) -> Stop | None:  # noqa: ARG002 - there is one only
        """Have the process started. From now on its end is ours: we are linked, and trap nothing."""
        try:
            self._host, self._node = await self._premises.open(self._annex)
        except ActorError as error:
            return Stop(Shutdown(error))
        return None

    def lodge(self) -> Lodging:
        """The caller becomes a tenant, until its process ends."""
        tenant = self.caller.process
        if tenant is not None:
            self._tenants.add(monitor(tenant.pid))
        return Lodging(self._node, self.pid)

    async def process_id(self) -> int:
        """The annex, as the system knows it."""
        return await self._host.call(Host.process_id)

    def handle_info(self, message: Any) -> Stop | None:
        """A tenant has ended; with the last one the keeper stops."""
        if not isinstance(message, Down):
            super().handle_info(message)
            return None
        self._tenants.discard(message.ref)
        return None if self._tenants else Stop(NORMAL)

    async def terminate(self, reason: ExitReason) -> None:
        """Stop the annex in order, when it has no tenants any more."""
        if reason == NORMAL:
            with contextlib.suppress(
                ActorError
            ):  # it has ended by itself, or does so when the cluster that starts processes ends
                await stop(self._host, NORMAL, _STOPPING)

    def report_state(self) -> str:
        """The annex, its node and the number of tenants."""
        return f"annex {self._annex.name} on {self._node or 'no node yet'}, {len(self._tenants)} tenants"


class Porter(GenServer):
    """Delays the shutdown, so that an annex is not closed while tenants are still leaving it."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, keepers: Ref[DynamicSupervisor]) -> None:
        """For the annexes of these keepers."""
        self._keepers = keepers

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """Wait until all annexes are empty, at most as long as tenants may take to leave."""
        try:
            async with asyncio.timeout(_LEAVING):
                for each in await which_children(self._keepers):
                    await wait_down(each.pid, None)
        except (TimeoutError, ProcessExited):
            return  # tenants that have not left by now are stopped


class Tenant(GenServer):
    """Of an upstream, in its tree: has a place for its connections kept, and ends when the process there does, so that this is counted."""

    def __init__(self, room: Room) -> None:
        """Where."""
        self._room = room
        self._watch: Monitor

    def init(self) -> Continue:
        """The upstream goes on; that takes its time."""
        return Continue(None)

    async def handle_continue(self, token: Any = None) -> Stop | None:  # noqa: ARG002 - there is one only
        """Go in, or try to again."""
        try:
            lodging = await self._room.lodge()
        except ActorError as error:
            if not _is_without_machine(error):
                return Stop(Crash(error))
            send_after(_PAUSE, self.pid, _LOOK_AGAIN)
            return None
        self._watch = monitor(lodging.keeper)
        return None

    async def handle_info(self, message: Any) -> Stop | None:
        """The process is gone, or there may be a machine for it now."""
        match message:
            case Down():
                return Stop(
                    message.reason if isinstance(message.reason, Crash) else Crash(ProcessExited(message.reason))
                )
            case _ if message is _LOOK_AGAIN:
                return await self.handle_continue()
            case _:
                super().handle_info(message)
                return None


def _is_without_machine(error: BaseException | None) -> bool:
    match error:
        case NothingFits():
            return True
        case StartFailed(reason=Crash(error=cause)):
            return _is_without_machine(cause)
        case _:
            return False
