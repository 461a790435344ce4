"""Promises that hold for every run: one outcome per call, one Down per monitor, order per sender and receiver.

Each example is a plan and a seed: Hypothesis draws both, the node delivers in the order that the seed says, on virtual
time, and the blob that a failure prints replays it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from hypothesis import given, note, settings
from hypothesis import strategies as st

from greenroom.supervision import (
    SHUTDOWN,
    ActorError,
    CallTimeout,
    Down,
    Exit,
    GenServer,
    Monitor,
    Pid,
    ProcessExited,
    Ref,
    Reject,
    current_node,
    demonitor,
    exit,
    is_alive,
    kill,
    later,
    link,
    monitor,
    start,
    stop,
)
from greenroom.supervision.testing import run

from .actors import turns

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

Seeds = st.none() | st.integers(0, 2**32)
Moments = st.integers(0, 20).map(lambda tenths: tenths / 10)


# --- one outcome per call


class Answers(GenServer):
    """Answers with what it was asked, or in some other way."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def echo(self, tag: int) -> int:
        return tag

    async def echo_slowly(self, tag: int, seconds: float) -> int:
        await asyncio.sleep(seconds)
        return tag

    def echo_later(self, tag: int, seconds: float) -> int:
        asyncio.get_running_loop().call_later(seconds, self.caller.reply, tag)
        answer: int = later()
        return answer

    def echo_twice(self, tag: int) -> int:
        self.caller.reply(tag)
        return -tag

    def reject(self, tag: int) -> int:
        raise Reject(LookupError(tag))

    def crash(self, tag: int) -> int:
        raise ValueError(tag)

    async def crash_slowly(self, tag: int, seconds: float) -> int:
        await asyncio.sleep(seconds)
        raise ValueError(tag)

    def never(self, tag: int) -> int:
        answer: int = later()
        return answer


