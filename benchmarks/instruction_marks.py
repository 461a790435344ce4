"""What a program does so that its instructions can be counted: see `benchmarks.instructions`, which such a program does not load.

Under Valgrind a program is fifty times as slow, so that what the clock decides is decided otherwise than at full speed.
"""

from __future__ import annotations

from typing import Final

from greenroom.supervision import Node

NEVER: Final = 1e6
"""Seconds."""


def without_watchdog() -> None:
    """Have all nodes of this program run without a watchdog: there is no option for that on the way from `Server.run` to the node."""
    defaults = Node.__init__.__kwdefaults__
    assert defaults is not None
    assert "watchdog" in defaults
    defaults["watchdog"] = None


def unwatched() -> None:
    """Have no HTTP request watched for a client that has left, which a server begins with after 20 ms: at full speed a call takes half of one.

    Under Valgrind a call takes about those 20 ms, and the watch 5 % of its instructions, so that the load of the machine decided.
    """
    from greenroom.transports import asgi  # noqa: PLC0415 - a stdio server does not load it

    assert "WATCH_AFTER" in vars(asgi)
    setattr(asgi, "WATCH_AFTER", NEVER)  # noqa: B010 - it is Final for all others
