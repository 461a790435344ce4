"""Between processes and machines: links between nodes, what travels on them, and Thespian, which starts and places them.

Everything public of the links is exported here; that of the engine, which starts nodes in processes of their own, is in `cluster.cluster`.
"""

from __future__ import annotations

from .peering import Peering
from .peers import LinkOffence, NodeDown, NodeUp, Peers
from .sealing import LinkRefused
from .ushering import child_on, launch_on, start_link_on, start_on, whereis_on
from .values import CannotTravel, RemoteError, RemoteTraceback

__all__ = [
    "CannotTravel",
    "LinkOffence",
    "LinkRefused",
    "NodeDown",
    "NodeUp",
    "Peering",
    "Peers",
    "RemoteError",
    "RemoteTraceback",
    "child_on",
    "launch_on",
    "start_link_on",
    "start_on",
    "whereis_on",
]