class Asks(GenServer):
    """Makes calls from inside a process, one after the other."""

    async def run(self, calls: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        for call in calls:
            await call()


@dataclass(frozen=True)
class Call:
    """One call: to which callee, how, when, with which deadline."""

    callee: int
    method: str
    at: float
    seconds: float
    deadline: float | None
    ask: bool


@dataclass(frozen=True)
class Fault:
    """Something that happens to somebody."""

    kind: str
    whom: int
    at: float


Calls = st.builds(
    Call,
    callee=st.integers(0, 3),
    method=st.sampled_from(
        [
            "echo",
            "echo",
            "echo_slowly",
            "echo_later",
            "echo_twice",
            "reject",
            "crash",
            "crash_slowly",
            "never",
        ]
    ),
    at=Moments,
    seconds=Moments,
    deadline=st.sampled_from([None, 0.0, 0.5, 1.0, 1.5]),
    ask=st.booleans(),
)
Faults = st.builds(
    Fault,
    kind=st.sampled_from(["kill callee", "exit callee", "stop callee", "kill caller", "cancel caller", "exit caller"]),
    whom=st.integers(0, 7),
    at=Moments,
)


@dataclass
class Ledger:
    """What became of each call."""

    outcomes: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[int, float] = field(default_factory=dict[int, float])

    async def make(self, tag: int, call: Call, refs: list[Ref[Answers]]) -> None:
        loop = asyncio.get_running_loop()
        ref = refs[call.callee % len(refs)].within(call.deadline)
        method: Any = getattr(Answers, call.method)
        extra = (call.seconds,) if "slowly" in call.method or "later" in call.method else ()
        try:
            value = await ref.call(method, tag, *extra)
            outcome = "value" if value == tag else f"somebody else's answer: {value}"
        except LookupError as error:
            outcome = "rejected" if error.args == (tag,) else f"somebody else's error: {error}"
        except CallTimeout as error:
            outcome = "timeout" if error.seconds == call.deadline else f"somebody else's deadline: {error}"
        except ProcessExited:
            outcome = "exited"
        except asyncio.CancelledError:
            self.outcomes[tag].append("cancelled")
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is not one of the promised outcomes
            outcome = f"something else: {error!r}"
        self.outcomes[tag].append(outcome)
        self.ended[tag] = loop.time()


ALLOWED = {"value", "rejected", "timeout", "exited", "cancelled"}


@settings(max_examples=150)
@given(
    plain=st.lists(Calls, max_size=8),
    inside=st.lists(st.lists(Calls, min_size=1, max_size=3), max_size=4),
    faults=st.lists(Faults, max_size=8),
    seed=Seeds,
)
def test_every_call_has_exactly_one_outcome(
    plain: list[Call], inside: list[list[Call]], faults: list[Fault], seed: int | None
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        node = current_node()
        refs = [await start(Answers) for _ in range(4)]
        askers = [await start(Asks) for _ in inside]
        ledger = Ledger()
        began: dict[int, float] = {}
        calls: dict[int, Call] = {}
        tasks: list[asyncio.Task[None]] = []

        async def at_its_time(tag: int, call: Call) -> None:
            began[tag] = loop.time()
            calls[tag] = call
            await ledger.make(tag, call, refs)

        async def plainly(tag: int, call: Call) -> None:
            await asyncio.sleep(call.at)
            await at_its_time(tag, call)

        def begin(asker: Ref[Asks], todo: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
            asker.cast(Asks.run, todo)

        for number, call in enumerate(plain):
            tasks.append(asyncio.ensure_future(plainly(100 + number, call)))
        for number, (asker, several) in enumerate(zip(askers, inside, strict=True)):
            todo = [partial(at_its_time, 1000 + 10 * number + index, call) for index, call in enumerate(several)]
            loop.call_later(several[0].at, begin, asker, todo)
        for fault in faults:
            loop.call_later(fault.at, strike, fault, refs, askers, tasks)
        await asyncio.sleep(10.0)
        for ref in refs:
            kill(ref)  # whoever still waits without a deadline, for an answer that never comes, is answered now
        await turns(50)
        for asker in askers:
            kill(asker)
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 1.0)
        await turns(50)

        for tag, call in calls.items():
            outcomes = ledger.outcomes[tag]
            assert len(outcomes) == 1, f"call {tag} {call} ended {len(outcomes)} times: {outcomes}"
            assert outcomes[0] in ALLOWED, f"call {tag} {call}: {outcomes[0]}"
            if call.deadline is not None and tag in ledger.ended:
                took = ledger.ended[tag] - began[tag]
                assert took <= call.deadline + 1e-6, f"call {tag} {call} took {took}"
        assert set(ledger.outcomes) == set(calls)
        assert len(node.processes) == 0
        assert node.leaks == 0
        await asyncio.sleep(10.0)
        assert len(node.deadlines) == 0

    note(f"seed {seed}")
    run(main, seed=seed)


def strike(fault: Fault, refs: list[Ref[Answers]], askers: list[Ref[Asks]], tasks: list[asyncio.Task[None]]) -> None:
    """Make it happen."""
    callee = refs[fault.whom % len(refs)]
    match fault.kind:
        case "kill callee":
            kill(callee)
        case "exit callee":
            exit(callee, SHUTDOWN)
        case "stop callee":
            tasks.append(asyncio.ensure_future(_stop(callee)))
        case "kill caller" if askers:
            kill(askers[fault.whom % len(askers)])
        case "exit caller" if askers:
            exit(askers[fault.whom % len(askers)], SHUTDOWN)
        case "cancel caller" if tasks:
            tasks[fault.whom % len(tasks)].cancel()
        case _:
            pass


async def _stop(ref: Ref[Any]) -> None:
    with suppress(ActorError):
        await stop(ref, timeout=1.0)


# --- one Down per monitor


class Watches(GenServer):
    """Monitors and links others, and keeps what it hears."""

    traps_exit = True

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.monitors: list[Monitor] = []

    def watch(self, who: Ref[Any]) -> Monitor:
        self.monitors.append(monitor(who))
        return self.monitors[-1]

    def tie(self, who: Ref[Any]) -> None:
        link(who)

    def unwatch(self, which: int, *, flush: bool) -> tuple[Monitor, bool] | None:
        if not self.monitors:
            return None
        ref = self.monitors[which % len(self.monitors)]
        return ref, demonitor(ref, flush=flush)

    async def rest(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def handle_info(self, message: Any) -> None:
        self.heard.append(message)


Steps = st.lists(
    st.tuples(
        st.sampled_from(["watch", "watch", "watch", "unwatch", "flush", "kill", "exit", "stop", "rest", "tie", "wait"]),
        st.integers(0, 5),
        st.integers(0, 5),
    ),
    max_size=40,
)


def check_downs(ref: Ref[Watches], server: Watches, alive: dict[Pid, bool], over: dict[Monitor, bool]) -> None:
    """What one of them was told, against what became of the others."""
    told = [message.ref for message in server.heard if isinstance(message, Down)]
    assert len(told) == len(set(told)), f"{ref} was told twice"
    assert set(told) <= set(server.monitors)
    if not alive[ref.pid]:
        return
    for each in server.monitors:
        assert each.pid is not None
        if each in told:
            assert not alive[each.pid]
        else:
            assert alive[each.pid] or over.get(each), f"{ref} was never told of {each}"
    assert not any(alive.get(message.pid) for message in server.heard if isinstance(message, Exit))


@settings(max_examples=150)
@given(steps=Steps, seed=Seeds)
def test_every_monitor_is_told_exactly_once_unless_it_was_ended(
    steps: list[tuple[str, int, int]], seed: int | None
) -> None:
    async def main() -> None:
        refs = [await start(Watches) for _ in range(6)]
        servers = [await ref.call(lambda server: server) for ref in refs]
        over: dict[Monitor, bool] = {}

        def unwatch(server: Watches, which: int, *, flush: bool) -> None:
            # What came before is heard of; what lies in the mailbox is flushed, or not.
            result = server.unwatch(which, flush=flush)
            if result is not None:
                ref, was_open = result
                over[ref] = over.get(ref, False) or was_open or flush

        for step, who, whom in steps:
            ref, other = refs[who], refs[whom]
            match step:
                case "watch":
                    ref.cast(Watches.watch, other)
                case "tie" if who != whom and is_alive(other):
                    ref.cast(Watches.tie, other)
                case "unwatch" | "flush":
                    ref.cast(partial(unwatch, which=whom, flush=step == "flush"))
                case "kill":
                    kill(ref)
                case "exit":
                    exit(ref, SHUTDOWN)
                case "stop":
                    await _stop(ref)
                case "rest":
                    ref.cast(Watches.rest, 0.5)
                case "wait":
                    await asyncio.sleep(0.25)
                case _:
                    pass
        await asyncio.sleep(60.0)
        for ref, server in zip(refs, servers, strict=True):
            check_downs(ref, server, {one.pid: is_alive(one) for one in refs}, over)

    run(main, seed=seed)


# --- order per sender and receiver


class Speaks(GenServer):
    """Sends numbered messages of all kinds to others, from handlers of all kinds; and notes what it gets."""

    def __init__(self) -> None:
        self.got: dict[Any, list[int]] = defaultdict(list)
        self.sent: dict[Any, int] = defaultdict(int)

    def _send(self, other: Ref[Speaks], kind: int) -> None:
        number = self.sent[other.pid]
        self.sent[other.pid] += 1
        sending: list[Callable[[], bool]] = [
            lambda: other.cast(Speaks.hear, self.pid, number),
            lambda: other.cast(Speaks.hear_slowly, self.pid, number),
            lambda: other.send((self.pid, number)),
            lambda: other.tell((self.pid, number)),
            lambda: Ref[Speaks](other.pid).cast(Speaks.hear, self.pid, number),
        ]
        assert sending[kind % len(sending)]()

    def speak(self, other: Ref[Speaks], kinds: list[int]) -> None:
        for kind in kinds:
            self._send(other, kind)

    async def speak_slowly(self, other: Ref[Speaks], kinds: list[int]) -> None:
        for kind in kinds:
            self._send(other, kind)
            if kind % 3 == 0:
                await asyncio.sleep(0)
            elif kind % 3 == 1:
                await asyncio.sleep(0.1)
            elif other.pid != self.pid:
                number = self.sent[other.pid]
                self.sent[other.pid] += 1
                with suppress(ActorError):  # a cycle of calls, or one whose callee has to wait for it
                    await other.within(0.5).call(Speaks.hear, self.pid, number)
                    continue
                self.sent[other.pid] += 0

    def hear(self, sender: Any, number: int) -> None:
        self.got[sender].append(number)

    async def hear_slowly(self, sender: Any, number: int) -> None:
        await asyncio.sleep(0.05)
        self.got[sender].append(number)

    def handle_info(self, message: Any) -> None:
        self.hear(*message)

    def handle_cast(self, request: Any) -> None:
        self.hear(*request)


Speeches = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 3), st.lists(st.integers(0, 20), min_size=1, max_size=8), st.booleans()
    ),
    max_size=12,
)


