"""A guest that is only a link, and a host that admits it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from greenroom import Host, Server
from greenroom.actors.thespian_guests.guest_wire import (
    KIND,
    TO_GUEST,
    guest_link_key,
    pack_item,
    payload_limit,
    unpack_items,
)
from greenroom.supervision.cluster.polling_link import PollingLink

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from greenroom.actors.thespian_guests.guest_listener import GuestListener

KEY = b"k" * 32
SOON = 5.0


async def until(true: Callable[[], object]) -> None:
    """Poll until the condition holds: there is no event for it."""
    async with asyncio.timeout(SOON):
        while not true():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)


class PlayedGuest:
    """A guest by its link alone."""

    def __init__(self, address: str, key: bytes = KEY, kind: str = KIND) -> None:
        self.link = PollingLink(
            address, guest_link_key(key), "played guest", kind=kind, largest=payload_limit(TO_GUEST)
        )
        self.heard: list[list[Any]] = []
        self._last = 0

    def turn(self) -> bool:
        for payload in self.link.pump():
            self.heard += unpack_items(payload, TO_GUEST)
        return self.link.over is not None

    async def enter(self) -> PlayedGuest:
        await until(lambda: self.turn() or self.link.up)
        return self

    def say(self, *items: list[Any]) -> None:
        self.link.post([pack_item(item, 1 << 30) for item in items])
        self.link.flush()

    def ask(self, kind: str, **fields: Any) -> int:
        self._last += 1
        self.say(["ask", self._last, kind, fields, 30])
        return self._last

    async def answer(self, id: int) -> tuple[str, dict[str, Any]]:
        found: list[list[Any]] = []

        def came() -> bool:
            over = self.turn()
            found[:] = [item for item in self.heard if item[:2] == ["answer", id]]
            return over or bool(found)

        await until(came)
        assert len(found) == 1, self.link.over
        return found[0][2], found[0][3]

    async def over(self) -> str:
        await until(self.turn)
        return str(self.link.over)


def flushed(guest: PlayedGuest) -> int:
    """How many bytes it still has to write."""
    guest.link.flush()
    return guest.link.waiting


def served() -> Server:
    server = Server("weather")

    @server.tool
    def forecast(city: str) -> str:
        return f"sunny in {city}"

    @server.tool
    async def slow() -> None:
        await asyncio.get_running_loop().create_future()

    @server.resource("sky://now")
    def sky() -> str:
        return "blue"

    _ = forecast, slow, sky
    return server


@contextlib.asynccontextmanager
async def open_house(**settings: Any) -> AsyncGenerator[tuple[Host, GuestListener]]:
    host = Host({"weather": served()})
    listener = host.admit_guests(KEY, address=f"unix:@greenroom-test-{uuid.uuid4().hex}", **settings)
    async with host:
        yield host, listener
