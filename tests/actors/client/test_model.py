"""A connection against a model, under random histories: every request is settled exactly once, and as something that is allowed.

The model knows nothing of how it is done. For each request it knows what was done to it (asked, answered, cancelled, its caller killed,
its deadline, the losses while it was under way) and from that which outcomes there may be, how often the server may have seen it, and by
when it must be over. The histories and the order of delivery come from one seed, on virtual time.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.connections import snapshot, start_connection

from greenroom.actors.client.errors import ClientClosed, NotReady, RequestLost, RequestTimeout, Unavailable
from greenroom.actors.client.settings import ClientSettings
from greenroom.protocol.errors import PeerError, RequestCancelled
from greenroom.protocol.jsonrpc import JsonRpcRequest, JsonRpcResponse
from greenroom.supervision import Backoff, current_node, kill, spawn
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost, SessionGone
from greenroom.transports.client.interfaces import UnansweredRequest

from .fake_server import SILENCE, Stage

if TYPE_CHECKING:
    from greenroom.actors.client.connection_line import ConnectionLine
    from greenroom.actors.client.pending_requests import PendingRequest

    from .fake_server import StageWire

SEEDS = range(60)
STEPS = 150


@dataclass
class Played:
    """The model of one request."""

    pending: PendingRequest
    idempotent: bool
    waits: bool
    timeout: float
    began: float
    answers: list[Any] = field(default_factory=list[Any])
    cancelled: bool = False
    lost: bool = False
    unseen: bool = False
    """Whether the server said at some time that it has not seen it."""
    over: list[tuple[Any, float]] = field(default_factory=list[tuple[Any, float]])


class Theatre:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.stage = Stage()
        self.stage.answers["tools/call"] = self.stage.answers["resources/read"] = SILENCE
        self.played: dict[Any, Played] = {}
        self.line: ConnectionLine
        self.closed = False
        self.broken: set[StageWire] = set()
        """Wires that are to end: the connection need not know of it yet."""

    async def play(self) -> None:
        chance = self.chance
        settings = ClientSettings(
            backoff=Backoff(first=0.5, longest=4.0, quiet=20.0), init_timeout=2.0, close_grace=1.0, max_pending=200
        )
        self.line = await start_connection(self.stage, settings)
        acts = [self.ask] * 8 + [self.answer] * 8 + [self.cancel, self.lose, self.pause, self.pause, self.stray]
        acts += [self.break_wire, self.kill_caller, self.ask_and_die, self.refuse_some, self.forget_session, self.retry]
        for _ in range(STEPS):
            chance.choice(acts)()
            if chance.random() < 0.6:
                await asyncio.sleep(chance.choice([0, 0, 0, 0.01, 0.3]))
        if chance.random() < 0.5:
            self.closed = True
            await self.line.close()
        await asyncio.sleep(60)
        if not self.closed:
            assert (await snapshot(self.line))["under_way"] == {}
            assert (await snapshot(self.line))["waiting"] == []
            assert await self.line.request("ping") == {}
        await self.line.close()

    # --- what may happen

    def ask(self) -> Played:
        chance = self.chance
        idempotent, waits = chance.random() < 0.5, chance.random() < 0.9
        method = "resources/read" if idempotent else "tools/call"
        timeout = chance.choice([0.1, 1.0, 5.0, 30.0])
        pending = self.line.begin(method, {"name": "x"}, timeout=timeout, wait=waits)
        now = asyncio.get_running_loop().time()
        doomed = bool(self.stage.wires) and self.stage.wire in self.broken
        played = self.played[pending.id] = Played(pending, idempotent, waits, timeout, now, lost=doomed)
        loop = asyncio.get_running_loop()
        pending.when_settled(
            lambda result, error: played.over.append((error if result is None else result, loop.time()))
        )
        return played

    def ask_and_die(self) -> None:
        async def caller() -> None:
            self.ask().cancelled = True
            await asyncio.sleep(self.chance.choice([0, 0.2, 1000]))

        spawn(caller)

    def kill_caller(self) -> None:
        async def caller() -> None:
            self.ask().cancelled = True
            await asyncio.sleep(1000)

        pid = spawn(caller)
        asyncio.get_running_loop().call_later(
            self.chance.choice([0, 0.1]), lambda: current_node().context.run(kill, pid)
        )

    def under_way(self) -> list[tuple[StageWire, JsonRpcRequest]]:
        return [
            (wire, each)
            for wire in self.stage.wires
            if not wire.ended
            for each in wire.heard
            if isinstance(each, JsonRpcRequest) and each.id in self.played
        ]

    def answer(self) -> None:
        open_ones = self.under_way()
        if open_ones:
            wire, request = self.chance.choice(open_ones)
            error = self.chance.random() < 0.2
            answer: Any = PeerError(-1, str(request.id)) if error else {"of": request.id}
            self.played[request.id].answers.append(answer)
            for _ in range(self.chance.choice([1, 1, 1, 2])):
                wire.answer(request, answer)

    def stray(self) -> None:
        if self.stage.wires:
            self.stage.wire.say(JsonRpcResponse(10**9, {}), JsonRpcResponse("odd", {}))

    def cancel(self) -> None:
        if self.played:
            played = self.chance.choice(list(self.played.values()))
            played.cancelled = True
            played.pending.cancel("no need")

    def lose(self) -> None:
        open_ones = self.under_way()
        if open_ones:
            wire, request = self.chance.choice(open_ones)
            resend = self.chance.random() < 0.5
            self.played[request.id].lost = True
            self.played[request.id].unseen |= resend
            wire.say(UnansweredRequest(request.id, ConnectionLost("lost"), resend=resend))

    def forget_session(self) -> None:
        open_ones = [each for each in self.under_way() if each[0] is self.stage.wire]
        if open_ones:
            wire, request = self.chance.choice(open_ones)
            self.played[request.id].lost = self.played[request.id].unseen = True
            wire.say(UnansweredRequest(request.id, SessionGone(404), resend=True))

    def break_wire(self) -> None:
        if self.stage.wires and not self.stage.wire.ended:
            for played in self.played.values():
                played.lost = True
            self.broken.add(self.stage.wire)
            self.stage.wire.end(ConnectionLost("broken"))

    def refuse_some(self) -> None:
        self.stage.failures += [ConnectFailed("refused")] * self.chance.choice([1, 2])
        self.break_wire()

    def retry(self) -> None:
        self.line.retry()

    def pause(self) -> None:
        pass

    # --- what must be so

    def check(self) -> None:
        seen = Counter(request.id for request in self.stage.requests)
        for id, played in self.played.items():
            assert len(played.over) == 1, (id, played)
            outcome, moment = played.over[0]
            assert moment <= played.began + played.timeout + 1e-6, (id, played)
            match outcome:
                case dict() | PeerError():
                    assert outcome in played.answers
                case RequestCancelled():
                    assert played.cancelled
                case RequestTimeout():
                    assert moment == pytest.approx(played.began + played.timeout)
                case RequestLost():
                    assert played.lost
                    assert outcome.maybe_done is False or not (played.idempotent and seen[id] < 2 and not self.closed)
                case ClientClosed():
                    assert self.closed
                case NotReady():
                    assert not played.waits
                case Unavailable():
                    assert outcome.retry_in is not None
                    assert moment + outcome.retry_in > played.began + played.timeout
                case _:
                    raise AssertionError((id, outcome))
            assert seen[id] <= 2
            if seen[id] == 2:
                assert played.lost
                assert played.idempotent or played.unseen
        told = Counter(params["requestId"] for params in self.stage.notes("notifications/cancelled"))
        assert all(count == 1 for count in told.values())
        for id in told:
            assert isinstance(self.played[id].over[0][0], RequestCancelled | RequestTimeout)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.row("CL-15", "CL-16", "CL-26")
@pytest.mark.greenroom(seed="random")
async def test_every_request_is_settled_exactly_once_as_the_model_allows(seed: int) -> None:
    theatre = Theatre(seed)
    await theatre.play()
    theatre.check()
