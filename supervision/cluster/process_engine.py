"""What starts, places and watches the processes of nodes, as the warden sees it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol

from . import pids

if TYPE_CHECKING:
    import socket

    from .daemon_protocol import Orders

PREFIX: Final = "gr-"
"""What the names of processes below a warden begin with, but for those that code in a node has executed."""


class Part:
    """One process of an engine."""

    def __init__(self, name: str, pid: int) -> None:
        """It runs."""
        self.name = name
        self.pid = pid
        self.pidfd = pids.descriptor(pid)

    @property
    def ended(self) -> bool:
        """Whether it has."""
        return pids.has_ended(self.pid, self.pidfd)

    def end(self, number: int) -> bool:
        """Send it that signal."""
        return pids.send_signal(number, self.pid, self.pidfd)

    def forget(self) -> None:
        """It is gone."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


class ProcessEngine(Protocol):
    """One that runs. It takes orders to start and to end processes here or on another machine, and tells of each how it began and ended."""

    id: str
    port: int
    orders: Orders
    """Where it is told what to do, and tells what came of it."""
    parts: list[Part]
    """Its own processes: when one of them ends, all of it is replaced."""
    keeper: Part
    """The one of them that makes the processes of nodes."""

    @property
    def door(self) -> socket.socket:
        """Where it listens in this process: no message for it is expected there."""
        ...

    def turn_away(self) -> None:
        """A connection has come to that door."""
        ...

    def shutdown(self) -> None:
        """Ask all of it to end. That may do nothing; the caller ends what is left."""
        ...

    def forget(self) -> None:
        """All of it is gone."""
        ...
