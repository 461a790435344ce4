"""Twenty real servers in memory behind one host, each at the end of a rough route, and a storm over fifteen of them, on virtual time.

The trial in `tests/actors/federation` has servers that a test plays; here the whole way is real, from a host's words to the tool. What has to be
true is foretold before it begins: who may die, and that nothing is done twice.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from greenroom import BadAnswer, ClientError, ClientSettings, Host, PeerError, RequestLost, Server, Unavailable
from greenroom.actors.federation.breaker import BreakerSettings
from greenroom.actors.federation.upstream_spec import UpstreamSpec, UpstreamState
from greenroom.supervision import Backoff, CrashReport, Report, current_node, tree
from greenroom.supervision.testing import Fault, FaultPlan, InjectedFault, inject
from greenroom.testing import FaultyRoute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.supervision.supervisors.supervision_tree import Branch

SERVERS: Final = 20
SPARED: Final = 5
DEADLINE: Final = 3.0
CALL: Final = "tools/call"
"""The methods whose messages may be lost on the way out. No real wire loses the end of a handshake and goes on: HTTP ends the session then."""
KILLED: Final = (
    "kill connection",
    "crash connection",
    "hang connection",
    "kill refresher",
    "raise refresher",
    "kill probe",
    "kill",
)
BROKEN: Final = (
    "cut",
    "drop out",
    "drop back",
    "delay out",
    "delay back",
    "double",
    "garble out",
    "garble back",
    "hold",
    "refuse",
)
CALM: Final = Backoff(first=0.1, longest=2.0)


class Trouble(NamedTuple):
    """At a moment, with one server: a fault in its processes here, or on the way to it."""

    at: float
    what: str
    number: int
    seconds: float


def troubles(seed: int, count: int, every: float) -> list[Trouble]:
    """So many, one every so many seconds on average, for the servers that are not spared."""
    source = random.Random(seed)
    at = 1.0
    made: list[Trouble] = []
    for _ in range(count):
        at += source.expovariate(1 / every)
        what = source.choice(KILLED + BROKEN)
        made.append(Trouble(round(at, 3), what, source.randrange(SPARED, SERVERS), source.choice((0.5, 2.0, 8.0))))
    return made


@dataclass
class Outcome:
    """The outcome of a storm."""

    injected: int = 0
    missed: int = 0
    ends: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0

    def __str__(self) -> str:
        ends = ", ".join(f"{count} {name}" for name, count in self.ends.most_common())
        return (
            f"{self.injected} faults ({self.missed} found no process) in {self.seconds:.0f} s of virtual time: {ends}"
        )


class Far:
    """One of the servers, and the way to it."""

    def __init__(self, number: int) -> None:
        """Its tool takes a moment, and keeps what it has done."""
        self.id = f"s{number}"
        self.spared = number < SPARED
        self.done: Counter[str] = Counter()
        self.server = Server(self.id)
        self.route: FaultyRoute | None = None

        @self.server.tool
        async def book(what: str) -> str:
            await asyncio.sleep(0.05)
            self.done[what] += 1
            return what

    def spec(self) -> UpstreamSpec:
        """The spec with which a host keeps it."""
        self.route = FaultyRoute(self.server)
        return UpstreamSpec(
            self.route,
            settings=ClientSettings(
                request_timeout=DEADLINE, init_timeout=2.0, backoff=CALM, ping_interval=1.0, ping_timeout=1.0
            ),
            breaker=BreakerSettings(
                failures=3, window=5.0, cooldown=Backoff(first=0.5, longest=4.0), probe_timeout=1.0
            ),
            intensity=5,
            period=10.0,
            revive=Backoff(first=2.0, longest=10.0),
        )

    def befall(self, what: str, seconds: float) -> None:
        """Something happens to the way."""
        route = self.route
        assert route is not None
        match what:
            case "cut":
                route.cut()
            case "drop out":
                route.out.drop(CALL, times=2)
            case "drop back":
                route.back.drop(times=2)
            case "delay out":
                route.out.delay(seconds, CALL, times=3)
            case "delay back":
                route.back.delay(seconds, times=3)
            case "double":  # answers only: a request that comes twice is done twice, whichever side sent it
                route.back.double(times=3)
            case "garble out":
                route.out.garble(CALL, times=1)
            case "garble back":
                route.back.garble(times=2)
            case "hold":
                route.back.hold()
                asyncio.get_running_loop().call_later(seconds, route.back.release)
            case "refuse":
                route.refuse(3)
                route.cut()
            case _:
                raise AssertionError(what)


async def storm(plan: list[Trouble], *, pause: float = 0.5) -> Outcome:
    """Have all of it happen, and look at everything that has to be true."""
    outcome = Outcome()
    crashes: list[CrashReport] = []

    def hear(report: Report) -> None:
        if isinstance(report, CrashReport) and not isinstance(getattr(report.reason, "error", None), InjectedFault):
            crashes.append(report)

    current_node().reports.subscribe(hear)
    servers = [Far(number) for number in range(SERVERS)]
    async with Host({far.id: far.spec() for far in servers}) as host:
        await host.tools()
        shape = _shape(tree(host.federation.upstreams))
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        callers = [asyncio.ensure_future(_call(host, far, outcome, over, pause)) for far in servers]
        began = loop.time()
        injection = await inject(FaultPlan(tuple(_faults(plan))))
        for trouble in plan:
            if trouble.what in BROKEN:
                await asyncio.sleep(max(0.0, began + trouble.at - loop.time()))
                servers[trouble.number].befall(trouble.what, trouble.seconds)
                outcome.injected += 1
        await injection.wait()
        outcome.injected += len(injection.injected)
        outcome.missed = len(injection.missed)
        assert outcome.injected + outcome.missed == len(plan)
        outcome.seconds = loop.time() - began
        await injection.close()
        over.set()
        await asyncio.gather(*callers)
        for far in servers:
            assert far.route is not None
            far.route.clear()
        await _all_ready(host)
        for far in servers:
            assert (await host.call(f"{far.id}:book", what="last")) == "last"
            assert host.federation.members[far.id].limiter.idle, far.id
        assert _shape(tree(host.federation.upstreams)) == shape
        _foretold(tree(), servers)
    assert not crashes, "\n".join(f"{each}" for each in crashes[:5])
    return outcome


async def _all_ready(host: Host) -> None:
    """Without being told to."""
    try:
        async with asyncio.timeout(1000):
            async for _ in host.watch():
                if all(each.state is UpstreamState.READY for each in host.status().values()):
                    return
    except TimeoutError:
        away = [each for each in host.status().values() if each.state is not UpstreamState.READY]
        raise AssertionError(away) from None


def _faults(plan: list[Trouble]) -> Iterator[Fault]:
    for at, what, number, seconds in plan:
        if what in KILLED:
            deed, _, role = what.partition(" ")
            target = f"**/upstreams/upstream s{number}" + (f"/{role}" if role else "")
            yield Fault(at, deed, target, seconds=seconds)


def _shape(branch: Branch) -> tuple[str, object]:
    """The labels of a tree: they stay the same when processes are restarted."""
    return branch.label, sorted(str(_shape(each)) for each in branch.children if each.id is not None)


def _foretold(root: Branch, servers: list[Far]) -> None:
    """Only processes that were shot at were started again: those of the servers that are not spared, on this side of the way."""
    allowed = {f"upstream {far.id}" for far in servers if not far.spared}
    waiting = [(root, False)]
    while waiting:
        branch, within = waiting.pop()
        within = within or branch.label in allowed
        assert within or not branch.restarts, str(branch)
        waiting += [(each, within) for each in branch.children]


async def _call(host: Host, far: Far, outcome: Outcome, over: asyncio.Event, pause: float) -> None:
    """One call after another, each with one outcome, and what was done held against it."""
    loop = asyncio.get_running_loop()
    words = host.server(far.id)
    fates: dict[str, Exception | None] = {}
    while not over.is_set():
        what = f"{far.id}-{len(fates) + 1}"
        began = loop.time()
        try:
            assert await words.call("book", what=what) == what
        except (ClientError, PeerError, BadAnswer) as error:
            fates[what] = error
        else:
            fates[what] = None
        assert loop.time() - began <= DEADLINE + 0.001, (what, loop.time() - began)
        await asyncio.sleep(pause)
    outcome.ends += Counter("answers" if fate is None else type(fate).__name__ for fate in fates.values())
    noticed = [fate for fate in fates.values() if fate is not None]
    assert not (far.spared and noticed), (far.id, noticed)
    assert not [what for what, times in far.done.items() if times > 1]
    for what, fate in fates.items():
        if fate is None:
            assert what in far.done
        elif isinstance(fate, Unavailable) or (isinstance(fate, RequestLost) and not fate.maybe_done):
            assert what not in far.done, fate
