"""The testing kit for any project's tests: `greenroom.supervision.testing`, a wire probe, faulty routes and misbehaving servers.

`python -m greenroom.testing replay` replays a run, `… rogue` runs a misbehaving server. The kit knows nothing of MCP, except for `WireProbe`, `FaultyRoute`
and `RogueServer`, which are imported on first use. It needs neither pytest nor Hypothesis; the pytest plugin is built on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.lazy_names import load_name
from greenroom.supervision import testing
from greenroom.supervision.testing import *  # noqa: F403 - the kit's `__all__`

if TYPE_CHECKING:
    from greenroom.wire_probe import WireProbe as WireProbe

    from .faulty_routes import FaultyNetwork as FaultyNetwork
    from .faulty_routes import FaultyRoute as FaultyRoute
    from .rogue_servers import MANNERS as MANNERS
    from .rogue_servers import RogueRoute as RogueRoute
    from .rogue_servers import RogueServer as RogueServer

# Each module, and the names that the package exports from it: `python -m tests.house --write` makes the table from the imports above.
_HOMES: Final[dict[str, str]] = {
    "greenroom.testing.faulty_routes": "FaultyNetwork FaultyRoute",
    "greenroom.testing.rogue_servers": "MANNERS RogueRoute RogueServer",
    "greenroom.wire_probe": "WireProbe",
}

if not TYPE_CHECKING:  # a type checker that saw this function would accept any name
    __all__ = [*" ".join(_HOMES.values()).split(), *testing.__all__]  # noqa: PLE0604 - the table says which

    def __getattr__(name: str) -> object:
        """Import the parts that know MCP on first use, to keep the kit light."""
        return load_name(__name__, _HOMES, name)
