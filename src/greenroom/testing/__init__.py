"""The testing kit, for any project's tests; `python -m greenroom.testing replay` plays a run again, `… rogue` is a server that misbehaves.

It belongs to the room of supervision, and knows nothing of MCP, but for the parts at the other end of a wire, or in the middle of it
(`WireProbe`, `FaultyRoute`, `RogueServer`); they are loaded when they are first named. What it offers needs neither pytest nor Hypothesis; the
pytest plugin is made of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.lazy_names import load_name
from greenroom.supervision import testing
from greenroom.supervision.testing import *  # noqa: F403 - all that the kit has, and its `__all__` says what that is

if TYPE_CHECKING:
    from greenroom.wire_probe import WireProbe as WireProbe

    from .faulty_routes import FaultyNetwork as FaultyNetwork
    from .faulty_routes import FaultyRoute as FaultyRoute
    from .rogue_servers import MANNERS as MANNERS
    from .rogue_servers import RogueRoute as RogueRoute
    from .rogue_servers import RogueServer as RogueServer

# Each module, and the names that the kit takes of it: `python -m tests.house --write` makes it of the imports above.
_HOMES: Final[dict[str, str]] = {
    "greenroom.wire_probe": "WireProbe",
    "greenroom.testing.rogue_servers": "MANNERS RogueServer RogueRoute",
    "greenroom.testing.faulty_routes": "FaultyNetwork FaultyRoute",
}

if not TYPE_CHECKING:  # a checker that saw this function would believe in every name
    __all__ = [*" ".join(_HOMES.values()).split(), *testing.__all__]  # noqa: PLE0604 - the table says which

    def __getattr__(name: str) -> object:
        """Load what knows of MCP when it is first used: the kit itself is light."""
        return load_name(__name__, _HOMES, name)
