"""What the application, the warden and the keeper tell each other, and the sockets that carry it: a length, and a msgpack record.

Only processes that were given a socket's end when they were made can speak on it. Pure but for `Orders`, which works on a blocking or a
non-blocking socket alike.
"""

from __future__ import annotations

import operator
import select
import socket
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from greenroom.supervision.kernel.errors import ActorError

from .framing import framed, messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.supervision.kernel.messages import Pid

    from .machines import Machine

LARGEST: Final = 16 * 1024 * 1024


class Order(msgspec.Struct, frozen=True, tag=True):
    """A message between the application, the warden and the keeper."""


# --- to the warden


class Begin(Order, frozen=True):
    """The first: with whose key, where to listen, what to import before anything is forked."""

    key: bytes
    bind: str
    port: int
    preload: list[str]
    capabilities: dict[str, str | int | float | bool]
    intensity: int
    period: float
    convention: str = ""
    """Where the leader of a convention listens; none when the machine is alone."""

    def __repr__(self) -> str:
        return "Begin(…)"  # a key is in it


class StartHost(Order, frozen=True):
    """To the keeper in the end: a process for a node. `boot` is what `hosting` reads."""

    name: str
    boot: bytes
    requires: dict[str, str | int | float | bool]

    def __repr__(self) -> str:
        return f"StartHost({self.name})"


class EndHost(Order, frozen=True):
    """Send its process a signal."""

    name: str
    signal: int


class Finish(Order, frozen=True):
    """In order: end everything, and then yourself."""


class Rejoin(Order, frozen=True):
    """The convention does not have this machine: register again, `anew` with another Thespian system."""

    anew: bool


class Ping(Order, frozen=True):
    """Are you there?"""

    number: int


# --- from the keeper and the warden


class Hello(Order, frozen=True):
    """The keeper runs."""

    pid: int
    admin: int


class Ready(Order, frozen=True):
    """The system runs: the pids of its parts, by their names, and the port of its admin."""

    parts: dict[str, int]
    port: int
    took: float
    system: str


class Born(Order, frozen=True):
    """A node's process was made."""

    name: str
    pid: int


class Sent(Order, frozen=True):
    """Another machine of the convention was asked for a node's process; that machine tells what becomes of it."""

    name: str


class Joined(Order, frozen=True):
    """A machine is in the convention with that Thespian system, and has announced this."""

    id: str
    announcement: str
    system: str


class Absent(Order, frozen=True):
    """... is not any more, with that one."""

    id: str
    system: str


class Gone(Order, frozen=True):
    """A node's process has ended; `status` is None when that is not known. `words` are its last."""

    name: str
    pid: int
    status: int | None
    words: str = ""


class NotStarted(Order, frozen=True):
    """There will be no process for that node."""

    name: str
    why: str


class Replaced(Order, frozen=True):
    """A part of the Thespian system has ended, and all of it was replaced."""

    part: str
    status: int | None
    took: float


class Note(Order, frozen=True):
    """A line for the log."""

    level: int
    text: str
    node: str


class LastWords(Order, frozen=True):
    """From a node's process, with a descriptor beside it: the memory that has its last words."""

    node: str


class Aboard(Order, frozen=True):
    """From a process that has become the node which another machine wanted here: the keeper knows nothing of it."""

    node: str
    pid: int


class Reaped(Order, frozen=True):
    """From the admin: how a process of its has ended."""

    pid: int
    status: int


class Failed(Order, frozen=True):
    """The last: why there is no warden any more."""

    why: str


class Pong(Order, frozen=True):
    """Yes."""

    number: int


encoded: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[Order]] = msgspec.msgpack.Decoder(
    reduce(cast("Any", operator).or_, Order.__subclasses__())
)


def pack(order: Order) -> bytes:
    """As bytes."""
    body = encoded(order)
    if len(body) > LARGEST:
        raise ValueError(f"{order!r} would have {len(body)} bytes, and an order has {LARGEST} at most")
    return framed(body)


def decoded(body: bytes) -> Order:
    """The order that was encoded. Raises `ValueError`."""
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no order: {error}") from error


class Unpacker:
    """Bytes in, orders out. Raises `ValueError` at what is none."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Order]:
        """The orders that are complete with these bytes."""
        self._buffer += data
        return map(decoded, messages(self._buffer, LARGEST, "an order"))


class Orders:
    """One end of such a socket, for processes that have no event loop."""

    def __init__(self, sock: socket.socket) -> None:
        """It is not closed by this."""
        self.sock = sock
        self.over = False
        """Whether the other end is gone."""
        self._unpacker = Unpacker()
        self._read: list[Order] = []

    def fileno(self) -> int:
        """For selectors."""
        return self.sock.fileno()

    def send(self, order: Order) -> None:
        """Send all of it, also when that means to wait; nothing when the other end is gone."""
        data = memoryview(pack(order))
        while data and not self.over:
            try:
                data = data[self.sock.send(data) :]
            except BlockingIOError:
                select.select((), (self.sock,), ())
            except OSError:
                self.over = True

    def take(self) -> list[Order]:
        """What is there, without waiting: first what came with the one that was waited for."""
        left, self._read = self._read, []
        try:
            data = self.sock.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return left
        except OSError:
            data = b""
        self.over = self.over or not data
        return [*left, *self._unpacker.feed(data)]

    def next(self) -> Order:
        """Wait for the next one; others may have come with it. Raises `EOFError`."""
        while not (found := self.take()):
            if self.over:
                raise EOFError("the other end is gone")
            select.select((self.sock,), (), ())
        first, *self._read = found
        return first


# --- What the landlord of a machine, the engine and the membership of an application tell each other about nodes that are placed elsewhere.

LANDLORD = "greenroom.landlord"
"""The name of every machine's, on the machine's own node."""


class NoRoom(ActorError):
    """A machine does not take a node: why not."""


class WrongVersion(ActorError):
    """Two machines run different versions of greenroom: both are named."""


class Place(NamedTuple):
    """Engine to membership: where shall this node be? `local` is how many the application's own machine has."""

    name: str
    requires: dict[str, Any]
    local: int


class Placed(NamedTuple):
    """Membership to engine: on that machine, whose landlord holds a place for it; on the application's own when there is no landlord."""

    name: str
    machine: Machine
    system: str
    landlord: Pid | None


class NotPlaced(NamedTuple):
    """... nowhere."""

    name: str
    error: Exception


class Departed(NamedTuple):
    """Engine to membership: that node is over."""

    name: str


class Renewed(NamedTuple):
    """Landlord to membership: that machine has a new Thespian system."""

    id: str
    system: str


class Lodged(NamedTuple):
    """Landlord to engine: the process of a node was made there."""

    name: str
    os_pid: int


class Left(NamedTuple):
    """Landlord to engine: it has ended; `status` is None when that is not known."""

    name: str
    status: int | None
    words: str
