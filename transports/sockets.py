"""What the kernel is told of a connection: how soon it is to find that a peer is gone, how much to take ahead, what to forget."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import BaseTransport

    from .http_config import HttpConfig

AHEAD: Final = 16 * 1024
"""How many bytes the kernel takes for a connection beyond what is on its way; it would take megabytes for who does not read."""
_FORGET: Final = struct.pack("ii", 1, 0)


def prepare(transport: BaseTransport, config: HttpConfig) -> None:
    """Have it noticed when the peer is gone, or does not read."""
    seconds = config.write_timeout
    with suppress(OSError):  # of a connection that is gone already
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, AHEAD)
        if hasattr(
            socket, "TCP_USER_TIMEOUT"
        ):  # for what the kernel holds; it gives up in silence, so we are to be first
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, round(seconds * 1400)))
        if hasattr(socket, "TCP_KEEPIDLE"):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(config.heartbeat)))
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(seconds / 2)))


def forget(transport: BaseTransport) -> None:
    """Let the kernel forget what was not read: else it goes on for whoever does not read, who never hears of the end."""
    with suppress(OSError):  # it is closed already
        raw: socket.socket = transport.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _FORGET)


def is_broken(transport: BaseTransport) -> bool:
    """Whether the kernel knows that the peer is gone, which a loop does not hear of that has stopped reading."""
    with suppress(OSError):
        raw: socket.socket = transport.get_extra_info("socket")
        return raw.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
    return True
