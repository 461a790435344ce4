"""How a node gets to others: whom it may dial, and one handshake after the other. What `Peers` does of its own accord.

When two dial each other at once, one link has to go, and both ends have to choose the same. Who dials knows whom before it proves itself, and
makes a note of it here; who listens has the last word, and finds that note: see `Peers.met`.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision.kernel.errors import CallTimeout

from .addresses import dial
from .link import Link, Party
from .sealing import LinkRefused
from .switch import Switch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.supervision.kernel.node import Node

    from .sealing import Greeting

BUSY: Final = "it is dialling this node just now, or has a link to it"
_AGAIN: Final = 0.1
"""How long to wait for the other's own dialling, before one more try."""


class Dialling(Party):
    """The part of it."""

    def __init__(self, node: Node) -> None:
        """Nobody is dialled yet."""
        self.node = node
        self._open = False
        self._switches: dict[str, Switch] = {}
        self._links: dict[Link, Switch | None] = {}
        self._dialled: dict[str, Link] = {}  # handshakes of our own, once it is known with whom
        self._introduced: dict[str, tuple[str, ...]] = {}
        self._learned: dict[str, tuple[str, ...]] = {}  # what nodes that were connected said of themselves
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    @abstractmethod
    def connected(self) -> tuple[str, ...]:
        """The names of the nodes that are."""

    @abstractmethod
    async def wait_for(self, name: str, timeout: float | None = 5.0) -> None:
        """Until that node is connected. Raises `CallTimeout`."""

    @abstractmethod
    def _lose(self, switch: Switch, why: str) -> None:
        """It cannot be reached, or not any more."""

    async def connect(self, addresses: Sequence[str], timeout: float = 5.0) -> str:
        """Dial the first of these addresses that answers; the name of the node that does. Raises `LinkRefused`.

        When that node is connected already, the link that is there stays.
        """
        wrong: list[str] = []
        for address in addresses:
            try:
                async with asyncio.timeout(timeout):
                    return await self._connect(address)
            except TimeoutError:
                wrong.append(f"{address}: no answer within {timeout:g} s")
            except (OSError, LinkRefused) as error:
                wrong.append(f"{address}: {error}")
        raise LinkRefused(f"no node could be reached: {'; '.join(wrong) or 'no address was given'}")

    async def _connect(self, address: str) -> str:
        while (found := await self._try(address)) is None:
            pass  # the other's own dialling comes to nothing: ours, once more
        return found

    async def _try(self, address: str) -> str | None:
        """One handshake; None when the other end would rather have had its own, and that did not come."""
        arrived: asyncio.Future[str] = self.node.loop.create_future()
        made: list[Link] = []

        def make() -> Link:
            link = Link(self, dialling=True)
            link.arrived, link.greeted = arrived, self._greeted
            made.append(link)
            self._links[link] = None
            return link

        try:
            await dial(self.node.loop, make, address)
            return await arrived
        except LinkRefused as error:
            peer = made[0].peer if made else None
            if peer is not None and peer.name in self.connected:
                return peer.name
            if peer is None or not str(error).endswith(BUSY):
                raise
            with contextlib.suppress(CallTimeout):
                await self.wait_for(peer.name, _AGAIN)
                return peer.name
            return None
        finally:
            for link in made:
                if not link.up:
                    link.end("given up")

    def introduce(self, name: str, addresses: Sequence[str]) -> None:
        """From now on that node is dialled when something is to be said to it."""
        self._introduced[name] = tuple(addresses)

    def forget(self, name: str) -> None:
        """That node is not dialled any more; a link that is there stays."""
        self._introduced.pop(name, None)
        self._learned.pop(name, None)

    def _reach(self, name: str) -> Switch | None:
        switch = self._switches.get(name)
        if switch is not None or not self._open:
            return switch
        addresses = dict.fromkeys((*self._learned.get(name, ()), *self._introduced.get(name, ())))
        if not addresses:
            return None
        switch = self._switches[name] = Switch(self.node, name)
        # A task of the node and of no process: whoever has said something first does not own the link.
        task = self.node.loop.create_task(self._dial_for(switch, tuple(addresses)), context=self.node.context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return switch

    async def _dial_for(self, switch: Switch, addresses: Sequence[str]) -> None:
        why = "somebody else was there"
        try:
            found = await self.connect(addresses)
            why = f"{found} was there instead"
        except LinkRefused as error:
            why = str(error)
        finally:
            if switch.link is None and self._switches.get(switch.name) is switch:
                self._lose(switch, why)

    def _greeted(self, link: Link, peer: Greeting) -> str | None:
        """We dial, and know whom: is a link wanted?"""
        if peer.name == self.node.name:
            return f"it is called {peer.name}, too: give each node a name of its own"
        switch = self._switches.get(peer.name)
        if switch is not None and switch.link is not None and switch.life == peer.incarnation:
            return "it is connected already"
        first = self._dialled.setdefault(peer.name, link)
        return None if first is link else BUSY
