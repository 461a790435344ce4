"""A server that ends itself in its constructor or `init` has not started, and its starter gets the reason."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision import (
    KILLED,
    Continue,
    ExitReason,
    GenServer,
    Shutdown,
    StartFailed,
    exit,
    inbox,
    kill,
    start,
    start_link,
)

if TYPE_CHECKING:
    from collections.abc import Callable

LEFT = Shutdown("left")


class InConstructor(GenServer):
    """Ends in its constructor."""

    def __init__(self, end: Callable[[GenServer], None]) -> None:
        end(self)


class InInit(GenServer):
    """Ends in `init`, and would go on."""

    def __init__(self, end: Callable[[GenServer], None]) -> None:
        self.end = end

    def init(self) -> Continue:
        self.end(self)
        return Continue("work")


class InSlowInit(GenServer):
    """Ends in an `init` that could still wait."""

    def __init__(self, end: Callable[[GenServer], None]) -> None:
        self.end = end

    async def init(self) -> None:
        self.end(self)
        await asyncio.sleep(1)


def leave(server: GenServer) -> None:
    exit(server.pid, LEFT)


def die(server: GenServer) -> None:
    kill(server.pid)


@pytest.mark.parametrize(("end", "reason"), [(leave, LEFT), (die, KILLED)])
@pytest.mark.parametrize("server", [InConstructor, InInit, InSlowInit])
async def test_the_starter_hears_why(
    server: type[InConstructor | InInit | InSlowInit], end: Callable[[GenServer], None], reason: ExitReason
) -> None:
    with pytest.raises(StartFailed) as alone:
        await start(server, end)
    assert alone.value.reason == reason
    async with inbox() as me:
        with pytest.raises(StartFailed) as linked:
            await start_link(server, end)
        assert linked.value.reason == reason
        assert me.pending() == ()
