"""What the application, the warden and the keeper tell each other, and the sockets that carry it: a length, and a msgpack record.

Only processes that were given a socket's end when they were made can speak on it. Pure but for `DaemonSocket`, which works on a blocking or a
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

    from greenroom.supervision.kernel.process_messages import Pid

    from .machines import Machine

LARGEST: Final = 16 * 1024 * 1024


class DaemonMessage(msgspec.Struct, frozen=True, tag=True):
    """A message between the application, the warden and the keeper."""


# --- to the warden


class StartDaemon(DaemonMessage, frozen=True):
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


class StartProcess(DaemonMessage, frozen=True):
    """To the keeper in the end: a process for a node. `boot` is what `hosting` reads."""

    name: str
    boot: bytes
    requires: dict[str, str | int | float | bool]

    def __repr__(self) -> str:
        return f"StartHost({self.name})"


class SignalProcess(DaemonMessage, frozen=True):
    """Send its process a signal."""

    name: str
    signal: int


class FinishDaemon(DaemonMessage, frozen=True):
    """In order: end everything, and then yourself."""


class RejoinConvention(DaemonMessage, frozen=True):
    """The convention does not have this machine: register again, `anew` with another Thespian system."""

    anew: bool


class DaemonPing(DaemonMessage, frozen=True):
    """Are you there?"""

    number: int


# --- from the keeper and the warden


class ForkServerReady(DaemonMessage, frozen=True):
    """The keeper runs."""

    pid: int
    admin: int


class SystemReady(DaemonMessage, frozen=True):
    """The system runs: the pids of its parts, by their names, and the port of its admin."""

    parts: dict[str, int]
    port: int
    took: float
    system: str


class ProcessForked(DaemonMessage, frozen=True):
    """A node's process was made."""

    name: str
    pid: int


class StartForwarded(DaemonMessage, frozen=True):
    """Another machine of the convention was asked for a node's process; that machine tells what becomes of it."""

    name: str


class MachineJoined(DaemonMessage, frozen=True):
    """A machine is in the convention with that Thespian system, and has announced this."""

    id: str
    announcement: str
    system: str


class MachineAbsent(DaemonMessage, frozen=True):
    """... is not any more, with that one."""

    id: str
    system: str


class ProcessGone(DaemonMessage, frozen=True):
    """A node's process has ended; `status` is None when that is not known. `words` are its last."""

    name: str
    pid: int
    status: int | None
    words: str = ""


class ProcessNotStarted(DaemonMessage, frozen=True):
    """There will be no process for that node."""

    name: str
    why: str


class SystemReplaced(DaemonMessage, frozen=True):
    """A part of the Thespian system has ended, and all of it was replaced."""

    part: str
    status: int | None
    took: float


class LogNote(DaemonMessage, frozen=True):
    """A line for the log."""

    level: int
    text: str
    node: str


class CrashMemory(DaemonMessage, frozen=True):
    """From a node's process, with a descriptor beside it: the memory that has its last words."""

    node: str


class ForeignNodeStarted(DaemonMessage, frozen=True):
    """From a process that has become the node which another machine wanted here: the keeper knows nothing of it."""

    node: str
    pid: int


class ProcessReaped(DaemonMessage, frozen=True):
    """From the admin: how a process of its has ended."""

    pid: int
    status: int


class DaemonFailed(DaemonMessage, frozen=True):
    """The last: why there is no warden any more."""

    why: str


class DaemonPong(DaemonMessage, frozen=True):
    """Yes."""

    number: int


encode_message: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[DaemonMessage]] = msgspec.msgpack.Decoder(
    reduce(cast("Any", operator).or_, DaemonMessage.__subclasses__())
)


def pack(message: DaemonMessage) -> bytes:
    """As bytes."""
    body = encode_message(message)
    if len(body) > LARGEST:
        raise ValueError(f"{message!r} would have {len(body)} bytes, and an order has {LARGEST} at most")
    return framed(body)


def decode_message(body: bytes) -> DaemonMessage:
    """The order that was encoded. Raises `ValueError`."""
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no order: {error}") from error


class MessageUnpacker:
    """Bytes in, orders out. Raises `ValueError` at what is none."""

    def __init__(self) -> None:
        """Nothing has come."""
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[DaemonMessage]:
        """The orders that are complete with these bytes."""
        self._buffer += data
        return map(decode_message, messages(self._buffer, LARGEST, "an order"))


class DaemonSocket:
    """One end of such a socket, for processes that have no event loop."""

    def __init__(self, sock: socket.socket) -> None:
        """It is not closed by this."""
        self.sock = sock
        self.over = False
        """Whether the other end is gone."""
        self._unpacker = MessageUnpacker()
        self._read: list[DaemonMessage] = []

    def fileno(self) -> int:
        """For selectors."""
        return self.sock.fileno()

    def send(self, message: DaemonMessage) -> None:
        """Send all of it, also when that means to wait; nothing when the other end is gone."""
        data = memoryview(pack(message))
        while data and not self.over:
            try:
                data = data[self.sock.send(data) :]
            except BlockingIOError:
                select.select((), (self.sock,), ())
            except OSError:
                self.over = True

    def take(self) -> list[DaemonMessage]:
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

    def next(self) -> DaemonMessage:
        """Wait for the next one; others may have come with it. Raises `EOFError`."""
        while not (found := self.take()):
            if self.over:
                raise EOFError("the other end is gone")
            select.select((self.sock,), (), ())
        first, *self._read = found
        return first


# --- What the landlord of a machine, the engine and the membership of an application tell each other about nodes that are placed elsewhere.

MACHINE_HOST = "greenroom.machine_host"
"""The name of every machine's, on the machine's own node."""


class NodeRefused(ActorError):
    """A machine does not take a node: why not."""


class VersionMismatch(ActorError):
    """Two machines run different versions of greenroom: both are named."""


class PlacementRequest(NamedTuple):
    """Engine to membership: where shall this node be? `local` is how many the application's own machine has."""

    name: str
    requires: dict[str, Any]
    local: int


class NodePlaced(NamedTuple):
    """Membership to engine: on that machine, whose landlord holds a place for it; on the application's own when there is no landlord."""

    name: str
    machine: Machine
    system: str
    machine_host: Pid | None


class PlacementFailed(NamedTuple):
    """... nowhere."""

    name: str
    error: Exception


class NodeReleased(NamedTuple):
    """Engine to membership: that node is over."""

    name: str


class SystemRenewed(NamedTuple):
    """Landlord to membership: that machine has a new Thespian system."""

    id: str
    system: str


class HostedNodeStarted(NamedTuple):
    """Landlord to engine: the process of a node was made there."""

    name: str
    os_pid: int


class HostedNodeEnded(NamedTuple):
    """Landlord to engine: it has ended; `status` is None when that is not known."""

    name: str
    status: int | None
    words: str
