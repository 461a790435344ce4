"""Which machine a node goes to: of those that have what it requires, and room for it, the one with the fewest of ours. Pure.

The count is ours since Thespian's own is always zero: of two equal members, it places everything on the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from greenroom.supervision.kernel.errors import ActorError

from .machines import fits, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .machines import Machine


class Candidate(NamedTuple):
    """A machine that can be reached, with how many nodes it has and is about to have."""

    machine: Machine
    nodes: int

    @property
    def full(self) -> bool:
        """Whether it takes no more."""
        return self.machine.room is not None and self.nodes >= self.machine.room

    def __str__(self) -> str:
        room = "" if self.machine.room is None else f", {self.nodes} of {self.machine.room} nodes"
        return f"{self.machine.name} ({shown(self.machine.capabilities)}{room})"


class NothingFits(ActorError):
    """No machine has what a node requires, or all that have it are full: what was required, and what there is."""

    def __init__(self, requires: Mapping[str, object], there: tuple[str, ...], *, full: bool = False) -> None:
        """`there` is each machine in words; `full` when some would fit."""
        super().__init__(dict(requires), there)
        self.requires = dict(requires)
        self.there = there
        self.full = full

    def __str__(self) -> str:
        why = "every machine that fits is full" if self.full else "no machine of the cluster has that"
        return f"a node requires {shown(self.requires)}, and {why}; there are: {'; '.join(self.there) or 'none'}"


def choose(requires: Mapping[str, object], there: Iterable[Candidate]) -> Machine:
    """The machine with the fewest nodes of those that fit; of equals, the one that comes first by its name. Raises `NothingFits`."""
    known = tuple(there)
    fitting = [each for each in known if fits(each.machine.offers, requires)]
    free = [each for each in fitting if not each.full]
    if not free:
        raise NothingFits(requires, tuple(map(str, known)), full=bool(fitting))
    return min(free, key=lambda each: (each.nodes, each.machine.name)).machine
