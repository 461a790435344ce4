"""Tasks that upstreams make of calls, in either era: waited for, asked for, cancelled, and no failure of the upstream when they take long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.client.fake_server import SILENCE, After

from greenroom.actors.client.client_handler import ClientHandler, asking_call
from greenroom.actors.client.errors import RequestTimeout
from greenroom.actors.client.task_only_tools import call_as_task
from greenroom.actors.federation.breaker import BreakerSettings
from greenroom.actors.federation.tool_router import ToolRouter
from greenroom.protocol.errors import ErrorCode, PeerError, RequestCancelled
from greenroom.protocol.jsonrpc import JsonRpcNotification
from greenroom.protocol.methods import TASKS_EXTENSION
from greenroom.transports.client.errors import ConnectionLost

from .era_upstreams import EITHER_ERA, EraUpstream
from .fake_upstreams import STEADY, all_ready, call, federated, spec

if TYPE_CHECKING:
    from greenroom.actors.client.interfaces import Progress
    from greenroom.protocol.jsonrpc import JsonRpcRequest

CAPABILITIES: dict[str, Any] = {**EITHER_ERA, "extensions": {TASKS_EXTENSION: {}}}
RESULT = {"content": [{"type": "text", "text": "done"}]}
FRAGILE = BreakerSettings(failures=1, rate=0.0, cooldown=STEADY)
QUESTION = {"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": {"type": "object"}}}


class TaskUpstream(EraUpstream):
    """A server of the stateless era that makes a task of each call, which takes so many seconds; perhaps it asks something first."""

    def __init__(self, seconds: float, *, asks: bool = False) -> None:
        super().__init__("slow", capabilities=CAPABILITIES)
        self._seconds = seconds
        self._asks = asks
        self._ends: dict[str, float] = {}
        self.cancelled: list[str] = []
        self.given: dict[str, Any] = {}
        self.answers["tools/call"] = self.begin
        self.answers["tasks/get"] = self.get
        self.answers["tasks/update"] = self.update
        self.answers["tasks/cancel"] = self.cancel

    def begin(self, _: JsonRpcRequest) -> dict[str, Any]:
        id = f"task-{len(self._ends) + 1}"
        self._ends[id] = asyncio.get_running_loop().time() + self._seconds
        return {"resultType": "task", **self._state(id, "working")}

    def get(self, request: JsonRpcRequest) -> Any:
        id = request.params["taskId"]
        if id not in self._ends:
            return PeerError(ErrorCode.INVALID_PARAMS, "Task not found")
        if self._asks and not self.given:
            return {**self._state(id, "input_required"), "inputRequests": {"one": QUESTION}}
        if asyncio.get_running_loop().time() < self._ends[id]:
            return self._state(id, "working")
        return {**self._state(id, "completed"), "result": {"resultType": "complete", **RESULT}}

    def update(self, request: JsonRpcRequest) -> dict[str, Any]:
        self.given |= request.params["inputResponses"]
        return {}

    def cancel(self, request: JsonRpcRequest) -> dict[str, Any]:
        self.cancelled.append(request.params["taskId"])
        return {}

    def _state(self, id: str, status: str) -> dict[str, Any]:
        when = "2026-07-28T10:00:00Z"
        return {
            "taskId": id, "status": status, "createdAt": when, "lastUpdatedAt": when, "ttlMs": 600_000, "pollIntervalMs": 1000,
        }  # fmt: skip


class Answering(ClientHandler):
    """Answers every question with its accept, and keeps the calls in whose course they came."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def capabilities(self) -> dict[str, Any]:
        return {"elicitation": {"form": {}}}

    def handle_request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.calls.append(asking_call())
        return {"action": "accept", "content": {}}


@pytest.mark.row("26-T11")
async def test_a_call_that_becomes_a_task_is_waited_for_and_polled_no_faster_than_its_server_says() -> None:
    stage = TaskUpstream(10.0)
    async with federated({"git": spec(stage, tool_timeout=60.0)}) as federation:
        await all_ready(federation)
        assert await call(federation, "git", "slow") == "done"
        assert asyncio.get_running_loop().time() <= 11.0
        assert 10 <= stage.executions("tasks/get") <= 11
        assert stage.executions("tools/call") == 1