@settings(max_examples=150)
@given(speeches=Speeches, seed=Seeds)
def test_messages_of_one_sender_arrive_in_order_whatever_the_seed(
    speeches: list[tuple[int, int, list[int], bool]], seed: int | None
) -> None:
    async def main() -> None:
        refs = [await start(Speaks) for _ in range(4)]
        for who, whom, kinds, slowly in speeches:
            refs[who].cast(Speaks.speak_slowly if slowly else Speaks.speak, refs[whom], kinds)
        await asyncio.sleep(600.0)
        servers = {ref.pid: await ref.call(lambda server: server) for ref in refs}
        for receiver, server in servers.items():
            for sender, numbers in server.got.items():
                assert numbers == sorted(numbers), f"{sender} to {receiver}: {numbers}"
                missing = servers[sender].sent[receiver] - len(numbers)
                assert missing >= 0

    run(main, seed=seed)


@given(seed=Seeds, many=st.integers(1, 30))
def test_a_trapped_exit_and_a_down_come_behind_all_that_was_sent_before(seed: int | None, many: int) -> None:
    async def main() -> None:
        receiver, sender = await start(Watches), await start(Speaks)
        await receiver.call(Watches.tie, sender)
        await receiver.call(Watches.watch, sender)

        def last_words(_: Speaks) -> None:
            for number in range(many):
                receiver.send(number)
            kill(sender)

        sender.cast(last_words)
        await turns(50)
        server = await receiver.call(lambda server: server)
        assert server.heard[:many] == list(range(many))
        assert {type(message) for message in server.heard[many:]} == {Exit, Down}
        assert len(server.heard) == many + 2

    run(main, seed=seed)
