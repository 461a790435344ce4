"""The fixtures for servers, clients and hosts: open while the test runs, closed after it, and usable with faults."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Server
from greenroom.actors.client.errors import RequestLost
from greenroom.supervision.testing import Fault
from greenroom.testing import FaultyRoute, RogueRoute
from greenroom.transports.client.errors import ProcessDied

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.testing import Injection

pytestmark = pytest.mark.greenroom


def weather() -> Server:
    """A server whose tool takes a second."""
    server = Server("weather")

    @server.tool
    async def forecast(city: str) -> str:
        await asyncio.sleep(1)
        return f"rain in {city}"

    return server


async def test_a_client_of_a_server(mcp_client: Callable[..., Any]) -> None:
    client = await mcp_client(weather(), timeout=5)
    assert await client.call("forecast", city="Oslo") == "rain in Oslo"


async def test_a_wire_that_is_cut_in_mid_call_and_the_next_call(
    mcp_server: Callable[..., Any], mcp_client: Callable[..., Any]
) -> None:
    server = weather()
    await mcp_server(server)
    rough = FaultyRoute(server)
    client = await mcp_client(rough)
    call = asyncio.ensure_future(client.call("forecast", city="Oslo"))
    await asyncio.sleep(0.5)
    rough.cut()
    with pytest.raises(RequestLost) as lost:
        await call
    assert lost.value.maybe_done
    assert await client.call("forecast", city="Bergen") == "rain in Bergen"


@pytest.mark.faults(Fault(0.5, "kill", "ServerConnection"))
async def test_a_plan_of_faults_meets_the_connection(mcp_client: Callable[..., Any], faults: Injection) -> None:
    client = await mcp_client(weather())
    with pytest.raises(RequestLost):
        await client.call("forecast", city="Oslo")
    assert await client.call("forecast", city="Bergen") == "rain in Bergen"
    assert faults.plan


async def test_a_host_of_good_and_bad_servers(mcp_host: Callable[..., Any]) -> None:
    host = await mcp_host({"weather": weather(), "rogue": RogueRoute("exits")})
    good = asyncio.ensure_future(host.call("weather:forecast", {"city": "Oslo"}))
    with pytest.raises(RequestLost) as lost:
        await host.call("rogue:echo", {"text": "?"})
    assert isinstance(lost.value.cause, ProcessDied)
    assert await good == "rain in Oslo"
