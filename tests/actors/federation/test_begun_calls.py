"""Calls that a stateless upstream has begun, since it has asked its user something or made a task of them: they are never begun again, nor said not to be done."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.client.client_handler import ClientHandler
from greenroom.actors.client.errors import RequestLost, TaskLost
from greenroom.actors.federation.upstream_spec import UpstreamState
from greenroom.supervision import kill
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost

from .era_upstreams import EraUpstream
from .fake_upstreams import all_ready, call, federated, reaches, spec
from .test_upstream_tasks import QUESTION, TaskUpstream

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.federation.federation import Federation
    from greenroom.protocol.jsonrpc import JsonRpcRequest


class Thoughtful(ClientHandler):
    """A user that answers when the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.decided = asyncio.Event()

    def capabilities(self) -> dict[str, Any]:
        return {"elicitation": {"form": {}}}

    async def handle_request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.set()
        await self.decided.wait()
        return {"action": "accept", "content": {}}


class Asking(EraUpstream):
    """A server whose tool asks once before it ends. Without sessions it keeps nothing, so the state says where it was."""

    def __init__(self) -> None:
        super().__init__("ask")
        self.answers["tools/call"] = self.ask

    def ask(self, request: JsonRpcRequest) -> dict[str, Any]:
        if self.stateless and "requestState" not in request.params:
            return {"resultType": "input_required", "inputRequests": {"one": QUESTION}, "requestState": "half way"}
        return {"content": [{"type": "text", "text": f"done with {request.params.get('requestState')}"}]}


@asynccontextmanager
async def begun(stage: Asking) -> AsyncGenerator[tuple[Federation, Thoughtful, asyncio.Future[str]]]:
    """A call whose user is thinking."""
    user = Thoughtful()
    async with federated({"git": spec(stage, handler=lambda: user, tool_timeout=600.0)}) as federation:
        await all_ready(federation)
        waiting = asyncio.ensure_future(call(federation, "git", "ask"))
        await user.asked.wait()
        yield federation, user, waiting
        assert stage.executions("tools/call") <= 2


async def test_a_call_goes_on_after_its_server_was_restarted_while_its_user_thought() -> None:
    stage = Asking()
    async with begun(stage) as (_, user, waiting):
        await stage.redeploy(ConnectionLost("restarted"), stateless=True)
        user.decided.set()
        assert await waiting == "done with half way"


@pytest.mark.parametrize("breaks", [True, False], ids=["the wire breaks", "the wire stays"])
async def test_a_call_is_not_begun_again_at_a_server_that_has_become_one_with_sessions(*, breaks: bool) -> None:
    stage = Asking()
    stage.is_http = not breaks
    async with begun(stage) as (_, user, waiting):
        if breaks:
            await stage.redeploy(ConnectionLost("deployed anew"), stateless=False)
        else:
            stage.deploy(stateless=False)
        user.decided.set()
        with pytest.raises(RequestLost) as caught:
            await waiting
        assert caught.value.maybe_done
        assert stage.executions("tools/call") == 1


async def test_a_call_whose_connection_crashes_while_its_user_thinks_may_be_done() -> None:
    stage = Asking()
    async with begun(stage) as (federation, _, waiting):
        pid = federation.members["git"].line.pid
        assert pid is not None
        kill(pid)
        with pytest.raises(RequestLost) as caught:
            await waiting
        assert caught.value.maybe_done


async def test_a_call_whose_server_is_away_when_its_user_has_decided_may_be_done() -> None:
    stage = Asking()
    async with begun(stage) as (federation, user, waiting):
        stage.failures = [ConnectFailed("refused") for _ in range(50)]
        await stage.wire.break_off(ConnectionLost("it ended"))
        await reaches(federation, "git", UpstreamState.OPEN)
        user.decided.set()
        with pytest.raises(RequestLost) as caught:
            await waiting
        assert caught.value.maybe_done


async def test_a_call_whose_upstream_is_parked_while_its_user_thinks_may_be_done() -> None:
    stage = Asking()
    async with begun(stage) as (federation, _, waiting):
        upstream = federation.members["git"]
        for _ in range(6):
            if upstream.refresher is not None:
                kill(upstream.refresher)
            await asyncio.sleep(0.1)
        await reaches(federation, "git", UpstreamState.PARKED)
        with pytest.raises(RequestLost) as caught:
            await waiting
        assert caught.value.maybe_done


async def test_the_task_of_a_server_that_has_become_one_with_sessions_is_lost() -> None:
    stage = TaskUpstream(1000.0)
    async with federated({"git": spec(stage, tool_timeout=600.0)}) as federation:
        await all_ready(federation)
        waiting = asyncio.ensure_future(call(federation, "git", "slow"))
        await stage.wire.hears("tasks/get")
        await stage.redeploy(ConnectionLost("deployed anew"), stateless=False)
        with pytest.raises(TaskLost) as caught:
            await waiting
        assert caught.value.status == "unknown"
        assert stage.executions("tools/call") == 1
        assert federation.members["git"].breaker.closed
