"""The rounds of one call against a model of them: whatever its client does, in whatever order, each request has the end that the model has.

One real server on virtual time, with a tool that asks two questions at a time and then a third. After each act nothing is worked on, and as many calls are parked as
the model says.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.actors.tasks.stateless_client import StatelessClient
from tests.example_counts import examples

from greenroom import Accepted, Context, Server, Settings
from greenroom.supervision import current_node, kill
from greenroom.supervision.testing import Seed, run, seeds
from greenroom.transports.interfaces import Peer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.actors.company import Company

PARKED: Final = 60.0
STAGES: Final[Sequence[frozenset[str]]] = (frozenset("ab"), frozenset("c"))
"""The keys of the questions that are asked at a time."""
REQUEST: Final[dict[str, Any]] = {"name": "book", "arguments": {"day": "monday"}}
NONE: Final = frozenset[str]()
ALL: Final = frozenset("abc")
REFUSED: Final = ("gone", "used", "expired")
TURN: Final = 0.25
"""Seconds that each act takes."""

Answers = st.frozensets(st.sampled_from("abcx"))
Acts = st.lists(
    st.one_of(
        st.tuples(st.just("answer"), Answers),
        st.tuples(st.just("old answer"), Answers),
        st.tuples(st.sampled_from(["answer twice", "leave", "foreign", "other", "begin"]), st.just(NONE)),
        st.tuples(st.sampled_from(["wait", "expire", "kill worker", "kill supervisor"]), st.just(NONE)),
    ),
    max_size=12,
)


@dataclass(frozen=True)
class Sealed:
    """A state that the client has, and what the model knows of it."""

    text: str
    at: float
    call: int
    round: int
    answered: frozenset[str]


@dataclass
class ModelCall:
    """A run of the tool that waits for answers."""

    parked_at: float
    round: int = 1
    answered: frozenset[str] = frozenset()
    failed: bool = False
    """Its process is dead."""

    @property
    def open(self) -> frozenset[str]:
        """The questions that wait for answers, of the first stage that has some."""
        return next((stage - self.answered for stage in STAGES if stage - self.answered), frozenset[str]())

    @property
    def sealed(self) -> frozenset[str]:
        """The answers that its state carries: those to questions that the tool has asked. One that was sent ahead is asked for again."""
        asked = frozenset[str]()
        for stage in STAGES:
            asked |= stage
            if stage - self.answered:
                break
        return self.answered & asked


class Model:
    """What must have become of the calls."""

    def __init__(self, *, repeatable: bool) -> None:
        self.repeatable = repeatable
        self.now = 0.0
        self.parked: dict[int, ModelCall] = {}
        self.runs = 0
        """How often the tool has begun; the newest run has this number."""

    def pass_time(self, seconds: float) -> None:
        """Forget what is parked for too long."""
        self.now += seconds
        self.parked = {run: call for run, call in self.parked.items() if self.now < call.parked_at + PARKED}

    def begin(self, after: Sealed | None = None) -> int:
        """Begin a run; `after` the state of one that is gone."""
        self.runs += 1
        call = self.parked[self.runs] = ModelCall(self.now)
        if after is not None:
            call.round, call.answered = after.round, after.answered
        return self.runs

    def send(self, state: Sealed, keys: frozenset[str]) -> tuple[int, str]:
        """The end of a request with this state: a reason, `failed`, `done`, or the keys that are asked; and by which run."""
        run = state.call
        if self.now >= state.at + PARKED:
            return run, "expired"
        call = self.parked.get(run)
        if call is None:
            if not self.repeatable:
                return run, "gone"
            run = self.begin(state)
            call = self.parked[run]
            call.answered |= keys & frozenset("abc")
        elif state.round != call.round:
            return run, "used"
        elif call.failed:
            del self.parked[run]
            return run, "failed"
        else:
            call.answered |= keys & call.open
        if not call.open:
            del self.parked[run]
            return run, "done"
        call.round += 1
        call.parked_at = self.now
        return run, "".join(sorted(call.open))


@dataclass
class Play:
    """The real one."""

    company: Company
    model: Model
    steps: Counter[int]
    states: list[Sealed] = field(default_factory=list[Sealed])

    def __post_init__(self) -> None:
        self.client = StatelessClient(self.company, Peer("test", principal="ada"))
        self.eve = StatelessClient(self.company, Peer("test", principal="eve"))

    async def begin(self) -> None:
        """Send the call without a state."""
        run = self.model.begin()
        assert self._keep(run, await self.client.answer("tools/call", **REQUEST)) == "ab"

    def _keep(self, run: int, message: dict[str, Any]) -> str:
        """The end of a request, in the model's words; its state is kept."""
        if "error" in message:
            assert message["error"]["code"] == -32602
            return str(message["error"]["data"]["reason"])
        result, model = message["result"], self.model
        if result["resultType"] == "input_required":
            call = model.parked[run]
            self.states.append(Sealed(result["requestState"], model.now, run, call.round, call.sealed))
            return "".join(sorted(result["inputRequests"]))
        text = result["content"][0]["text"]
        assert text == ("Tool execution failed" if result["isError"] else "abc")
        return "failed" if result["isError"] else "done"

    @staticmethod
    def _retry(state: Sealed, keys: frozenset[str]) -> dict[str, Any]:
        responses = {key: {"action": "accept", "content": {"value": key}} for key in sorted(keys)}
        return {**REQUEST, "inputResponses": responses, "requestState": state.text}

    async def _send(self, state: Sealed, keys: frozenset[str]) -> None:
        run, expected = self.model.send(state, keys)
        assert self._keep(run, await self.client.answer("tools/call", **self._retry(state, keys))) == expected

    async def act(self, act: str, keys: frozenset[str]) -> None:
        """Do it, and compare."""
        model, state = self.model, self.states[-1]
        match act:
            case "answer":
                await self._send(state, keys)
            case "old answer":
                await self._send(self.states[max(0, len(self.states) - 2)], keys)
            case "answer twice" if not model.repeatable:
                run, expected = model.send(state, ALL)
                both = (self.client.answer("tools/call", **self._retry(state, ALL)) for _ in range(2))
                found = [self._keep(run, each) for each in await asyncio.gather(*both)]
                found.remove(expected)
                (other,) = found  # the call is being worked on, or over
                assert other in ((expected,) if expected in REFUSED else ("used", "gone"))
            case "leave":
                await self._leave(state)
            case "foreign":
                error = await self.eve.error("tools/call", **self._retry(state, keys))
                assert error["data"] == {"reason": "tampered"}
            case "other":
                changed = {**self._retry(state, keys), "arguments": {"day": "friday"}}
                error = await self.client.error("tools/call", **changed)
                expired = model.now >= state.at + PARKED
                assert error["data"] == {"reason": "expired" if expired else "other_request"}
            case "begin":
                await self.begin()
            case "kill worker":
                for each in [one for one in current_node().processes.values() if one.label.startswith("tools/call")]:
                    kill(each.pid)
                for call in model.parked.values():
                    call.failed = True
            case "kill supervisor":
                supervisor = current_node().named(self.company.name("exchanges"))
                assert supervisor is not None
                kill(supervisor.pid)
                model.parked.clear()
            case _:
                pass
        await self._pass_time({"wait": 25.0, "expire": PARKED + 1}.get(act, TURN))
        exchanges = self.company.exchanges
        assert (exchanges.open, exchanges.parked) == (0, len(model.parked))
        assert self.steps[0] == model.runs

    async def _leave(self, state: Sealed) -> None:
        """Send a round without answers, and leave before its reply."""
        model = self.model
        sending = asyncio.ensure_future(self.client.answer("tools/call", **self._retry(state, NONE)))
        await asyncio.sleep(0)
        run, expected = model.send(state, NONE)
        if expected in REFUSED or expected == "failed":
            assert self._keep(run, await sending) == expected
            return
        sending.cancel()
        await asyncio.wait([sending])
        assert sending.cancelled()
        del model.parked[run]

    async def _pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.model.pass_time(seconds)


