"""The events of a gateway's upstream requests: one call each, with the outcome of its caller, and the span of its own on the wire."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.heard_events import HeardEvents, call_in, hearing, tracing

from greenroom import Client, PeerError, Server
from greenroom.actors.client.errors import RequestLost
from greenroom.actors.gateway.client_connections import ClientConnections, TooManyConnections
from greenroom.event_types import QuestionEnded, RequestRefused, UpstreamChanged
from greenroom.host import Host

from .bridged_pair import FRAGILE_UPSTREAM, LEGACY, MODERN, bridged_pair

if TYPE_CHECKING:
    from pathlib import Path

CALLERS_OWN = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
EVERY_ERA = pytest.mark.parametrize(
    ("front", "back"), [(front, back) for front in (LEGACY, MODERN) for back in (LEGACY, MODERN)]
)


def upstream_calls(heard: HeardEvents, name: str) -> list[tuple[str, str]]:
    """The programs and the outcomes of the gateway's calls of this tool."""
    ended = [each for each in heard.ended("tools/call", "upstream") if each.name == name]
    assert all(each.host for each in ended)
    return [(each.program, each.outcome) for each in ended]


@EVERY_ERA
async def test_a_trace_goes_on_behind_the_gateway(front: str, back: str) -> None:
    with tracing() as heard:
        async with bridged_pair(front, back) as pair:
            await pair.peer.call("up__add", a=1, b=2)
            (meta,) = pair.up.metas
    assert upstream_calls(heard, "add") == [("up", "result")]
    (call,) = (each for each in heard.ended("tools/call", "upstream") if each.name == "add")
    assert call_in(meta["traceparent"]) == call.call
    assert meta["tracestate"] == "ours=1"
    assert heard.unbalanced() == []


@EVERY_ERA
async def test_without_a_tracer_the_callers_context_passes_unchanged(front: str, back: str) -> None:
    given: dict[str, Any] = {"traceparent": CALLERS_OWN, "tracestate": "a=1", "baggage": "b=2"}
    with hearing():
        async with bridged_pair(front, back) as pair:
            params = {"name": "up__add", "arguments": {"a": 1, "b": 2}, "_meta": given}
            await pair.peer.line.request("tools/call", params)
            (meta,) = pair.up.metas
    assert {name: meta.get(name) for name in given} == given


@EVERY_ERA
async def test_a_callers_end_is_the_end_of_the_upstream_call(front: str, back: str) -> None:
    with hearing() as heard:
        async with bridged_pair(front, back) as pair:
            call = pair.peer.start_tool("up__wait")
            await asyncio.wait_for(pair.up.waiting.wait(), 10)
            call.cancel()
            await asyncio.wait_for(pair.up.cancelled.wait(), 10)
    assert upstream_calls(heard, "wait") == [("up", "cancelled")]
    assert heard.unbalanced() == []


@EVERY_ERA
async def test_questions_are_asked_of_the_gateway_and_of_its_client(front: str, back: str) -> None:
    with hearing() as heard:
        async with bridged_pair(front, back) as pair:
            assert await pair.peer.call("up__confirm") == "accept True"
    asked = [each for each in heard.of(QuestionEnded) if each.side == "client"]
    assert {(each.method, each.outcome) for each in asked} == {("elicitation/create", "accept")}
    assert {each.program for each in asked} >= {"up"}
    assert upstream_calls(heard, "confirm") == [("up", "result")]


@pytest.mark.greenroom(clock="real")
async def test_an_upstream_that_is_killed_ends_its_call_and_tells_its_process(tmp_path: Path) -> None:
    program = tmp_path / "fragile.py"
    program.write_text(FRAGILE_UPSTREAM)
    with hearing() as heard:
        async with Host({"up": [sys.executable, str(program), str(tmp_path / "log")]}) as host:
            process = await host.call("up:pid")
            with pytest.raises(RequestLost):
                await host.call("up:die")
    assert upstream_calls(heard, "die") == [("up", "process_ended")]
    ready = [each for each in heard.of(UpstreamChanged) if each.state == "ready"]
    assert (ready[0].upstream, ready[0].process) == ("up", process)


async def test_a_request_that_gets_no_connection_is_a_call_and_a_bound_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    up, front = Server("up"), Server("front")

    @up.tool
    def add(a: int, b: int) -> int:
        return a + b

    def refuse(*_: object) -> None:
        raise TooManyConnections("all are in use")

    monkeypatch.setattr(ClientConnections, "_make_room", refuse)
    front.mount(Host({"up": up}))
    with hearing() as heard:
        async with front.started(), Client(front, roots=["file:///a"], mode=LEGACY) as client:
            await client.list_tools()
            with pytest.raises(PeerError):
                await client.call("up__add", a=1, b=2)
    assert upstream_calls(heard, "add") == [("up", "refused")]
    assert [(each.kind, each.method) for each in heard.of(RequestRefused)] == [("no_room", "tools/call")]
    assert heard.unbalanced() == []
