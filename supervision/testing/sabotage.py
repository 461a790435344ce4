"""Makes the next handler of a server go wrong: it stands before the behaviour until the next message, then goes.

Several stand in a row and each takes a message of its own, in the order in which they came. Each also taps the mailbox,
so that no call passes it by.
"""

# ruff: noqa: SLF001 - it stands where the engine expects a behaviour
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision.behaviours.server import Server
from greenroom.supervision.kernel.behaviour import Behaviour
from greenroom.supervision.kernel.messages import ASK, CALL, CAST, INFO, TELL

from .taps import tap

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.kernel.messages import Entry
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.reasons import ExitReason

HANDLED: Final = frozenset((CAST, CALL, ASK, TELL, INFO))
"""What somebody has sent, and a handler deals with."""


class Saboteur(Behaviour):
    """Passes everything on, but the next message to `trick`, with a function that handles it as it should be."""

    __slots__ = ("_process", "_trick", "_untap", "next")

    def __init__(self, process: Process, trick: Callable[[Callable[[], Any]], object]) -> None:
        """It begins its work at once."""
        self._process = process
        self._trick: Callable[[Callable[[], Any]], object] | None = trick
        last: Saboteur | None = None
        behaviour: Behaviour = process.behaviour
        while isinstance(behaviour, Saboteur):
            last, behaviour = behaviour, behaviour.next
        self.next: Behaviour = behaviour
        if last is None:
            process.behaviour = self
        else:
            last.next = self
        self._untap = tap(process, lambda _, entry, pass_on: pass_on(entry))

    @property
    def inner(self) -> Behaviour:
        """The server itself."""
        return self.next.inner

    def leave(self) -> None:
        """Go, if it is there still."""
        self._trick = None
        self._untap()
        before: Any = None
        step: Any = self._process.behaviour
        while step is not None and step is not self:
            before, step = step, getattr(step, "next", None)
        if step is self and before is None:
            self._process.behaviour = self.next
        elif step is self:
            before.next = self.next

    def _otp_handle(self, entry: Entry) -> object:
        trick = self._trick
        server = self.inner
        suspended = isinstance(server, Server) and server._otp_kept is not None
        if trick is None or entry[0] not in HANDLED or suspended:
            return self.next._otp_handle(entry)
        self.leave()
        behaviour = self.next
        while isinstance(behaviour, Saboteur):
            behaviour = behaviour.next
        return trick(lambda: behaviour._otp_handle(entry))

    def _otp_done(self, entry: Entry, value: object) -> None:
        self.next._otp_done(entry, value)

    def _otp_failed(self, entry: Entry, error: BaseException) -> None:
        self.next._otp_failed(entry, error)

    def _otp_report(self, error: BaseException) -> None:
        self.next._otp_report(error)

    def _otp_exiting(self, reason: ExitReason) -> None:
        self.next._otp_exiting(reason)