def model_server(steps: Counter[int], *, repeatable: bool) -> Server:
    """A server whose tool counts its steps."""
    server = Server("model", settings=Settings(parked_timeout=PARKED, cancel_grace=0.05))

    @server.tool(annotations={"idempotentHint": repeatable})
    async def book(ctx: Context, day: str) -> str:
        said: dict[str, str] = {}

        async def ask(key: str) -> None:
            answer = await ctx.elicit(f"{key} of {day}?", str, key=key)
            assert isinstance(answer, Accepted)
            said[key] = answer.value

        for number, stage in enumerate(STAGES):
            steps[number] += 1
            async with asyncio.TaskGroup() as group:
                for key in sorted(stage):
                    group.create_task(ask(key))
        return "".join(said[key] for key in "abc")

    return server


async def play(acts: list[tuple[str, frozenset[str]]], *, repeatable: bool) -> None:
    steps: Counter[int] = Counter()
    async with model_server(steps, repeatable=repeatable).started() as company:
        real = Play(company, Model(repeatable=repeatable), steps)
        await real.begin()
        for act, keys in acts:
            await real.act(act, keys)
        assert repeatable or steps[1] <= steps[0]
        await asyncio.sleep(PARKED + 1)
        assert (company.exchanges.open, company.exchanges.parked) == (0, 0)


@pytest.mark.row("26-R10", "26-R11", "26-R12")
@settings(max_examples=examples(400))
@given(acts=Acts, repeatable=st.booleans(), seed=seeds())
@example(acts=[("answer", frozenset("a")), ("old answer", ALL), ("answer", ALL), ("answer", ALL)], repeatable=False, seed=Seed(0))  # fmt: skip
@example(acts=[("answer", ALL), ("kill worker", NONE), ("answer", ALL), ("answer", ALL)], repeatable=False, seed=Seed(0))  # fmt: skip
@example(acts=[("answer", ALL), ("kill supervisor", NONE), ("old answer", ALL)], repeatable=True, seed=Seed(0))  # fmt: skip
@example(acts=[("leave", NONE), ("answer", ALL), ("expire", NONE), ("answer", ALL)], repeatable=False, seed=Seed(0))  # fmt: skip
@example(acts=[("answer twice", NONE), ("answer", ALL)], repeatable=False, seed=Seed(0))
def test_each_request_of_a_call_has_the_end_that_the_model_has(
    acts: list[tuple[str, frozenset[str]]], seed: Seed, *, repeatable: bool
) -> None:
    run(partial(play, acts, repeatable=repeatable), seed=seed)
