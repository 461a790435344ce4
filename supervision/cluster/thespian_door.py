"""The door of Thespian: the one file that imports it. What is used of it here has its name and its shape below, since it ships no types.

Importing this loads Thespian's public module and changes nothing in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    class ActorAddress:
        """Who an actor is, to be sent to."""

    class Actor:
        """What Thespian runs in a process of its own."""

        @property
        def myAddress(self) -> ActorAddress: ...  # noqa: N802, D102 - theirs
        def createActor(self, actor: type | str, /, *args: Any, **more: Any) -> ActorAddress: ...  # noqa: N802, D102
        def send(self, to: ActorAddress, message: Any) -> None: ...  # noqa: D102
        def wakeupAfter(self, period: Any, payload: Any = None) -> None: ...  # noqa: N802, D102

    class ActorSystem:
        """A system of actors, as a program outside of it has it in hands."""

        capabilities: dict[str, Any]

        def __init__(self, base: str | None = None, *args: Any, **more: Any) -> None: ...  # noqa: D107
        def createActor(self, actor: type | str, /, *args: Any, **more: Any) -> ActorAddress: ...  # noqa: N802, D102
        def ask(self, to: ActorAddress, message: Any, timeout: Any = None) -> Any: ...  # noqa: D102
        def tell(self, to: ActorAddress, message: Any) -> None: ...  # noqa: D102
        def listen(self, timeout: Any = None) -> Any: ...  # noqa: D102
        def private(self) -> AbstractContextManager[ActorSystem]: ...  # noqa: D102
        def shutdown(self) -> None: ...  # noqa: D102

    class ActorSystemException(Exception):
        """Whatever Thespian itself raises."""

    class ActorSystemMessage:
        """What Thespian itself sends."""

    class ActorExitRequest(ActorSystemMessage):
        """End."""

    class ChildActorExited(ActorSystemMessage):
        """A child has ended."""

        childAddress: ActorAddress  # noqa: N815 - theirs

    class PoisonMessage(ActorSystemMessage):
        """A message that its receiver has failed at, twice."""

        poisonMessage: Any  # noqa: N815 - theirs
        details: str | None

    class WakeupMessage(ActorSystemMessage):
        """The time has come."""

        payload: Any

    class WatchMessage(ActorSystemMessage):
        """These descriptors can be read."""

        ready: Sequence[int]

    class ThespianWatch:
        """The descriptors to watch until the next message: returned by a handler."""

        def __init__(self, filenos: Sequence[int]) -> None: ...  # noqa: D107

else:
    from thespian.actors import (
        Actor,
        ActorAddress,
        ActorExitRequest,
        ActorSystem,
        ActorSystemException,
        ActorSystemMessage,
        ChildActorExited,
        PoisonMessage,
        ThespianWatch,
        WakeupMessage,
        WatchMessage,
    )

__all__ = [
    "Actor",
    "ActorAddress",
    "ActorExitRequest",
    "ActorSystem",
    "ActorSystemException",
    "ActorSystemMessage",
    "ChildActorExited",
    "PoisonMessage",
    "ThespianWatch",
    "WakeupMessage",
    "WatchMessage",
]
