"""Requests to an actor of a user's own Thespian system, from a thread of this program.

Thespian's `ask` returns the next message that comes, which may be a late reply to an earlier request. So each request has a temporary endpoint of its own, which
has received nothing before and is not read afterwards. A request has one outcome: the reply, or one of the errors below.

An actor given as a class is made by the first request, as the child of an `ActorWatcher`: a waiting caller gets an error at once when the actor ends, and the next
request makes another one. Of an actor given by its address, Thespian tells the end only to its parent: later callers get an error at once, and a caller that is
waiting when it ends waits until its timeout.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision.kernel.errors import ActorError

from .thespian_patches import (
    Actor,
    ActorAddress,
    ActorExitRequest,
    ActorSystemException,
    ChildActorExited,
    PoisonMessage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from .thespian_patches import ActorSystem

TIMEOUT: Final = 30.0
_LOOK: Final = 0.5
"""How often a waiting caller checks `unwanted`, in seconds."""
_EARLY: Final = 0.9
"""Thespian reports no undeliverable message: `ask` just returns before its time is over. Less than this share of the time counts as that."""
_one_at_a_time: Final = threading.RLock()
"""The simple system runs actors in the calling thread, and has a single endpoint."""


class ForeignActorError(ActorError):
    """A request to an actor of a Thespian system has no reply."""

    def __init__(self, who: str, *more: Any) -> None:
        """`who` names the actor."""
        super().__init__(who, *more)
        self.who = who


class ActorPoisoned(ForeignActorError):
    """The actor raised at the message both times that Thespian delivered it. `details` is the traceback."""

    def __init__(self, who: str, details: str | None) -> None:
        super().__init__(who, details)
        self.details = details or ""

    @property
    def reason(self) -> str:
        """The last line of the traceback."""
        return next(
            (line.strip() for line in reversed(self.details.splitlines()) if line.strip()), "it did not say why"
        )

    def __str__(self) -> str:
        return f"{self.who} has failed at the message: {self.reason}"


class ActorGone(ForeignActorError):
    """The actor does not exist, or has ended without a reply."""

    def __str__(self) -> str:
        return f"{self.who} is not there, or has ended before it answered"


class ActorSilent(ForeignActorError):
    """The actor has not replied in time."""

    def __init__(self, who: str, seconds: float) -> None:
        """`seconds` is the timeout."""
        super().__init__(who, seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.who} has not answered within {self.seconds:g} s"


class ActorNotMade(ForeignActorError):
    """The actor could not be made."""

    def __init__(self, who: str, why: str) -> None:
        """`why` is Thespian's error."""
        super().__init__(who, why)
        self.why = why

    def __str__(self) -> str:
        return f"{self.who} cannot be started in its Thespian system: {self.why}"


