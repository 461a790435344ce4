"""Links between nodes, nodes in processes of their own and on other machines, and Thespian, which starts and places those processes.

Everything public of this package is exported here. The names of links are loaded at once; those of the engine (`Cluster` and its messages) when one of them is
first used. Thespian is never loaded in a process that asks for nodes, only in the processes below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.lazy_names import load_name

from .addresses import CannotTravel
from .framing import LinkRefused
from .peers import LinkOffence, NodeDown, NodeUp, Peering, Peers
from .remote_spawn import child_on, launch_on, start_link_on, start_on, whereis_on
from .value_codec import RemoteError, RemoteTraceback

if TYPE_CHECKING:
    from .cluster import Cluster as Cluster
    from .cluster import NodeOwner as NodeOwner
    from .cluster import node_child as node_child
    from .cluster_settings import ClusterSettings as ClusterSettings
    from .cluster_settings import MainModule as MainModule
    from .cluster_settings import NodeSpec as NodeSpec
    from .cluster_settings import ProcessLimits as ProcessLimits
    from .key_files import write_key as write_key
    from .machines import Machine as Machine
    from .machines import MachineDown as MachineDown
    from .machines import MachineUp as MachineUp
    from .machines import NothingFits as NothingFits
    from .membership import ClusterMembership as ClusterMembership
    from .node_records import EngineFailed as EngineFailed
    from .node_records import NodeFailed as NodeFailed
    from .node_records import NodeLost as NodeLost
    from .node_records import ProcessEnding as ProcessEnding

__all__ = [
    "CannotTravel",
    "Cluster",
    "ClusterMembership",
    "ClusterSettings",
    "EngineFailed",
    "LinkOffence",
    "LinkRefused",
    "Machine",
    "MachineDown",
    "MachineUp",
    "MainModule",
    "NodeDown",
    "NodeFailed",
    "NodeLost",
    "NodeOwner",
    "NodeSpec",
    "NodeUp",
    "NothingFits",
    "Peering",
    "Peers",
    "ProcessEnding",
    "ProcessLimits",
    "RemoteError",
    "RemoteTraceback",
    "child_on",
    "launch_on",
    "node_child",
    "start_link_on",
    "start_on",
    "whereis_on",
    "write_key",
]

# Each module of the engine, and the names that the room takes of it: `python -m tests.house --write` makes it of the imports for type checkers.
_HOMES: Final[dict[str, str]] = {
    "greenroom.supervision.cluster.cluster": "Cluster NodeOwner node_child",
    "greenroom.supervision.cluster.cluster_settings": "ClusterSettings MainModule NodeSpec ProcessLimits",
    "greenroom.supervision.cluster.key_files": "write_key",
    "greenroom.supervision.cluster.machines": "Machine MachineDown MachineUp NothingFits",
    "greenroom.supervision.cluster.membership": "ClusterMembership",
    "greenroom.supervision.cluster.node_records": "EngineFailed NodeFailed NodeLost ProcessEnding",
}


if not TYPE_CHECKING:  # a checker that saw this function would believe in every name

    def __getattr__(name: str) -> object:
        """Load a name of the engine when it is first used."""
        return load_name(__name__, _HOMES, name)


def __dir__() -> list[str]:
    """Name what is not loaded yet as well."""
    return sorted({*globals(), *__all__})
