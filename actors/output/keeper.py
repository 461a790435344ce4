"""Who sees to it that kept answers go with their host, also when that is somebody's child: nobody then leaves a block of its.

The first of two children, so it ends when all those are gone whose answers are kept. Nobody sends it messages; when it dies nothing is lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from greenroom.actors.tree import Tree
from greenroom.supervision import GenServer, child

if TYPE_CHECKING:
    from greenroom.supervision import ChildSpec, ExitReason

    from .spill import Spill

_INTENSITY, _PERIOD = 5, 10.0


class Keeper(GenServer):
    """One for a host that keeps answers."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, spill: Spill) -> None:
        """What it clears away at its end."""
        self._spill = spill

    def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it is
        """Clear it away."""
        self._spill.close()


def kept(spill: Spill, host: ChildSpec[Any]) -> ChildSpec[Any]:
    """A host's child, and whoever clears away what was kept of its answers."""
    both = child(Tree, [child(Keeper, spill).but(id="keeper"), host], intensity=_INTENSITY, period=_PERIOD)
    return both.but(id=host.id)
