"""Clients and upstreams of either era with a gateway between them: each kind of message, for each pair of eras, over memory and over HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.protocol.dialect import dialect_of
from greenroom.protocol.errors import PeerError, RequestCancelled

from .bridged_pair import FRAGILE_UPSTREAM, LEGACY, MODERN, BridgedPair, bridged_pair

if TYPE_CHECKING:
    from pathlib import Path

    from greenroom.actors.client.interfaces import Progress

PAIRS = [
    pytest.param(
        front,
        back,
        over_http,
        id=f"{front}-{back}-{'http' if over_http else 'memory'}",
        marks=[pytest.mark.greenroom(clock="real")] if over_http else [],
    )
    for over_http in (False, True)
    for front in (LEGACY, MODERN)
    for back in (LEGACY, MODERN)
]
MATRIX = pytest.mark.parametrize(("front", "back", "over_http"), PAIRS)
CHANGED, UPDATED = "notifications/tools/list_changed", "notifications/resources/updated"
NOTE = "upstream://up/note://one"


def is_modern(mode: str) -> bool:
    return mode == MODERN


@pytest.mark.row("26-M16")
@MATRIX
async def test_a_call_reaches_the_upstream_in_its_own_era(front: str, back: str, over_http: bool) -> None:  # noqa: FBT001 - a parameter
    async with bridged_pair(front, back, over_http=over_http) as pair:
        trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "com.example/mine": 1}
        reply = await pair.peer.call_tool("up__add", {"a": 1, "b": 2}, meta=trace)
        bare = is_modern(front) and is_modern(back)  # sessions have objects only, and values under `result`
        assert (reply.text, reply.structured_content) == ("3", 3 if bare else {"result": 3})
        (tool,) = [one for one in await pair.peer.list_tools() if one.name == "up__add"]
        assert tool.output_schema is not None
        assert tool.output_schema["type"] == ("integer" if bare else "object")
        assert [dialect_of(version).is_stateless for version in pair.up.versions] == [is_modern(back)]
        (meta,) = pair.up.metas
        assert {name: meta[name] for name in trace} == trace
        assert (await pair.peer.read_resource(NOTE)).text == "a note"
        with pytest.raises(PeerError) as caught:
            await pair.peer.read_resource("upstream://up/note://none")
        assert caught.value.code == (-32602 if is_modern(front) else -32002)
        assert caught.value.data["uri"] == "upstream://up/note://none"


@MATRIX
async def test_progress_and_log_messages_come_back_to_their_call(front: str, back: str, over_http: bool) -> None:  # noqa: FBT001 - a parameter
    async with bridged_pair(front, back, over_http=over_http) as pair:
        await pair.peer.set_log_level("info")
        steps: list[Progress] = []
        reply = await pair.peer.call_tool("up__steps", {"to": 4}, on_progress=steps.append)
        assert reply.text == "4"
        assert [(one.progress, one.total, one.message) for one in steps] == [(n, 4, f"step {n}") for n in range(1, 5)]
        await asyncio.wait_for(_until(lambda: bool(pair.logged)), 5)
        assert pair.logged == [("up.steps", "counting")]


@MATRIX
async def test_a_cancelled_call_ends_at_the_upstream(front: str, back: str, over_http: bool) -> None:  # noqa: FBT001 - a parameter
    async with bridged_pair(front, back, over_http=over_http) as pair:
        call = pair.peer.start_tool("up__wait")
        await asyncio.wait_for(pair.up.waiting.wait(), 10)
        call.cancel()
        with pytest.raises(RequestCancelled):
            await call
        await asyncio.wait_for(pair.up.cancelled.wait(), 10)
        assert await pair.peer.call("up__add", a=1, b=2) == 3


@MATRIX
async def test_a_form_of_the_upstream_is_filled_in_by_the_user(front: str, back: str, over_http: bool) -> None:  # noqa: FBT001 - a parameter
    async with bridged_pair(front, back, over_http=over_http) as pair:
        assert await pair.peer.call("up__confirm") == "accept True"
        assert (pair.asked, pair.up.runs) == (["Sure?"], 1)


@MATRIX
async def test_the_clients_model_answers_the_upstream(front: str, back: str, over_http: bool) -> None:  # noqa: FBT001 - a parameter
    async with bridged_pair(front, back, over_http=over_http) as pair:
        assert await pair.peer.call("up__think") == "go on"
        assert (pair.asked, pair.up.runs) == (["sampling"], 1)


@MATRIX
async def test_the_upstream_learns_the_clients_roots(front: str, back: str, over_http: bool) -> None:  # noqa: FBT001 - a parameter
    async with bridged_pair(front, back, over_http=over_http) as pair:
        assert await pair.peer.call("up__places") == ["file:///stage"]
        assert (pair.asked, pair.up.runs) == (["roots"], 1)


@MATRIX
async def test_a_changed_list_of_the_upstream_is_announced(front: str, back: str, over_http: bool) -> None:  # noqa: FBT001 - a parameter
    async with bridged_pair(front, back, over_http=over_http) as pair:
        assert "up__add" in {one.name for one in await pair.peer.list_tools()}
        async with pair.peer.listen(CHANGED) as changes:
            await _listening(pair, changes)
            pair.up.server.registry.unregister_tool("add")
            async with asyncio.timeout(10):
                async for _ in changes:
                    if "up__add" not in {one.name for one in await pair.peer.list_tools()}:
                        break


@MATRIX
async def test_a_changed_resource_of_the_upstream_is_announced(front: str, back: str, over_http: bool) -> None:  # noqa: FBT001 - a parameter
    async with bridged_pair(front, back, over_http=over_http) as pair, pair.peer.subscribe(NOTE) as updates:
        pair.up.server.notify_resource_updated("note://one")
        async with asyncio.timeout(10):
            async for told in updates:
                if not told.gap:
                    assert (told.method, told.params["uri"]) == (UPDATED, NOTE)
                    break


@MATRIX
async def test_a_task_of_the_upstream_asks_ends_and_is_cancelled(front: str, back: str, over_http: bool) -> None:  # noqa: FBT001 - a parameter
    async with bridged_pair(front, back, over_http=over_http) as pair:
        begun = (await pair.peer.call_tool("up__research", {"topic": "tea"}, task=True)).task
        assert begun is not None
        assert not begun.over
        reply = await asyncio.wait_for(pair.peer.tasks_result(begun), 20)
        assert reply.text == "tea: True"
        assert (pair.asked, pair.up.runs) == (["Really tea?"], 1)
        assert (await pair.peer.tasks_get(begun)).status == "completed"
        endless = (await pair.peer.call_tool("up__endless", task=True)).task
        assert endless is not None
        await asyncio.wait_for(pair.up.waiting.wait(), 10)
        await pair.peer.tasks_cancel(endless)
        await asyncio.wait_for(pair.up.cancelled.wait(), 10)
        assert (await pair.peer.tasks_wait(endless)).status == "cancelled"


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize("back", [LEGACY, MODERN])
@pytest.mark.parametrize("front", [LEGACY, MODERN])
async def test_an_upstream_that_dies_in_mid_call_is_an_error_at_once_and_nothing_is_done_twice(
    front: str, back: str, fragile: Path
) -> None:
    async with bridged_pair(front, back, program=fragile) as pair:
        before = await pair.peer.call("up__pid")
        with pytest.raises(PeerError) as caught:
            await asyncio.wait_for(pair.peer.call("up__die"), 10)
        assert caught.value.data == {
            "server": "up",
            "reason": "stream_lost" if is_modern(back) else "lost",
            "cause": "exit_status",
            "maybeDone": True,
        }
        after = await asyncio.wait_for(pair.peer.call("up__pid"), 30)
        assert after != before
        assert fragile.with_suffix(".log").read_text() == "x", "the call was made once"


@pytest.fixture
def fragile(tmp_path: Path) -> Path:
    """A program with an upstream that dies when it is told to."""
    program = tmp_path / "fragile.py"
    program.write_text(FRAGILE_UPSTREAM)
    return program


async def _until(true: Any) -> None:
    while not true():  # noqa: ASYNC110 - a state of the server, which is no event
        await asyncio.sleep(0.01)


async def _listening(pair: BridgedPair, changes: Any) -> None:
    """Wait until the client's wish has reached the gateway: in the stateless era the first listen begins with a gap."""
    if is_modern(pair.front):
        company = pair.server.company
        await asyncio.wait_for(_until(lambda: any(company.subscription_table.lists.values())), 10)
