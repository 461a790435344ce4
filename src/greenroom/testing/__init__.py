"""The testing kit, for everybody's tests; `python -m greenroom.testing replay` plays a run again, `… rogue` is a server that misbehaves.

It belongs to the room of supervision, and knows nothing of MCP, but for those who stand at the other end of a wire, or in the middle of it
(`WireProbe`, `RoughRoute`, `Rogue`); they are loaded when they are first named. What it offers needs neither pytest nor Hypothesis; the
pytest plugin is made of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision import testing
from greenroom.supervision.testing import *  # noqa: F403 - all that the kit has, and its `__all__` says what that is

if TYPE_CHECKING:
    from greenroom.probe import WireProbe

    from .rogues import MANNERS, Rogue, RogueRoute
    from .rough import RoughNet, RoughRoute

__all__: list[str] = ["MANNERS", "Rogue", "RogueRoute", "RoughNet", "RoughRoute", "WireProbe"]
__all__ += testing.__all__

_HOMES: Final[dict[str, str]] = {
    "MANNERS": "greenroom.testing.rogues",
    "Rogue": "greenroom.testing.rogues",
    "RogueRoute": "greenroom.testing.rogues",
    "RoughNet": "greenroom.testing.rough",
    "RoughRoute": "greenroom.testing.rough",
    "WireProbe": "greenroom.probe",
}

if not TYPE_CHECKING:  # a checker that saw this function would believe in every name

    def __getattr__(name: str) -> Any:
        """Load what knows of MCP: the kit itself is light."""
        home = _HOMES.get(name)
        if home is None:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message, name=name)
        value = globals()[name] = getattr(import_module(home), name)
        return value
