"""Random sequences of operations between two nodes, against the promise of each.

A call is answered once, and run at most once; there is one `Down` for each monitor and one exit for each link; what is sent arrives in order,
with gaps only where a link was lost.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.supervision import (
    KILLED,
    NO_CONNECTION,
    NO_PROCESS,
    Crash,
    Down,
    Exit,
    ExitReason,
    Monitor,
    Pid,
    ProcessExited,
    Ref,
    Shutdown,
    current_node,
    demonitor,
    exit,
    inbox,
    kill,
    link,
    monitor,
    unlink,
    wait_down,
)
from greenroom.supervision.cluster.remote_spawn import start_on, whereis_on
from greenroom.supervision.kernel import links

from .two_nodes import Counter, Far, pair

if TYPE_CHECKING:
    from greenroom.supervision import Inbox
    from greenroom.supervision.cluster.peers import Peers

pytestmark = pytest.mark.greenroom(clock="real", name="one")

ACTS = (
    "spawn", "spawn", "call", "call", "calls", "calls", "send", "send", "send", "link", "unlink", "monitor", "monitor",
    "demonitor", "exit", "kill", "crash", "cut", "cut there", "meet", "turn",
)  # fmt: skip


@dataclass
class Mine:
    """What the test expects of one process on the other node."""

    pid: Pid
    asked: int = 0
    answered: int = 0
    sent: int = 0
    reasons: set[str] = field(default_factory=set[str])
    links: int = 0
    """The number of exits that are still expected."""


class World:
    """Two nodes, and a process on one of them that does things."""

    def __init__(self, one: Peers, two: Far, me: Inbox) -> None:
        self.one = one
        self.two = two
        self.me = me
        self.process = current_node().processes[me.pid.serial]
        self.known: list[Mine] = []
        self.watches: dict[Monitor, Mine] = {}
        self.calls: list[tuple[Mine, asyncio.Task[int]]] = []
        self.cuts = 0

    async def act(self, what: str, which: int) -> None:
        """Take one random step."""
        if what == "spawn" or not self.known:
            await self.spawn()
            return
        mine = self.known[which % len(self.known)]
        ref: Ref[Counter] = Ref(mine.pid)
        match what:
            case "call" | "calls":
                mine.asked += 1
                call = asyncio.ensure_future(ref.within(20).call(Counter.add))
                self.calls.append((mine, call))
                if what == "call":
                    await asyncio.wait((call,))
            case "send":
                mine.sent += 1
                ref.send(mine.sent)
            case "link":
                mine.links += mine.pid not in [each.pid for each in links.linked(self.process)]
                link(ref)
            case "unlink":
                mine.links -= mine.pid in [each.pid for each in links.linked(self.process)]
                unlink(ref)
            case "monitor":
                self.watches[monitor(ref)] = mine
            case "demonitor":
                for watch in [each for each, whose in self.watches.items() if whose is mine][:1]:
                    demonitor(watch, flush=True)
                    del self.watches[watch]
            case "exit":
                mine.reasons.add(str(Shutdown(which)))
                exit(ref, Shutdown(which))
            case "kill":
                mine.reasons.add(str(KILLED))
                kill(ref)
            case "crash":
                mine.reasons.add("crash: ValueError: boo")
                ref.cast(Counter.fail, ValueError("boo"))
            case "cut":
                self.cuts += 1
                self.one.disconnect("two")
            case "cut there":
                self.cuts += 1
                self.two.background.node.loop.call_soon_threadsafe(self.two.peers.disconnect, "one")
            case "meet":
                await asyncio.gather(whereis_on("two", "unknown"), return_exceptions=True)
            case _:
                await asyncio.sleep(0)

    async def spawn(self) -> None:
        """Start another process, unless the link is just being lost."""
        (started,) = await asyncio.gather(start_on("two", Counter), return_exceptions=True)
        if isinstance(started, Ref):
            self.known.append(Mine(started.pid))
        else:
            assert isinstance(started, ProcessExited)
            assert started.reason == NO_CONNECTION
            assert self.cuts

    async def settle(self) -> None:
        """End everything, and check."""
        for mine, call in self.calls:
            async with asyncio.timeout(25):
                await asyncio.wait((call,))
            error = call.exception()
            if error is None:
                mine.answered += 1
            else:
                assert isinstance(error, ProcessExited)
                self.check(mine, error.reason)
        for mine in self.known:
            await self.look(mine)
            mine.reasons.add(str(KILLED))
            while (await self.ended(mine)) not in {NO_PROCESS, KILLED}:
                pass
        self.read()

    async def ended(self, mine: Mine) -> ExitReason:
        """Kill the process, and wait for the reason."""
        kill(mine.pid)
        return await wait_down(mine.pid)

    async def look(self, mine: Mine) -> None:
        """The state of the process on the other node, if it lives."""
        try:
            count = await Ref[Counter](mine.pid).call(Counter.add, 0)
            heard: list[Any] = await Ref[Counter](mine.pid).call(Counter.all_heard)
        except ProcessExited as error:
            self.check(mine, error.reason)
            return
        assert mine.answered <= count <= mine.asked, "each call ran at most once, and each that was answered did"
        assert heard == sorted(set(heard)), "in order, and none twice"
        if not self.cuts:
            assert heard == list(range(1, mine.sent + 1))
            assert count == mine.asked

    def check(self, mine: Mine, reason: ExitReason) -> None:
        """The reason is one of those that were given."""
        possible = {*mine.reasons, str(NO_PROCESS)}
        if self.cuts:
            possible.add(str(NO_CONNECTION))
        assert str(reason) in possible
        assert not isinstance(reason, Crash) or isinstance(reason.error, ValueError)

    def read(self) -> None:
        """Each expected message has come once."""
        downs: list[Down] = []
        exits: dict[Pid, int] = {}
        for message in self.me.pending():
            if isinstance(message, Down):
                downs.append(message)
            else:
                assert isinstance(message, Exit)
                exits[message.pid] = exits.get(message.pid, 0) + 1
                self.check(next(each for each in self.known if each.pid == message.pid), message.reason)
        for down in downs:
            mine = self.watches.pop(down.ref)
            assert down.pid == mine.pid
            self.check(mine, down.reason)
        assert not self.watches, "each monitor has fired"
        assert exits == {mine.pid: mine.links for mine in self.known if mine.links}


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 5)), max_size=40))
async def test_whatever_two_nodes_do_to_each_other_the_promises_hold(acts: list[tuple[str, int]]) -> None:
    async with pair() as (one, two), inbox() as me:
        one.introduce("two", two.peers.addresses)
        world = World(one, two, me)
        for what, which in acts:
            await world.act(what, which)
        await world.settle()
