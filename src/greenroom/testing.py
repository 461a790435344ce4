"""The testing kit, for everybody's tests; `python -m greenroom.testing replay` plays a run again.

It belongs to the room of supervision, and knows nothing of MCP, but for the one who speaks the wire to a server (`WireProbe`) and is
loaded when it is first named. What it offers needs neither pytest nor Hypothesis; the pytest plugin is made of it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from greenroom.supervision import testing
from greenroom.supervision.testing import *  # noqa: F403 - all that the kit has, and its `__all__` says what that is

if TYPE_CHECKING:
    from .probe import WireProbe

__all__: list[str] = ["WireProbe"]
__all__ += testing.__all__

if not TYPE_CHECKING:  # a checker that saw this function would believe in every name

    def __getattr__(name: str) -> Any:
        """Load what knows of MCP."""
        if name != "WireProbe":
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message, name=name)
        from .probe import WireProbe  # noqa: PLC0415 - the kit itself is light

        return WireProbe


if __name__ == "__main__":
    sys.exit(testing.command_line())
