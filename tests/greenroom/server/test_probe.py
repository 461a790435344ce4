"""The probe itself, with a company of a few lines at the other end."""

from __future__ import annotations

import pytest
from tests.transports.stdio.fake_sessions import FakeSessionRouter

from greenroom import Server, testing
from greenroom.protocol.errors import PeerError
from greenroom.supervision import whereis
from greenroom.wire_probe import WireEnded, WireProbe


async def test_the_probe_initializes_and_sends_requests() -> None:
    async with WireProbe(FakeSessionRouter()) as probe:
        assert probe.welcome["echo"]["clientInfo"]["name"] == "probe"
        assert await probe.request("anything", {"a": 1}) == {"echo": {"a": 1}}


async def test_the_probe_raises_the_servers_error() -> None:
    async with WireProbe(FakeSessionRouter()) as probe:
        with pytest.raises(PeerError, match=r"no \(-32602\)"):
            await probe.request("refuse")


async def test_the_probe_keeps_messages_in_order() -> None:
    async with WireProbe(FakeSessionRouter()) as probe:
        await probe.request("talk", {"times": 200, "pad": ""})
        assert [each["number"] for each in await probe.wait_for_notifications("said", 200)] == list(range(200))


async def test_the_probe_can_send_requests_without_waiting() -> None:
    async with WireProbe(FakeSessionRouter()) as probe:
        held = await probe.ask("hold")
        await probe.cancel(held, "changed my mind")
        await probe.request("release")
        assert (await probe.answer(held))["result"] == {"echo": {}}


async def test_the_probe_times_out_on_a_silent_server() -> None:
    async with WireProbe(FakeSessionRouter()) as probe:
        held = await probe.ask("hold")
        with pytest.raises(TimeoutError, match="the answer to request 2 did not come within 3 seconds"):
            await probe.answer(held, within=3)


async def test_the_probe_starts_and_stops_a_server() -> None:
    server = Server("x")
    async with testing.WireProbe(server) as probe:
        assert probe.welcome["serverInfo"]["name"] == "x"
        assert whereis(server.company.name("company")) is not None
    assert whereis(server.company.name("company")) is None


def test_a_name_that_the_kit_has_not_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = testing.Nonsense  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def test_the_probe_sends_any_bytes() -> None:
    async with WireProbe(FakeSessionRouter(), greet=False) as probe:
        await probe.send(b"{nonsense")
        assert (await probe.answer(None))["error"]["code"] == -32700


async def test_a_wire_that_has_ended_says_so() -> None:
    probe = WireProbe(FakeSessionRouter())
    async with probe:
        pass
    with pytest.raises(WireEnded):
        await probe.wait_for_notifications("said", within=1)
