"""Between processes and machines: links between nodes, what travels on them, and Thespian, which starts and places them.

Everything public of the room is exported here. What links nodes is there at once. The engine, which has nodes run in processes of
their own and on other machines (`Cluster`, and what is said to it and by it), is loaded when one of its names is first used; and Thespian
never is in a process that asks for nodes, only in those that it keeps.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from .addresses import CannotTravel
from .framing import LinkRefused
from .peers import LinkOffence, NodeDown, NodeUp, Peering, Peers
from .ushering import child_on, launch_on, start_link_on, start_on, whereis_on
from .values import RemoteError, RemoteTraceback

if TYPE_CHECKING:
    from .cluster import Cluster, Host, node_child
    from .keys import write_key
    from .machines import Machine, MachineDown, MachineUp, NothingFits
    from .membership import Membership
    from .node_records import Ending, EngineFailed, NodeFailed, NodeLost
    from .specs import ClusterSettings, Limits, Main, NodeSpec

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

# Public name of the engine -> the module it lives in; the imports for type checkers above say the same, and a test compares them.
_ENGINE: Final[dict[str, str]] = {
    "Cluster": "cluster",
    "ClusterSettings": "specs",
    "Ending": "node_records",
    "EngineFailed": "node_records",
    "Host": "cluster",
    "Limits": "specs",
    "Machine": "machines",
    "MachineDown": "machines",
    "MachineUp": "machines",
    "Main": "specs",
    "Membership": "membership",
    "NodeFailed": "node_records",
    "NodeLost": "node_records",
    "NodeSpec": "specs",
    "NothingFits": "machines",
    "node_child": "cluster",
    "write_key": "keys",
}


if not TYPE_CHECKING:  # a checker that saw this function would believe in every name

    def __getattr__(name: str) -> object:
        """Load a name of the engine at its first use, and keep it."""
        home = _ENGINE.get(name)
        if home is None:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message, name=name)
        value: object = getattr(import_module(f".{home}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Name what is not loaded yet as well."""
    return sorted({*globals(), *_ENGINE})