async def test_a_caller_may_have_the_task_itself_and_its_end_by_its_id() -> None:
    stage = TaskUpstream(10.0)
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        begun = await line.begin("tools/call", {"name": "slow", "arguments": {}}, as_task=True)
        assert (begun["resultType"], begun["taskId"]) == ("task", "task-1")
        assert stage.executions("tasks/get") == 0
        assert (await line.begin("tasks/result", {"taskId": "task-1"}, timeout=60.0))["content"] == RESULT["content"]
        assert federation.members["git"].limiter.idle


@pytest.mark.parametrize("how", ["its caller cancels it", "its time is over"])
async def test_a_call_whose_caller_leaves_takes_its_task_along_and_is_no_failure_of_its_server(how: str) -> None:
    stage = TaskUpstream(1000.0)
    async with federated({"git": spec(stage, breaker=FRAGILE)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        pending = line.begin("tools/call", {"name": "slow", "arguments": {}}, timeout=5.0)
        if how == "its time is over":
            with pytest.raises(RequestTimeout):
                await pending
        else:
            await stage.wire.hears("tasks/get")
            pending.cancel("no need")
            with pytest.raises(RequestCancelled):
                await pending
        await stage.wire.hears("tasks/cancel")
        assert stage.cancelled == ["task-1"]
        assert federation.members["git"].breaker.closed
        assert federation.members["git"].limiter.idle


async def test_a_call_that_never_had_an_answer_still_counts_as_a_failure() -> None:
    stage = TaskUpstream(1000.0)
    stage.answers["tools/call"] = SILENCE
    async with federated({"git": spec(stage, breaker=FRAGILE)}) as federation:
        await all_ready(federation)
        with pytest.raises(RequestTimeout):
            await call(federation, "git", "slow", timeout=5.0)
        assert not federation.members["git"].breaker.closed


async def test_a_call_whose_user_takes_too_long_is_no_failure_of_its_server() -> None:
    class Slow(Answering):
        async def handle_request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:  # type: ignore[override]
            await asyncio.sleep(100.0)
            return {"action": "accept", "content": {}}

    stage = EraUpstream("ask")
    stage.answers["tools/call"] = lambda _: {"resultType": "input_required", "inputRequests": {"one": QUESTION}}
    async with federated({"git": spec(stage, breaker=FRAGILE, handler=Slow)}) as federation:
        await all_ready(federation)
        with pytest.raises(RequestTimeout):
            await call(federation, "git", "ask", timeout=5.0)
        assert federation.members["git"].breaker.closed


async def test_a_question_of_a_task_reaches_the_handler_once_with_its_call() -> None:
    stage = TaskUpstream(3.0, asks=True)
    handler = Answering()
    async with federated({"git": spec(stage, handler=lambda: handler, tool_timeout=60.0)}) as federation:
        await all_ready(federation)
        assert await call(federation, "git", "slow") == "done"
        assert stage.given == {"one": {"action": "accept", "content": {}}}
        (asked,) = handler.calls
        assert (asked.method, asked.params["name"]) == ("tools/call", "slow")


async def test_a_task_of_a_server_that_was_restarted_in_the_middle_is_followed_to_its_end() -> None:
    stage = TaskUpstream(10.0)
    async with federated({"git": spec(stage, tool_timeout=60.0)}) as federation:
        await all_ready(federation)
        waiting = asyncio.ensure_future(call(federation, "git", "slow"))
        await stage.wire.hears("tasks/get", 3)
        await stage.redeploy(ConnectionLost("restarted"), stateless=True)
        assert await waiting == "done"
        assert stage.executions("tools/call") == 1


async def test_a_task_of_a_session_has_its_result_from_the_server_as_before() -> None:
    stage = EraUpstream("slow", stateless=False, capabilities={
        "tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
    })  # fmt: skip
    stage.answers["tools/call"] = lambda request: {"task": {"taskId": "t", "status": "working"}}
    stage.answers["tasks/result"] = lambda request: After(5.0, RESULT)
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        begun = await line.begin("tools/call", {"name": "slow", "arguments": {}, "task": {}}, as_task=True)
        assert begun["task"]["taskId"] == "t"
        assert await line.request("tasks/result", {"taskId": "t"}) == RESULT
        assert stage.executions("tasks/get") == 0


async def test_a_router_hands_over_the_task_only_to_callers_that_ask_for_one() -> None:
    stage = TaskUpstream(5.0)
    async with federated({"git": spec(stage, tool_timeout=60.0)}) as federation:
        await all_ready(federation)
        router = ToolRouter(federation)
        assert (await router.call_tool("git:slow"))["content"] == RESULT["content"]
        begun = await router.call_tool("git:slow", more={"task": {"ttl": 1000}})
        assert (begun["resultType"], begun["status"]) == ("task", "working")
        assert all("task" not in request.params for request in stage.asked("tools/call"))


SESSION_TASKS: dict[str, Any] = {"tools": {}, "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}


def say(stage: EraUpstream, method: str, **params: Any) -> None:
    """A notification, once the reply that is just being made is out."""
    asyncio.get_running_loop().call_soon(stage.wire.say, JsonRpcNotification(method, params))


async def test_progress_of_a_sessions_task_is_told_until_it_ends() -> None:
    stage = EraUpstream("slow", stateless=False, capabilities=SESSION_TASKS)

    def begin(request: JsonRpcRequest) -> dict[str, Any]:
        token = request.params["_meta"]["progressToken"]
        for done in (1, 2):
            say(stage, "notifications/progress", progressToken=token, progress=done, message=f"step {done}")
        return {"task": {"taskId": "t", "status": "working"}}

    def end(_: JsonRpcRequest) -> After:
        say(
            stage,
            "notifications/tasks/status",
            taskId="t",
            status="working",
            statusMessage="not told: there is progress",
        )
        return After(5.0, RESULT)

    stage.answers["tools/call"], stage.answers["tasks/result"] = begin, end
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        steps: list[Progress] = []
        params: dict[str, Any] = {"name": "slow", "arguments": {}}
        assert await call_as_task(line, params, on_progress=steps.append, timeout=60.0) == RESULT
        assert [(step.progress, step.message) for step in steps] == [(1, "step 1"), (2, "step 2")]


async def test_status_messages_are_the_progress_of_a_task_that_reports_none() -> None:
    stage = EraUpstream("slow", stateless=False, capabilities=SESSION_TASKS)
    stage.answers["tools/call"] = lambda _: {"task": {"taskId": "t", "status": "working"}}

    def end(_: JsonRpcRequest) -> After:
        for id, text in (("t", "one"), ("t", "one"), ("other", "not ours"), ("t", 7), ("t", "two")):
            say(stage, "notifications/tasks/status", taskId=id, status="working", statusMessage=text)
        return After(5.0, RESULT)

    stage.answers["tasks/result"] = end
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        steps: list[Progress] = []
        params: dict[str, Any] = {"name": "slow", "arguments": {}}
        assert await call_as_task(line, params, on_progress=steps.append, timeout=60.0) == RESULT
        assert [(step.progress, step.message) for step in steps] == [(1, "one"), (2, "two")]


async def test_status_messages_of_a_stateless_task_are_its_progress() -> None:
    stage = TaskUpstream(3.0)
    get = stage.get

    def with_message(request: JsonRpcRequest) -> Any:
        found = get(request)
        return {**found, "statusMessage": f"poll {stage.executions('tasks/get')}"}

    stage.answers["tasks/get"] = with_message
    async with federated({"git": spec(stage, tool_timeout=60.0)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        steps: list[Progress] = []
        result = await call_as_task(line, {"name": "slow", "arguments": {}}, on_progress=steps.append, timeout=60.0)
        assert result["content"] == RESULT["content"]
        assert [step.message for step in steps] == [f"poll {number}" for number in range(1, len(steps) + 1)]
        assert len(steps) >= 2
