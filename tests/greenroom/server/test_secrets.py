"""A session's id is a bearer secret: no log, report or tree shows enough of it to use it."""

from __future__ import annotations

import logging

import pytest

from greenroom import PeerError, Server
from greenroom.supervision import Report, current_node, draw, kill, tree
from greenroom.wire_probe import WireProbe

server = Server("secretive")


@server.tool
async def boom() -> str:
    raise ValueError("on purpose")


@pytest.mark.row("SX-08")
async def test_session_ids_are_not_shown_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Report] = []
    current_node().reports.subscribe(told.append)
    with caplog.at_level(logging.DEBUG):
        async with server.started() as company, WireProbe(company) as peer:
            (card,) = await company.peers.all()
            handle = company.find(card.id, card.peer)
            await peer.call("boom")
            drawn = draw(tree())
            kill(company.peers.whereis(card.id))
            with pytest.raises(PeerError, match="initialize"):
                await peer.request("tools/list")
    assert len(card.id) > 20
    assert told
    for text in (drawn, caplog.text, repr(card), repr(handle), *map(repr, told), *map(str, told)):
        assert card.id not in text
        assert card.id.removeprefix("mcp_") not in text
