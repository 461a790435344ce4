"""The messages between the application, the daemon and the fork server, and their encoding: a length, then a msgpack record.

Only processes that inherited an end of such a socket can use it, so there is no authentication. Everything here is pure but `DaemonSocket`, which works on
blocking and non-blocking sockets alike. The last part has the messages about nodes that run on other machines, which travel between actors.
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
    """A message between the application, the daemon and the fork server."""


# --- to the daemon and the fork server


class StartDaemon(DaemonMessage, frozen=True):
    """The first message: the key, where to listen, and what to import before anything is forked."""

    key: bytes
    bind: str
    port: int
    preload: list[str]
    capabilities: dict[str, str | int | float | bool]
    intensity: int
    period: float
    convention: str = ""
    """The address of the convention's leader; empty for a single machine."""

    def __repr__(self) -> str:
        return "Begin(…)"  # a key is in it


class StartProcess(DaemonMessage, frozen=True):
    """Start a process for a node; passed on to the fork server. `boot` is an encoded `NodeBoot`."""

    name: str
    boot: bytes
    requires: dict[str, str | int | float | bool]

    def __repr__(self) -> str:
        return f"StartHost({self.name})"


class SignalProcess(DaemonMessage, frozen=True):
    """Send a node's process a signal."""

    name: str
    signal: int


class FinishDaemon(DaemonMessage, frozen=True):
    """End everything in order, and then exit."""


class RejoinConvention(DaemonMessage, frozen=True):
    """The convention has lost this machine: register again, or, with `anew`, with a new Thespian system."""

    anew: bool


class DaemonPing(DaemonMessage, frozen=True):
    """Answered by a `DaemonPong` with the same number."""

    number: int


# --- from the fork server and the daemon


class ForkServerReady(DaemonMessage, frozen=True):
    """The fork server runs; `admin` is the pid of Thespian's admin."""

    pid: int
    admin: int


class SystemReady(DaemonMessage, frozen=True):
    """The system runs: the pids of its parts by name, and the port of its admin."""

    parts: dict[str, int]
    port: int
    took: float
    system: str


class ProcessForked(DaemonMessage, frozen=True):
    """A node's process was made."""

    name: str
    pid: int


class StartForwarded(DaemonMessage, frozen=True):
    """The request for a node's process went to another machine of the convention, which reports what becomes of it."""

    name: str


class MachineJoined(DaemonMessage, frozen=True):
    """A machine has joined the convention, with that Thespian system and that announcement."""

    id: str
    announcement: str
    system: str


class MachineAbsent(DaemonMessage, frozen=True):
    """A machine has left the convention, with that Thespian system."""

    id: str
    system: str


class ProcessGone(DaemonMessage, frozen=True):
    """A node's process has ended; `status` is None when it is unknown. `words` are its captured crash stacks."""

    name: str
    pid: int
    status: int | None
    words: str = ""


class ProcessNotStarted(DaemonMessage, frozen=True):
    """No process will be made for that node."""

    name: str
    why: str


class SystemReplaced(DaemonMessage, frozen=True):
    """A part of the Thespian system has ended, and the whole system was replaced."""

    part: str
    status: int | None
    took: float


class LogNote(DaemonMessage, frozen=True):
    """A line for the application's log."""

    level: int
    text: str
    node: str


class CrashMemory(DaemonMessage, frozen=True):
    """From a node's process, with a descriptor attached: the memory file for its crash stacks."""

    node: str


class ForeignNodeStarted(DaemonMessage, frozen=True):
    """From the process of a node that another machine asked for: the fork server does not know it."""

    node: str
    pid: int


class ProcessReaped(DaemonMessage, frozen=True):
    """From Thespian's admin: how one of its processes has ended."""

    pid: int
    status: int


class DaemonFailed(DaemonMessage, frozen=True):
    """The daemon's last message: why it ends."""

    why: str


class DaemonPong(DaemonMessage, frozen=True):
    """The answer to a `DaemonPing`."""

    number: int


encode_message: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[DaemonMessage]] = msgspec.msgpack.Decoder(
    reduce(cast("Any", operator).or_, DaemonMessage.__subclasses__())
)


def pack(message: DaemonMessage) -> bytes:
    """Encode a message with its length. Raises `ValueError` when it is too large."""
    body = encode_message(message)
    if len(body) > LARGEST:
        raise ValueError(f"{message!r} would have {len(body)} bytes, and a message has {LARGEST} at most")
    return framed(body)


def decode_message(body: bytes) -> DaemonMessage:
    """Decode a message. Raises `ValueError`."""
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a message: {error}") from error


class MessageUnpacker:
    """Splits a byte stream into messages. Raises `ValueError` for bytes that are none."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[DaemonMessage]:
        """The messages that are complete with these bytes."""
        self._buffer += data
        return map(decode_message, messages(self._buffer, LARGEST, "a message"))


class DaemonSocket:
    """One end of the socket, for processes without an event loop."""

    def __init__(self, sock: socket.socket) -> None:
        """The socket stays the caller's to close."""
        self.sock = sock
        self.over = False
        """Whether the other end is closed."""
        self._unpacker = MessageUnpacker()
        self._read: list[DaemonMessage] = []

    def fileno(self) -> int:
        """For selectors."""
        return self.sock.fileno()

    def send(self, message: DaemonMessage) -> None:
        """Send a whole message, waiting if need be. A no-op when the other end is closed."""
        data = memoryview(pack(message))
        while data and not self.over:
            try:
                data = data[self.sock.send(data) :]
            except BlockingIOError:
                select.select((), (self.sock,), ())
            except OSError:
                self.over = True

    def take(self) -> list[DaemonMessage]:
        """The messages that have arrived, without waiting."""
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
        """Wait for the next message. Raises `EOFError` when the other end is closed."""
        while not (found := self.take()):
            if self.over:
                raise EOFError("the other end is gone")
            select.select((self.sock,), (), ())
        first, *self._read = found
        return first


# --- Messages between the engine and the membership of an application and the machine hosts of other machines: placement, and what becomes of nodes.

MACHINE_HOST = "greenroom.machine_host"
"""The registered name of each machine's `MachineHost`, on that machine's own node."""


class NodeRefused(ActorError):
    """A machine does not accept a node; the message says why."""


class VersionMismatch(ActorError):
    """Two machines run different versions of greenroom; the message names both."""


class PlacementRequest(NamedTuple):
    """Engine to membership: choose a machine for this node. `local` is how many nodes the application's own machine has."""

    name: str
    requires: dict[str, Any]
    local: int


class NodePlaced(NamedTuple):
    """Membership to engine: the machine, and its machine host, which has reserved a place; the application's own machine when there is no machine host."""

    name: str
    machine: Machine
    system: str
    machine_host: Pid | None


class PlacementFailed(NamedTuple):
    """Membership to engine: no machine takes the node."""

    name: str
    error: Exception


class NodeReleased(NamedTuple):
    """Engine to membership: the node has ended, or is not wanted any more."""

    name: str


class SystemRenewed(NamedTuple):
    """Machine host to membership: the machine has a new Thespian system."""

    id: str
    system: str


class HostedNodeStarted(NamedTuple):
    """Machine host to engine: the node's process was made."""

    name: str
    os_pid: int


class HostedNodeEnded(NamedTuple):
    """Machine host to engine: the node's process has ended; `status` is None when it is unknown."""

    name: str
    status: int | None
    words: str
