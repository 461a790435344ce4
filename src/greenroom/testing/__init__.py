"""The testing kit, for any project's tests; `python -m greenroom.testing replay` plays a run again, `… rogue` is a server that misbehaves.

It belongs to the room of supervision, and knows nothing of MCP, but for the parts at the other end of a wire, or in the middle of it
(`WireProbe`, `RoughRoute`, `Rogue`); they are loaded when they are first named. What it offers needs neither pytest nor Hypothesis; the
pytest plugin is made of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.lazy import load
from greenroom.supervision import testing
from greenroom.supervision.testing import *  # noqa: F403 - all that the kit has, and its `__all__` says what that is

if TYPE_CHECKING:
    from greenroom.probe import WireProbe as WireProbe

    from .rogues import MANNERS as MANNERS
    from .rogues import Rogue as Rogue
    from .rogues import RogueRoute as RogueRoute
    from .rough import RoughNet as RoughNet
    from .rough import RoughRoute as RoughRoute

# Each module, and the names that the kit takes of it: `python -m tests.house --write` makes it of the imports above.
_HOMES: Final[dict[str, str]] = {
    "greenroom.probe": "WireProbe",
    "greenroom.testing.rogues": "MANNERS Rogue RogueRoute",
    "greenroom.testing.rough": "RoughNet RoughRoute",
}

if not TYPE_CHECKING:  # a checker that saw this function would believe in every name
    __all__ = [*" ".join(_HOMES.values()).split(), *testing.__all__]  # noqa: PLE0604 - the table says which

    def __getattr__(name: str) -> object:
        """Load what knows of MCP when it is first used: the kit itself is light."""
        return load(__name__, _HOMES, name)
