"""A process of another node, as this one sees it: what the kernel asks of the object that carries messages there.

It is a `Process` in whatever holds processes (a link, a monitor, a handle), with a wire where its mailbox would be. It stands in no table of
this node, and is buried like any other when it dies or its node is lost: links, monitors and callers hear of it by the same code.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from .process import Process

if TYPE_CHECKING:
    from .messages import ExitReason, NoConnection, NoProcess, Pid
    from .names import On


class Away(Process):
    """The near end of a process that is elsewhere."""

    __slots__ = ("__weakref__",)

    away: ClassVar[bool] = True

    def check_link(self) -> None:
        """Refuse to be linked, saying why, if it cannot be."""

    @abstractmethod
    def joined(self, other: Process) -> None:
        """A process of this node has linked itself to it."""

    @abstractmethod
    def parted(self, other: Process) -> None:
        """That link was taken away."""

    @abstractmethod
    def cut(self, other: Process, reason: ExitReason) -> None:
        """The process of this node that was linked to it has ended."""

    @abstractmethod
    def signalled(self, source: Pid, reason: ExitReason) -> None:
        """An exit signal is sent to it."""

    @abstractmethod
    def killed(self) -> None:
        """It is killed."""

    @abstractmethod
    def watched(self) -> None:
        """A process of this node monitors it."""

    @abstractmethod
    def unwatched(self) -> None:
        """One monitor of it is no more."""


class Elsewhere(Protocol):
    """The other nodes, as one node knows them."""

    def process(self, pid: Pid) -> Away | None:
        """The process behind a pid of another node; None when that node cannot be reached, or has begun a new life."""

    def named(self, name: On) -> Away | None:
        """The process with a name on another node, whether or not there is one; None when that node cannot be reached."""

    def absence(self, node: str) -> NoProcess | NoConnection | Any:
        """Why there was None."""
