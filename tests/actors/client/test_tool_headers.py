"""What a client keeps of listed tools for the headers of their calls, and what a server that lists ever new ones can cost it."""

from __future__ import annotations

import tracemalloc
from itertools import count
from typing import Any

import pytest

from greenroom.actors.client import outgoing_envelope
from greenroom.actors.client.outgoing_envelope import ToolHeaders
from greenroom.protocol.errors import PeerError

from .client_helpers import playing
from .stateless_stage import in_turn, stateless_stage

DONE: dict[str, Any] = {"content": []}


def tool(name: str, annotation: Any = "Region") -> dict[str, Any]:
    return {"name": name, "inputSchema": {"properties": {"a": {"type": "string", "x-mcp-header": annotation}}}}


@pytest.mark.parametrize("annotation", ["Region", "no token", 7])
def test_a_server_that_lists_ever_new_tools_costs_no_more_memory_in_the_end(
    annotation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing_envelope, "_MOST_TOOLS", 100)
    headers, sizes = ToolHeaders(), list[int]()
    tracemalloc.start()
    try:
        for start in range(0, 6000, 2000):
            for number in range(start, start + 2000):
                headers.learn({"tools": [tool(f"tool number {number}", annotation)]})
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert sizes[2] - sizes[0] < 20_000  # a name that stays takes some 150 bytes
    assert len(headers.left_out) == (0 if annotation == "Region" else 100)


@pytest.mark.row("26-P8")
@pytest.mark.parametrize(("cursors", "pages"), [(["a", "a"], 2), (["a", "b", "a"], 3), (["", "b", None], 3)])
async def test_a_list_for_a_refused_call_that_goes_round_ends_and_the_call_is_sent_again(
    cursors: list[str | None], pages: int
) -> None:
    listed: list[dict[str, Any]] = [
        {"tools": [], **({} if cursor is None else {"nextCursor": cursor})} for cursor in cursors
    ]
    stage = stateless_stage(
        answers={"tools/call": in_turn(PeerError(-32020, "Header mismatch"), DONE), "tools/list": in_turn(*listed)}
    )
    stage.is_http = True
    async with playing(stage) as (line, _):
        assert await line.request("tools/call", {"name": "t"}) == DONE
        assert len(stage.asked("tools/list")) == pages


async def test_a_list_without_end_is_read_up_to_the_limit() -> None:
    numbers = count()

    def page(_: object) -> dict[str, Any]:
        return {"tools": [], "nextCursor": str(next(numbers))}

    stage = stateless_stage(
        answers={
            "tools/call": in_turn(PeerError(-32020, "Header mismatch"), DONE),
            "tools/list": page,
        }
    )
    stage.is_http = True
    async with playing(stage, max_pages=7) as (line, _):
        assert await line.request("tools/call", {"name": "t"}) == DONE
        assert len(stage.asked("tools/list")) == 7
