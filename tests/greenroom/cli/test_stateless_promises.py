"""A server of greenroom keeps every promise that `check --era modern` checks, over HTTP and on stdio."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from tests.revision import ours

from greenroom.cli.raw_peer import CommandPeer, HttpPeer
from greenroom.cli.stateless_http_checks import CHECKS
from greenroom.cli.stateless_probe import CheckedServer, run_checks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.cli.stateless_probe import CheckOutcome, StatelessCheck

pytestmark = pytest.mark.greenroom(clock="real")

WHOLE_RUN = {"M1", "M8", "M12", "M12.legacy", "M15", "S4"}
"""Checks of everything that the other checks have seen."""
ELSEWHERE = {"V9", "H7.bare", "R10.principal", "L8", "T10", "C2", "A9", "A10", "A10.every"}
"""Checks of what this server does not have: it has a handshake, and neither tasks, nor several pages, nor callers to tell apart."""


async def over_http(only: Sequence[str] = ()) -> list[CheckOutcome]:
    async with ours.server.started():
        checked = CheckedServer(HttpPeer(await ours.server.listen(port=0)))
        await checked.discover()
        return await run_checks(CHECKS, checked, only)


def _marked(each: StatelessCheck) -> object:
    return pytest.param(each.id, marks=pytest.mark.row(f"26-{each.row}"), id=each.id)


@pytest.mark.parametrize(
    "id", [_marked(each) for each in CHECKS if "http" in each.transports and each.id not in WHOLE_RUN | ELSEWHERE]
)
async def test_the_promise_is_kept_over_http(id: str) -> None:
    outcomes = [one for one in await over_http([id]) if one.id == id]

    assert [one.verdict for one in outcomes] == ["passed"], outcomes


@pytest.mark.row("26-M1", "26-M8", "26-M12", "26-M15")
async def test_nothing_that_is_sent_over_http_breaks_a_promise() -> None:
    outcomes = await over_http()

    assert [one for one in outcomes if one.verdict not in ("passed", "not applicable")] == []
    assert {one.id for one in outcomes if one.verdict == "not applicable"} == ELSEWHERE


@pytest.mark.row("26-S2", "26-S3", "26-S4", "26-L5", "26-L6", "26-V8", "26-M14", "26-M17")
async def test_every_promise_is_kept_on_stdio() -> None:
    async with CommandPeer([sys.executable, ours.__file__, "stdio"]) as peer:
        checked = CheckedServer(peer)
        await checked.discover()
        outcomes = await run_checks(CHECKS, checked)

    assert [one for one in outcomes if one.verdict not in ("passed", "not applicable")] == []
    assert {one.id for one in outcomes if one.verdict == "not applicable"} == {"V9", "L8", "T10", "C2"}
    assert peer.garbage == []
