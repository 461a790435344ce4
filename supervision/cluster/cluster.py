"""The cluster of an application: what stands in its tree, and in front of that an object to start nodes with.

::

    cluster = Cluster()
    async with Node("home"):
        await start_link(Supervisor, [cluster.child_spec(), …])
        host = await cluster.start_node(NodeSpec())
        counter = await start_on(await host.call(Host.node_name), Counter, 2)

The subtree has the node's links and the engine, which fall together, since nobody can be reached without links; and the nodes that were
started here. Those end one by one when the engine does, whoever supervises them, and say why. Nothing but the links is opened before the
first node is asked for.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision.behaviours.calls import Ref
from greenroom.supervision.behaviours.starting import Options, launch
from greenroom.supervision.supervisors.dynamic import DynamicSupervisor
from greenroom.supervision.supervisors.spec import REST_FOR_ONE, SUPERVISOR, TEMPORARY, ChildSpec, child
from greenroom.supervision.supervisors.supervisor import Supervisor
from greenroom.supervision.supervisors.tree import start_child

from .engine import Engine
from .home_links import HomeLinks, links_of_home
from .host import Host
from .membership import Membership
from .specs import ClusterSettings, NodeSpec

if TYPE_CHECKING:
    from .peers import Peers

_numbers = itertools.count(1)
_SLACK: Final = 3.0


class Cluster:
    """One application's processes and machines: a child for its tree, and who is asked for nodes."""

    def __init__(self, settings: ClusterSettings | None = None) -> None:
        """Nothing runs before its child spec is started."""
        self.settings = ClusterSettings() if settings is None else settings
        number = next(_numbers)
        self._name_of_engine: Final = ("greenroom.engine", number)
        self._name_of_nodes: Final = ("greenroom.nodes", number)
        self._name_of_machines: Final = ("greenroom.machines", number)
        self.engine: Final[Ref[Engine]] = Ref(self._name_of_engine)

    def child_spec(self) -> ChildSpec[Ref[Any]]:
        """All of it, for any supervisor of the application's node."""
        return ChildSpec(id="cluster", start=self._start, type=SUPERVISOR)

    async def _start(self) -> Ref[Any]:
        settings = self.settings
        base: list[ChildSpec[Any]] = [
            child(HomeLinks, settings),
            child(Engine, settings).but(name=self._name_of_engine, shutdown=20.0),
        ]
        if settings.convention is not None:
            base.append(child(Membership, self.engine).but(name=self._name_of_machines))
        bounds: dict[str, Any] = {"intensity": settings.intensity, "period": settings.period}
        falling: ChildSpec[Any] = child(Supervisor, base, strategy=REST_FOR_ONE, **bounds).but(id="base")
        nodes = child(DynamicSupervisor).but(id="nodes", name=self._name_of_nodes)
        return await launch(Options(label="cluster"), Supervisor, ([falling, nodes],), bounds, link=True)

    @property
    def machines(self) -> Ref[Membership]:
        """Who knows the other machines, when there is a convention: ``call(Membership.machines)``, ``call(Membership.watch, ref)``."""
        return Ref(self._name_of_machines)

    @property
    def peers(self) -> Peers:
        """The links of the node that runs here; of use in that node only."""
        return links_of_home()

    async def start_node(self, spec: NodeSpec | None = None) -> Ref[Host]:
        """A node that is not started again when it ends: monitor the host. Raises `StartFailed`."""
        made = node_child(self, NodeSpec() if spec is None else spec)
        nodes: Ref[DynamicSupervisor] = Ref(self._name_of_nodes)
        return await start_child(nodes, made.but(restart=TEMPORARY))


def node_child(cluster: Cluster, spec: NodeSpec) -> ChildSpec[Ref[Host]]:
    """A node as a child of whatever supervisor, which decides whether it is started again."""
    return child(Host, cluster.engine, spec).but(shutdown=spec.stop_timeout + _SLACK)
