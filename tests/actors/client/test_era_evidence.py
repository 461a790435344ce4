"""How a client found out what its server speaks, in words for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.client.era_verdicts import EraVerdicts
from greenroom.protocol.errors import PeerError
from greenroom.transports.client.errors import ConnectionLost

from .client_helpers import playing
from .fake_server import SILENCE, Stage

if TYPE_CHECKING:
    from greenroom.protocol.jsonrpc import JsonRpcRequest

DISCOVERY: dict[str, Any] = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}}


@pytest.mark.row("26-V10")
@pytest.mark.parametrize(
    ("mode", "discovery", "evidence"),
    [
        ("auto", DISCOVERY, "it answers server/discover"),
        ("2026-07-28", DISCOVERY, "it answers server/discover"),
        ("legacy", DISCOVERY, "only a handshake was tried"),
        ("auto", PeerError(-32601, "Method not found"), "it answers initialize, and server/discover with: "),
        ("auto", SILENCE, "it answers initialize, and server/discover with: no answer"),
    ],
)
async def test_a_welcome_says_how_the_revision_was_found_out(mode: str, discovery: Any, evidence: str) -> None:
    stage = Stage()
    stage.answers["server/discover"] = discovery
    async with playing(stage, mode=mode) as (line, _):
        assert line.welcome is not None
        assert line.welcome.evidence.startswith(evidence)
        if isinstance(discovery, PeerError):
            assert "Method not found" in line.welcome.evidence


async def test_a_process_that_dies_of_the_question_says_so() -> None:
    stage = Stage()

    def dies(_: JsonRpcRequest) -> Any:
        stage.wire.end(ConnectionLost("the process has ended"))
        return SILENCE

    stage.answers["server/discover"] = dies
    async with playing(stage) as (line, _):
        assert line.welcome is not None
        assert line.welcome.evidence == "it answers initialize, and server/discover with: the process has ended"


async def test_a_verdict_is_the_evidence_of_a_later_connection() -> None:
    class Known(Stage):
        endpoint = "known"

    stage, verdicts = Known(), EraVerdicts()
    verdicts.learn("known", "2025-11-25")
    async with playing(stage, ready=False) as (line, _):
        line.verdicts, line.era = verdicts, "2025-11-25"
        await line.ready()
        assert line.welcome is not None
        assert line.welcome.evidence == "it had a handshake before"


async def test_a_long_refusal_is_cut() -> None:
    stage = Stage()
    stage.answers["server/discover"] = PeerError(-32601, "x" * 100_000)
    async with playing(stage) as (line, _):
        assert line.welcome is not None
        assert len(line.welcome.evidence) < 300
