"""What the landlord of a machine, the engine and the membership of an application tell each other about nodes that are placed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from greenroom.supervision.kernel.errors import ActorError

if TYPE_CHECKING:
    from greenroom.supervision.kernel.pid import Pid

    from .machines import Machine

LANDLORD = "greenroom.landlord"
"""The name of every machine's, on the machine's own node."""


class NoRoom(ActorError):
    """A machine does not take a node: why not."""


class WrongVersion(ActorError):
    """Two machines run different versions of greenroom: both are named."""


class Place(NamedTuple):
    """Engine to membership: where shall this node be? `local` is how many the application's own machine has."""

    name: str
    requires: dict[str, Any]
    local: int


@dataclass(frozen=True, slots=True)
class Placed:
    """Membership to engine: on that machine, whose landlord holds a place for it; on the application's own when there is no landlord."""

    name: str
    machine: Machine
    system: str
    landlord: Pid | None


class NotPlaced(NamedTuple):
    """... nowhere."""

    name: str
    error: Exception


class Departed(NamedTuple):
    """Engine to membership: that node is over."""

    name: str


class Renewed(NamedTuple):
    """Landlord to membership: that machine has a new Thespian system."""

    id: str
    system: str


class Lodged(NamedTuple):
    """Landlord to engine: the process of a node was made there."""

    name: str
    os_pid: int


class Left(NamedTuple):
    """Landlord to engine: it has ended; None when nobody could tell how."""

    name: str
    status: int | None
    words: str