class ForeignActor:
    """One actor. Its methods can be called from any thread, and from several at once."""

    def __init__(self, system: Any, actor: Any) -> None:
        """`system` is its `ActorSystem`. `actor` is its address, or the class of an actor to make: the class itself, or `"module.Class"`."""
        self._system: ActorSystem = system
        self._address = actor if isinstance(actor, ActorAddress) else None
        self._kind: type | str | None = None if isinstance(actor, ActorAddress) else actor
        if self._address is None and not isinstance(actor, type | str):
            raise TypeError(f"an actor is its address, its class, or 'module.Class', not {actor!r}")
        self._spelled = "" if self._kind is None else _class_name(self._kind)
        self._name = self._spelled.rpartition(".")[2] or "the actor"  # error messages do not show its address
        self._simple = is_simple(system)
        self._watcher: ActorAddress | None = None
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<ForeignActor {self._name}>"

    def ask(self, message: Any, timeout: float = TIMEOUT, *, unwanted: Callable[[], object] = bool) -> Any:
        """Send a message and wait for the reply. Raises a `ForeignActorError`.

        `unwanted` is called about twice a second; when it returns true, the wait is over.
        """
        until = time.monotonic() + timeout
        if self._simple:
            return self._ask_here(message, timeout, until)
        with private_endpoint(self._system) as mine:
            try:
                address = self._address or self._present(mine, timeout, until)
                reply = _send(mine, address, message, until, unwanted)
            except ActorSystemException:
                raise ActorGone(self._name) from None
            finally:
                if self._watcher is not None:
                    with suppress(ActorSystemException):  # it may have ended as well
                        mine.tell(self._watcher, StopWaiting())
        if reply is None:
            raise ActorSilent(self._name, timeout) if time.monotonic() >= until or unwanted() else ActorGone(self._name)
        return self._read(reply)

    def close(self) -> None:
        """End the actor, if it was made here. The next request makes another one."""
        with self._lock:
            watcher, self._watcher = self._watcher, None
        if watcher is None:
            return
        if self._simple:
            with _one_at_a_time:
                self._system.tell(watcher, ActorExitRequest())
            return
        with private_endpoint(self._system) as mine, suppress(ActorSystemException):  # it may have ended before
            mine.tell(watcher, ActorExitRequest())

    def _read(self, reply: Any) -> Any:
        if isinstance(reply, WatchedActorEnded):
            raise ActorGone(self._name)
        if isinstance(reply, PoisonMessage):
            raise ActorPoisoned(self._name, reply.details)
        return reply

    # --- in a system of processes

    def _present(self, mine: ActorSystem, timeout: float, until: float) -> ActorAddress:
        """The address of the actor, made if need be. From now on the watcher tells this endpoint when it ends."""
        found: Any = None
        for _ in range(2):
            watcher = self._ensure_watcher(mine)
            found = _send(mine, watcher, LocateActor(), until, bool)
            if isinstance(found, ActorLocation) and found.address is not None:
                return found.address
            if found is not None:
                break
            if time.monotonic() >= until:
                raise ActorSilent(self._name, timeout)
            with self._lock:  # the watcher itself has ended, perhaps with its system: make another one, once
                if self._watcher is watcher:
                    self._watcher = None
        if isinstance(found, WatchedActorEnded):
            raise ActorNotMade(
                self._name, "it ended at once: its module has to be importable there, and its __init__ must not raise"
            )
        raise ActorNotMade(self._name, found.why if isinstance(found, ActorLocation) else "the system does not answer")

    def _ensure_watcher(self, mine: ActorSystem) -> ActorAddress:
        with self._lock:
            if self._watcher is None:
                try:
                    self._watcher = mine.createActor(ActorWatcher)
                except (ActorSystemException, ImportError) as error:
                    raise ActorNotMade(
                        self._name,
                        f"{error} (greenroom has to be importable there: otherwise make the actor, and give its address)",
                    ) from error
                spec = self._kind if self._simple else self._spelled
                mine.tell(self._watcher, KeepActor(spec))
            return self._watcher

    # --- in the simple system, which runs in this thread

    def _ask_here(self, message: Any, timeout: float, until: float) -> Any:
        system = self._system
        with _one_at_a_time:
            asker = system.createActor(ActorRequester)
            try:
                question = ActorQuestion(
                    self._address, None if self._address else self._ensure_watcher(system), message
                )
                got = system.ask(asker, question, timeout)
                while got is not None and not (isinstance(got, ActorReply) and got.ticket == question.ticket):
                    got = system.listen(max(0.0, until - time.monotonic()))
            finally:
                system.tell(asker, ActorExitRequest())
            if (
                got is None
                and self._watcher is not None
                and not isinstance(system.ask(self._watcher, LocateActor(), timeout), ActorLocation)
            ):
                self._watcher = None  # the watcher has ended: the next request makes another one
        if got is None:  # all that could run has run
            raise ActorSilent(self._name, timeout)
        if isinstance(got.reply, ActorLocation):
            raise ActorNotMade(self._name, got.reply.why)
        return self._read(got.reply)


def _send(mine: ActorSystem, address: ActorAddress, message: Any, until: float, unwanted: Callable[[], object]) -> Any:
    """The reply, or None. A return before the time is over means that the message could not be delivered."""
    left = max(0.0, until - time.monotonic())
    first_wait = min(_LOOK, left)
    before = time.monotonic()
    reply = mine.ask(address, message, first_wait)
    if reply is None and time.monotonic() - before < first_wait * _EARLY:
        return None
    while reply is None and not unwanted() and (left := until - time.monotonic()) > 0:
        reply = mine.listen(min(_LOOK, left))
    return reply


