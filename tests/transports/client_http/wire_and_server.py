"""A wire in a session with a scripted server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.interfaces import UnansweredRequest

from .scripted_server import ReceivedRequest, ScriptedServer, scripted_server
from .wire_owner import WireOwner, open_wire

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.transports.client.http_settings import HttpSettings
    from greenroom.transports.client.interfaces import Credentials

    from .scripted_server import Handler


@asynccontextmanager
async def wire_and_server(
    call: Handler | None = None,
    settings: HttpSettings | None = None,
    credentials: Credentials | None = None,
    **handlers: Handler,
) -> AsyncGenerator[tuple[WireOwner, ScriptedServer]]:
    """A wire in a session with a server that answers calls like this."""
    given = handlers if call is None else {"call": call, **handlers}
    async with (
        scripted_server(**given) as server,
        open_wire(HttpRoute(server.url, settings=settings, credentials=credentials)) as owner,
    ):
        await owner.greet()
        await server.until("GET")
        yield owner, server


def responding(*pieces: bytes, end: str = "close") -> Handler:
    """A handler that responds so, and closes, or waits until the client does."""

    async def handler(received: ReceivedRequest) -> None:
        for piece in pieces:
            await received.send(piece.replace(b"ID", str(received.id).encode()))
        if end == "close":
            received.close()
        elif end == "abort":
            received.abort()
        else:
            await received.gone()

    return handler


async def lost(owner: WireOwner) -> UnansweredRequest:
    """Check that a call is lost, and that the next one is answered."""
    id = owner.call("any")
    heard = await owner.hear()
    assert isinstance(heard, UnansweredRequest), heard
    assert heard.id == id
    assert await owner.answer(owner.ask("ping")) is not None
    assert owner.silent()
    return heard
