"""The testing kit, for everybody's tests; `python -m greenroom.testing replay` plays a run again.

It belongs to the room of supervision, and knows nothing of MCP. What it offers needs neither pytest nor Hypothesis; the
pytest plugin is made of it.
"""

from __future__ import annotations

import sys

from greenroom.supervision import testing
from greenroom.supervision.testing import *  # noqa: F403 - all that the kit has, and its `__all__` says what that is

__all__: list[str] = []
__all__ += testing.__all__

if __name__ == "__main__":
    sys.exit(testing.command_line())
