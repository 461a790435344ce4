"""An existing Thespian program that knows nothing of greenroom: a calculator that can fail in every way, and a slow clerk."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:  # Thespian ships no types
    from greenroom.supervision.cluster.thespian_patches import Actor, ActorExitRequest, WakeupMessage
else:
    from thespian.actors import Actor, ActorExitRequest, WakeupMessage


@dataclass
class Add:
    """Add two numbers.

    Args:
        a: The first of them.
        b: The other.
    """

    a: int
    b: int = 1


@dataclass
class Sum:
    value: int


@dataclass
class Note:
    text: str
    tags: list[str] = field(default_factory=list[str])


class Misbehave:
    def __init__(self, how: str, after: float = 0.0) -> None:
        self.how = how
        self.after = after


class Calculator(Actor):
    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802
        if isinstance(message, Add):
            self.asked += 1
            self.send(sender, Sum(message.a + message.b))
        elif isinstance(message, Note):
            self.send(sender, f"{message.text} {message.tags}")
        elif isinstance(message, Misbehave):
            self._misbehave(message, sender)
        elif isinstance(message, WakeupMessage):
            self.send(message.payload, "late")

    def _misbehave(self, message: Misbehave, sender: Any) -> None:
        if message.how == "raise":
            raise ValueError("that is more than I can take")
        if message.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if message.how == "exit":
            self.send(self.myAddress, ActorExitRequest())
        if message.how == "late":
            self.wakeupAfter(timedelta(seconds=message.after), sender)
        if message.how == "twice":
            self.send(sender, "once")
            self.send(sender, "twice")
        if message.how == "pid":
            self.send(sender, os.getpid())


class Stillborn(Actor):
    def __init__(self) -> None:
        super().__init__()
        raise RuntimeError("not today")


class Listener(Actor):
    """Forwards each message that comes as a pair (an address, a message) to that address, and keeps all others."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[Any] = []

    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802
        if type(message) is tuple:
            to, words = cast("tuple[Any, Any]", message)
            self.send(to, words)
        elif message == "heard":
            self.send(sender, list(self.heard))
        else:
            self.heard.append(message)
