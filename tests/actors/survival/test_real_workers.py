"""What handlers in real processes send, ask, refuse and return is treated as in the server's own process. One worker does all of it."""

from __future__ import annotations

import base64
import json
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import PeerError, Pool, Server
from greenroom.wire_probe import WireProbe

from .leaked_resources import descendants
from .stage import said

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.greenroom(clock="real")

TOOLS = (
    *("where", "tells", "tells_from_thread", "asks", "asks_from_thread", "waits", "waits_in_thread"),
    *("refuses", "picture", "measured", "echo"),
)


def sampled(params: dict[str, Any]) -> dict[str, Any]:
    text = f"{params['messages'][0]['content']['text']} This."
    return {"role": "assistant", "content": {"type": "text", "text": text}, "model": "m"}


def roots(_: dict[str, Any]) -> dict[str, Any]:
    return {"roots": [{"uri": "file:///a"}]}


def agreed(_: dict[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": {"city": "Oslo", "days": 3}}


ANSWERS = {"sampling/createMessage": sampled, "roots/list": roots, "elicitation/create": agreed}
PATIENCE = 20.0


@asynccontextmanager
async def opened() -> AsyncGenerator[WireProbe]:
    """A server with one worker for everything; it is the same one in the end."""
    tools: Any = import_module("spoken_tools")
    pool = Pool(size=1)
    server = Server("spoken")
    for name in TOOLS:
        server.tool(isolation=pool)(getattr(tools, name))
    server.resource("test://{city}/page", isolation=pool)(tools.page)
    server.prompt(isolation=pool)(tools.pack_for)
    server.completion("city", prompt="pack_for", isolation=pool)(tools.cities)
    can: dict[str, Any] = {"sampling": {}, "roots": {}, "elicitation": {}}
    async with WireProbe(server, capabilities=can, answers=ANSWERS) as probe:
        worker = await answer(probe, "where")
        assert int(worker) in descendants()
        yield probe
        assert await answer(probe, "where") == worker


async def answer(probe: WireProbe, tool: str, **arguments: Any) -> str:
    asked = await probe.ask("tools/call", {"name": tool, "arguments": arguments})
    return said(await probe.answer(asked, within=PATIENCE))


async def test_they_tell_in_order_and_before_the_result() -> None:
    async with opened() as probe:
        for name in ("tells", "tells_from_thread"):
            before = len(probe.received)
            call = {"name": name, "arguments": {"times": 300}, "_meta": {"progressToken": name}}
            asked = await probe.ask("tools/call", call)
            await probe.answer(asked, within=PATIENCE)
            *told, last = probe.received[before:]
            assert last.get("id") == asked
            progress, logged = told[::2], told[1::2]
            assert {each["params"]["progressToken"] for each in progress} == {name}
            assert [each["params"]["progress"] for each in progress] == list(range(1, 301))
            assert [each["params"]["data"] for each in logged] == [{"at": number} for number in range(300)]
            assert {each["params"]["level"] for each in logged} == {"warning"}


async def test_they_ask_the_client_also_several_things_at_once_and_from_a_thread() -> None:
    async with opened() as probe:
        for name in ("asks", "asks_from_thread"):
            assert await answer(probe, name) == "What now? This. ['file:///a'] 3 in Oslo"


async def test_a_cancelled_call_is_not_answered_and_its_worker_goes_on() -> None:
    async with opened() as probe:
        worker = await answer(probe, "where")
        for times, name in enumerate(("waits", "waits_in_thread"), start=1):
            asked = await probe.ask("tools/call", {"name": name})
            told = await probe.wait_for_notifications("notifications/message", times, within=PATIENCE)
            assert str(told[-1]["data"]) == worker
            await probe.cancel(asked, "not wanted")
            assert await answer(probe, "where") == worker
            assert not any(message.get("id") == asked for message in probe.received)


async def test_they_refuse_and_return_as_all_others_do() -> None:
    async with opened() as probe:
        with pytest.raises(PeerError, match="not today") as refused:
            await probe.call("refuses")
        data = {"why": ["rain"], "id": "00000000-0000-0000-0000-000000000005", "price": "1.5"}
        assert refused.value.to_wire() == {"code": -32001, "message": "not today", "data": data}
        (image,) = (await probe.call("picture"))["content"]
        assert image["mimeType"] == "image/png"
        assert base64.b64decode(image["data"]) == b"\x89PNG\r\n\x1a\n" + bytes(range(256))
        assert await answer(probe, "measured", text="ä" * 1_000_000) == "1000000"
        value = {"a": ["", None, 1.5, -(10**30), {"deep": {"deeper": [True, "ä\n"]}}]}
        assert json.loads(await answer(probe, "echo", value=value)) == value


async def test_resources_prompts_and_completions_come_from_there_too() -> None:
    async with opened() as probe:
        worker = await answer(probe, "where")
        (page,) = (await probe.request("resources/read", {"uri": "test://Oslo/page"}))["contents"]
        assert page["text"] == f"Oslo at test://Oslo/page, by {worker}"
        (message,) = (
            await probe.request("prompts/get", {"name": "pack_for", "arguments": {"city": "Oslo", "days": "3"}})
        )["messages"]
        assert message["content"]["text"] == "Pack for 3 days in Oslo"
        ref = {"ref": {"type": "ref/prompt", "name": "pack_for"}, "argument": {"name": "city", "value": "O"}}
        assert (await probe.request("completion/complete", ref))["completion"]["values"] == ["Oslo", "Omsk"]
