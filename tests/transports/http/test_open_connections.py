"""Socket options of accepted connections."""

from __future__ import annotations

import asyncio
import socket

from greenroom import HttpConfig
from greenroom.transports.open_connections import set_socket_options


async def test_small_writes_do_not_wait_for_an_acknowledgement() -> None:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with socket.create_connection(listening.getsockname()):
            accepted, _ = listening.accept()
            transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted)
            set_socket_options(transport, HttpConfig())
            raw = transport.get_extra_info("socket")
            try:
                assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            finally:
                transport.abort()
