"""The cluster of an application: the subtree for its supervisor, and the object to start nodes with.

::

    cluster = Cluster()
    async with Node("home"):
        await start_link(Supervisor, [cluster.child_spec(), …])
        owner = await cluster.start_node(NodeSpec())
        counter = await start_on(await owner.call(NodeOwner.node_name), Counter, 2)

The subtree has the links and the engine, which restart together since no node can be reached without links, and the nodes that were started here. When the engine
ends, the nodes end one by one, under whichever supervisor they are, each with its own reason. Nothing but the links is opened before the first node is requested.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.behaviours.process_start import Options, launch
from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.behaviours.replies import Stop
from greenroom.supervision.kernel.api import monitor
from greenroom.supervision.kernel.errors import NotRegistered, ProcessExited
from greenroom.supervision.kernel.process_lookup import current_node, self_pid
from greenroom.supervision.kernel.process_messages import Crash, Down, Exit
from greenroom.supervision.supervisors.child_spec import REST_FOR_ONE, SUPERVISOR, TEMPORARY, ChildSpec, child
from greenroom.supervision.supervisors.dynamic_supervisor import DynamicSupervisor
from greenroom.supervision.supervisors.supervision_tree import start_child
from greenroom.supervision.supervisors.supervisor import Supervisor

from .cluster_settings import ClusterSettings, NodeSpec
from .home_links import HomeLinks, links_of_home
from .membership import ClusterMembership
from .node_engine import NodeEngine
from .node_records import EngineFailed, NodeFailed, NodeLost, NodeProcessEnded, ProcessEnding

if TYPE_CHECKING:
    from greenroom.supervision.kernel.process_messages import ExitReason

    from .peers import Peers

_numbers = itertools.count(1)
_nodes = itertools.count(1)
_SLACK: Final = 3.0
_ENGINE_POLL: Final = 0.02
_ENGINE_POLLS: Final = 100


class Cluster:
    """One application's processes and machines: a child spec, and the object that starts nodes."""

    def __init__(self, settings: ClusterSettings | None = None) -> None:
        """Nothing runs before the child spec is started."""
        self.settings = ClusterSettings() if settings is None else settings
        number = next(_numbers)
        self._name_of_engine: Final = ("greenroom.engine", number)
        self._name_of_nodes: Final = ("greenroom.nodes", number)
        self._name_of_machines: Final = ("greenroom.machines", number)
        self.engine: Final[Ref[NodeEngine]] = Ref(self._name_of_engine)

    def child_spec(self) -> ChildSpec[Ref[Any]]:
        """The whole subtree, for any supervisor of the application's node."""
        return ChildSpec(id="cluster", start=self._start, type=SUPERVISOR)

    async def _start(self) -> Ref[Any]:
        settings = self.settings
        base: list[ChildSpec[Any]] = [
            child(HomeLinks, settings),
            child(NodeEngine, settings).but(name=self._name_of_engine, shutdown=20.0),
        ]
        if settings.convention is not None:
            base.append(child(ClusterMembership, self.engine).but(name=self._name_of_machines))
        bounds: dict[str, Any] = {"intensity": settings.intensity, "period": settings.period}
        falling: ChildSpec[Any] = child(Supervisor, base, strategy=REST_FOR_ONE, **bounds).but(id="base")
        nodes = child(DynamicSupervisor).but(id="nodes", name=self._name_of_nodes)
        return await launch(Options(label="cluster"), Supervisor, ([falling, nodes],), bounds, link=True)

    @property
    def machines(self) -> Ref[ClusterMembership]:
        """The process that knows the other machines, if there is a convention: ``call(ClusterMembership.machines)``, ``call(ClusterMembership.watch, ref)``."""
        return Ref(self._name_of_machines)

    @property
    def peers(self) -> Peers:
        """The links of the node that runs here; to be used in that node only."""
        return links_of_home()

    async def start_node(self, spec: NodeSpec | None = None) -> Ref[NodeOwner]:
        """Start a node that is not restarted: monitor the result. Raises `StartFailed`."""
        made = node_child(self, NodeSpec() if spec is None else spec)
        nodes: Ref[DynamicSupervisor] = Ref(self._name_of_nodes)
        return await start_child(nodes, made.but(restart=TEMPORARY))


def node_child(cluster: Cluster, spec: NodeSpec) -> ChildSpec[Ref[NodeOwner]]:
    """A node as a child of any supervisor, which decides whether it is restarted."""
    return child(NodeOwner, cluster.engine, spec).but(shutdown=spec.stop_timeout + _SLACK)


class NodeOwner(GenServer):
    """Owns a node in a process of its own, and stands for it in the application's tree. It lives as long as that process does.

    It has started when the node is ready, and ends with `Crash(NodeLost)` when the process has ended, so its supervisor decides whether there is another. Stopping it
    stops the node in order; killing it kills the process.
    """

    traps_exit: ClassVar[bool] = True

    def __init__(self, engine: Ref[NodeEngine], spec: NodeSpec) -> None:
        """`engine` is looked up by its name."""
        self._engine = engine
        self._spec = spec
        self.name = spec.name or f"{current_node().name}-{next(_nodes)}"
        self.os_pid = 0
        self.ending: ProcessEnding | None = None

    async def init(self) -> None:
        """Have the engine start the process, and wait until the node is ready."""
        await self._await_engine()
        self._watch = monitor(self._engine)
        try:
            started = await self._engine.within(None).call(
                NodeEngine.start_node_process, self_pid(), self.name, self._spec
            )
        except ProcessExited as gone:
            cause = gone.__cause__
            raise NodeFailed(self.name, str(cause if isinstance(cause, EngineFailed) else gone)) from gone
        self.os_pid = started.os_pid

    async def _await_engine(self) -> None:
        """Wait for the engine to be restarted: when it dies all nodes die, and their supervisors may be faster than the engine's."""
        for _ in range(_ENGINE_POLLS):
            try:
                _ = self._engine.pid
            except NotRegistered:
                await asyncio.sleep(_ENGINE_POLL)
            else:
                return

    # --- called by others

    def node_name(self) -> str:
        """The name of the node, which is the first part of every pid there."""
        return self.name

    def process_id(self) -> int:
        """The pid of its process."""
        return self.os_pid

    # --- its end

    def handle_info(self, message: Any) -> Stop | None:
        """The process has ended, or the engine, which would have reported that."""
        match message:
            case NodeProcessEnded():
                self.ending = message.ending
            case Down(ref=ref) if ref is self._watch:
                self.ending = ProcessEnding(lost=True)
            case Exit(reason=reason):
                return Stop(reason)
            case _:
                super().handle_info(message)
                return None
        return Stop(Crash(NodeLost(self.name, self.ending)))

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """End the process: in order first."""
        if self.ending is None:
            try:
                self.ending = await self._engine.within(None).call(NodeEngine.end_node, self.name)
            except ProcessExited:
                self.ending = ProcessEnding(lost=True)