@contextmanager
def private_endpoint(system: ActorSystem) -> Generator[ActorSystem]:
    """A temporary endpoint, closed however the block ends, with its sockets: Thespian's `private` leaves it open after an exception, and its sockets always."""
    private = system.private()
    mine = private.__enter__()
    transport: Any = getattr(getattr(mine, "_systemBase", None), "transport", None)
    try:
        yield mine
    finally:
        kept: Mapping[Any, Any] = getattr(transport, "_openSockets", {})
        for idle in tuple(kept.values()):
            idle.close()
        private.__exit__(None, None, None)


def is_simple(system: ActorSystem) -> bool:
    """Whether the system runs actors in the calling thread. An `ActorSystem` that joined an existing one shows it only by the class of its base."""
    return type(getattr(system, "_systemBase", None)).__module__.endswith(".simpleSystemBase")


def _class_name(kind: type | str) -> str:
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


# --- The actors that run in a user's Thespian system: the watcher of an actor that was made here, and the requester for the simple system.
# Both are small. They must not raise: Thespian would deliver the message once more.

_tickets: Final = count(1)


@dataclass
class KeepActor:
    """To a watcher: the class of its actor, or the name of the class."""

    kind: Any


@dataclass
class LocateActor:
    """To a watcher: what is the actor's address? From now on the sender is told when it ends."""


@dataclass
class ActorLocation:
    """From a watcher: the address, or why there is no actor."""

    address: ActorAddress | None
    why: str = ""


@dataclass
class StopWaiting:
    """To a watcher: the sender waits for no reply any more."""


@dataclass
class WatchedActorEnded:
    """From a watcher: the actor has ended."""


@dataclass
class ActorQuestion:
    """To a requester: the actor's address, or the watcher that knows it, and the message to send."""

    address: ActorAddress | None
    watcher: ActorAddress | None
    message: Any
    ticket: int = field(default_factory=lambda: next(_tickets))


@dataclass
class ActorReply:
    """From a requester: the first reply."""

    ticket: int
    reply: Any


class ActorWatcher(Actor):
    """Makes one actor when it is asked for, and tells waiting senders when it has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._kind: Any = None
        self._child: ActorAddress | None = None
        self._waiting: list[ActorAddress] = []

    def receiveMessage(self, message: Any, sender: ActorAddress) -> None:  # noqa: N802 - Thespian's name
        """Handle one message."""
        match message:
            case KeepActor(kind):
                self._kind = kind
            case LocateActor():
                self._tell(sender)
            case StopWaiting():
                self._waiting = [each for each in self._waiting if each != sender]
            case ChildActorExited() if self._child is not None and message.childAddress == self._child:
                self._child = None
                waiting, self._waiting = self._waiting, []
                for each in waiting:
                    self.send(each, WatchedActorEnded())
            case _:
                pass

    def _tell(self, sender: ActorAddress) -> None:
        if self._child is None:
            try:
                self._child = self.createActor(self._kind)
            except Exception as error:  # noqa: BLE001 - its module may raise anything when it is imported; the sender gets that
                self.send(sender, ActorLocation(None, f"{type(error).__name__}: {error}"))
                return
        self._waiting.append(sender)
        self.send(sender, ActorLocation(self._child))


class ActorRequester(Actor):
    """Makes one request for a program that has no endpoint of its own, in the simple system. Later messages are dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._question: ActorQuestion | None = None
        self._for: ActorAddress | None = None

    def receiveMessage(self, message: Any, sender: ActorAddress) -> None:  # noqa: N802 - Thespian's name
        """The first message is the question, the next ones its replies."""
        question = self._question
        if question is None:
            if isinstance(message, ActorQuestion):
                self._question, self._for = message, sender
                first = message.address or message.watcher
                if first is not None:
                    self.send(first, message.message if message.address else LocateActor())
            return
        if self._for is None:
            return
        if isinstance(message, ActorLocation) and message.address is not None and question.watcher is not None:
            self.send(message.address, question.message)
            return
        asked, self._for = self._for, None
        self.send(asked, ActorReply(question.ticket, message))
