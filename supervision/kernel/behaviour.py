"""What the engine asks of a behaviour: how a process deals with what is in its mailbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from .messages import Entry, ExitReason

READY: Final = object()
"""What `_set_up` returns when nothing more is to be done before the process can go to work."""


class Behaviour:
    """The base of GenServer and its siblings, of plain routines, and of the dead.

    The engine calls `_set_up`, and then `_handle` for each entry, inside the process's own context, and runs a coroutine that it returns in a worker; then
    `_done` or `_failed`. The names are private because users derive from the behaviours and name their methods freely.
    """

    __slots__ = ()

    _otp_methods: ClassVar[dict[Any, Callable[..., Any]]] = {}
    """Methods that a cast may name, by what the cast names: those need no look by the behaviour."""
    _otp_special: ClassVar[frozenset[type]] = frozenset()
    """Types of return values that the behaviour has to look at."""
    adopts: ClassVar[bool] = True
    """Whether tasks that are started in the process's context are its own."""
    patient: ClassVar[bool] = False
    """Whether a closing node waits for this one however long it takes, as it does for supervisors."""

    @property
    def inner(self) -> Behaviour:
        """The behaviour itself: this one, unless it is an observer that stands before another."""
        return self

    def _otp_set_up(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        """Begin. Unless it is `READY`, what is returned is treated as that of an entry of the kind `INIT`."""
        raise NotImplementedError

    def _otp_handle(self, entry: Entry) -> object:
        """Begin with one entry."""
        raise NotImplementedError

    def _otp_done(self, entry: Entry, value: object) -> None:
        """The invocation returned `value`."""

    def _otp_failed(self, entry: Entry, error: BaseException) -> None:
        """The invocation raised."""

    def _otp_report(self, error: BaseException) -> None:
        """Tell the node that code of the process raised outside its handlers."""

    def _otp_exiting(self, reason: ExitReason) -> None:
        """The process is gone: let go of timers and the like."""
