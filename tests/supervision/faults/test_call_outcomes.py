"""Every call has exactly one outcome, whichever process fails, with any seed.

Hypothesis draws calls, faults and the delivery order; everything runs on virtual time, and a failure prints how to replay it.

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
from tests.example_counts import examples

from greenroom.supervision import (
    SHUTDOWN,
    CallTimeout,
    GenServer,
    ProcessExited,
    Ref,
    Reject,
    current_node,
    exit,
    kill,
    later,
    start,
)
from greenroom.supervision.testing import run

from .faulty_servers import stop_quietly, turns

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

Seeds = st.none() | st.integers(0, 2**32)
Moments = st.integers(0, 20).map(lambda tenths: tenths / 10)


class Answers(GenServer):
    """Answers with its argument, or in another way."""

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
    """Makes calls from a process, one after the other."""

    async def run(self, calls: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        for call in calls:
            await call()


@dataclass(frozen=True)
class Call:
    """A call: its callee, kind, time and deadline."""

    callee: int
    method: str
    at: float
    seconds: float
    deadline: float | None
    ask: bool


@dataclass(frozen=True)
class Fault:
    """A fault of a callee or a caller."""

    kind: str
    target: int
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
    target=st.integers(0, 7),
    at=Moments,
)


@dataclass
class Ledger:
    """The outcomes of all calls."""

    outcomes: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    ended: dict[int, float] = field(default_factory=dict[int, float])

    async def make(self, tag: int, call: Call, refs: list[Ref[Answers]]) -> None:
        loop = asyncio.get_running_loop()
        ref = refs[call.callee % len(refs)].within(call.deadline)
        method: Any = getattr(Answers, call.method)
        extra = (call.seconds,) if "slowly" in call.method or "later" in call.method else ()
        try:
            value = await ref.call(method, tag, *extra)
            outcome = "value" if value == tag else f"another call's answer: {value}"
        except LookupError as error:
            outcome = "rejected" if error.args == (tag,) else f"another call's error: {error}"
        except CallTimeout as error:
            outcome = "timeout" if error.seconds == call.deadline else f"another call's deadline: {error}"
        except ProcessExited:
            outcome = "exited"
        except asyncio.CancelledError:
            self.outcomes[tag].append("cancelled")
            raise
        except BaseException as error:  # noqa: BLE001 - any other exception is no valid outcome
            outcome = f"something else: {error!r}"
        self.outcomes[tag].append(outcome)
        self.ended[tag] = loop.time()


ALLOWED = {"value", "rejected", "timeout", "exited", "cancelled"}


@settings(max_examples=examples(150))
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
            kill(ref)  # callers that still wait without a deadline, for an answer that never comes, are answered now
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
    callee = refs[fault.target % len(refs)]
    match fault.kind:
        case "kill callee":
            kill(callee)
        case "exit callee":
            exit(callee, SHUTDOWN)
        case "stop callee":
            tasks.append(asyncio.ensure_future(stop_quietly(callee)))
        case "kill caller" if askers:
            kill(askers[fault.target % len(askers)])
        case "exit caller" if askers:
            exit(askers[fault.target % len(askers)], SHUTDOWN)
        case "cancel caller" if tasks:
            tasks[fault.target % len(tasks)].cancel()
        case _:
            pass
