"""When a peer counts as gone that can be recognised only by inactivity: it has closed its input, and reads no output."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from greenroom.transports import stdio
from greenroom.transports.stdio import StdioProcess

GRACE = 5.0


def channel(*, has_unwritten: bool = True, hung_up: bool = True) -> tuple[StdioProcess, Any]:
    wire: Any = SimpleNamespace(
        sink=SimpleNamespace(has_unwritten=has_unwritten, written=0), source=SimpleNamespace(hung_up=hung_up)
    )
    return StdioProcess(wire, GRACE), wire


def _nothing(*_: object) -> None:
    return


async def abandoned_within(served: StdioProcess, seconds: float) -> bool:
    """Check once a second."""
    for _ in range(int(seconds)):
        if served._is_abandoned():
            return True
        await asyncio.sleep(1)
    return served._is_abandoned()


async def test_a_peer_that_closed_and_reads_nothing_for_the_grace_is_gone() -> None:
    served, _ = channel()
    assert not await abandoned_within(served, GRACE - 1)
    assert await abandoned_within(served, 2)


async def test_the_grace_starts_with_the_process_and_not_with_the_machines_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await asyncio.sleep(100 * GRACE)
    served, wire = channel()
    wire.finished, wire.open, wire.channel, wire.read = (
        asyncio.Event(),
        lambda: None,
        SimpleNamespace(forward_replies=None),
        None,
    )
    monkeypatch.setattr(stdio, "spawn_link", _nothing)
    monkeypatch.setattr(served, "_check_peer_later", lambda: None)
    served.init()
    assert not await abandoned_within(served, GRACE - 1)
    assert await abandoned_within(served, 2)


@pytest.mark.parametrize("here", [{"has_unwritten": False}, {"hung_up": False}], ids=str)
async def test_a_peer_that_has_not_closed_or_has_nothing_to_read_is_waited_for(here: dict[str, bool]) -> None:
    served, _ = channel(**here)
    assert not await abandoned_within(served, 100 * GRACE)


async def test_a_peer_that_reads_slowly_is_waited_for() -> None:
    served, wire = channel()
    for _ in range(100):
        assert not await abandoned_within(served, GRACE - 1)
        wire.sink.written += 1
