"""A federation of twenty servers under random faults, with constant callers, and the invariants that must hold.

Half of the servers speak the stateless era at first, and half a handshake revision; some change that in the middle. Some of the servers are spared: no caller may
notice anything there. Of the others each call is settled exactly once, in a way that has a type, no call is carried out twice, and when the faults are over all
of them come back by themselves.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from tests.actors.client.fake_server import SILENCE, After, StageWire

from greenroom.actors.client.errors import ClientError
from greenroom.actors.client.settings import ClientSettings
from greenroom.actors.federation.breaker import BreakerSettings
from greenroom.actors.federation.upstream_spec import UpstreamState
from greenroom.protocol.errors import PeerError
from greenroom.supervision import Backoff
from greenroom.supervision.testing import Fault, FaultPlan, fault_kind, inject
from greenroom.transports.client.errors import ConnectionLost

from .era_upstreams import EraUpstream
from .fake_upstreams import all_ready, call, federated, spec

if TYPE_CHECKING:
    from greenroom.actors.client.interfaces import Pending
    from greenroom.actors.federation.federation import Federation
    from greenroom.protocol.jsonrpc import JsonRpcRequest
    from greenroom.supervision import Pid
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.testing import FaultContext

SERVERS: Final = 20
SPARED: Final = 5
KINDS: Final = (
    "kill connection",
    "crash connection",
    "hang connection",
    "cut connection",
    "snap connection",
    "mute connection",
    "deploy connection",
    "redeploy connection",
    "kill refresher",
    "raise refresher",
    "kill probe",
    "kill",
    "stop",
)
"""The faults, each with the process of an upstream that it hits; or its supervisor."""


_wires: WeakValueDictionary[Pid, StageWire] = WeakValueDictionary()


class Flaky(EraUpstream):
    """A server that says nothing for a while when it is told to, and each of whose calls takes a moment."""

    def __init__(self, *, stateless: bool, is_http: bool) -> None:
        super().__init__("a", "b", "c", stateless=stateless)
        self.is_http = is_http
        self.muted = False
        self.mutes = 0
        for method, answer in tuple(self.answers.items()):
            self.answers[method] = self._unless_muted(answer)

    def _unless_muted(self, answer: Any) -> Any:
        def say(request: JsonRpcRequest) -> Any:
            if self.muted:
                return SILENCE
            result = answer(request) if callable(answer) else answer
            return After(0.05, result) if request.method == "tools/call" else result

        return say

    def open(self, owner: Pid) -> StageWire:
        """As a route does; and remember whose it is."""
        wire = _wires[owner] = super().open(owner)
        return wire

    def mute(self, seconds: float) -> None:
        """Say nothing for so long."""
        self.mutes += 1
        self.muted = True
        asyncio.get_running_loop().call_later(seconds, self._unmute, self.mutes)

    def _unmute(self, count: int) -> None:
        if count == self.mutes:
            self.muted = False


def _wire(process: Process) -> StageWire | None:
    """The latest of that connection's."""
    return _wires.get(process.pid)


def _connected(process: Process) -> str | None:
    return None if _wire(process) is not None else f"{process} has no wire"


@fault_kind("cut", needs=_connected)
def _cut(moment: FaultContext) -> None:
    """The server hangs up."""
    wire = _wire(moment.process)
    assert wire is not None
    wire.end(ConnectionLost("cut"))


@fault_kind("snap", needs=_connected)
def _snap(moment: FaultContext) -> None:
    """The process of the wire ends without a word."""
    wire = _wire(moment.process)
    assert wire is not None
    wire.kill()


@fault_kind("mute", needs=_connected)
def _mute(moment: FaultContext) -> None:
    """The server says nothing for a while, on this wire and on the next."""
    wire = _wire(moment.process)
    assert wire is not None
    assert isinstance(wire.stage, Flaky)
    wire.stage.mute(moment.fault.seconds or 2.0)


@fault_kind("deploy", needs=_connected)
def _deploy(moment: FaultContext) -> None:
    """The server speaks the other era from now on; one that is a program is started anew for that."""
    wire = _wire(moment.process)
    assert wire is not None
    assert isinstance(wire.stage, Flaky)
    wire.stage.deploy(stateless=not wire.stage.stateless)
    if not wire.is_http:
        wire.end(ConnectionLost("ended"))


@fault_kind("redeploy", needs=_connected)
def _redeploy(moment: FaultContext) -> None:
    """The same, and it hangs up."""
    _deploy(moment)
    _cut(moment)


def plan(seed: int, faults: int, every: float) -> FaultPlan:
    """So many faults, one every so many seconds on average, for the servers that are not spared."""
    source = random.Random(seed)
    made: list[Fault] = []
    at = 1.0
    for _ in range(faults):
        at += source.expovariate(1 / every)
        what, _, role = source.choice(KINDS).partition(" ")
        target = f"upstreams/upstream s{source.randrange(SPARED, SERVERS)}" + (f"/{role}" if role else "")
        made.append(Fault(round(at, 3), what, f"**/{target}", seconds=source.choice((0.5, 2.0, 8.0))))
    return FaultPlan(tuple(made))


