"""A socket to a host: its addresses tried one after another, each with a head start before the next (Happy Eyeballs, RFC 8305).

asyncio can do this as well, but forgets a socket now and then when it is cancelled in the moment of success. Here all that were made are
in one list, and all but the one that is used are closed, however it ends.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

HEAD_START: Final = 0.25
"""Seconds that an address has before the next is tried as well."""
_Target: TypeAlias = "tuple[int, tuple[str, int] | tuple[str, int, int, int]]"


async def dial(host: str, port: int) -> socket.socket:
    """Raises `OSError` when nobody answers at any of its addresses."""
    loop = asyncio.get_running_loop()
    targets = await _resolved(loop, host, port)
    made: list[socket.socket] = []
    try:
        chosen = await (_attempt(loop, targets[0], made) if len(targets) == 1 else _race(loop, targets, made))
        made.remove(chosen)
    finally:
        for each in made:
            each.close()
    return chosen


async def _resolved(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[_Target]:
    """Its addresses, the families taking turns."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return [(socket.AF_INET if address.version == 4 else socket.AF_INET6, (host, port))]  # noqa: PLR2004 - IPv4
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    families: dict[int, list[_Target]] = {}
    for family, _, _, _, where in found:
        families.setdefault(family, []).append((family, where))  # type: ignore[arg-type]  # of a family that is built without, a tuple of bytes
    return [each for each in chain.from_iterable(zip_longest(*families.values())) if each is not None]


async def _attempt(loop: asyncio.AbstractEventLoop, target: _Target, made: list[socket.socket]) -> socket.socket:
    family, where = target
    new = socket.socket(family, socket.SOCK_STREAM)
    made.append(new)
    new.setblocking(False)  # noqa: FBT003 - its only argument
    await loop.sock_connect(new, where)
    return new


async def _race(
    loop: asyncio.AbstractEventLoop, targets: Sequence[_Target], made: list[socket.socket]
) -> socket.socket:
    running: set[asyncio.Task[socket.socket]] = set()
    failure: BaseException = OSError(f"no address of {len(targets)} answers")
    left = list(targets)
    try:
        while left or running:
            if left:
                running.add(asyncio.create_task(_attempt(loop, left.pop(0), made)))
            done, running = await asyncio.wait(
                running, timeout=HEAD_START if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for each in done:
                error = each.exception()
                if error is None:
                    return each.result()
                failure = error
        raise failure
    finally:
        for each in running:
            each.cancel()
        if running:
            await asyncio.wait(running)
