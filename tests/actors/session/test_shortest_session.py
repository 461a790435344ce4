"""The shortest whole session: initialize, ping, call a tool, end."""

from __future__ import annotations

import pytest

from greenroom.supervision import ProcessExited
from greenroom.transports.interfaces import Peer

from .session_client import SessionClient, initialize_request, message, open_company


async def test_a_session_from_initialize_to_its_end() -> None:
    company = await open_company()
    peer = Peer("test")
    entered = await company.start_session(peer, initialize_request())
    result = message(entered.answer.body)["result"]
    assert result["protocolVersion"] == "2025-11-25"
    assert result["serverInfo"] == {"name": "greenroom", "version": "0"}
    assert entered.session is not None
    player = SessionClient(company, entered.session)
    await player.tell("notifications/initialized")
    assert (await player.ask("ping"))["result"] == {}
    assert (await player.call("echo", x=1))["result"] == {"echo": {"x": 1}}
    assert company.find(entered.session.id, peer) is not None
    await entered.session.end()
    assert company.find(entered.session.id, peer) is None
    with pytest.raises(ProcessExited):
        await player.ask("ping")