@dataclass
class Outcome:
    """The outcome of a trial."""

    injected: int = 0
    missed: int = 0
    calls: Counter[str] = field(default_factory=Counter[str])
    parkings: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        calls = ", ".join(f"{count} {name}" for name, count in self.calls.most_common())
        return (
            f"{self.injected} faults ({self.missed} found no process) in {self.seconds:.0f} s of virtual time, "
            f"{self.parkings} parkings; {sum(self.calls.values())} calls: {calls}"
        )


async def trial(faults: FaultPlan, *, pause: float = 0.5) -> Outcome:
    """Have the plan carried out, and look at everything that has to be true."""
    outcome = Outcome()
    stages = {f"s{number}": Flaky(stateless=number % 2 == 0, is_http=number % 4 < 2) for number in range(SERVERS)}
    loop = asyncio.get_running_loop()
    async with federated({id: _spec(stage) for id, stage in stages.items()}) as federation:
        await all_ready(federation)
        before = federation.clients()
        watching = asyncio.ensure_future(_count_parkings(federation, outcome))
        over = asyncio.Event()
        callers = [asyncio.ensure_future(_call(federation, id, outcome, over, pause)) for id in stages]
        injection = await inject(faults)
        await injection.wait()
        outcome.injected, outcome.missed = len(injection.injected), len(injection.missed)
        assert outcome.injected + outcome.missed == len(faults)
        outcome.seconds = loop.time()
        await injection.close()
        over.set()
        await asyncio.gather(*callers)
        watching.cancel()
        async with asyncio.timeout(1000):
            for id, stage in stages.items():
                stage.muted = False
                await _comes_back(federation, id)
                assert await call(federation, id, "at last") == "at last"
        for id, stage in stages.items():
            upstream = federation.members[id]
            assert upstream.limiter.idle, id
            assert list(upstream.offering.tools) == ["a", "b", "c"], id
            done = Counter(request.params["name"] for request in stage.executed if request.method == "tools/call")
            assert not [name for name, times in done.items() if times > 1], id
            welcome = upstream.line.welcome
            assert welcome is not None
            assert welcome.is_stateless is stage.stateless, id
        for number in range(SPARED):
            assert federation.whereis(f"s{number}") == before[f"s{number}"]
            assert len(stages[f"s{number}"].wires) == 1
        assert "ClientClosed" not in outcome.calls  # no client was closed
        assert not federation.arriving
        assert not federation.leaving
    return outcome


def _spec(stage: Flaky) -> Any:
    return spec(
        stage,
        settings=ClientSettings(request_timeout=3.0, init_timeout=2.0, backoff=Backoff(first=0.1, longest=2.0)),
        breaker=BreakerSettings(failures=3, window=5.0, cooldown=Backoff(first=0.5, longest=4.0), probe_timeout=1.0),
        intensity=5,
        period=10.0,
        revive=Backoff(first=2.0, longest=10.0),
    )


async def _count_parkings(federation: Federation, outcome: Outcome) -> None:
    async for standing in federation.watch():
        outcome.parkings += standing.state is UpstreamState.PARKED


async def _call(federation: Federation, id: str, outcome: Outcome, over: asyncio.Event, pause: float) -> None:
    """Ask, again and again; each question has one outcome, at the latest when its time is over."""
    line = federation.line(id)
    assert line is not None
    loop = asyncio.get_running_loop()
    number = 0
    spared = int(id[1:]) < SPARED
    while not over.is_set():
        number += 1
        told: list[BaseException | None] = []
        began = loop.time()
        pending: Pending = line.begin("tools/call", {"name": f"{id}-{number}", "arguments": {}})
        pending.when_settled(lambda _, error, told=told: told.append(error))  # type: ignore[misc]
        try:
            result = await pending.result()
        except (ClientError, PeerError) as error:
            # A server that speaks the other era now refuses the call in words. They stand where it dies before the connection has spoken its era.
            assert isinstance(error, ClientError) or "there is no session" in str(error), (id, number)
            if spared:
                raise AssertionError(f"{id} noticed") from error
            outcome.calls[type(error).__name__] += 1
        else:
            assert result["content"][0]["text"] == f"{id}-{number}"
            outcome.calls["answers"] += 1
        assert loop.time() - began <= 3.001, (id, number, loop.time() - began)
        await asyncio.sleep(pause)
        assert len(told) == 1


async def _comes_back(federation: Federation, id: str) -> None:
    """Without being told to."""
    while federation.status(id).state is not UpstreamState.READY:
        await federation.members[id].wakeup.wait()
