"""Properties of every run: one Down per monitor, order per sender and receiver.

Hypothesis draws a plan and a seed for each example; the node delivers in the order of the seed, on virtual time, and a failure prints a blob that replays it.

"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.supervision import (
    SHUTDOWN,
    ActorError,
    Down,
    Exit,
    GenServer,
    Monitor,
    Pid,
    Ref,
    demonitor,
    exit,
    is_alive,
    kill,
    link,
    monitor,
    start,
)
from greenroom.supervision.testing import run

from .faulty_servers import stop_quietly, turns

if TYPE_CHECKING:
    from collections.abc import Callable

Seeds = st.none() | st.integers(0, 2**32)


# --- one Down per monitor


class Watches(GenServer):
    """Monitors and links others, and records its messages."""

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
    """Compare what one process was told with what happened to the others."""
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


@settings(max_examples=examples(150))
@given(steps=Steps, seed=Seeds)
def test_every_monitor_is_told_exactly_once_unless_it_was_ended(
    steps: list[tuple[str, int, int]], seed: int | None
) -> None:
    async def main() -> None:
        refs = [await start(Watches) for _ in range(6)]
        servers = [await ref.call(lambda server: server) for ref in refs]
        over: dict[Monitor, bool] = {}

        def unwatch(server: Watches, which: int, *, flush: bool) -> None:
            # Earlier exits are reported; messages in the mailbox are flushed, or not.
            result = server.unwatch(which, flush=flush)
            if result is not None:
                ref, was_open = result
                over[ref] = over.get(ref, False) or was_open or flush

        for step, who, target in steps:
            ref, other = refs[who], refs[target]
            match step:
                case "watch":
                    ref.cast(Watches.watch, other)
                case "tie" if who != target and is_alive(other):
                    ref.cast(Watches.tie, other)
                case "unwatch" | "flush":
                    ref.cast(partial(unwatch, which=target, flush=step == "flush"))
                case "kill":
                    kill(ref)
                case "exit":
                    exit(ref, SHUTDOWN)
                case "stop":
                    await stop_quietly(ref)
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
    """Sends numbered messages of all kinds from handlers of all kinds, and records what it gets."""

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


@settings(max_examples=examples(150))
@given(speeches=Speeches, seed=Seeds)
def test_messages_of_one_sender_arrive_in_order_whatever_the_seed(
    speeches: list[tuple[int, int, list[int], bool]], seed: int | None
) -> None:
    async def main() -> None:
        refs = [await start(Speaks) for _ in range(4)]
        for who, target, kinds, slowly in speeches:
            refs[who].cast(Speaks.speak_slowly if slowly else Speaks.speak, refs[target], kinds)
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
