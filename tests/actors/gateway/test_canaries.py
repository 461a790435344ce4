"""Many clients of both eras at once, each with a secret of its own: no client's is ever seen, asked or remembered by another."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.protocol.errors import PeerError

from .bridged_pair import LEGACY, MODERN
from .recording_upstream import Upstream, client, gateway, says

if TYPE_CHECKING:
    from greenroom import Client

CLIENTS = 24
CALLS = 12


@pytest.mark.deep
@pytest.mark.parametrize("back", [LEGACY, MODERN])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_message_of_another_client_leaks(seed: int, back: str) -> None:
    order = random.Random(seed)

    async def visit(number: int, peer: Client, logged: list[Any]) -> None:
        names = ["one__think", "two__think", "one__count", "one__wait"]
        if back == LEGACY and mode_of(number) == LEGACY:
            names.append("two__remember")  # without a session there is nothing to which it could belong
        names = order.choices(names, k=CALLS)
        mine: str | None = None
        for name in names:
            if name.endswith("think"):
                assert await peer.call(name) == f"canary {number}"
            elif name.endswith("count"):
                steps: list[Any] = []
                await peer.call_tool(name, {"to": number + 1}, on_progress=steps.append)
                assert [step.total for step in steps][-1:] == [number + 1]
            elif name.endswith("remember"):
                before = await peer.call(name, what=f"canary {number}")
                assert before == (mine or "nothing")
                mine = f"canary {number}"
            else:
                call = peer.start_tool(name)
                await asyncio.sleep(0)
                call.cancel()
        assert set(logged) <= {f"thinking for canary {number}"}

    async def think(ctx: Any) -> str:
        said = str((await ctx.sample("What now?")).text)
        ctx.info(f"thinking for {said}")
        return said

    async def main() -> None:
        ups = [Upstream("one"), Upstream("two")]
        server = gateway(*ups, mode=back)
        for up in ups:
            up.server.registry.register_tool("think", think)
        async with server.started(), asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(one_of_them(number, server, visit))

    async def one_of_them(number: int, server: Any, then: Any) -> None:
        logged: list[Any] = []
        principal = None if number % 2 else f"principal {number}"
        answer = says(f"canary {number}")

        def heard(said: Any) -> None:
            logged.append(said.data)

        mode = mode_of(number)
        async with client(server, principal, mode=mode, sampling=answer, on_log=heard) as peer:
            try:
                if number % 3 == 0:
                    await peer.set_log_level("info")
                await then(number, peer, logged)
            except PeerError as error:
                # What was cancelled before may still be at work; nothing else may be refused.
                raise AssertionError(f"{number}: {error} {error.data}") from error

    asyncio.run(main())


def mode_of(number: int) -> str:
    """Of the clients with a principal and of those without, each second one is of the stateless era."""
    return MODERN if number % 4 < 2 else LEGACY
