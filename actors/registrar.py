"""The registrar: the one process that writes the catalogue. Until what the company waits for has come, it keeps everybody waiting.

Its writes are serialized, and each is whole or nothing: a new catalogue, published by one assignment. It owns nothing that is lost when it
dies, since the shelf is the company's; its successor goes on from there, and whoever waits for it asks again by name. It tells the
subscriptions which lists have changed.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from greenroom.supervision import Crash, Exit, child, spawn_link
from greenroom.supervision.statem import (
    END,
    POSTPONE,
    Call,
    Cast,
    Event,
    Fail,
    GenStatem,
    Info,
    Keep,
    Next,
    Reply,
    Result,
    Stop,
    event,
    state,
)

from .catalogue import RegistrationError
from .subscriptions import tell_changed

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from greenroom.supervision import ChildSpec, ExitReason, Pid, Ref

    from .catalogue import Catalogue, Kind, Shelf
    from .entries import Entry
    from .readiness import Readiness
    from .subscriptions import Board, Subscriptions


class RegistrarState(Enum):
    """Whether it answers."""

    NOT_READY = "not ready"
    READY = "ready"


class _Ready:
    """From the process that waits: what we wait for has come."""


class Registrar(GenStatem[RegistrarState]):
    """One in each company. `registry.Registry` is how others speak to it."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, shelf: Shelf, readiness: Readiness, subscriptions: Ref[Subscriptions], board: Board) -> None:
        """All of it is the company's, and the same for every successor."""
        self._shelf = shelf
        self._readiness = readiness
        self._subscriptions = subscriptions
        self._board = board
        self._waiter: Pid | None = None

    def init(self) -> Next[RegistrarState]:
        """Begin to wait, if there is something to wait for."""
        if self._readiness.passed:
            return Next(RegistrarState.READY)
        self._waiter = spawn_link(_wait, self._readiness, self.ref())
        return Next(RegistrarState.NOT_READY)

    # --- what it is asked

    @event
    def ready(self) -> None:
        """Answered when it is."""
        raise NotImplementedError

    @event
    def put(self, entries: Sequence[Entry], *, replace: bool = True) -> None:
        """Register all of these, or none. Raises `RegistrationError`."""
        raise NotImplementedError

    @event
    def drop(self, kind: Kind, name: Hashable) -> bool:
        """Take one out. Whether it was there."""
        raise NotImplementedError

    # --- how it answers

    @state(RegistrarState.NOT_READY, to=(RegistrarState.READY, END))
    def not_ready(self, event: Event) -> Result[RegistrarState]:
        """Whatever is asked waits."""
        match event:
            case Info(_Ready()):
                return Next(RegistrarState.READY)
            case Info(Exit(pid=self._waiter, reason=reason)):
                return Stop(reason)  # it said nothing before: what we wait for has failed, or it was killed
            case Call() | Cast():
                return Keep(POSTPONE)
            case _:
                return self.unexpected(event)

    @state(RegistrarState.READY, to=())
    def is_ready(self, event: Event) -> Result[RegistrarState]:
        """One write after the other."""
        match event:
            case Call(Registrar.ready, caller=caller):
                return Keep(Reply(caller))
            case Call(Registrar.put, (entries,), kwargs, caller):
                try:
                    self._put(entries, **kwargs)
                except RegistrationError as error:
                    return Keep(Fail(caller, error))
                return Keep(Reply(caller))
            case Cast(Registrar.put, (entries,), kwargs):
                try:
                    self._put(entries, **kwargs)
                except RegistrationError as error:
                    self._otp_unexpected("registration", str(error))
            case Call(Registrar.drop, (kind, name), caller=caller):
                return Keep(Reply(caller, self._write({kind}, lambda catalogue: catalogue.drop(kind, name))))
            case Cast(Registrar.drop, (kind, name)):
                self._write({kind}, lambda catalogue: catalogue.drop(kind, name))
            case Info(Exit(pid=self._waiter)):
                pass
            case _:
                return self.unexpected(event)
        return Keep()

    def terminate(self, reason: ExitReason) -> None:
        """After a crash there will be another one; after anything else nobody waits any more."""
        if not isinstance(reason, Crash):
            self._readiness.abandon()

    def _put(self, entries: Sequence[Entry], *, replace: bool) -> None:
        def put_all(catalogue: Catalogue) -> Catalogue:
            for entry in entries:
                catalogue = catalogue.put(entry, replace=replace)
            return catalogue

        self._write({entry.kind for entry in entries}, put_all)

    def _write(self, kinds: set[Kind], change: Callable[[Catalogue], Catalogue]) -> bool:
        """Publish a change, and have it told."""
        changed = self._shelf.write(change)
        if changed:
            for kind in kinds:
                tell_changed(self._subscriptions, self._board, kind)
        return changed


async def _wait(readiness: Readiness, registrar: Ref[Any]) -> None:
    """The process that waits, so that the registrar can say that it does not answer yet."""
    await readiness.wait()
    registrar.send(_Ready())


def registrar_child(
    name: Hashable, shelf: Shelf, readiness: Readiness, subscriptions: Ref[Subscriptions], board: Board
) -> ChildSpec[Ref[Registrar]]:
    """The company's child, under that name."""
    return child(Registrar, shelf, readiness, subscriptions, board).but(id="registry", name=name)
