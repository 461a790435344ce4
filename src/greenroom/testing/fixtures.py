"""What the fixtures for servers, clients and hosts give: each opens as many as a test wants, and closes them when it is over, the last first."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from greenroom.client import Client
from greenroom.host import Host

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from greenroom.actors.company import Company
    from greenroom.server import Server


@asynccontextmanager
async def servers() -> AsyncGenerator[Callable[[Server], Awaitable[Company]]]:
    """Have a server run in this loop until the test is over."""
    async with AsyncExitStack() as opened:

        async def run(server: Server) -> Company:
            return await opened.enter_async_context(server.started())

        yield run


@asynccontextmanager
async def clients() -> AsyncGenerator[Callable[..., Awaitable[Client]]]:
    """Open a client; what it is made with is what `Client` is made with."""
    async with AsyncExitStack() as opened:

        async def connect(target: Any, **options: Any) -> Client:
            return await opened.enter_async_context(Client(target, **options))

        yield connect


@asynccontextmanager
async def hosts() -> AsyncGenerator[Callable[..., Awaitable[Host]]]:
    """Open a host of several servers; what it is made with is what `Host` is made with."""
    async with AsyncExitStack() as opened:

        async def attach(servers: Mapping[str, Any], **options: Any) -> Host:
            return await opened.enter_async_context(Host(servers, **options))

        yield attach
