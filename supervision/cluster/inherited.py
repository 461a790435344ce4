"""What every process below a warden has from it, since each is a fork of a fork of it: the key of the nodes, and two sockets.

One socket is the keeper's, for its orders. The other takes notes from anybody: a line for the application's log, which is dropped when
there is no room for it, so that nobody ever waits for a reader.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTE_BYTES: Final = 2_000
NODE_VARIABLE: Final = "GREENROOM_NODE"
"""In the environment of whatever code in a node executes: whose it is."""


def name_of_node(name: str) -> str:
    """What the process of that node is called; and so is a fork of it that was made without Python's knowledge."""
    return f"gr-{name}"


def name_of_forks(pid: int) -> str:
    """What a process is called that code in the node of process `pid` has forked."""
    return f"gr-of-{pid}"


class Inherited:
    """Set in the warden, read below it."""

    key: bytes = b""
    keeper: socket.socket | None = None
    notes: socket.socket | None = None
    node: str = ""
    """Whose process this is by now, or that of whatever code has forked it: a node's, by its name."""
    pid: int = 0
    """Of that node's process itself."""
    private: Final[set[int]] = set()
    """Descriptors of the warden's alone: closed in whatever it forks."""
    environment: Final[dict[str, str | None]] = {}
    """What the warden has changed in the environment, as it was before: nodes get that back."""


class _Note(msgspec.Struct, array_like=True):
    level: int
    text: str
    node: str


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Note)


def take_note(level: int, text: str) -> None:
    """Have it logged at home, if there is room."""
    if Inherited.notes is not None:
        with contextlib.suppress(OSError, ValueError):
            Inherited.notes.send(pack_note(level, text))


def pack_note(level: int, text: str) -> bytes:
    """A note, as bytes."""
    return _encoder.encode(_Note(level, text[-NOTE_BYTES:], Inherited.node))


def read_note(data: bytes) -> tuple[int, str, str]:
    """What somebody has noted. Raises `ValueError`."""
    try:
        note = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error
    return note.level, note.text, note.node


def change_environment(name: str, value: str) -> None:
    """For Thespian's sake; a node's code does not see it."""
    Inherited.environment.setdefault(name, os.environ.get(name))
    os.environ[name] = value


def restore_environment() -> None:
    """In a node's process."""
    for name, value in Inherited.environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def close_private() -> None:
    """In a process that was forked below the warden, or by it: what is its parent's alone.

    A listening socket is that always; Thespian leaves the admin's to its logger, which then keeps the port when the admin is gone. Their
    numbers stay taken, since some object may still close them.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for descriptor in (*Inherited.private, *_listening()):
        with contextlib.suppress(OSError):
            os.dup2(null, descriptor, inheritable=False)
    os.close(null)
    Inherited.private.clear()


def _listening() -> Iterator[int]:
    for entry in os.listdir("/dev/fd"):  # noqa: PTH208 - an iterator would have a descriptor of its own
        with contextlib.suppress(OSError, ValueError):
            number = int(entry)
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as found:
                    if found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        yield number
