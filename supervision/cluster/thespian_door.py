"""Thespian's door: no other file imports it.

Who imports this one is a warden with the processes below it, and whoever has a Thespian system of their own: a guest actor, or a program that
asks an actor of theirs. Importing it changes nothing in Thespian.

What is taken from it is of two kinds: its public words (an actor, the messages that it gets, the system), and the internals that
`hardening` replaces. `versions` refuses any Thespian but the one that both were read in.
"""
# ruff: noqa: D107, N813, N815 - Thespian's names are its own

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    class Address:
        """Of an actor."""

    class Actor:
        """What Thespian runs in a process of its own."""

        myAddress: Address
        _myRef: Any

        def createActor(self, actor_class: type | str, requirements: dict[str, object] | None = None) -> Address:  # noqa: N802
            """Start a child; what is sent to it waits until it runs."""
            ...

        def send(self, target: Address, message: object) -> None:
            """Some time."""
            ...

        def receiveMessage(self, message: object, sender: Address) -> object:  # noqa: N802
            """One message."""
            ...

        def notifyOnSystemRegistrationChanges(self, setting: bool) -> None:  # noqa: FBT001, N802
            """Hear of the machines of the convention."""
            ...

        def updateCapability(self, name: str, value: object) -> None:  # noqa: N802
            """This machine has, from now on."""
            ...

        def wakeupAfter(self, period: object, payload: object = None) -> None:  # noqa: N802
            """Have a `WakeupMessage`, after a `timedelta`."""
            ...

    class ActorSystemException(Exception):
        """Whatever Thespian raises."""

    class ActorSystemMessage:
        """Whatever Thespian itself sends."""

    class ActorSystemConventionUpdate(ActorSystemMessage):
        """A machine has joined the convention, or has left it."""

        remoteCapabilities: dict[str, Any]
        remoteAdded: bool

    class ActorExitRequest(ActorSystemMessage):
        """An actor is to end."""

    class ChildActorExited(ActorSystemMessage):
        """A child has ended."""

        childAddress: Address

    class PoisonMessage(ActorSystemMessage):
        """A message that its receiver has failed at, twice."""

        poisonMessage: Any
        details: str | None

    class WakeupMessage(ActorSystemMessage):
        """The time has come."""

        payload: Any

    class WatchMessage(ActorSystemMessage):
        """A watched descriptor has something to read."""

        ready: list[int]

    class ThespianWatch:
        """What a handler returns to have descriptors watched until the next message."""

        def __init__(self, descriptors: list[int]) -> None: ...

    class ActorSystem:
        """The system, seen from outside."""

        def __init__(
            self,
            base: str,
            capabilities: dict[str, object],
            logDefs: dict[str, object],  # noqa: N803 - Thespian's name
            *,
            transientUnique: bool,  # noqa: N803
        ) -> None: ...
        def createActor(self, actor_class: type | str) -> Address:  # noqa: N802
            """Have the admin start one."""
            ...

        def tell(self, target: Address, message: object) -> None:
            """Send, and wait until that is done."""
            ...

        def ask(self, target: Address, message: object, timeout: object = None) -> Any:
            """Send, and wait for whatever comes next."""
            ...

        def listen(self, timeout: object = None) -> Any:
            """Wait for whatever comes next."""
            ...

        def private(self) -> AbstractContextManager[ActorSystem]:
            """An endpoint of its own."""
            ...

        def shutdown(self) -> None:
            """Ask all of it to end, and wait for that."""
            ...

    convention: Any
    tcp: Any
    streams: Any
    addresses: Any
    processes: Any
    system_base: Any
    system_logs: Any
else:
    from thespian.actors import (
        Actor,
        ActorExitRequest,
        ActorSystem,
        ActorSystemConventionUpdate,
        ActorSystemException,
        ActorSystemMessage,
        ChildActorExited,
        PoisonMessage,
        ThespianWatch,
        WakeupMessage,
        WatchMessage,
    )
    from thespian.actors import (
        ActorAddress as Address,
    )
    from thespian.system import multiprocCommon as processes
    from thespian.system import systemBase as system_base
    from thespian.system import utilis as system_logs
    from thespian.system.admin import convention
    from thespian.system.transport import IPBase as addresses
    from thespian.system.transport import TCPTransport as tcp
    from thespian.system.transport import streamBuffer as streams

__all__ = [
    "Actor",
    "ActorExitRequest",
    "ActorSystem",
    "ActorSystemConventionUpdate",
    "ActorSystemException",
    "ActorSystemMessage",
    "Address",
    "ChildActorExited",
    "PoisonMessage",
    "ThespianWatch",
    "WakeupMessage",
    "WatchMessage",
    "addresses",
    "convention",
    "processes",
    "streams",
    "system_base",
    "system_logs",
    "tcp",
]
