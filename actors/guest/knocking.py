"""Who has the address that a reception waits for: one that holds the same key, or somebody else.

The listener proves first that it has the key, and no more than that is asked of it: it is left before anything is said to it.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from greenroom.supervision.cluster.addresses import dial
from greenroom.supervision.cluster.link import HANDSHAKE_SECONDS, Link, Party
from greenroom.supervision.cluster.sealing import GREETING_LIMIT, LinkRefused, greeting

if TYPE_CHECKING:
    from greenroom.supervision.cluster.sealing import Greeting

_ENOUGH: Final = "it was only looked who is there"


async def stranger_at(address: str, key: bytes) -> str | None:
    """Why whoever listens there is a stranger; None when it holds the key, or nobody is there."""
    knock = _Knock(key)
    try:
        async with asyncio.timeout(2 * HANDSHAKE_SECONDS):
            await dial(asyncio.get_running_loop(), knock.link, address)
            return await knock.found
    except TimeoutError:
        return "it takes no connection"
    except LinkRefused as error:
        return str(error)
    except OSError:
        return None
    finally:
        knock.end()


class _Knock(Party):
    """One, and whose link it is."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._link: Link | None = None
        self.found: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def link(self) -> Link:
        self._link = link = Link(self, dialling=True, largest=GREETING_LIMIT)
        link.greeted = self._known
        return link

    def end(self) -> None:
        if self._link is not None:
            self._link.end(_ENOUGH)

    def _known(self, link: Link, peer: Greeting) -> str:  # noqa: ARG002 - it has proved itself; that is all
        self._settle(None)
        return _ENOUGH

    def _settle(self, why: str | None) -> None:
        if not self.found.done():
            self.found.set_result(why)

    def greet(self) -> tuple[bytes, Greeting]:
        return self._key, greeting("reception", os.getpid(), kind="reception")

    def met(self, link: Link, peer: Greeting) -> str:
        return self._known(link, peer)

    def came(self, link: Link, payload: bytes) -> None:  # noqa: ARG002 - it is over by then
        self._settle(None)

    def lost(self, link: Link, why: str) -> None:  # noqa: ARG002 - there is one
        self._settle(why)
