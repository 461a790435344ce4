"""The dialling end of a link without an event loop, for a guest: it lives in a process of a foreign Thespian system and must not block there.

Handshake and frames are those of `link`. `pump` reads and writes what is possible without waiting; it is called when the descriptor is ready, or from time to
time. An error ends the link, and is kept in `over`.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from typing import TYPE_CHECKING, Final

from .addresses import parse_address
from .framing import Handshake, LinkRefused, Unframer, batch, framed, frames, greeting

if TYPE_CHECKING:
    from collections.abc import Sequence

_READ: Final = 256 * 1024
_UNDER_WAY: Final = frozenset({errno.EINPROGRESS, errno.EALREADY, errno.EWOULDBLOCK, errno.EINTR})
_AT_ONCE: Final = 32
"""How many reads one `pump` does, so that a flood of data leaves its caller time for others."""


class LinkLost(ConnectionError):
    """The other end cannot be reached, or the connection is lost."""


class PollingLink:
    """One connection, from dialling to its end."""

    def __init__(self, address: str, key: bytes, name: str, *, kind: str, largest: int) -> None:
        """Begin to dial. Raises `LinkRefused` for an invalid address."""
        self._address = address
        self._handshake = Handshake(key, greeting(name, os.getpid(), kind=kind), dialling=True)
        self._largest = largest
        self._out = bytearray(framed(self._handshake.first()))
        self._unframer: Unframer | None = None
        self._connected = False
        self.up = False
        """Whether the handshake is done and the other end has accepted."""
        self.over: LinkLost | LinkRefused | None = None
        """Why it is over, once it is."""
        self._where = parse_address(address)
        if isinstance(self._where, str):
            family = socket.AF_UNIX
        else:
            family = socket.AF_INET6 if ":" in self._where[0] else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM | getattr(socket, "SOCK_CLOEXEC", 0))
        self._socket.settimeout(0)
        self.pump()  # a unix socket connects at once

    def __repr__(self) -> str:
        return f"<PollingLink to {self._address}{', up' if self.up else ''}>"

    def fileno(self) -> int:
        """The descriptor to watch. It is readable when there is something to do, except for writing what is `waiting`."""
        return self._socket.fileno()

    @property
    def waiting(self) -> int:
        """Bytes that are not written yet; at least one before the connection is made."""
        return len(self._out) if self._connected else max(1, len(self._out))

    @property
    def proven(self) -> bool:
        """Whether both ends have proved that they hold the key."""
        return self._handshake.done

    def post(self, items: Sequence[bytes]) -> None:
        """Send encoded items, once it is up. A later `pump` writes what cannot be written now."""
        for frame in frames(batch(items), self._seal):
            self._out += frame

    def pump(self) -> list[bytes]:
        """Read and write what is possible. Returns the payloads that have come; the link may be over after them."""
        found: list[bytes] = []
        if self.over is not None:
            return found
        try:
            if self._connect():
                self._write()
                for _ in range(_AT_ONCE):
                    data = self._read()
                    if data is None:
                        break
                    self._take(data, found)
                self._write()  # the handshake's reply
        except LinkRefused as error:
            self.over = error
            self.close()
        except OSError as error:
            self.over = error if isinstance(error, LinkLost) else LinkLost(f"{self._address}: {error}")
            self.close()
        return found

    def flush(self) -> None:
        """Write what is possible."""
        if self.over is None and self._connected:
            try:
                self._write()
            except OSError as error:
                self.over = LinkLost(f"{self._address}: {error}")
                self.close()

    def wait(self, seconds: float) -> None:
        """Block until there is something to do or the time is over; only for Thespian's simple system, which has no wakeups."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if self.waiting else 0))
        poll.poll(max(0.0, seconds) * 1000)

    def close(self) -> None:
        """Close at once. Calling it again is a no-op."""
        self.up = False
        self._socket.close()

    # --- the socket

    def _connect(self) -> bool:
        if self._connected:
            return True
        try:
            found = self._socket.connect_ex(self._where)
        except (TypeError, ValueError) as error:  # a name that cannot be a host's
            raise LinkRefused(f"{self._address!r} is no address: {error}") from error
        if found in _UNDER_WAY and not (found == errno.EAGAIN and self._socket.family == socket.AF_UNIX):
            return False
        if found not in (0, errno.EISCONN):
            raise LinkLost(f"{self._address}: {os.strerror(found)}")
        self._connected = True
        return True

    def _write(self) -> None:
        while self._out:
            try:
                sent = self._socket.send(self._out[:_READ])
            except (BlockingIOError, InterruptedError):
                return
            del self._out[:sent]

    def _read(self) -> bytes | None:
        try:
            data = self._socket.recv(_READ)
        except (BlockingIOError, InterruptedError):
            return None
        if not data:
            raise LinkLost(f"{self._address}: the other end closed it")
        return data

    # --- received data

    def _take(self, data: bytes, found: list[bytes]) -> None:
        handshake = self._handshake
        if self._unframer is None:
            for answer in handshake.feed(data):
                self._out += answer
            if not handshake.done:
                return
            self._seal, back = handshake.seals()
            self._unframer = Unframer(back, self._largest)
            data = bytes(handshake.rest)
        for payload in self._unframer.feed(data):
            if self.up:
                found.append(payload)
            elif payload:  # the listening end decides at the end of the handshake
                raise LinkRefused(f"refused by the other end: {payload.decode(errors='replace')}")
            else:
                self.up = True
