"""A handler in a worker can do and send what any other can, and its results are treated the same."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.tasks.stateless_client import StatelessClient, asking, ended

from greenroom.actors.company import Company
from greenroom.actors.peer_channels import MAX_QUEUED_MESSAGES, CallChannel
from greenroom.actors.pools import worker_main
from greenroom.actors.pools.pool_options import Pool
from greenroom.actors.settings import Settings
from greenroom.actors.worker_interfaces import Hooks
from greenroom.protocol.errors import PeerError
from greenroom.supervision import Crash, current_node
from greenroom.supervision.kernel.reports import CrashReport

from . import handlers
from .local_processes import text_of

if TYPE_CHECKING:
    from .local_processes import House, LocalProvider

POOL = Pool(size=1)


async def result(house: House, name: str, /, **arguments: Any) -> dict[str, Any]:
    """The result of one call, by a client that has nothing else to do."""
    house.tool(getattr(handlers, name), POOL)
    await house.open()
    async with house.probe() as probe:
        return await probe.call(name, **arguments)


@pytest.mark.parametrize("name", ["add", "add_later"])
async def test_functions_of_both_kinds_are_called_with_their_arguments(house: House, name: str) -> None:
    assert await result(house, name, a=1, b=2) == {
        "content": [{"type": "text", "text": "3"}],
        "structuredContent": {"result": 3},
        "isError": False,
    }


async def test_arguments_are_held_to_their_hints_in_the_worker(house: House) -> None:
    refused = await result(house, "add", a=1, b="two")
    assert refused["isError"]
    assert text_of(refused).startswith("Invalid arguments for add")


async def test_a_call_and_its_arguments_are_let_go_of_without_the_garbage_collector(house: House) -> None:
    house.tool(handlers.echo, POOL)
    await house.open()
    async with house.probe() as probe:
        await probe.call("echo", value=1)
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                await probe.call("echo", value="x" * 1_000_000)
            held = [each for each in gc.get_objects() if type(each) is worker_main._Call]
        finally:
            gc.enable()
    assert held == []


VALUES: list[Any] = [None, "", "ä\n", 10**30, 1.5, [1, {"x": None}], {"deep": {"deeper": [True]}}, "x" * 1_000_000]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
async def test_whatever_json_can_say_goes_there_and_back(house: House, value: Any) -> None:
    house.tool(handlers.echo, None, "at_home")
    isolated = await result(house, "echo", value=value)
    async with house.probe() as probe:
        assert isolated == await probe.call("at_home", value=value)


async def test_there_is_an_end_to_what_can_come_back(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_main, "LARGEST", 1024 * 1024)
    refused = await result(house, "echo", value="x" * 3_500_000)
    assert text_of(refused) == "Tool execution failed: its result has 3 MiB, and may have 1"
    async with house.probe() as probe:
        assert text_of(await probe.call("echo", value="x" * 700_000)) == "x" * 700_000
    assert house.provider.attempts == 1


async def test_bytes_come_back_as_what_they_are(house: House) -> None:
    (block,) = (await result(house, "picture"))["content"]
    assert block["type"] == "image"
    assert block["mimeType"] == "image/png"


async def test_an_error_that_a_handler_raises_on_purpose_is_the_answer(house: House) -> None:
    house.tool(handlers.refuses, POOL)
    assert await result(house, "complains") == {"content": [{"type": "text", "text": "no luck"}], "isError": True}
    async with house.probe() as probe:
        with pytest.raises(PeerError, match="not today") as refused:
            await probe.call("refuses")
    assert refused.value.to_wire() == {"code": -32001, "message": "not today", "data": {"why": "rain"}}


@pytest.mark.parametrize(("name", "kind"), [("quits", "SystemExit"), ("shapes", "UnserializableResult")])
async def test_a_crash_is_answered_in_general_terms_and_reported_at_home(house: House, name: str, kind: str) -> None:
    crashes: list[str] = []

    def hear(report: object) -> None:
        if isinstance(report, CrashReport) and isinstance(report.reason, Crash) and "tools/call" in report.label:
            crashes.append(f"{report.reason.error}\n{report.reason.error.__cause__}")

    current_node().reports.subscribe(hear)
    failed = await result(house, name)
    assert failed == {"content": [{"type": "text", "text": "Tool execution failed"}], "isError": True}
    async with house.probe() as probe:  # the worker goes on
        assert (await probe.call(name))["isError"]
    assert house.provider.attempts == 1
    assert kind in crashes[0]
    assert "handlers.py" in crashes[0] or "results.py" in crashes[0]


async def test_a_company_may_say_what_an_exception_said(provider: LocalProvider) -> None:
    from .local_processes import House  # noqa: PLC0415 - the fixture has made one with other settings

    house = House(provider)
    house.company = Company(Settings(expose_errors=True, crashes="protocol"), process_provider=provider)
    house.tool(handlers.fails, POOL)
    await house.open()
    async with house.probe() as probe:
        with pytest.raises(PeerError, match="ValueError: boo"):
            await probe.call("fails", what="boo")


async def test_more_memory_than_there_may_be_is_told_as_a_limit_and_the_worker_replaced(house: House) -> None:
    pool = Pool(size=1, memory=100 * 1024 * 1024)
    house.tool(handlers.greedy, pool)
    house.tool(handlers.add, pool)
    await house.open()
    async with house.probe() as probe:
        failed = await probe.call("greedy")
        assert text_of(failed) == (
            "Tool execution failed: it needed more than the 100 MiB of memory that its process may have"
        )
        assert text_of(await probe.call("add", a=1, b=1)) == "2"
    assert house.provider.attempts == 2


async def test_a_handler_tells_in_order_and_before_its_result(house: House) -> None:
    house.tool(handlers.tells, POOL)
    await house.open()
    async with house.probe() as probe:
        asked = await probe.ask("tools/call", {"name": "tells", "_meta": {"progressToken": "p"}})
        await probe.answer(asked)
        told = [message for message in probe.received if "method" in message]
        assert [message["params"].get("progress") for message in told[:6:2]] == [1, 2, 3]
        assert [message["params"].get("data") for message in told[1:6:2]] == [{"at": 0}, {"at": 1}, {"at": 2}]
        assert told[6]["params"] == {"x": [1, None, "y"]}
        assert probe.received[-1].get("id") == asked


@pytest.mark.parametrize("kind", ["progress", "log"])
async def test_a_report_that_is_not_sent_begins_the_time_of_silence_anew(house: House, kind: str) -> None:
    house.tool(handlers.reports, POOL)
    await house.open()
    async with house.probe() as probe:
        await probe.request("logging/setLevel", {"level": "error"})
        replies: list[str] = []
        for seconds in (59, 61):
            params = {"name": "reports", "arguments": {"seconds": seconds, "times": 5, "kind": kind}}
            replies.append(text_of(await probe.request("tools/call", params, within=1000)))
        assert replies[0] == "reported"
        assert replies[1] == "Tool 'reports' timed out: it said nothing for 60 s (call_timeout)"
        assert not probe.notifications("notifications/progress")
        assert not probe.notifications("notifications/message")


async def test_reports_that_are_not_sent_cost_a_few_messages_a_second_at_most(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[float] = []

    def touch(_: CallChannel, ahead: float = 0.0) -> None:
        touched.append(ahead)

    monkeypatch.setattr(CallChannel, "touch", touch)
    house.tool(handlers.reports, POOL)
    await house.open()
    async with house.probe() as probe:
        params = {"name": "reports", "arguments": {"seconds": 0.01, "times": 1000}}
        assert text_of(await probe.request("tools/call", params, within=100)) == "reported"
        assert 38 <= len(touched) <= 41
        assert set(touched) == {0.25}, "what is not told of lies within that time"


async def test_a_handler_that_sends_too_much_is_told_that_it_is_not_delivered(house: House) -> None:
    house.tool(handlers.floods, POOL)
    await house.open()
    async with house.probe() as probe:
        params = {"name": "floods", "arguments": {"times": 50_000}, "_meta": {"progressToken": "p"}}
        taken = text_of(await probe.request("tools/call", params))
        assert 0 < len(probe.notifications("notifications/progress")) <= int(taken) == MAX_QUEUED_MESSAGES


def sampled(params: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": "this"}, "model": "m"}


def roots(params: dict[str, Any]) -> dict[str, Any]:
    return {"roots": [{"uri": "file:///a"}]}


@pytest.mark.parametrize("name", ["asks", "asks_from_thread"])
async def test_a_handler_asks_the_client(house: House, name: str) -> None:
    house.tool(getattr(handlers, name), POOL)
    await house.open()
    answers = {"sampling/createMessage": sampled}
    async with house.probe(capabilities={"sampling": {}}, answers=answers) as probe:
        assert text_of(await probe.call(name)) == "this!"


async def test_two_questions_may_be_open_at_once(house: House) -> None:
    house.tool(handlers.asks_both, POOL)
    await house.open()
    answers = {"sampling/createMessage": sampled, "roots/list": roots}
    async with house.probe(capabilities={"sampling": {}, "roots": {}}, answers=answers) as probe:
        assert text_of(await probe.call("asks_both")) == "['file:///a'] this"


async def test_a_task_without_a_session_asks_and_ends_in_a_worker(house: House) -> None:
    house.tool(handlers.asks_both, POOL, task_support="optional")
    house.tool(handlers.add, POOL, task_support="optional")
    await house.open()
    client = StatelessClient(house.company)
    id = await client.start("asks_both")
    questions = await asking(client, id, 2)
    answers = {"sampling/createMessage": sampled({}), "roots/list": roots({})}
    responses = {key: answers[question["method"]] for key, question in questions.items()}
    await client.result("tasks/update", taskId=id, inputResponses=responses)
    assert text_of((await ended(client, id))["result"]) == "['file:///a'] this"
    added = await ended(client, await client.start("add", a=1, b=2))
    assert added["result"]["structuredContent"] == 3


async def test_a_question_that_the_client_cannot_answer_is_the_handlers_error(house: House) -> None:
    house.tool(handlers.asks, POOL)
    await house.open()
    async with house.probe() as probe:
        with pytest.raises(PeerError, match="needs the capability 'sampling'"):
            await probe.call("asks")


async def test_a_handler_knows_whose_call_it_is(provider: LocalProvider) -> None:
    from .local_processes import House  # noqa: PLC0415 - as above

    async def init(facts: Any) -> dict[str, Any]:
        return {"opened": (1, {2})}

    house = House(provider)
    house.company = Company(Settings(name="test"), hooks=Hooks(init=init), process_provider=provider)
    house.tool(handlers.knows, POOL)
    house.tool(handlers.reads_state, POOL)
    await house.open()
    async with house.probe(capabilities={"roots": {}}) as probe:
        known = (await probe.call("knows"))["content"][0]["text"]
        assert '"client":{"name":"probe","version":"1"}' in known
        assert '"can":{"roots":{}}' in known
        assert '"name":"knows"' in known
        assert text_of(await probe.call("reads_state")) == "{'opened': (1, {2})}"


async def test_a_state_that_cannot_travel_is_missed_by_who_asks_for_it(provider: LocalProvider) -> None:
    from .local_processes import House  # noqa: PLC0415 - as above

    async def init(facts: Any) -> Any:
        return object()

    house = House(provider)
    house.company = Company(
        Settings(name="test", expose_errors=True), hooks=Hooks(init=init), process_provider=provider
    )
    house.tool(handlers.add, POOL)
    house.tool(handlers.reads_state, POOL)
    await house.open()
    async with house.probe() as probe:
        assert text_of(await probe.call("add", a=1, b=1)) == "2"
        assert "ctx.state is not there in a worker process" in text_of(await probe.call("reads_state"))


async def test_resources_prompts_and_completions_run_there_too(house: House) -> None:
    house.resource("test://page", handlers.page, POOL)
    house.template("test://{city}/doc", handlers.document, POOL)
    house.prompt(handlers.pack_for, POOL)
    house.completion(("prompt", "pack_for", "city"), handlers.cities, POOL)
    await house.open()
    async with house.probe() as probe:
        (page,) = (await probe.request("resources/read", {"uri": "test://page"}))["contents"]
        assert page["text"] == "a page"
        (page,) = (await probe.request("resources/read", {"uri": "test://Oslo/doc"}))["contents"]
        assert page["text"] == "Oslo at test://Oslo/doc"
        prompt = {"name": "pack_for", "arguments": {"city": "Oslo", "days": "3"}}
        (message,) = (await probe.request("prompts/get", prompt))["messages"]
        assert message["content"]["text"] == "Pack for 3 days in Oslo"
        ref = {"ref": {"type": "ref/prompt", "name": "pack_for"}, "argument": {"name": "city", "value": "O"}}
        assert (await probe.request("completion/complete", ref))["completion"]["values"] == ["Oslo", "Omsk"]
    assert house.provider.attempts == 1


async def test_a_handler_that_is_registered_later_is_loaded_by_a_worker_that_runs(house: House) -> None:
    house.tool(handlers.add, POOL)
    await house.open()
    async with house.probe() as probe:
        await probe.call("add", a=1, b=1)
        house.tool(handlers.echo, POOL)
        assert text_of(await probe.call("echo", value="hi")) == "hi"
    assert house.provider.attempts == 1
