"""The life of a task against a model of it: whatever is done to it, in whatever order, it is where the model says, and so are its answers.

One real server with one task; its tool does what it is told. After each act the peer looks, and sees what the model has.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.protocol.errors import McpError, ToolError
from greenroom.protocol.jsonrpc import encode_result
from greenroom.supervision import kill, which_children
from greenroom.supervision.testing import Seed, run, seeds

from .task_server import FORM, RELATED, TaskServer, reply_to, running_task_server, start_task

TTL = 100.0
TOOL = ("return", "told", "error", "raise", "ask")
ACTS = (
    *TOOL,
    "answer",
    "cancel",
    "host finish",
    "host fail",
    "host cancel",
    "kill worker",
    "kill collector",
    "wait",
    "time",
)
Acts = st.lists(st.sampled_from(ACTS), max_size=12)


class Model:
    """The status that the task must have."""

    def __init__(self) -> None:
        self.status = "working"
        self.told = ["working"]
        self.outcome: Any = None
        self.gone = False

    @property
    def over(self) -> bool:
        return self.status in ("completed", "failed", "cancelled")

    def to(self, status: str, outcome: Any = None) -> None:
        """Its next state; what has ended stays."""
        if not self.over:
            self.status = status
            self.told.append(status)
            self.outcome = outcome

    def act(self, act: str) -> None:
        """The effect of each act."""
        idle = self.status == "working"
        match act:
            case "return" if idle:
                self.to("completed", "returned")
            case "told" if idle:
                self.to("failed", "no flour")
            case "error" if idle:
                self.to("failed", -32011)
            case "raise" if idle:
                self.to("failed", "Tool execution failed")
            case "ask" if idle:
                self.to("input_required")
            case "answer" if self.status == "input_required":
                self.to("working")
            case "cancel" | "host cancel":
                self.to("cancelled", -32602)
            case "host finish":
                self.to("completed", "by the host")
            case "host fail":
                self.to("failed", -32000)
            case "kill worker":
                if self.status == "input_required":
                    self.to("working")  # a question whose asker goes is over first, and then so is the task
                self.to("failed", "Tool execution failed")
            case "kill collector":
                self.to("failed", -32603)
            case "time":
                self.gone = self.gone or self.over
            case _:
                pass


class Play:
    """The real one."""

    def __init__(self, stage: TaskServer) -> None:
        self.stage = stage
        self.orders: asyncio.Queue[str] = asyncio.Queue()
        self.questions: list[Any] = []
        self.waits: list[int] = []
        stage.server.tool("obey", task_support="optional")(self._obey)

    async def _obey(self, ctx: Any) -> str:
        while True:
            match await self.orders.get():
                case "return":
                    return "returned"
                case "told":
                    raise ToolError("no flour")
                case "error":
                    raise McpError(-32011, "the mill is shut")
                case "raise":
                    raise ValueError("never shown")
                case _:
                    await ctx.elicit("who?", FORM, timeout=10_000)

    async def open(self) -> None:
        """Begin."""
        self.client = await self.stage.probe({"elicitation/create": self._asked})
        self.id = await start_task(self.client, "obey", TTL * 1000)
        await asyncio.sleep(0.1)

    async def _asked(self, params: dict[str, Any]) -> Any:
        assert params["_meta"] == {RELATED: {"taskId": self.id}}
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.questions.append(answered)
        return await answered

    async def act(self, act: str, model: Model) -> None:
        """Do it, and see whether an act that can be refused is."""
        if act in TOOL:
            await self.orders.put(act)
        elif act.startswith("host"):
            self._host(act, model)
        elif act == "answer":
            for question in self.questions:
                if not question.done():
                    question.set_result({"action": "accept", "content": {"name": "anne"}})
        elif act == "time":
            await asyncio.sleep(TTL + 1)
        else:
            await self._others(act, model)
        await asyncio.sleep(1)

    def _host(self, act: str, model: Model) -> None:
        tasks = self.stage.server.tasks
        match act:
            case "host finish":
                assert tasks.finish(self.id, "by the host") is not model.over
            case "host fail":
                assert tasks.fail(self.id, "the oven is cold") is not model.over
            case _:
                assert tasks.cancel(self.id) is not model.over

    async def _others(self, act: str, model: Model) -> None:
        was_over, was_gone = model.over, model.gone
        match act:
            case "cancel":
                answer = await reply_to(self.client, "tasks/cancel", taskId=self.id)
                if was_over:
                    assert answer["error"]["code"] == -32602
                else:
                    assert answer["result"]["status"] == "cancelled"
            case "kill worker":
                for worker in await which_children(self.stage.company.workers):
                    assert worker.pid is not None
                    kill(worker.pid)
            case "kill collector":
                collector = self.stage.process(self.id)
                assert (collector is None) is was_over
                if collector is not None:
                    kill(collector)
            case _:
                number = await self.client.ask("tasks/result", {"taskId": self.id})
                if was_gone:
                    assert (await self.client.answer(number))["error"]["code"] == -32602
                else:
                    self.waits.append(number)

    async def look(self, model: Model) -> None:
        """The task has the status of the model."""
        seen = await reply_to(self.client, "tasks/get", taskId=self.id)
        listed = (await reply_to(self.client, "tasks/list"))["result"]["tasks"]
        if model.gone:
            assert seen["error"]["code"] == -32602
            assert listed == []
        else:
            assert seen["result"]["status"] == model.status
            assert listed == [seen["result"]]
        told = self.client.notifications("notifications/tasks/status")
        assert [each["status"] for each in told] == model.told
        answers = [each for each in self.client.received if each.get("id") in self.waits and "method" not in each]
        assert len(answers) == (len(self.waits) if model.over else 0)
        for answer in answers:
            if isinstance(model.outcome, int):
                assert answer["error"]["code"] == model.outcome
            else:
                assert answer["result"]["content"][0]["text"] == model.outcome
                assert answer["result"]["_meta"] == {RELATED: {"taskId": self.id}}


async def play(acts: list[str]) -> None:
    async with running_task_server() as stage:
        model, real = Model(), Play(stage)
        await real.open()
        for act in (*acts, "cancel"):
            if act in TOOL and model.status != "working":
                continue
            await real.act(act, model)
            model.act(act)
            await real.look(model)
        for question in real.questions:
            question.cancel()
        assert stage.process(real.id) is None
        assert not await which_children(stage.company.workers)


@settings(max_examples=examples(150))
@given(acts=Acts, seed=seeds())
def test_a_task_has_the_status_of_the_model(acts: list[str], seed: Seed) -> None:
    run(partial(play, acts), seed=seed)


def test_the_wire_form_of_an_answer_is_ours() -> None:
    """The collector takes a worker's response apart, which relies on its form."""
    assert encode_result("task_1", {"a": 1}) == b'{"jsonrpc":"2.0","id":"task_1","result":{"a":1}}'
