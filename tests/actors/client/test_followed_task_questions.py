"""Questions of followed tasks, which are answered once each; and tasks that are handed to their caller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom import Client, PeerError, RequestTimeout
from greenroom.actors.client import followed_tasks
from greenroom.actors.client.client_handler import AskingCall
from greenroom.actors.client.errors import InputRefused, TaskLost
from greenroom.actors.client.followed_tasks import MOST_KEYS
from greenroom.protocol.errors import BadAnswer
from greenroom.transports.client.errors import ConnectionLost

from .client_helpers import playing
from .fake_server import SILENCE
from .task_script import ANNE, CALL, DONE, ID, UNKNOWN, Asked, TaskScript, asking, completed, task, working

# --- questions


@pytest.mark.row("26-T4", "26-T11")
async def test_each_question_is_answered_once_however_often_it_is_shown() -> None:
    script = TaskScript(asking("a"), asking("a"), asking("a", "b"), asking("b"), asking("a"), completed())
    handler = Asked()
    async with playing(script.stage, handler=handler) as (line, _):
        assert await line.request("tools/call", CALL) == DONE
    assert script.updates == [{"a": ANNE}, {"b": ANNE}]
    assert len(handler.calls) == 2
    assert script.sent("tasks/update")[0] == {"taskId": ID, "inputResponses": {"a": ANNE}}


@pytest.mark.row("26-T8")
async def test_a_question_knows_the_call_that_its_task_was_made_of() -> None:
    script = TaskScript(asking("a"), completed())
    handler = Asked()
    async with playing(script.stage, handler=handler) as (line, _):
        pending = line.begin("tools/call", CALL)
        id = pending.id
        await pending
    assert handler.calls == [AskingCall("tools/call", CALL, id)]


async def test_an_answer_is_sent_at_once_and_does_not_hasten_the_next_poll() -> None:
    script = TaskScript(asking("a"), completed())
    sent: list[float] = []
    loop = asyncio.get_running_loop()

    def update(_: Any) -> Any:
        sent.append(loop.time() - began)
        return {"resultType": "complete"}

    script.on_update = update
    async with playing(script.stage, handler=Asked()) as (line, _):
        began = loop.time()
        await line.request("tools/call", CALL)
    assert sent == [pytest.approx(1.0)]
    assert script.polled == [1.0, 2.0]


async def test_answers_come_in_parts_as_they_are_given() -> None:
    script = TaskScript(asking("quick", "slow"), asking("slow"), completed())
    slow = asyncio.Event()

    class Slowly(Asked):
        async def handle_request(self, method: str, params: dict[str, Any]) -> Any:
            self.calls.append(None)
            if len(self.calls) == 2:
                await slow.wait()
            return {"action": "decline", "n": len(self.calls)}

    async with playing(script.stage, handler=Slowly()) as (line, stage):
        call = asyncio.ensure_future(line.request("tools/call", CALL))
        await stage.wire.hears("tasks/update")
        assert script.updates == [{"quick": {"action": "decline", "n": 1}}]
        slow.set()
        await stage.wire.hears("tasks/update", 2)
        assert [list(update) for update in script.updates] == [["quick"], ["slow"]]
        assert await call == DONE


@pytest.mark.parametrize("lost", [ConnectionLost("pulled out"), SILENCE])
async def test_an_update_that_was_lost_is_made_again_while_the_question_is_open(lost: Any) -> None:
    script = TaskScript(asking("a"), asking("a"), completed())
    answers = [lost, lost, {"resultType": "complete"}]

    def update(_: Any) -> Any:
        return answers.pop(0)

    script.on_update = update
    handler = Asked()
    async with playing(script.stage, handler=handler, request_timeout=200) as (line, _):
        assert await line.request("tools/call", CALL) == DONE
    assert (len(handler.calls), set(map(str, script.updates))) == (1, {str({"a": ANNE})})


async def test_an_update_that_was_lost_is_not_made_again_when_the_question_is_closed() -> None:
    script = TaskScript(asking("a"), working(), working(), completed())
    script.on_update = SILENCE
    async with playing(script.stage, handler=Asked(), request_timeout=200) as (line, _):
        assert await line.request("tools/call", CALL) == DONE
    assert len(script.updates) == 1


async def test_a_refused_answer_fails_the_call_if_its_question_is_still_open() -> None:
    script = TaskScript(asking("a"), working(), asking("b"), asking("b"))
    script.on_update = PeerError(-32602, "that is no answer")
    async with playing(script.stage, handler=Asked()) as (line, _):
        with pytest.raises(PeerError, match="that is no answer"):
            await line.request("tools/call", CALL)
        await script.cancelled.wait()
    assert [list(update) for update in script.updates] == [["a"], ["b"]]


@pytest.mark.parametrize("answer", [ValueError("no user"), "a text", PeerError(-1, "declined")])
async def test_a_handler_without_an_answer_ends_the_call_and_the_task(answer: Any) -> None:
    script = TaskScript(asking("a"))
    async with playing(script.stage, handler=Asked(answer)) as (line, _):
        with pytest.raises(InputRefused, match="elicitation/create"):
            await line.request("tools/call", CALL)
        await script.cancelled.wait()
    assert script.updates == []


@pytest.mark.parametrize("state", [working(), completed(), task("cancelled")])
async def test_a_question_that_the_server_takes_back_is_withdrawn_from_the_user(state: Any) -> None:
    script = TaskScript(asking("a"), state, completed())
    handler = Asked(None)
    async with playing(script.stage, handler=handler) as (line, _):
        call = asyncio.ensure_future(line.request("tools/call", CALL))
        await handler.left.wait()
        await asyncio.wait((call,))
    assert script.updates == []


async def test_a_question_that_was_taken_back_unanswered_may_be_asked_again() -> None:
    script = TaskScript(asking("a"), working(), asking("a"), completed())
    handler = Asked(None)
    async with playing(script.stage, handler=handler) as (line, _):
        call = asyncio.ensure_future(line.request("tools/call", CALL))
        await handler.left.wait()
        handler.answer = ANNE
        assert await call == DONE
    assert script.updates == [{"a": ANNE}]


async def test_a_caller_that_leaves_withdraws_the_questions() -> None:
    script = TaskScript(asking("a"))
    handler = Asked(None)
    async with playing(script.stage, handler=handler) as (line, _):
        with pytest.raises(RequestTimeout):
            await line.request("tools/call", CALL, timeout=2.5)
        async with asyncio.timeout(1):
            await handler.left.wait()


async def test_more_questions_than_may_be_handled_at_once_are_asked_in_turns() -> None:
    script = TaskScript(asking("a", "b", "c"), asking("b", "c"), asking("c"), completed())
    handler = Asked()
    async with playing(script.stage, handler=handler, max_server_requests=1) as (line, _):
        assert await line.request("tools/call", CALL) == DONE
    assert script.updates == [{"a": ANNE}, {"b": ANNE}, {"c": ANNE}]


async def test_a_server_that_asks_for_ever_is_a_bad_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_tasks, "MOST_KEYS", 20)
    script = TaskScript()
    script.stage.answers["tasks/get"] = lambda _: asking(f"k{len(script.updates)}", pollIntervalMs=50)
    async with playing(script.stage, handler=Asked(), request_timeout=None) as (line, _):
        with pytest.raises(BadAnswer, match="asks again and again: a task has asked 20 questions"):
            await line.request("tools/call", CALL)
        await script.cancelled.wait()
    assert len(script.updates) == 20 < MOST_KEYS


# --- tasks that are handed to the caller


@pytest.mark.row("26-T2")
async def test_a_caller_may_have_the_task_itself() -> None:
    script = TaskScript(working(statusMessage="half"), completed())
    async with Client(script.stage) as client:
        reply = await client.call_tool("t", task=60)
        assert reply.task is not None
        assert (reply.task.id, reply.task.poll_interval, reply.content) == (ID, 1.0, [])
        await asyncio.sleep(30)
        assert script.polled == []
        assert (await client.tasks_get(reply.task)).status_message == "half"
        assert (await client.tasks_result(reply.task)).text == "done"
        ended = await client.tasks_get(reply.task)
        assert (ended.status, ended.result) == ("completed", DONE)
        assert "task" not in script.sent("tools/call")[0]
        started = client.start_tool("t", task=True)
        assert (await started).task is not None
    assert script.sent("tasks/result") == []
    assert not script.cancelled.is_set()


@pytest.mark.row("26-T4")
async def test_questions_of_a_task_are_answered_while_its_end_is_waited_for() -> None:
    script = TaskScript(asking("a"), asking("a"), working(), asking("b"), completed())
    handler = Asked()
    async with Client(script.stage, handler=handler) as client:
        reply = await client.call_tool("t", {"n": 1}, task=True)
        assert reply.task is not None
        waiting = [asyncio.ensure_future(client.tasks_wait(reply.task)) for _ in range(2)]
        assert (await client.tasks_result(reply.task)).text == "done"
        assert {(await each).status for each in waiting} == {"completed"}
    assert script.updates == [{"a": ANNE}, {"b": ANNE}]
    assert [(call.method, call.params["arguments"]) for call in handler.calls if call] == [("tools/call", {"n": 1})] * 2
    assert len(script.polled) == 5  # one process polls for all three


async def test_a_key_that_was_answered_is_not_asked_again_by_a_later_wait() -> None:
    script = TaskScript(asking("a"), asking("a"), asking("a"), completed())
    handler = Asked()
    async with Client(script.stage, handler=handler) as client:
        reply = await client.call_tool("t", task=True)
        assert reply.task is not None
        with pytest.raises(RequestTimeout):
            await client.within(1.5).tasks_result(reply.task)
        assert (await client.tasks_wait(reply.task)).over
    assert (len(handler.calls), script.updates) == (1, [{"a": ANNE}])
    assert not script.cancelled.is_set()  # the task is the caller's


async def test_a_task_that_is_handed_out_and_followed_stays_followed() -> None:
    script = TaskScript(working(), completed())
    async with playing(script.stage) as (line, _):
        call = line.begin("tools/call", CALL)
        await asyncio.sleep(0.5)
        handed = await line.begin("tools/call", CALL, as_task=True)
        assert handed["taskId"] == ID
        assert list(line.tasks.followed) == [ID]
        assert await call == DONE


async def test_so_many_tasks_are_remembered_and_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_tasks, "REMEMBERED", 2)
    script = TaskScript(completed())
    numbers = iter(range(100))
    script.stage.answers["tools/call"] = lambda _: task("working", resultType="task", taskId=f"t{next(numbers)}")
    async with playing(script.stage) as (line, _):
        for _ in range(5):
            await line.begin("tools/call", CALL, as_task=True)
        assert list(line.tasks.idle) == ["t3", "t4"]


async def test_a_task_of_which_nothing_else_is_known_is_waited_for_by_its_id() -> None:
    script = TaskScript(asking("a"), task("failed", error={"code": -32011, "message": "shut"}))
    handler = Asked()
    async with Client(script.stage, handler=handler) as client:
        ended = await client.tasks_wait(ID)
        assert (ended.status, ended.error) == ("failed", PeerError(-32011, "shut"))
        assert handler.calls[0] is not None
        assert (handler.calls[0].method, handler.calls[0].params) == ("tasks/result", {"taskId": ID})
        with pytest.raises(PeerError, match="shut"):
            await client.tasks_result(ID)
        script.states = [UNKNOWN]
        with pytest.raises(TaskLost):
            await client.tasks_wait(ID)
        for wrong in (None, {"taskId": 5}, {"taskId": ""}):
            with pytest.raises(Exception, match="needs the id of a task"):
                await client.request("tasks/result", wrong)


async def test_a_handler_without_an_answer_leaves_a_task_that_was_handed_out() -> None:
    script = TaskScript(asking("a"))
    handler = Asked(ValueError("no user"))
    async with Client(script.stage, handler=handler) as client:
        for count in (1, 2):  # it is asked again
            with pytest.raises(InputRefused):
                await client.tasks_wait(ID)
            assert len(handler.calls) == count
        assert not script.cancelled.is_set()
        await client.tasks_update(ID, {"a": ANNE})
        script.states = [completed()]
        assert (await client.tasks_result(ID)).text == "done"
    assert script.sent("tasks/update") == [{"taskId": ID, "inputResponses": {"a": ANNE}}]


@pytest.mark.parametrize(
    ("state", "status"), [(task("cancelled"), "cancelled"), (UNKNOWN, "cancelled"), (completed(), "completed")]
)
async def test_cancelling_a_task_says_what_became_of_it(state: Any, status: str) -> None:
    script = TaskScript(state)
    async with Client(script.stage) as client:
        assert (await client.tasks_cancel(ID)).status == status
        assert script.cancelled.is_set()
        script.states = [PeerError(-32603, "not now")]
        with pytest.raises(PeerError, match="not now"):
            await client.tasks_cancel(ID)
