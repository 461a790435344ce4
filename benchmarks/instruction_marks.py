"""The set-up of programs whose instructions are counted by `benchmarks.instructions`; they load this and not that module.

Under Valgrind a program is fifty times slower, so everything that depends on the clock would behave differently.
"""

from __future__ import annotations

from typing import Final

from greenroom.supervision import Node

NEVER: Final = 1e6
"""Seconds."""


def without_watchdog() -> None:
    """Run all nodes of this program without a watchdog: `Server.run` has no option for that."""
    defaults = Node.__init__.__kwdefaults__
    assert defaults is not None
    assert "watchdog" in defaults
    defaults["watchdog"] = None


def unwatched() -> None:
    """Do not watch HTTP requests for clients that disconnect, which a server does after 20 ms; normally a call takes half a millisecond.

    Under Valgrind a call takes about those 20 ms, and the watch takes 5 % of its instructions, so the machine's load would decide whether it is
    counted.
    """
    from greenroom.transports import asgi  # noqa: PLC0415 - not needed by stdio servers

    assert "WATCH_AFTER" in vars(asgi)
    setattr(asgi, "WATCH_AFTER", NEVER)  # noqa: B010 - Final elsewhere
