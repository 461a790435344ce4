"""What of ours runs in somebody else's Thespian system so that an actor of theirs can be asked: who watches it, and who asks for us.

Both are small and plain. Nothing here may raise: Thespian would run the handler once more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from .thespian_door import Actor, ChildActorExited

if TYPE_CHECKING:
    from .thespian_door import Address

_tickets: Final = count(1)


@dataclass
class Employ:
    """To an attendant: whom to keep. A class, or the name of one."""

    kind: Any


@dataclass
class WhereIs:
    """To an attendant: where is the actor? From now on the sender hears when it ends."""


@dataclass
class Here:
    """From an attendant: there; or why there is none."""

    address: Address | None
    why: str = ""


@dataclass
class Done:
    """To an attendant: the sender waits for nothing any more."""


@dataclass
class Gone:
    """From an attendant: it has ended."""


@dataclass
class Question:
    """To an asker: who is asked (by an address, or who knows it), and what."""

    address: Address | None
    attendant: Address | None
    message: Any
    ticket: int = field(default_factory=lambda: next(_tickets))


@dataclass
class Come:
    """From an asker: the first answer to a question."""

    ticket: int
    reply: Any


class Attendant(Actor):
    """Keeps one actor of a class: makes it when it is asked for, and tells whoever waits for it when it has ended."""

    def __init__(self) -> None:
        """Nobody is employed yet."""
        super().__init__()
        self._kind: Any = None
        self._child: Address | None = None
        self._waiting: list[Address] = []

    def receiveMessage(self, message: Any, sender: Address) -> None:  # noqa: N802 - Thespian's name
        """Whatever comes."""
        match message:
            case Employ(kind):
                self._kind = kind
            case WhereIs():
                self._tell(sender)
            case Done():
                self._waiting = [each for each in self._waiting if each != sender]
            case ChildActorExited() if self._child is not None and message.childAddress == self._child:
                self._child = None
                waiting, self._waiting = self._waiting, []
                for each in waiting:
                    self.send(each, Gone())
            case _:
                pass

    def _tell(self, sender: Address) -> None:
        if self._child is None:
            try:
                self._child = self.createActor(self._kind)
            except Exception as error:  # noqa: BLE001 - whatever its module raises when it is imported; whoever asks is told
                self.send(sender, Here(None, f"{type(error).__name__}: {error}"))
                return
        self._waiting.append(sender)
        self.send(sender, Here(self._child))


class Asker(Actor):
    """Asks one question, for a program that has no endpoint of its own: in the simple system. What else comes later is nobody's."""

    def __init__(self) -> None:
        """Nothing was asked."""
        super().__init__()
        self._question: Question | None = None
        self._for: Address | None = None

    def receiveMessage(self, message: Any, sender: Address) -> None:  # noqa: N802 - Thespian's name
        """The question, and then what comes of it."""
        question = self._question
        if question is None:
            if isinstance(message, Question):
                self._question, self._for = message, sender
                first = message.address or message.attendant
                if first is not None:
                    self.send(first, message.message if message.address else WhereIs())
            return
        if self._for is None:
            return
        if isinstance(message, Here) and message.address is not None and question.attendant is not None:
            self.send(message.address, question.message)
            return
        asked, self._for = self._for, None
        self.send(asked, Come(question.ticket, message))
