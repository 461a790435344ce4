"""One conversation with our own server: over each transport, and in each era, a program reads the same values."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, PeerError, ToolFailed, UrlElicitationRequest
from greenroom.protocol.errors import RequestCancelled

from .parity_program import make_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom import ElicitationRequest, LogMessage, SamplingRequest

pytestmark = pytest.mark.greenroom(clock="real")
PROGRAM = Path(__file__).with_name("parity_program.py")
VERSIONS = {"auto": "2026-07-28", "2026-07-28": "2026-07-28", "legacy": "2025-11-25", "2025-06-18": "2025-06-18"}
EVERYWHERE = pytest.mark.parametrize(
    ("transport", "mode"),
    [(transport, mode) for transport in ("memory", "HTTP", "stdio") for mode in ("auto", "2026-07-28", "legacy")]
    + [("HTTP", "2025-06-18")],
)


async def fill(request: ElicitationRequest) -> Any:
    return request.accept({"name": "Ann"})


async def visit(request: UrlElicitationRequest) -> Any:
    return request.accept()


async def say(request: SamplingRequest) -> str:
    return f"{request.text}!"


@asynccontextmanager
async def client_of(transport: str, mode: str, **options: Any) -> AsyncGenerator[Client]:
    """A client of the server, which answers whatever it is asked."""
    given: dict[str, Any] = {"elicitation": fill, "url_elicitation": visit, "sampling": say, "roots": ["file:///work"]}
    if transport == "stdio":
        async with Client([sys.executable, str(PROGRAM)], mode=mode, **given, **options) as client:
            yield client
        return
    server = make_server()
    async with server.started():
        target: Any = server if transport == "memory" else await server.listen(port=0)
        async with Client(target, mode=mode, **given, **options) as client:
            yield client


@pytest.mark.row("26-V1", "26-S1", "26-F1", "26-F2", "26-F4", "26-F5")
@EVERYWHERE
async def test_requests_have_the_same_values(transport: str, mode: str) -> None:
    async with client_of(transport, mode) as client:
        assert client.protocol_version == VERSIONS[mode]
        assert (client.server_info["name"], client.server_info["version"]) == ("parity", "2.1")
        assert client.instructions == "Say anything."
        assert await client.ping() < 20
        assert await client.call("add", a=2, b=3) == 5
        assert [await client.call("maybe", value=value) for value in (7, None)] == [7, None]
        assert await client.call("names", count=2) == ["name 0", "name 1"]
        assert await client.call("names", count=0, into=list[str]) == []
        assert await client.call("seat", section=" Süd") == " Süd"
        with pytest.raises(ToolFailed, match="no paint"):
            await client.call("fail")
        assert (await client.call_tool("add", {"a": "x", "b": 1})).is_error
        with pytest.raises(PeerError) as unknown:
            await client.call_tool("missing")
        assert unknown.value.code == -32602
        assert {"add", "seat", "turn"} < {tool.name for tool in await client.list_tools()}
        assert [each.uri for each in await client.list_resources()] == ["parity://dial"]
        assert [each.uri_template for each in await client.list_resource_templates()] == ["parity://each/{name}"]
        assert (await client.read_resource("parity://each/one")).text == "one"
        with pytest.raises(PeerError, match="not found") as missing:
            await client.read_resource("parity://none")
        assert missing.value.code == (-32602 if client.protocol_version == "2026-07-28" else -32002)
        content: Any = (await client.get_prompt("greet", who="Ann")).messages[0].content
        assert content.text == "Greet Ann, fine."
        assert list((await client.complete("greet", "mood", "c")).values) == ["calm", "cross"]


@pytest.mark.row("26-R6", "26-F8", "26-F11", "26-F12")
@EVERYWHERE
async def test_questions_have_the_same_answers(transport: str, mode: str) -> None:
    async with client_of(transport, mode) as client:
        assert await client.call("ask_all") == "Ann 1.5, Hello!, ['file:///work']"
        if mode != "2025-06-18":  # which has no pages to visit
            assert await client.call("ask_in_turn") == "accept, accept"


@pytest.mark.row("26-S5", "26-S2", "26-H9", "26-H10")
@EVERYWHERE
async def test_progress_logs_and_cancellation_are_the_same(transport: str, mode: str) -> None:
    logged: list[Any] = []
    heard: list[Any] = []

    def log(message: LogMessage) -> None:
        logged.append(message.data)

    async with client_of(transport, mode, on_log=log) as client:
        await client.set_log_level("warning")
        reply = await client.call_tool("report", on_progress=lambda step: heard.append((step.progress, step.message)))
        assert reply.text == "reported"
        assert heard == [(1, "step 1"), (2, "step 2")]
        assert logged == ["loud"]
        waiting = client.start_tool("wait")
        async for _ in waiting.progress():
            break
        waiting.cancel("enough")
        with pytest.raises(RequestCancelled):
            await waiting.result()
        assert await client.call("was_stopped") is True


@pytest.mark.row("26-L1", "26-L5")
@EVERYWHERE
async def test_changes_are_told_the_same(transport: str, mode: str) -> None:
    async with client_of(transport, mode) as client, asyncio.timeout(30):
        async with (
            client.subscribe("parity://dial") as updates,
            client.listen("notifications/tools/list_changed") as lists,
        ):
            await client.call("turn", value=3)
            async for told in updates:
                assert (told.gap, told.params) == (False, {"uri": "parity://dial"})
                break
            await client.call("grow")
            async for told in lists:
                assert (told.gap, told.method) == (False, "notifications/tools/list_changed")
                break
        assert await client.call("grown") == "new"
        assert (await client.read_resource("parity://dial")).text == "3"
