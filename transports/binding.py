"""An address that is listened on, for longer than any one listener lives.

The sockets are bound before anything starts, so a port that is taken is an error at once, and port 0 is a real one. A listener
accepts on copies of them: while it is being restarted, those who connect wait instead of being refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from typing import TYPE_CHECKING, Final

from greenroom.errors import GreenroomError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .shares import Shares

_WHY: Final = {
    errno.EADDRINUSE: "somebody listens there already: stop it, or choose another port (0 takes any that is free)",
    errno.EACCES: "this user may not: ports below 1024 are for root",
    errno.EADDRNOTAVAIL: "no interface of this machine has that address",
}


class CannotListen(GreenroomError, OSError):
    """The address cannot be listened on: which one, and why."""


class Binding:
    """The sockets of one host and port."""

    def __init__(self, host: str, port: int, *, backlog: int = 2048, send_buffer: int | None = None) -> None:
        """Binds at once, and listens. Raises `CannotListen`."""
        self.host = host
        self.port = port
        self._backlog = backlog
        self._send_buffer = send_buffer
        self._sockets: list[socket.socket] = []
        self._for_good = False
        self.shares: Shares | None = None
        """What each process has that accepts on these sockets, if there are several."""
        self.open()

    @classmethod
    def of(cls, sockets: Sequence[socket.socket], shares: Shares) -> Binding:
        """One whose sockets another process has bound, so that several accept on them."""
        binding = cls.__new__(cls)
        binding.host, binding.port = sockets[0].getsockname()[:2]
        binding.shares = shares
        binding._sockets = list(sockets)  # noqa: SLF001 - its own class
        binding._for_good = True  # noqa: SLF001 - as above; another process binds
        return binding

    def __repr__(self) -> str:
        return f"<Binding {self.host}:{self.port}{'' if self._sockets else ' closed'}>"

    @property
    def addresses(self) -> Sequence[tuple[str, int]]:
        """The numbers that it really has."""
        return [each.getsockname()[:2] for each in self._sockets]

    def open(self) -> None:
        """Bind, unless it is. One that was closed gets the port again that it had. Raises `CannotListen`."""
        if self._sockets:
            return
        if self._for_good:
            why = "were shut down" if self.shares is None else "were closed, and are another process's to bind"
            raise CannotListen(errno.EBADF, f"the sockets of {self.host}:{self.port} {why}")
        try:
            found = socket.getaddrinfo(self.host or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            seen: set[str] = set()
            for family, _, _, _, where in found:
                host = str(where[0])
                if host not in seen:
                    seen.add(host)
                    self._sockets.append(self._listen(family, host, alone=len(found) > 1))
                    self.port = self._sockets[0].getsockname()[1]
        except OSError as error:
            self.close()
            why = _WHY.get(error.errno or 0, error.strerror or str(error))
            raise CannotListen(error.errno, f"cannot listen on {self.host}:{self.port}: {why}") from None

    def _listen(self, family: int, host: str, *, alone: bool) -> socket.socket:
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            if os.name == "posix":  # elsewhere the option lets two servers share a port
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, alone)
            if self._send_buffer is not None:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
            listening.bind((host, self.port))
            listening.listen(self._backlog)
            listening.setblocking(False)  # noqa: FBT003 - its only argument
        except BaseException:
            listening.close()
            raise
        return listening

    def copies(self) -> list[socket.socket]:
        """Sockets to accept on, for whoever asks to close."""
        self.open()
        return [each.dup() for each in self._sockets]

    def close(self) -> None:
        """Listen no more: who connects from now on is refused, once the copies are closed too."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.close()

    def shut_down(self) -> None:
        """Listen no more and never again, in all processes that have copies: who connects is refused at once."""
        self._for_good = True
        for each in self._sockets:
            # A copy in a process that is busy, or hangs, would have the kernel take connections that are never accepted. macOS does not know this:
            # there each process closes its own.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self.close()
