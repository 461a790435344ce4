"""Every frame on the wire equals its recording; `python -m tests.frames --record` records anew, and lists the changes."""

from __future__ import annotations

import asyncio
from functools import cache

import pytest

from . import recordings
from .scenario_player import TRANSPORTS, names, play

SCENARIOS = [(transport, name) for transport in TRANSPORTS for name in names(transport)]


@cache
def played(transport: str) -> dict[str, recordings.Record]:
    return asyncio.run(play(transport))


@cache
def kept(transport: str) -> dict[str, recordings.Record]:
    return recordings.read(transport)


@pytest.mark.parametrize(("transport", "name"), SCENARIOS, ids=[name for _, name in SCENARIOS])
def test_the_frames_of_a_scenario_equal_the_recording(transport: str, name: str) -> None:
    expected, came = kept(transport).get(name), played(transport)[name]
    assert expected is not None, "not recorded yet: python -m tests.frames --record"
    assert came.frames == expected.frames
    assert came.texts == expected.texts, "only words for people differ: python -m tests.frames --record lists them"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_every_recorded_scenario_is_still_played(transport: str) -> None:
    assert list(kept(transport)) == names(transport)


def test_a_change_of_wording_changes_no_frame() -> None:
    said = '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found: x"}}'
    before, after = (
        recordings.Record.of([[each]]) for each in (said, said.replace("Method not found", "No such method"))
    )
    assert before.frames == after.frames == (said.replace("Method not found: x", "~0"),)
    assert (before.texts, after.texts) == (("Method not found: x",), ("No such method: x",))
