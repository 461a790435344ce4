"""A client in a session with a server that does what a test says."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.interfaces import UnansweredRequest

from .scripted_server import Scripted, Visit, scripted
from .wire_owner import Owner, opened

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.transports.client.http_settings import HttpSettings
    from greenroom.transports.client.interfaces import Credentials

    from .scripted_server import Handler


@asynccontextmanager
async def facing(
    call: Handler | None = None,
    settings: HttpSettings | None = None,
    credentials: Credentials | None = None,
    **handlers: Handler,
) -> AsyncGenerator[tuple[Owner, Scripted]]:
    """A client in a session with a server that answers calls like this."""
    given = handlers if call is None else {"call": call, **handlers}
    async with (
        scripted(**given) as server,
        opened(HttpRoute(server.url, settings=settings, credentials=credentials)) as owner,
    ):
        await owner.greet()
        await server.until("GET")
        yield owner, server


def says(*pieces: bytes, end: str = "close") -> Handler:
    """Answers so, and hangs up, or waits until the client does."""

    async def handler(visit: Visit) -> None:
        for piece in pieces:
            await visit.send(piece.replace(b"ID", str(visit.id).encode()))
        if end == "close":
            visit.close()
        elif end == "abort":
            visit.abort()
        else:
            await visit.gone()

    return handler


async def lost(owner: Owner) -> UnansweredRequest:
    """What becomes of a call, which is lost; and the next one is answered as if nothing had been."""
    id = owner.call("any")
    heard = await owner.hear()
    assert isinstance(heard, UnansweredRequest), heard
    assert heard.id == id
    assert await owner.answer(owner.ask("ping")) is not None
    assert owner.silent()
    return heard
