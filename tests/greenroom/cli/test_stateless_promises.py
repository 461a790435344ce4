"""A server of greenroom keeps every promise that `check --era modern` checks, over HTTP and on stdio."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from tests.revision import ours
from tests.served_program import served

from greenroom.cli.raw_peer import CommandPeer, HttpPeer
from greenroom.cli.stateless_http_checks import CHECKS
from greenroom.cli.stateless_probe import CheckedServer, run_checks

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")

GUARDED = {"R10.principal", "A9", "A10", "A10.every"}
"""Checks of a server that tells its callers apart."""
ELSEWHERE = {"V9", "H7.bare", *GUARDED}
"""Checks of what this server does not have: no handshake, and callers with credentials."""


@pytest.mark.row("26-M1", "26-M8", "26-M12", "26-M15")
async def test_every_promise_is_kept_over_http() -> None:
    async with ours.server.started():
        checked = CheckedServer(HttpPeer(await ours.server.listen(port=0)))
        await checked.discover()
        outcomes = await run_checks(CHECKS, checked)

    assert [one for one in outcomes if one.verdict not in ("passed", "not applicable")] == []
    assert {one.id for one in outcomes if one.verdict == "not applicable"} == ELSEWHERE


@pytest.mark.row("26-R10", "26-A9", "26-A10")
async def test_the_promises_to_callers_with_credentials_are_kept(tmp_path: Path) -> None:
    with served([sys.executable, ours.__file__, "guarded"], tmp_path / "log") as url:
        peers = [HttpPeer(url, {"Authorization": f"Bearer {name}"}) for name in ("one", "two")]
        checked = CheckedServer(*peers)
        await checked.discover()
        outcomes = await run_checks(CHECKS, checked, sorted(GUARDED))

    assert {one.id: one.verdict for one in outcomes if one.id in GUARDED} == dict.fromkeys(GUARDED, "passed"), outcomes


@pytest.mark.row("26-S2", "26-S3", "26-S4", "26-L5", "26-L6", "26-V8", "26-M14", "26-M17")
async def test_every_promise_is_kept_on_stdio() -> None:
    async with CommandPeer([sys.executable, ours.__file__, "stdio"]) as peer:
        checked = CheckedServer(peer)
        await checked.discover()
        outcomes = await run_checks(CHECKS, checked)

    assert [one for one in outcomes if one.verdict not in ("passed", "not applicable")] == []
    assert {one.id for one in outcomes if one.verdict == "not applicable"} == {"V9"}
    assert peer.garbage == []
