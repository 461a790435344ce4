"""Everything that a handler in a worker sends reaches the server, and a lost call has an error that says why."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.tasks.stateless_client import ABLE, StatelessClient

from greenroom.actors.peer_channels import MAX_QUEUED_MESSAGES
from greenroom.actors.pools.pool_options import Pool
from greenroom.actors.pools.worker_proxy import WorkerLost, start_failure_for_caller, why_lost, why_not_started
from greenroom.actors.worker_interfaces import company_of_call
from greenroom.protocol.errors import PeerError
from greenroom.supervision import NO_CONNECTION, NO_PROCESS, Crash, Shutdown, StartFailed, current_node, kill
from greenroom.supervision.cluster.machines import NothingFits
from greenroom.supervision.cluster.node_records import NodeFailed, NodeLost, ProcessEnding
from greenroom.supervision.cluster.value_codec import RemoteError
from greenroom.supervision.kernel.reports import Unexpected

from . import handlers, odd_handlers
from .local_processes import Room, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .local_processes import House

POOL = Pool(size=1)


async def never(params: dict[str, Any]) -> dict[str, Any]:
    """A user who has gone for a walk."""
    await asyncio.Event().wait()
    return params


async def opened(house: House, *names: str) -> None:
    for name in names:
        house.tool(getattr(odd_handlers, name, None) or getattr(handlers, name), POOL)
    await house.open()


# --- heard


async def test_a_handler_that_says_much_in_time_is_heard_throughout(house: House) -> None:
    await opened(house, "paces")
    async with house.probe() as probe:
        params = {"name": "paces", "arguments": {"times": 2 * MAX_QUEUED_MESSAGES}, "_meta": {"progressToken": "p"}}
        assert text_of(await probe.request("tools/call", params, within=500)) == str(2 * MAX_QUEUED_MESSAGES)


async def test_a_question_that_is_not_waited_for_any_more_is_taken_back(house: House) -> None:
    await opened(house, "asks_briefly")

    async with house.probe(capabilities={"sampling": {}}, answers={"sampling/createMessage": never}) as probe:
        assert text_of(await probe.call("asks_briefly")) == "never mind"
        (withdrawn,) = await probe.wait_for_notifications("notifications/cancelled")
        (asked,) = [each for each in probe.received if each.get("method") == "sampling/createMessage"]
        assert withdrawn["requestId"] == asked["id"]


async def test_a_question_that_is_open_at_the_end_of_its_call_is_taken_back(house: House) -> None:
    await opened(house, "asks_and_leaves", "add")

    async with house.probe(capabilities={"sampling": {}}, answers={"sampling/createMessage": never}) as probe:
        assert text_of(await probe.call("asks_and_leaves")) == "gone, False"
        await probe.wait_for_notifications("notifications/cancelled")
        assert text_of(await probe.call("add", a=1, b=2)) == "3"


async def test_a_url_elicitation_of_a_worker_is_registered_in_the_server(house: House) -> None:
    await opened(house, "sends_away")
    async with house.probe(capabilities={"elicitation": {"url": {}}}) as probe:
        with pytest.raises(PeerError, match="open a page first"):
            await probe.call("sends_away")
        assert house.company.peers.elicitation_complete(odd_handlers.PAGE)
        assert await probe.wait_for_notifications("notifications/elicitation/complete") == [
            {"elicitationId": odd_handlers.PAGE}
        ]


async def test_a_completed_elicitation_in_a_worker_is_reported_to_the_session(house: House) -> None:
    await opened(house, "sends_away", "has_seen")
    async with house.probe(capabilities={"elicitation": {"url": {}}}) as probe:
        with pytest.raises(PeerError, match="open a page first"):
            await probe.call("sends_away")
        assert text_of(await probe.call("has_seen")) == "True"
        assert await probe.wait_for_notifications("notifications/elicitation/complete") == [
            {"elicitationId": odd_handlers.PAGE}
        ]


BOB = {"action": "accept", "content": {"value": "bob"}}
HELLO = {"role": "assistant", "content": {"type": "text", "text": "Hello"}, "model": "m"}
GREETED = "Hello Accepted(value='bob') second"


@pytest.mark.row("26-R12")
async def test_a_handler_in_a_worker_ends_with_questions_and_runs_again(house: House) -> None:
    await opened(house, "asks_in_rounds")
    client = StatelessClient(house.company, capabilities=ABLE)
    call: dict[str, Any] = {"name": "asks_in_rounds", "arguments": {}}

    first = await client.result("tools/call", **call)
    assert list(first["inputRequests"]) == ["who"]
    second = await client.result("tools/call", **call, inputResponses={"who": BOB}, requestState=first["requestState"])
    (key,) = second["inputRequests"]
    assert key == odd_handlers.GREETING.key
    third = await client.result("tools/call", **call, inputResponses={key: HELLO}, requestState=second["requestState"])
    assert text_of(third) == GREETED


async def test_a_handler_in_a_worker_asks_a_session_between_its_runs(house: House) -> None:
    await opened(house, "asks_in_rounds")
    answers: dict[str, Callable[[dict[str, Any]], Any]] = {
        "elicitation/create": lambda _: BOB,
        "sampling/createMessage": lambda _: HELLO,
    }
    async with house.probe(capabilities=ABLE, answers=answers) as probe:
        assert text_of(await probe.call("asks_in_rounds")) == GREETED


async def test_a_question_of_a_worker_that_was_not_declared_is_the_clients_error(house: House) -> None:
    await opened(house, "asks_in_rounds")
    client = StatelessClient(house.company, capabilities={})
    error = await client.error("tools/call", name="asks_in_rounds", arguments={})
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"elicitation": {"form": {}}}})


async def test_a_call_that_steps_aside_is_answered_all_the_same(house: House) -> None:
    await opened(house, "steps_aside")
    async with house.probe() as probe:
        assert text_of(await probe.call("steps_aside")) == "True"


async def test_changes_reported_by_a_worker_reach_the_subscribers_of_the_server(house: House) -> None:
    house.resource("test://page", handlers.page, POOL)
    await opened(house, "changes", "changes_from_thread", "add")
    async with house.probe() as probe:
        await probe.request("resources/subscribe", {"uri": "test://page"})
        assert text_of(await probe.call("changes")) == "changed"
        await probe.wait_for_notifications("notifications/resources/updated")  # two that wait would be one
        assert text_of(await probe.call("changes_from_thread")) == "changed"
        told = await probe.wait_for_notifications("notifications/resources/updated", 2)
        assert [each["title"] for each in told] == ["new", "changes_from_thread"]
        assert {each["uri"] for each in told} == {"test://page"}
        await probe.wait_for_notifications("notifications/tools/list_changed")


def test_a_change_reported_before_the_node_runs_reaches_no_node() -> None:
    odd_handlers.SERVER.notify_resource_updated("test://page")
    odd_handlers.SERVER.notify_list_changed("tool")
    assert not odd_handlers.SERVER.elicitation_complete(odd_handlers.PAGE)
    assert company_of_call() is None


async def test_an_exception_without_words_is_a_crash_like_any_other(house: House) -> None:
    await opened(house, "fails_without_words", "add")
    told: list[str] = []
    current_node().reports.subscribe(lambda report: told.append(str(report)))
    async with house.probe() as probe:
        failed = await probe.call("fails_without_words")
        assert failed["isError"]
        assert "WordlessError" not in text_of(failed)
        assert text_of(await probe.call("add", a=1, b=2)) == "3"
    assert [each for each in told if "(its str raised)" in each]
    assert house.provider.attempts == 1


async def test_nonsense_on_the_way_is_reported_and_the_call_is_answered(house: House) -> None:
    await opened(house, "pauses")
    told: list[Any] = []
    current_node().reports.subscribe(told.append)
    async with house.probe() as probe:
        asked = await probe.ask("tools/call", {"name": "pauses", "arguments": {"seconds": 1}})
        await asyncio.sleep(0.5)
        room: Any = current_node().process(house.provider.processes[0].owner.pid)
        worker: Any = current_node().process(room.behaviour.inside.pid)
        call = worker.behaviour._call
        proxy = worker.behaviour.home
        for word in ("nonsense", [99, call.number, "what"]):
            proxy.send(word)
        for word in ("nonsense", [3, call.number, "what", "else"], [3, call.number + 7, "of another"]):
            room.behaviour.inside.send(word)
        answer = await probe.answer(asked)
        assert text_of(answer["result"]) == "paused"
    assert len([each for each in told if isinstance(each, Unexpected)]) >= 3


# --- lost


async def test_a_process_without_its_worker_is_ended_and_its_call_answered(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Room, "traps_exit", True)

    def stay(room: Room, message: object) -> None:
        """Stay, although the worker in it has ended."""

    monkeypatch.setattr(Room, "handle_info", stay)
    await opened(house, "waits", "add")
    async with house.probe() as probe:
        asked = await probe.ask("tools/call", {"name": "waits"})
        await probe.wait_for_notifications("notifications/message")
        room: Any = current_node().process(house.provider.processes[0].owner.pid)
        kill(room.behaviour.inside)
        answer = await probe.answer(asked)
        assert text_of(answer["result"]) == "Tool execution failed: its process cannot be reached any more"
        assert house.provider.processes[0].ends == 1
        assert text_of(await probe.call("add", a=1, b=2)) == "3"
    assert house.provider.attempts == 2


async def test_a_process_that_ends_while_it_begins_is_told_as_that(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await opened(house, "add")

    async def start_main(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Room, "start_main", start_main)
    async with house.probe() as probe:
        asked = await probe.ask("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
        await asyncio.sleep(0.1)
        house.provider.processes[0].kill()
        answer = await probe.answer(asked)
        assert "Tool execution failed: " in text_of(answer["result"])
        assert "killed" in text_of(answer["result"])


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        (Shutdown(WorkerLost("it is so")), "it is so"),
        (Crash(WorkerLost("it is so")), "it is so"),
        (Crash(ValueError("of ours")), "the proxy of its process has crashed (ValueError)"),
        (NO_CONNECTION, "its process cannot be reached any more"),
        (NO_PROCESS, f"its process was stopped ({NO_PROCESS})"),
    ],
    ids=str,
)
def test_why_a_worker_was_lost_is_a_clause(reason: Any, said: str) -> None:
    assert why_lost(reason) == said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (StartFailed(Crash(NodeFailed("n", "no module x; its last words: …")), "n"), "no module x"),
        (StartFailed(NO_CONNECTION, "n"), str(NO_CONNECTION)),
        (RemoteError("builtins.OSError", "too many files"), "too many files"),
        (OSError("too many files"), "too many files"),
    ],
    ids=str,
)
def test_why_a_worker_did_not_come_up_is_a_clause_for_the_log_and_less_for_callers(error: Exception, said: str) -> None:
    assert why_not_started(error) == f"its process could not be started: {said}"
    assert start_failure_for_caller(error) in (
        "its process could not be started",
        f"its process could not be started: {NO_CONNECTION}",
    )


def test_callers_hear_how_the_process_of_a_worker_ended() -> None:
    lost = StartFailed(Crash(NodeLost("n", ProcessEnding(signal=9))), "n")
    assert start_failure_for_caller(lost).startswith(
        "its process could not be started: it was ended by signal 9 (SIGKILL)"
    )


@pytest.mark.parametrize(
    ("full", "said"), [(False, "no machine of the cluster fits"), (True, "every machine that fits is full")]
)
def test_callers_hear_that_no_machine_takes_a_worker_and_no_machines_name(*, full: bool, said: str) -> None:
    error = StartFailed(Crash(NothingFits({"gpu": True}, ("inner-17 (disk=fast)",), full=full)), "n")
    assert start_failure_for_caller(error) == f"its process could not be started: {said}"
    assert "inner-17 (disk=fast)" in why_not_started(error)
