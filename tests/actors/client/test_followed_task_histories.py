"""Followed tasks under random histories: each call ends once and in time, each key has one answer, polls keep their pace, nothing is left over.

A server model makes tasks that work, ask, and end; wires break, replies get lost, the connection's process is killed, and callers leave. Some states
are no states at all. Histories come from one seed, on virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.connections import snapshot

from greenroom.actors.client.client_handler import ClientHandler, asking_call
from greenroom.actors.client.connection_line import ConnectionLine, connection_spec
from greenroom.actors.client.errors import RequestLost, RequestTimeout, TaskLost
from greenroom.actors.client.settings import ClientSettings
from greenroom.protocol.errors import BadAnswer, PeerError, RequestCancelled
from greenroom.supervision import Backoff, Supervisor, kill, start
from greenroom.transports.client.errors import ConnectionLost

from .fake_server import SILENCE
from .task_script import CALL, TaskScript, asking, task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.client.pending_requests import PendingRequest
    from greenroom.protocol.jsonrpc import JsonRpcRequest

PAUSE = 0.5
HOSTILE: tuple[Any, ...] = ({}, {"taskId": 1}, task("completed"), task("working", taskId="another"), task("resting"))


@dataclass
class ModelTask:
    """A task of the server."""

    id: str
    keys: list[str]
    """The questions that it has not asked yet, and"""
    open: set[str] = field(default_factory=set[str])
    """those that it asks now."""
    answers: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    polled: list[float] = field(default_factory=list[float])
    cancelled: bool = False
    work: int = 3


class ModelServer:
    """The server: what it says is drawn by chance."""

    def __init__(self, chance: random.Random, *, losses: bool) -> None:
        self.chance = chance
        self.losses = losses
        self.tasks: dict[str, ModelTask] = {}
        self.script = TaskScript()
        self.stage = self.script.stage
        self.stage.answers |= {
            "tools/call": self.call,
            "tasks/get": self.get,
            "tasks/update": self.update,
            "tasks/cancel": self.cancel,
        }

    def maybe(self, answer: Any) -> Any:
        """The answer, or none."""
        if self.losses and self.chance.random() < 0.1:
            return self.chance.choice([SILENCE, ConnectionLost("lost"), PeerError(-32603, "not now")])
        return answer

    def call(self, _: JsonRpcRequest) -> Any:
        id = f"t{len(self.tasks)}"
        keys = [f"{id}:{number}" for number in range(self.chance.randrange(4))]
        self.tasks[id] = ModelTask(id, keys)
        return task("working", resultType="task", taskId=id, pollIntervalMs=PAUSE * 1000)

    def get(self, request: JsonRpcRequest) -> Any:
        found = self.tasks[request.params["taskId"]]
        found.polled.append(asyncio.get_running_loop().time())
        if self.losses and self.chance.random() < 0.02:
            return self.chance.choice(HOSTILE)
        return self.maybe(self.state(found))

    def state(self, found: ModelTask) -> dict[str, Any]:
        """The next state. Questions that were answered may be shown once more."""
        about = {"taskId": found.id, "pollIntervalMs": PAUSE * 1000}
        if found.cancelled:
            return task("cancelled", **about)
        if found.keys and self.chance.random() < 0.5:
            found.open.add(found.keys.pop())
        shown = found.open | {key for key in found.answers if self.chance.random() < 0.3}
        if shown:
            return asking(*sorted(shown), **about)
        found.work -= 1
        if found.keys or found.work > 0:
            return task("working", **about)
        return task("completed", result={"content": [], "of": found.id}, **about)

    def update(self, request: JsonRpcRequest) -> Any:
        found = self.tasks[request.params["taskId"]]
        answer = self.maybe({"resultType": "complete"})
        for key, value in request.params["inputResponses"].items():
            found.answers[key].append((value, answer))
            found.open.discard(key)
        return answer

    def cancel(self, request: JsonRpcRequest) -> Any:
        self.tasks[request.params["taskId"]].cancelled = True
        return self.maybe({"resultType": "complete"})


class SlowUser(ClientHandler):
    """Answers after a while, each question in another way."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.asked = 0

    def capabilities(self) -> Mapping[str, Any]:
        return {"elicitation": {}}

    async def handle_request(self, method: str, params: dict[str, Any]) -> Any:
        call = asking_call()
        assert call is not None
        assert call.method == "tools/call"
        self.asked += 1
        number = self.asked
        await asyncio.sleep(self.chance.random() * 2)
        return {"action": "accept", "content": {"number": number}}


async def history(seed: int, *, losses: bool) -> tuple[ModelServer, ConnectionLine, list[tuple[PendingRequest, float]]]:
    """Play one history to its end."""
    chance = random.Random(seed)
    server = ModelServer(chance, losses=losses)
    settings = ClientSettings(backoff=Backoff(first=0.1, longest=0.5), request_timeout=40)
    line = ConnectionLine("model", settings)
    await start(Supervisor, [connection_spec(server.stage, SlowUser(chance), line=line)], intensity=1000)
    await line.ready()
    calls: list[tuple[PendingRequest, float]] = []
    for _ in range(60):
        match chance.randrange(10):
            case 0 | 1 | 2:
                seconds = chance.choice([3.0, 20.0, 40.0])
                calls.append((line.begin("tools/call", CALL, timeout=seconds), seconds))
            case 3 if losses:
                await server.stage.wire.break_off(ConnectionLost("pulled out"))
            case 4 if losses and line.pid is not None and chance.random() < 0.3:
                kill(line.pid)
            case 5 if calls:
                chance.choice(calls)[0].cancel("enough")
            case _:
                await asyncio.sleep(chance.random())
    return server, line, calls


@pytest.mark.row("26-T4", "26-T11")
@pytest.mark.parametrize("losses", [False, True], ids=["all is well", "all goes wrong"])
@pytest.mark.parametrize("seed", range(25))
async def test_each_call_ends_once_and_each_key_is_answered_once(seed: int, losses: bool) -> None:  # noqa: FBT001
    loop = asyncio.get_running_loop()
    server, line, calls = await history(seed, losses=losses)
    ends: list[Any] = []
    for pending, seconds in calls:
        began = loop.time()
        try:
            ends.append(await pending)
        except (RequestTimeout, RequestCancelled, RequestLost, TaskLost, BadAnswer, PeerError) as error:
            ends.append(error)
        assert loop.time() - began <= seconds + 0.001
    fetched: list[str] = [end["of"] for end in ends if isinstance(end, dict)]
    assert len(set(fetched)) == len(fetched)
    assert losses or {type(end) for end in ends} <= {dict, RequestTimeout, RequestCancelled}
    await asyncio.sleep(120)
    for found in server.tasks.values():
        for given in found.answers.values():
            assert len({str(value) for value, _ in given}) == 1  # repeated after a loss, and then the same
            # A reply that its connection had not read when it was killed is lost: its answer is given again by the next one.
            assert losses or all(reply != {"resultType": "complete"} for _, reply in given[:-1])
        if not losses:
            assert found.cancelled != (found.id in fetched)
            assert all(
                later - earlier >= PAUSE - 1e-6 for earlier, later in zip(found.polled, found.polled[1:], strict=False)
            )
    assert line.tasks.followed == {}
    assert line.readers.followed_tasks == {}
    left = await snapshot(line)
    assert (left["under_way"], left["waiting"], left["server_requests"]) == ({}, [], [])
    await line.close()
