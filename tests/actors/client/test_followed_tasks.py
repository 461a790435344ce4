"""A call that comes back as a task is followed to its end: polled, asked for, cancelled with its caller, and through losses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, PeerError, RequestTimeout, ToolFailed
from greenroom.actors.client import followed_tasks
from greenroom.actors.client.connection_line import ConnectionLine, connection_spec
from greenroom.actors.client.errors import ClientClosed, Parked, RequestLost, TaskLost
from greenroom.actors.client.followed_tasks import MOST_FAILURES
from greenroom.actors.client.interfaces import Phase, Progress
from greenroom.actors.client.listening import ListenFailed
from greenroom.actors.client.settings import ClientSettings
from greenroom.actors.client.task_only_tools import call_as_task
from greenroom.protocol.envelope import SUBSCRIPTION_ID_KEY
from greenroom.protocol.errors import BadAnswer, RequestCancelled
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcResponse
from greenroom.protocol.methods import TASKS_EXTENSION
from greenroom.supervision import ActorError, Supervisor, current_node, kill, start, wait_down
from greenroom.transports.client.errors import ConnectionLost

from .client_helpers import phase, playing
from .fake_server import SILENCE, Stage
from .task_script import ANNE, CALL, DONE, ID, QUESTION, UNKNOWN, Asked, TaskScript, asking, completed, task, working

if TYPE_CHECKING:
    from greenroom.protocol.jsonrpc import JsonRpcRequest


# --- polls


@pytest.mark.row("26-T11")
@pytest.mark.parametrize(
    ("interval", "pause"),
    [(1000, 1.0), (250, 0.25), (None, 1.0), (0, 0.05), (-7, 0.05), (10**9, 3600.0), (10**400, 3600.0), ("5", 1.0)],
)
async def test_a_call_has_the_result_of_its_task_which_is_polled_no_faster_than_the_server_asks(
    interval: Any, pause: float
) -> None:
    state = working(pollIntervalMs=interval)
    script = TaskScript(state, state, completed(pollIntervalMs=interval), created=state)
    async with playing(script.stage, request_timeout=None) as (line, _):
        assert await line.request("tools/call", CALL) == DONE
        assert script.polled == [pytest.approx(pause * times) for times in (1, 2, 3)]
        assert script.sent("tasks/get") == [{"taskId": ID}] * 3
        assert not script.cancelled.is_set()


async def test_the_server_may_change_the_pause_and_a_state_without_one_leaves_it() -> None:
    states = [working(pollIntervalMs=3000), task("working", pollIntervalMs=None), completed()]
    script = TaskScript(*states, created=working(pollIntervalMs=500))
    async with playing(script.stage) as (line, _):
        await line.request("tools/call", CALL)
    assert script.polled == [0.5, 3.5, 6.5]


async def test_a_task_that_has_ended_already_is_fetched_at_once() -> None:
    script = TaskScript(completed(), created=task("completed"))
    async with playing(script.stage) as (line, _):
        assert await line.request("tools/call", CALL) == DONE
    assert script.polled == [0.0]


@pytest.mark.row("26-T7")
async def test_a_tool_that_fails_has_completed_and_only_an_error_of_the_protocol_fails_a_task() -> None:
    script = TaskScript(task("completed", result={"content": [{"type": "text", "text": "no flour"}], "isError": True}))
    async with Client(script.stage) as client:
        with pytest.raises(ToolFailed, match="no flour"):
            await client.call("t")
        assert (await client.call_tool("t")).is_error
        script.states = [task("failed", error={"code": -32011, "message": "shut", "data": {"until": "noon"}})]
        with pytest.raises(PeerError, match="shut") as failed:
            await client.call("t")
    assert (failed.value.code, failed.value.data) == (-32011, {"until": "noon"})
    assert not script.cancelled.is_set()


@pytest.mark.parametrize(
    ("state", "status", "words"),
    [
        (task("cancelled", statusMessage="by the operator"), "cancelled", "was cancelled: by the operator"),
        (UNKNOWN, "unknown", "is not known to the server"),
    ],
)
async def test_a_task_without_a_result_is_a_typed_error(state: Any, status: str, words: str) -> None:
    script = TaskScript(state)
    async with playing(script.stage) as (line, _):
        with pytest.raises(TaskLost, match=words) as lost:
            await line.request("tools/call", CALL)
    assert (lost.value.task, lost.value.status, lost.value.reason) == (ID, status, "task_lost")
    assert not script.cancelled.is_set()


async def test_a_task_whose_time_is_over_has_expired_once_the_server_forgets_it_or_is_silent() -> None:
    script = TaskScript(working(ttlMs=2500), working(ttlMs=2500), UNKNOWN, created=working(ttlMs=2500))
    await asyncio.sleep(100)  # the time counts from the task's creation
    async with playing(script.stage, request_timeout=None) as (line, _):
        with pytest.raises(TaskLost) as lost:
            await line.request("tools/call", CALL)
        assert (lost.value.status, len(script.polled)) == ("expired", 3)
        script.states = [working(ttlMs=2500), SILENCE]
        script.polled.clear()
        with pytest.raises(TaskLost, match="has expired"):
            await line.request("tools/call", CALL, timeout=1000)


async def test_a_task_that_is_forgotten_before_its_time_is_not_known() -> None:
    script = TaskScript(working(ttlMs=50_000), UNKNOWN, created=working(ttlMs=50_000))
    await asyncio.sleep(100)
    async with playing(script.stage) as (line, _):
        with pytest.raises(TaskLost) as lost:
            await line.request("tools/call", CALL)
    assert lost.value.status == "unknown"


async def test_a_server_that_goes_on_after_the_time_is_believed() -> None:
    script = TaskScript(*[working(ttlMs=1500)] * 5, completed(), created=working(ttlMs=1500))
    async with playing(script.stage) as (line, _):
        assert await line.request("tools/call", CALL) == DONE


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(ConnectionLost("pulled out"), id="lost"),
        pytest.param(PeerError(-32603, "not just now"), id="internal error"),
        pytest.param(PeerError(-32000, "too busy", {"maybe_done": False}), id="refused before it was read"),
        pytest.param(SILENCE, id="no answer"),
    ],
)
async def test_a_poll_that_has_no_answer_is_made_again(loss: Any) -> None:
    script = TaskScript(loss, loss, loss, working(), completed())
    async with playing(script.stage, request_timeout=500) as (line, _):
        assert await line.request("tools/call", CALL) == DONE
    assert all(later - earlier >= 1 for earlier, later in zip(script.polled[3:], script.polled[4:], strict=False))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        task("completed"),
        task("completed", result="done"),
        task("completed", result={"resultType": "task", "taskId": "t", "status": "working"}),
        task("completed", result={"resultType": "input_required", "requestState": "s"}),
        task("failed", error=None),
        task("resting"),
        task("working", taskId="task_2"),
        task("input_required"),
        task("input_required", inputRequests={"k": {"method": "tools/call"}}),
        task("input_required", inputRequests={"k": {"method": "roots/list", "params": []}}),
        task("input_required", inputRequests={"k" * 1000: QUESTION}),
        task("input_required", inputRequests={str(key): QUESTION for key in range(257)}),
        task("input_required", inputRequests={"k": {"method": "sampling/createMessage", "params": {}}}),
        task("working", resultType="task"),
        task("working", resultType="other"),
    ],
)
async def test_a_state_of_another_shape_is_a_bad_answer_and_the_task_is_cancelled(wrong: Any) -> None:
    script = TaskScript(wrong)
    async with playing(script.stage, handler=Asked(), request_timeout=90) as (line, stage):
        with pytest.raises(BadAnswer):
            await line.request("tools/call", CALL)
        await script.cancelled.wait()
        assert len(script.polled) == 1
        assert (await line.request("server/discover"))["resultType"] == "complete"
        assert stage.wires == [stage.wire]


@pytest.mark.parametrize("wrong", [{"taskId": 1}, {"taskId": ""}, {"taskId": "x" * 2000}, {"status": None}])
async def test_a_created_task_of_another_shape_is_a_bad_answer(wrong: dict[str, Any]) -> None:
    script = TaskScript(completed(), created={**working(), **wrong})
    async with playing(script.stage) as (line, _):
        with pytest.raises(BadAnswer, match="Invalid result of tools/call"):
            await line.request("tools/call", CALL)
    assert script.polled == []


async def test_an_error_that_will_not_pass_ends_the_call_at_once() -> None:
    script = TaskScript(PeerError(-32011, "never"))
    async with playing(script.stage) as (line, _):
        with pytest.raises(PeerError, match="never"):
            await line.request("tools/call", CALL)
        await script.cancelled.wait()
    assert len(script.polled) == 1


async def test_a_call_without_a_deadline_ends_when_no_poll_has_an_answer() -> None:
    script = TaskScript(PeerError(-32603, "broken"))
    async with playing(script.stage, request_timeout=None) as (line, _):
        with pytest.raises(PeerError, match="broken"):
            await line.request("tools/call", CALL)
    assert len(script.polled) == MOST_FAILURES


async def test_polls_that_fail_are_made_ever_more_seldom() -> None:
    broken = [PeerError(-32603, "broken")] * 4
    states = [*broken, working(pollIntervalMs=50), working(pollIntervalMs=50), completed()]
    script = TaskScript(*states, created=working(pollIntervalMs=50))
    async with playing(script.stage) as (line, _):
        await line.request("tools/call", CALL)
    pauses = [round(later - earlier, 3) for earlier, later in zip(script.polled, script.polled[1:], strict=False)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 0.05, 0.05]


# --- callers that leave


@pytest.mark.row("26-T5")
async def test_the_deadline_holds_for_call_and_task_together_and_cancels_the_task() -> None:
    script = TaskScript(working())
    async with playing(script.stage) as (line, stage):
        began = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimeout, match=r"tools/call: no answer within 3\.5 s"):
            await line.request("tools/call", CALL, timeout=3.5)
        assert asyncio.get_running_loop().time() - began == pytest.approx(3.5)
        await script.cancelled.wait()
        assert script.sent("tasks/cancel") == [{"taskId": ID}]
        polls = len(script.polled)
        await asyncio.sleep(10)
        assert (polls, len(script.polled)) == (3, 3)
        assert len(script.sent("tasks/cancel")) == 1
        assert stage.notes("notifications/cancelled") == []


@pytest.mark.row("26-T5")
@pytest.mark.parametrize("how", ["the waiting task is cancelled", "the request is cancelled"])
async def test_a_caller_that_leaves_takes_its_task_along(how: str) -> None:
    script = TaskScript(working())
    async with playing(script.stage) as (line, _):
        pending = line.begin("tools/call", CALL)
        waiting = asyncio.ensure_future(pending.result())
        await asyncio.sleep(1.5)
        if how == "the request is cancelled":
            pending.cancel("enough")
            with pytest.raises(RequestCancelled, match="enough"):
                await waiting
        else:
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        await script.cancelled.wait()
        assert len(line.tasks.followed) == 0


async def test_a_task_whose_caller_had_left_when_it_was_created_is_cancelled() -> None:
    script = TaskScript(working())
    created = script.stage.answers["tools/call"]
    script.stage.answers["tools/call"] = SILENCE
    async with playing(script.stage) as (line, stage):
        with pytest.raises(RequestTimeout):
            await line.request("tools/call", CALL, timeout=1)
        call = stage.asked("tools/call")[0]
        await stage.wire.hears("notifications/cancelled")
        assert stage.notes("notifications/cancelled")[0]["requestId"] == call.id
        stage.wire.say(JsonRpcResponse(call.id, created(call)))
        await script.cancelled.wait()
        stage.wire.say(JsonRpcResponse(call.id, created(call)))  # once more
        stage.wire.say(JsonRpcResponse(1, created(call)))  # a reply to no call
        await line.request("server/discover")
        assert script.sent("tasks/cancel") == [{"taskId": ID}]


async def test_a_call_that_asks_for_a_task_and_waits_for_it_takes_it_along_as_well() -> None:
    script = TaskScript(working())
    async with playing(script.stage) as (line, _):
        with pytest.raises(RequestTimeout):
            await call_as_task(line, CALL, timeout=2.5)
        await script.cancelled.wait()
        assert script.polled == [1.0, 2.0]
        script.states = [completed()]
        assert await call_as_task(line, CALL, timeout=2.5) == DONE
    assert script.sent("tools/call") == [CALL] * 2  # without the param of the handshake era


async def test_only_late_replies_to_the_latest_calls_cancel_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_tasks, "REMEMBERED", 2)
    script = TaskScript(working())
    script.stage.answers |= {"tools/call": SILENCE, "tools/list": SILENCE}
    async with playing(script.stage) as (line, stage):
        for method in ("tools/call", "tools/call", "tools/call", "tools/list"):
            with pytest.raises(RequestTimeout):
                await line.request(method, CALL, timeout=1)
        for number, request in enumerate((*stage.asked("tools/call"), *stage.asked("tools/list"))):
            stage.wire.say(JsonRpcResponse(request.id, working(resultType="task", taskId=f"t{number}")))
        await script.cancelled.wait()
        await line.request("server/discover")
        assert script.sent("tasks/cancel") == [{"taskId": "t1"}, {"taskId": "t2"}]


async def test_a_late_reply_in_a_session_cancels_nothing() -> None:
    stage = Stage()
    stage.answers["tools/call"] = SILENCE
    async with playing(stage) as (line, _):
        with pytest.raises(RequestTimeout):
            await line.request("tools/call", CALL, timeout=1)
        stage.wire.say(JsonRpcResponse(stage.asked("tools/call")[0].id, working(resultType="task")))
        await line.request("ping")
        assert stage.asked("tasks/cancel") == []


async def test_a_late_reply_of_another_shape_is_ignored() -> None:
    script = TaskScript(working())
    script.stage.answers["tools/call"] = SILENCE
    async with playing(script.stage) as (line, stage):
        shapes: list[dict[str, Any]] = [{"resultType": "task", "taskId": 5}, {"content": []}, {"resultType": "other"}]
        for wrong in shapes:
            with pytest.raises(RequestTimeout):
                await line.request("tools/call", CALL, timeout=1)
            stage.wire.say(JsonRpcResponse(stage.asked("tools/call")[-1].id, wrong))
        await line.request("server/discover")
        assert script.sent("tasks/cancel") == []


async def test_a_client_that_is_closed_cancels_the_tasks_of_its_calls() -> None:
    script = TaskScript(working())
    async with playing(script.stage) as (line, _):
        call = asyncio.ensure_future(line.request("tools/call", CALL))
        waits = asyncio.ensure_future(line.request("tasks/result", {"taskId": ID}))
        await asyncio.sleep(1.5)
    for each in (call, waits):
        with pytest.raises(ClientClosed):
            await each
    assert script.sent("tasks/cancel") == [{"taskId": ID}]


# --- losses


async def test_a_task_is_followed_on_after_the_connection_was_lost() -> None:
    script = TaskScript(working(), asking("a"), asking("a"), completed())
    handler = Asked(None)
    async with playing(script.stage, handler=handler) as (line, stage):
        call = asyncio.ensure_future(line.request("tools/call", CALL))
        await asyncio.sleep(1.5)
        await stage.wire.break_off(ConnectionLost("pulled out"))
        await phase(line, Phase.READY)
        await handler.asked(1)
        await stage.wire.break_off(ConnectionLost("pulled out"))
        assert not handler.left.is_set()  # the question has nothing to do with the wire
        await phase(line, Phase.READY)
        assert await call == DONE
        assert len(stage.asked("tools/call")) == 1


async def test_a_task_is_followed_on_when_its_server_was_away_and_requests_are_refused() -> None:
    script = TaskScript(working(), completed())
    line = ConnectionLine("stage", ClientSettings(request_timeout=500), patience=1.0)
    await start(Supervisor, [connection_spec(script.stage, line=line)])
    await line.ready()
    call = asyncio.ensure_future(line.request("tools/call", CALL))
    await asyncio.sleep(1.5)
    script.stage.failures = [ConnectionLost("away")] * 6
    await script.stage.wire.break_off(ConnectionLost("pulled out"))
    await phase(line, Phase.BACKOFF)
    assert await call == DONE
    assert len(script.stage.asked("tools/call")) == 1
    await line.close()


async def test_a_connection_that_is_given_up_ends_the_call() -> None:
    script = TaskScript(working())
    async with playing(script.stage, park_after=1) as (line, stage):
        call = asyncio.ensure_future(line.request("tools/call", CALL))
        await asyncio.sleep(1.5)
        stage.failures = [ConnectionLost("away")] * 3
        await stage.wire.break_off(ConnectionLost("pulled out"))
        with pytest.raises(RequestLost) as caught:
            await call
        assert isinstance(caught.value.cause, Parked)
        assert caught.value.maybe_done  # the server works on it still, for all that is known
        assert line.tasks.followed.keys() <= {ID}
        await asyncio.sleep(5)
        assert line.tasks.followed == {}


async def test_a_server_that_changes_its_era_in_the_middle_is_asked_as_before() -> None:
    script = TaskScript(working(), asking("a"), completed())
    async with playing(script.stage, handler=Asked()) as (line, stage):
        call = asyncio.ensure_future(line.request("tools/call", CALL))
        await asyncio.sleep(1.5)
        stage.answers["server/discover"] = PeerError(-32601, "unknown method")
        await stage.wire.break_off(ConnectionLost("pulled out"))
        await phase(line, Phase.READY)
        assert line.welcome is not None
        assert not line.welcome.is_stateless
        assert await call == DONE
    assert script.updates == []  # questions are requests now


async def test_a_successor_of_the_connection_follows_on_and_asks_nothing_that_was_answered() -> None:
    script = TaskScript(asking("a"), asking("a", "b"), asking("a", "b"), asking("a", "b"), completed())
    handler = Asked()
    line = ConnectionLine("stage", ClientSettings(request_timeout=500))
    await start(Supervisor, [connection_spec(script.stage, handler, line=line)])
    await line.ready()
    call = asyncio.ensure_future(line.request("tools/call", CALL))
    endless = asyncio.ensure_future(line.request("tools/call", CALL, timeout=None))
    await script.stage.wire.hears("tasks/update")
    handler.answer = None
    await handler.asked(2)
    assert line.pid is not None
    kill(line.pid)
    await handler.left.wait()
    handler.answer = ANNE
    assert await call == DONE
    with pytest.raises(RequestLost):  # without a deadline it does not wait for a successor
        await endless
    assert script.updates == [{"a": ANNE}, {"b": ANNE}]
    assert len(script.stage.asked("tools/call")) == 2
    await line.close()


async def test_a_caller_that_left_while_no_connection_ran_takes_its_task_along() -> None:
    script = TaskScript(working())
    line = ConnectionLine("stage", ClientSettings(request_timeout=500))
    await start(Supervisor, [connection_spec(script.stage, line=line)])
    await line.ready()
    pending = line.begin("tools/call", CALL)
    await asyncio.sleep(1.5)
    assert line.pid is not None
    pid = line.pid
    kill(pid)
    await wait_down(pid)
    pending.cancel("enough")
    await script.cancelled.wait()
    await line.close()


async def test_a_crash_of_the_process_that_follows_a_task_fails_that_call_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = TaskScript(working())
    async with playing(script.stage) as (line, _):
        calls = [asyncio.ensure_future(line.request("tools/call", CALL))]
        await asyncio.sleep(0.5)
        followed = line.tasks.followed[ID]
        assert followed.process is not None
        kill(followed.process.pid)
        with pytest.raises(RequestLost, match="the process that followed a task has ended"):
            await calls[0]
        await script.cancelled.wait()
        script.states = [completed()]
        assert await line.request("tools/call", CALL) == DONE


async def test_a_node_that_is_closing_follows_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise ActorError("the node is closing")

    script = TaskScript(completed())
    async with playing(script.stage) as (line, stage):
        with monkeypatch.context() as closing:
            closing.setattr(followed_tasks, "spawn_link", refuse)
            with pytest.raises(ActorError, match="closing"):
                await line.request("tools/call", CALL)
        await script.cancelled.wait()
        assert await line.request("tools/call", CALL) == DONE
        assert len(stage.wires) == 1


# --- progress


@pytest.mark.row("26-T9")
async def test_a_new_status_message_is_told_as_progress() -> None:
    states = [working(statusMessage=text) for text in ("milling", "milling", "baking")]
    script = TaskScript(*states, working(), completed(statusMessage="done"))
    told: list[Progress] = []
    async with Client(script.stage) as client:
        reply = await client.call_tool("t", on_progress=told.append)
        assert reply.text == "done"
    assert told == [Progress(1, None, "milling"), Progress(2, None, "baking")]


# --- the extension is declared, or not


@pytest.mark.row("26-T1")
@pytest.mark.parametrize("follows", [True, False])
async def test_each_call_declares_the_extension_unless_that_is_switched_off(follows: bool) -> None:  # noqa: FBT001
    script = TaskScript(completed())
    settings: dict[str, Any] = {} if follows else {"follow_tasks": False}
    async with playing(script.stage, **settings) as (line, stage):
        if follows:
            await line.request("tools/call", CALL)
        else:
            with pytest.raises(BadAnswer, match="resultType 'task'"):
                await line.request("tools/call", CALL)
        meta = stage.asked("tools/call")[0].params["_meta"]
    declared = meta["io.modelcontextprotocol/clientCapabilities"].get("extensions", {})
    assert declared == ({TASKS_EXTENSION: {}} if follows else {})


@pytest.mark.row("26-M4")
@pytest.mark.parametrize(
    ("method", "params", "kind"),
    [
        ("tools/call", CALL, "other"),
        ("tools/call", CALL, None),
        ("tools/call", CALL, 5),
        ("tools/call", CALL, ["complete"]),
        ("tools/list", {}, "task"),
        ("prompts/get", {"name": "p"}, "task"),
        ("resources/read", {"uri": "a:b"}, "task"),
        ("tasks/get", {"taskId": ID}, "task"),
        ("tasks/update", {"taskId": ID, "inputResponses": {}}, "input_required"),
    ],
)
async def test_a_result_of_a_kind_that_the_method_does_not_have_is_no_success(
    method: str, params: dict[str, Any], kind: Any
) -> None:
    script = TaskScript(completed())
    script.capabilities |= {"prompts": {}, "resources": {}}
    wrong: dict[str, Any] = {
        **working(),
        "content": [],
        "tools": [],
        "messages": [],
        "contents": [],
        "resultType": kind,
    }
    script.stage.answers[method] = wrong
    async with playing(script.stage) as (line, _):
        with pytest.raises(BadAnswer, match=f"Invalid answer to {method}"):
            await line.request(method, params)


@pytest.mark.row("26-M4")
async def test_a_result_without_a_kind_is_complete() -> None:
    script = TaskScript(completed())
    script.stage.answers["tools/call"] = {"content": [], "taskId": ID}
    async with playing(script.stage) as (line, _):
        assert await line.request("tools/call", CALL) == {"content": [], "taskId": ID}


# --- news: `notifications/tasks` on a listen with the task's id


def honours_listens(script: TaskScript) -> None:
    """Have the server acknowledge each listen as it was asked for, and keep it open."""

    def listen(request: JsonRpcRequest) -> Any:
        told = {"notifications": request.params["notifications"], "_meta": {SUBSCRIPTION_ID_KEY: request.id}}
        script.stage.wire.say(JsonRpcNotification("notifications/subscriptions/acknowledged", told))
        return SILENCE

    script.stage.answers["subscriptions/listen"] = listen


def announce(script: TaskScript, state: dict[str, Any]) -> None:
    """Send the state to the latest listen."""
    id = script.stage.asked("subscriptions/listen")[-1].id
    params = {**state, "_meta": {SUBSCRIPTION_ID_KEY: id}}
    script.stage.wire.say(JsonRpcNotification("notifications/tasks", params))


@pytest.mark.row("26-T9")
async def test_a_task_is_listened_to_and_its_news_are_as_good_as_polls() -> None:
    script = TaskScript(asking("a"), created=working(pollIntervalMs=60_000))
    honours_listens(script)
    handler = Asked()
    async with playing(script.stage, handler=handler) as (line, stage):
        call = asyncio.ensure_future(line.request("tools/call", CALL))
        await stage.wire.hears("subscriptions/listen")
        assert stage.asked("subscriptions/listen")[0].params["notifications"] == {"taskIds": [ID]}
        await asyncio.sleep(1)
        announce(script, asking("a"))
        await stage.wire.hears("tasks/update")
        announce(script, asking("a"))
        announce(script, working(pollIntervalMs=50))
        await asyncio.sleep(0.2)
        assert script.polled == []  # the pause was granted before these news
        announce(script, completed())
        assert await call == DONE
    assert (len(handler.calls), script.updates, script.polled) == (1, [{"a": ANNE}], [])


async def test_news_of_another_shape_or_of_another_task_change_nothing() -> None:
    script = TaskScript(completed())
    honours_listens(script)
    async with playing(script.stage) as (line, stage):
        call = asyncio.ensure_future(line.request("tools/call", CALL))
        await stage.wire.hears("subscriptions/listen")
        for wrong in (
            completed(taskId="task_2"),
            completed(taskId=[ID]),
            task("completed"),
            task("completed", result={"resultType": "task"}),
            task("resting"),
            {"taskId": ID},
        ):
            announce(script, wrong)
        stage.wire.say(JsonRpcNotification("notifications/tasks", completed()))  # on no listen
        await asyncio.sleep(0.5)
        assert not call.done()
        assert await call == DONE
    assert script.polled == [1.0]


async def test_a_server_that_announces_no_tasks_is_polled_and_nothing_is_reported() -> None:
    script = TaskScript(working(), completed())
    reports: list[Any] = []
    current_node().reports.subscribe(reports.append)
    async with playing(script.stage) as (line, stage):
        assert await line.request("tools/call", CALL) == DONE
        assert len(stage.asked("subscriptions/listen")) == 1
    assert not [each for each in reports if isinstance(each, ListenFailed)]


async def test_only_so_many_tasks_are_listened_to_and_none_whose_id_is_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_tasks, "MOST_LISTENED", 2)
    script = TaskScript(working())
    honours_listens(script)
    ids = iter(["t\n1", "tä", "t1", "t2", "t3"])
    script.stage.answers["tools/call"] = lambda _: task("working", resultType="task", taskId=next(ids))
    async with playing(script.stage) as (line, stage):
        calls = [line.begin("tools/call", CALL) for _ in range(5)]
        await asyncio.sleep(0.5)
        assert stage.asked("subscriptions/listen")[-1].params["notifications"] == {"taskIds": ["t1", "t2"]}
        assert len(line.tasks.followed) == 5
        for call in calls:
            call.cancel()
        await asyncio.sleep(0.5)
        assert line.readers.followed_tasks == {}


@pytest.mark.row("26-T10")
@pytest.mark.parametrize(("id", "header"), [(ID, ID), ("tä", "=?base64?dMOk?="), (" t", "=?base64?IHQ=?=")])
async def test_over_http_each_request_about_a_task_names_it_in_a_header(id: str, header: str) -> None:
    script = TaskScript(asking("a", taskId=id), completed(taskId=id), created=working(taskId=id))
    script.stage.is_http = True
    async with Client(script.stage, handler=Asked()) as client:
        assert await client.call("t") == "done"
        await client.tasks_cancel(id)
    for method, count in (("tasks/get", 3), ("tasks/update", 1), ("tasks/cancel", 1)):
        sent = [dict(script.stage.wire.mirrored[request.id]) for request in script.stage.asked(method)]
        assert [(each["mcp-method"], each["mcp-name"]) for each in sent] == [(method, header)] * count
