"""Tasks of our own server, in both eras and over each transport: the same words give the same values."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, ClientSettings, ElicitationRequest, PeerError, RequestTimeout, ToolFailed
from greenroom.actors.client.client_handler import asking_call
from greenroom.actors.client.errors import ClientClosed, StreamLost, TaskLost

from .task_program import make_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

PROGRAM = Path(__file__).with_name("task_program.py")
ERAS = ("legacy", "2026-07-28")
TRANSPORTS = ("memory", "HTTP", "stdio")


@asynccontextmanager
async def client_of(transport: str, mode: str, **options: Any) -> AsyncGenerator[Client]:
    """A client of the server."""
    if transport == "stdio":
        async with Client([sys.executable, str(PROGRAM)], mode=mode, **options) as client:
            yield client
        return
    server = make_server()
    async with server.started():
        target: Any = server if transport == "memory" else await server.listen(port=0)
        async with Client(target, mode=mode, **options) as client:
            yield client


class User:
    """Answers each question with its message, and counts them."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.calls: list[Any] = []

    async def answer(self, request: ElicitationRequest) -> dict[str, str]:
        """The answer."""
        self.asked.append(request.message)
        self.calls.append(asking_call())
        return {"name": request.message}


async def has(what: str, client: Client, mark: str) -> None:
    """Wait until the server's tool has begun, or has seen its cancellation and ended."""
    async with asyncio.timeout(30):
        while mark not in await client.call("seen", what=what, into=list[str]):  # noqa: ASYNC110 - another program
            await asyncio.sleep(0.1)


both = pytest.mark.parametrize(("transport", "mode"), [(each, mode) for each in TRANSPORTS for mode in ERAS])
stateless = pytest.mark.parametrize("transport", TRANSPORTS)


@pytest.mark.row("26-T1", "26-T3", "26-T7", "26-T11")
@both
async def test_a_call_has_its_value_its_failure_or_its_error(transport: str, mode: str) -> None:
    async with client_of(transport, mode) as client:
        assert await client.call("bake", loaves=3) == {"loaves": 3}
        assert (await client.call_tool("bake", {"loaves": 4}, task=True)).task is not None
        with pytest.raises(ToolFailed, match="no flour"):
            await client.call("fail", how="told")
        with pytest.raises(PeerError, match="the mill is shut") as failed:
            await client.call("fail", how="error")
        assert (failed.value.code, failed.value.data) == (-31000, {"until": "noon"})


@pytest.mark.row("26-T4", "26-T8")
@both
async def test_questions_reach_the_user_once_each(transport: str, mode: str) -> None:
    user = User()
    async with client_of(transport, mode, elicitation=user.answer) as client:
        assert await client.call("ask") == "first? second? third?"
        assert sorted(user.asked) == ["first?", "second?", "third?"]
        user.asked.clear()
        user.calls.clear()
        started = mode != "legacy"
        assert await client.call("ask_before") == f"before? {started} after?"
        assert user.asked == ["before?", "after?"]
        if started:
            assert [call.params["name"] for call in user.calls] == ["ask_before"] * 2


@pytest.mark.row("26-T4", "26-T10")
@both
async def test_a_task_in_the_hand_is_waited_for_read_and_cancelled(transport: str, mode: str) -> None:
    user = User()
    async with client_of(transport, mode, elicitation=user.answer) as client:
        asked = (await client.call_tool("ask", task=60)).task
        assert asked is not None
        assert (await client.tasks_wait(asked)).status == "completed"
        assert (await client.tasks_result(asked)).text == "first? second? third?"
        assert len(user.asked) == 3
        endless = (await client.call_tool("endless", {"mark": "by hand"}, task=True)).task
        assert endless is not None
        assert (await client.tasks_get(endless)).status == "working"
        assert (await client.tasks_cancel(endless)).status == "cancelled"
        with pytest.raises((PeerError, TaskLost)):
            await client.tasks_result(endless)
        await has("ended", client, "by hand")
        with pytest.raises((PeerError, TaskLost)):
            await client.tasks_wait("task_" + "0" * 32)


@pytest.mark.row("26-T5")
@stateless
async def test_a_caller_that_leaves_ends_the_work(transport: str) -> None:
    async with client_of(transport, "auto") as client:
        with pytest.raises(RequestTimeout):
            await client.within(0.5).call("endless", mark="late")
        await has("ended", client, "late")
        call = asyncio.ensure_future(client.call("endless", mark="left"))
        await has("began", client, "left")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await has("ended", client, "left")


@pytest.mark.row("26-T5")
@pytest.mark.parametrize("transport", ["memory", "HTTP"])
async def test_a_client_that_closes_ends_the_work(transport: str) -> None:
    server = make_server()
    async with server.started():
        target: Any = server if transport == "memory" else await server.listen(port=0)
        async with Client(target) as other:
            async with Client(target) as client:
                call = asyncio.ensure_future(client.call("endless", mark="closed"))
                await has("began", client, "closed")
            with pytest.raises(ClientClosed):
                await call
            await has("ended", other, "closed")


@pytest.mark.row("26-T10")
async def test_a_task_of_a_program_that_has_died_is_lost_and_the_next_call_has_another() -> None:
    async with client_of("stdio", "auto") as client:
        call = asyncio.ensure_future(client.call("endless", mark="lost"))
        await has("began", client, "lost")
        with pytest.raises(StreamLost):
            await client.call("crash")
        with pytest.raises(TaskLost, match="is not known to the server"):
            await call
        assert await client.call("bake", loaves=1) == {"loaves": 1}


@pytest.mark.row("26-T4")
@stateless
async def test_a_program_may_answer_by_itself(transport: str) -> None:
    settings = ClientSettings(capabilities={"elicitation": {"form": {}}})
    async with client_of(transport, "auto", settings=settings) as client:
        asked = (await client.call_tool("ask", task=True)).task
        assert asked is not None
        answers = 0
        async with asyncio.timeout(30):
            while not (state := await client.tasks_get(asked)).over:
                given = {
                    key: {"action": "accept", "content": {"name": question["params"]["message"]}}
                    for key, question in state.input_requests.items()
                }
                if given:
                    answers += len(given)
                    await client.tasks_update(asked, given)
                await asyncio.sleep(0.05)
        assert answers == 3
        assert (await client.tasks_result(asked)).text == "first? second? third?"
