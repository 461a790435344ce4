"""The registry, the workers and the subscriptions in a whole company, as its peers see them on the wire."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.company import Company
from greenroom.actors.handler_options import ResourceOptions, ToolOptions
from greenroom.actors.settings import Settings
from greenroom.protocol.errors import PeerError
from greenroom.supervision import Ref, Supervisor, start, which_children
from greenroom.supervision.testing import kill
from greenroom.wire_probe import WireProbe

from .registry_services import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.context import Context

FAILED = {"content": [{"type": "text", "text": "Tool execution failed"}], "isError": True}


@pytest.fixture
async def company() -> Company:
    company = Company(Settings(name="test"))
    await start(Supervisor, [company.child_spec()])
    return company


@asynccontextmanager
async def peers(company: Company, count: int) -> AsyncGenerator[list[WireProbe]]:
    probes = [WireProbe(company) for _ in range(count)]
    for probe in probes:
        await probe.__aenter__()
    try:
        yield probes
    finally:
        for probe in probes:
            await probe.close()


async def hello(name: str) -> str:
    return f"hello {name}"


async def error_of(probe: WireProbe, method: str, params: dict[str, Any]) -> dict[str, Any]:
    with pytest.raises(PeerError) as refused:
        await probe.request(method, params)
    return refused.value.to_wire()


@pytest.mark.row("RG-13", "WC-04")
async def test_completions_are_declared_once_one_is_registered(company: Company) -> None:
    async with WireProbe(company) as probe:
        assert "completions" not in probe.welcome["capabilities"]
    await company.registry.register_completion(("prompt", "p", "a"), lambda: ["x"])
    async with WireProbe(company) as probe:
        assert probe.welcome["capabilities"]["completions"] == {}
    await company.registry.unregister_completion(("prompt", "p", "a"))
    async with WireProbe(company) as probe:
        assert "completions" not in probe.welcome["capabilities"]


@pytest.mark.row("RG-21", "RG-06", "SC-04", "WC-26")
async def test_a_tool_is_announced_called_and_unknown_once_it_is_unregistered(company: Company) -> None:
    async with WireProbe(company) as probe:
        await company.registry.register_tool("hello", hello)
        await probe.wait_for_notifications("notifications/tools/list_changed")
        assert [tool["name"] for tool in (await probe.request("tools/list"))["tools"]] == ["hello"]
        assert (await probe.call("hello", name="Ada"))["content"][0]["text"] == "hello Ada"
        await company.registry.unregister_tool("hello")
        await probe.wait_for_notifications("notifications/tools/list_changed", 2)
        error = await error_of(probe, "tools/call", {"name": "hello", "arguments": {"name": "Ada"}})
        assert error == {"code": -32602, "message": "Unknown tool: hello"}


@pytest.mark.row("SC-01", "SE-09")
async def test_subscribers_get_updates_after_the_subscriptions_process_crashed(company: Company) -> None:
    await company.registry.register_resource("r", lambda: "x", ResourceOptions(uri="a://r"))
    async with peers(company, 2) as (reader, other):
        await reader.request("resources/subscribe", {"uri": "a://r"})
        company.registry.notify_resource_updated("a://r")
        assert await reader.wait_for_notifications("notifications/resources/updated") == [{"uri": "a://r"}]
        await kill(company.subscriptions, successor=True)
        company.registry.notify_resource_updated("a://r")
        await reader.wait_for_notifications("notifications/resources/updated", 2)
        assert other.notifications("notifications/resources/updated") == []
        await reader.request("resources/unsubscribe", {"uri": "a://r"})
    assert company.subscription_table.subscribers == {}


@pytest.mark.row("RG-04", "RG-05")
async def test_calls_and_lists_go_on_while_there_is_no_registrar(company: Company) -> None:
    await company.registry.register_tool("hello", hello)
    registrar = Ref[Any](company.name("registry"))
    async with WireProbe(company) as probe:
        for _ in range(3):
            await kill(registrar, successor=True)
            assert (await probe.call("hello", name="Ada"))["content"][0]["text"] == "hello Ada"


async def test_a_killed_worker_fails_its_own_call_only(company: Company) -> None:
    began = asyncio.Event()

    async def waits() -> str:
        began.set()
        await asyncio.sleep(3600)
        return "never"

    await company.registry.register_tool("waits", waits)
    await company.registry.register_tool("hello", hello)
    async with peers(company, 2) as (one, other):
        calling = asyncio.create_task(one.call("waits"))
        await began.wait()
        (worker,) = await which_children(company.workers)
        await kill(worker.pid)
        assert await calling == FAILED
        assert (await one.call("hello", name="a"))["content"][0]["text"] == "hello a"
        assert (await other.call("hello", name="b"))["content"][0]["text"] == "hello b"


@pytest.mark.parametrize("where", ["directly", "in a gathered task", "in a thread", "in a loop of its own"])
@pytest.mark.parametrize("what", [SystemExit(0), KeyboardInterrupt()])
async def test_a_tool_that_exits_fails_its_own_call_and_a_hundred_others_go_on(
    company: Company, where: str, what: BaseException
) -> None:
    async def leave() -> None:
        raise what

    async def gather() -> None:
        await asyncio.gather(leave(), asyncio.sleep(60))

    def blocking() -> None:
        raise what

    release = asyncio.Event()

    async def bystander(ctx: Context) -> str:
        await release.wait()
        return ctx.session_id

    how: dict[str, tuple[Any, ToolOptions]] = {
        "directly": (leave, ToolOptions()),
        "in a gathered task": (gather, ToolOptions()),
        "in a thread": (blocking, ToolOptions()),
        "in a loop of its own": (gather, ToolOptions(isolation="thread")),
    }
    await company.registry.register_tool("exits", *how[where])
    await company.registry.register_tool("bystander", bystander)
    async with peers(company, 11) as (culprit, *others):
        calls = [asyncio.create_task(other.call("bystander")) for other in others for _ in range(10)]
        assert await culprit.call("exits") == FAILED
        release.set()
        results = await asyncio.gather(*calls)
        assert len({result["content"][0]["text"] for result in results}) == 10
        assert not any(result["isError"] for result in results)


async def test_forty_slow_plain_calls_keep_no_other_tool_waiting(company: Company) -> None:
    release = threading.Event()

    def slow() -> str:
        release.wait()
        return "slow"

    def quick() -> str:
        return "quick"

    await company.registry.register_tool("slow", slow)
    await company.registry.register_tool("quick", quick)
    async with WireProbe(company) as probe:
        calls = [asyncio.create_task(probe.call("slow")) for _ in range(40)]
        await until(lambda: company.bulkheads.waiting == 32)
        assert (await probe.call("quick"))["content"][0]["text"] == "quick"
        assert (company.bulkheads.running, company.bulkheads.waiting) == (8, 32)
        release.set()
        assert {result["content"][0]["text"] for result in await asyncio.gather(*calls)} == {"slow"}


@pytest.mark.row("TF-21")
async def test_a_tool_may_have_less_time_than_the_company_gives(company: Company) -> None:
    async def sleeps(ctx: Context) -> str:
        await asyncio.sleep(3600)
        return "never"

    def blocks(ctx: Context) -> str:
        ctx.cancelled.wait_in_thread()
        return "too late"

    await company.registry.register_tool("sleeps", sleeps, ToolOptions(timeout=2))
    await company.registry.register_tool("blocks", blocks, ToolOptions(timeout=2))
    async with WireProbe(company) as probe:
        loop = asyncio.get_running_loop()
        for name in ("sleeps", "blocks"):
            began = loop.time()
            result = await probe.call(name)
            assert result == {
                "content": [{"type": "text", "text": f"Tool {name!r} timed out after 2 s"}],
                "isError": True,
            }
            assert loop.time() - began == pytest.approx(2, abs=0.5)
    await until(lambda: not company.bulkheads.running)


async def test_sampling_from_a_plain_tool_reaches_the_client(company: Company) -> None:
    def asks(ctx: Context) -> str:
        return ctx.wait(ctx.sample("x")).text

    await company.registry.register_tool("asks", asks)
    answer = {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "m"}
    async with WireProbe(
        company, capabilities={"sampling": {}}, answers={"sampling/createMessage": lambda _: answer}
    ) as probe:
        assert (await probe.call("asks"))["content"][0]["text"] == "yes"
    async with WireProbe(company) as probe:
        error = await error_of(probe, "tools/call", {"name": "asks"})
        assert error["code"] != -32000
