"""Between processes and machines: links between nodes, what travels on them, and Thespian, which starts and places them.

Everything public of the room is exported here. What links nodes is there at once. The engine, which has nodes run in processes of
their own and on other machines (`Cluster`, and what is said to it and by it), is loaded when one of its names is first used; and Thespian
never is in a process that asks for nodes, only in those that it keeps.
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
    "ClusterSettings",
    "Ending",
    "EngineFailed",
    "Host",
    "Limits",
    "LinkOffence",
    "LinkRefused",
    "Machine",
    "MachineDown",
    "MachineUp",
    "Main",
    "Membership",
    "NodeDown",
    "NodeFailed",
    "NodeLost",
    "NodeSpec",
    "NodeUp",
    "NothingFits",
    "Peering",
    "Peers",
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
    "greenroom.supervision.cluster.key_files": "write_key",
    "greenroom.supervision.cluster.machines": "Machine MachineDown MachineUp NothingFits",
    "greenroom.supervision.cluster.membership": "ClusterMembership",
    "greenroom.supervision.cluster.node_records": "ProcessEnding EngineFailed NodeFailed NodeLost",
    "greenroom.supervision.cluster.cluster_settings": "ClusterSettings ProcessLimits MainModule NodeSpec",
}


if not TYPE_CHECKING:  # a checker that saw this function would believe in every name

    def __getattr__(name: str) -> object:
        """Load a name of the engine when it is first used."""
        return load_name(__name__, _HOMES, name)


def __dir__() -> list[str]:
    """Name what is not loaded yet as well."""
    return sorted({*globals(), *__all__})
