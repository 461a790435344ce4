"""Races of answers, deadlines, cancellations and ends: each question ends once, and both sides know how.

An example is a plan of questions, with what the peer, the handler and the page do and when, and the order in which the node delivers.
Times are quarters of a second, so that many things happen at one moment.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom import Accepted, CallIsOver, Context, Declined, McpError, PeerError
from greenroom.actors.peer_channels import NoStream
from greenroom.supervision import CallTimeout, ProcessExited, kill
from greenroom.supervision.testing import run

from .question_server import running_question_server
from .test_url_elicitations import DONE, out

if TYPE_CHECKING:
    from greenroom.actors.server_questions import ClientRequester
    from greenroom.wire_probe import WireProbe

    from .question_server import QuestionServer

QUARTER = 0.25
LONG = 400
"""A deadline that comes when everything else is over."""
Quarters = st.integers(0, 8)


@dataclass(frozen=True)
class Plan:
    """One question: when and how it is asked, and how the handler, the peer and the user react."""

    at: int
    page: bool
    outside: bool
    """Whether it is asked outside of any call."""
    deadline: int
    patience: int | None
    """After which time the handler has second thoughts."""
    answer: str
    answered: int | None
    cancelled: int | None
    """When the call is cancelled."""
    visited: int | None


@dataclass
class Record:
    """The outcomes."""

    ends: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])
    sent: dict[int, str] = field(default_factory=dict[int, str])
    """The peer's answers."""
    told: Counter[str] = field(default_factory=Counter[str])
    """For each page, how often a client was said to have been told of its end."""


Plans = st.builds(
    Plan,
    at=Quarters,
    page=st.booleans(),
    outside=st.booleans(),
    deadline=st.integers(1, 8) | st.just(LONG),
    patience=st.none() | st.integers(0, 8),
    answer=st.sampled_from(["accept", "accept", "decline", "error", "nonsense"]),
    answered=st.none() | Quarters,
    cancelled=st.none() | Quarters,
    visited=st.none() | Quarters,
)


async def ask(peer: ClientRequester, number: int, plan: Plan, record: Record) -> str:
    """Ask as planned, and record how it ended for the asking handler."""
    ends = record.ends.setdefault(number, [])
    try:
        async with asyncio.timeout(None if plan.patience is None else plan.patience * QUARTER):
            if plan.page:
                ends.append(
                    await peer.elicit_url(f"{number}", "https://a.b", f"e{number}", timeout=plan.deadline * QUARTER)
                )
            else:
                ends.append(await peer.elicit(f"{number}", int, timeout=plan.deadline * QUARTER))
    except (TimeoutError, CallTimeout, McpError, NoStream, ProcessExited, CallIsOver) as error:
        ends.append(error)
    except asyncio.CancelledError:
        ends.append("cancelled")
        raise
    return "asked"


async def play(plans: list[Plan], death: int | None) -> None:
    record = Record()

    async def tool(number: int, ctx: Context) -> str:
        return await ask(ctx, number, plans[number], record)

    async def answer(params: dict[str, Any]) -> Any:
        number = int(params["message"])
        plan = plans[number]
        if plan.answered is None:
            await asyncio.Event().wait()
        await asyncio.sleep((plan.answered or 0) * QUARTER)
        record.sent[number] = plan.answer
        match plan.answer:
            case "error":
                raise McpError(-1, "no")
            case "nonsense":
                return {"action": 7}
            case "decline":
                return {"action": "decline"}
            case _:
                return {"action": "accept", "content": {"value": number}}

    async with running_question_server(tool) as stage:
        probe, bystander = await stage.probe({"elicitation/create": answer}), await stage.probe()
        card = (await stage.server.peers.all())[0]
        peer = stage.server.session(card.id)
        doing = [
            asyncio.create_task(act(stage, probe, peer, number, plan, record)) for number, plan in enumerate(plans)
        ]
        if death is not None:
            await asyncio.sleep(death * QUARTER)
            kill(stage.server.peers.ref(card.id))
        await asyncio.sleep(20)
        check(stage, probe, plans, record, dead=death is not None)
        await asyncio.gather(*doing)
        await asyncio.sleep(LONG * QUARTER)
        check(stage, probe, plans, record, dead=death is not None)
        assert await stage.questions() == []
        assert bystander.received[1:] == []
        await bystander.request("ping")


async def act(
    stage: QuestionServer, probe: WireProbe, peer: ClientRequester, number: int, plan: Plan, record: Record
) -> None:
    """Ask, cancel and visit, each at its time."""

    async def visit() -> None:
        if plan.visited is not None:
            await asyncio.sleep(plan.visited * QUARTER)
            record.told[f"e{number}"] += stage.server.elicitation_complete(f"e{number}")

    visiting = asyncio.create_task(visit())
    await asyncio.sleep(plan.at * QUARTER)
    if plan.outside:
        asking = asyncio.create_task(ask(peer, number, plan, record))
        await asyncio.wait([asking], timeout=None if plan.cancelled is None else plan.cancelled * QUARTER)
        asking.cancel()
        await asyncio.wait([asking])
    else:
        call = await probe.ask("tools/call", {"name": "tool", "arguments": {"number": number}})
        if plan.cancelled is not None:
            await asyncio.sleep(plan.cancelled * QUARTER)
            await probe.cancel(call)
    await visiting


def check(stage: QuestionServer, probe: WireProbe, plans: list[Plan], record: Record, *, dead: bool) -> None:
    """That both sides know how each question ended, and that nothing is left of it."""
    asked = {
        int(each["params"]["message"]): each["id"]
        for each in probe.received
        if each.get("method") == "elicitation/create"
    }
    taken = Counter(each["requestId"] for each in probe.notifications("notifications/cancelled"))
    done = Counter(each["elicitationId"] for each in probe.notifications(DONE))
    open_pages = set(out(stage))
    assert max([0, *taken.values(), *done.values()]) <= 1
    assert set(done) <= {f"e{number}" for number in asked}
    assert not (dead and open_pages)
    for number, plan in enumerate(plans):
        ends, page = record.ends.get(number, []), f"e{number}"
        assert len(ends) <= 1, ends
        if number not in asked:
            assert page not in open_pages
            continue
        was_taken, end = taken[asked[number]] == 1, ends[0] if ends else None
        if isinstance(end, Accepted | Declined | PeerError):
            assert not was_taken
            assert number in record.sent
        elif isinstance(end, CallTimeout):
            assert was_taken or dead
        elif ends or plan.cancelled is not None:
            assert was_taken or dead or number in record.sent  # it came at the same moment
        else:
            assert not was_taken  # no answer has come, and the handler still waits for it
        if page in open_pages:
            assert plan.page
            assert record.sent.get(number) == "accept" or not ends
            assert not done[page]
        elif isinstance(end, Accepted) and plan.page and not dead:
            assert done[page]
        assert dead or not done[page] or record.told[page]


Seeds = st.none() | st.integers(0, 2**32)


@settings(max_examples=examples(120))
@given(plans=st.lists(Plans, min_size=1, max_size=6), seed=Seeds)
@pytest.mark.row("SC-11")
@pytest.mark.row("SC-06")
def test_every_question_ends_once_and_both_sides_know_how(plans: list[Plan], seed: int | None) -> None:
    run(partial(play, plans, None), seed=seed)


@settings(max_examples=examples(60))
@given(plans=st.lists(Plans, min_size=1, max_size=5), death=Quarters, seed=Seeds)
@pytest.mark.row("SC-11")
def test_with_the_session_every_question_and_page_is_over(plans: list[Plan], death: int, seed: int | None) -> None:
    run(partial(play, plans, death), seed=seed)
