"""What the fixtures for servers, clients and hosts give: each opens as many as a test wants, and closes them when it is over, the last first."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from greenroom.client import Client
from greenroom.host import Host

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from greenroom.actors.company import Company
    from greenroom.server import Server

P = ParamSpec("P")
T = TypeVar("T")


@asynccontextmanager
async def _opener(make: Callable[P, AbstractAsyncContextManager[T]]) -> AsyncGenerator[Callable[P, Awaitable[T]]]:
    async with AsyncExitStack() as opened:

        async def open_one(*args: P.args, **options: P.kwargs) -> T:
            return await opened.enter_async_context(make(*args, **options))

        yield open_one


def servers() -> AbstractAsyncContextManager[Callable[[Server], Awaitable[Company]]]:
    """Have a server run in this loop until the test is over."""

    def started(server: Server) -> AbstractAsyncContextManager[Company]:
        return server.started()

    return _opener(started)


def clients() -> AbstractAsyncContextManager[Callable[..., Awaitable[Client]]]:
    """Open a client; what it is made with is what `Client` is made with."""
    return _opener(Client)


def hosts() -> AbstractAsyncContextManager[Callable[..., Awaitable[Host]]]:
    """Open a host of several servers; what it is made with is what `Host` is made with."""
    return _opener(Host)
