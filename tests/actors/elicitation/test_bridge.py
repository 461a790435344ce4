"""The elicitation bridge: the first answer counts, closed subscriptions get nothing, and a server's reply without an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom import Context, Server
from greenroom.actors.consent.consent import Consent
from greenroom.actors.consent.rules import Permissions, Rule
from greenroom.actors.elicitation.bridge import ElicitationBridge, OpenQuestion
from greenroom.client_callbacks import ElicitationRequest, UrlElicitationRequest
from greenroom.errors import ConfigError
from greenroom.host import Host
from greenroom.protocol.validation_errors import Mismatch

FORM = ElicitationRequest(
    "Which branch?",
    {"type": "object", "properties": {"branch": {"type": "string", "enum": ["main", "dev"]}}, "required": ["branch"]},
)
PAGE = UrlElicitationRequest("Please sign in", "https://example.org/in?state=1")


def action(answer: Any) -> str:
    return str(answer.action)


@pytest.mark.row("CB-11")
async def test_without_a_subscriber_a_question_is_declined_at_once() -> None:
    assert action(await ElicitationBridge().form("git", FORM)) == "decline"


@pytest.mark.row("CB-11")
@pytest.mark.parametrize("said", ["accept", "decline", "cancel"])
async def test_a_subscriber_answers(said: str) -> None:
    bridge = ElicitationBridge()
    async with bridge.subscribe() as questions:
        asked = asyncio.ensure_future(bridge.form("git", FORM))
        question = await anext(questions)

        assert (question.server, question.message, question.url) == ("git", "Which branch?", None)
        assert [each.name for each in question.fields] == ["branch"]
        assert question.accept({"branch": "dev"}) if said == "accept" else getattr(question, said)()

        answer = await asked
    assert action(answer) == said
    assert getattr(answer, "value", None) == ({"branch": "dev"} if said == "accept" else None)
    assert bridge.waiting == ()


async def test_a_page_is_shown_whole_and_never_fetched() -> None:
    bridge = ElicitationBridge()
    async with bridge.subscribe() as questions:
        asked = asyncio.ensure_future(bridge.page("shop", PAGE))
        question = await anext(questions)

        assert (question.url, list(question.fields)) == ("https://example.org/in?state=1", [])
        assert question.accept()

        assert action(await asked) == "accept"


async def test_an_answer_that_does_not_fit_leaves_the_question_open() -> None:
    bridge = ElicitationBridge()
    async with bridge.subscribe() as questions:
        asked = asyncio.ensure_future(bridge.form("git", FORM))
        question = await anext(questions)

        with pytest.raises(Mismatch):
            question.accept({"branch": "gone"})

        assert not question.over
        question.accept({"branch": "main"})
        await asked


async def test_the_first_who_answers_has_answered() -> None:
    bridge = ElicitationBridge()
    async with bridge.subscribe() as here, bridge.subscribe() as there:
        asked = asyncio.ensure_future(bridge.form("git", FORM))
        one, other = await anext(here), await anext(there)

        assert one.decline()
        assert not other.accept({"branch": "main"})
        await other.wait()

        assert action(await asked) == "decline"


async def test_a_late_subscriber_gets_open_questions_only() -> None:
    bridge = ElicitationBridge()
    async with bridge.subscribe() as first:
        asked = [asyncio.ensure_future(bridge.form(f"s{number}", FORM)) for number in range(3)]
        (await anext(first)).decline()

        async with bridge.subscribe() as late:
            assert [(await anext(late)).server, (await anext(late)).server] == ["s1", "s2"]
    assert [action(each) for each in await asyncio.gather(*asked)] == ["decline"] * 3


@pytest.mark.row("CB-11")
async def test_when_the_last_subscriber_leaves_what_waits_is_declined() -> None:
    bridge = ElicitationBridge()
    async with bridge.subscribe() as questions:
        asked = asyncio.ensure_future(bridge.form("git", FORM))
        await anext(questions)

    assert action(await asked) == "decline"
    with pytest.raises(StopAsyncIteration):
        await anext(questions)


@pytest.mark.row("CB-12")
async def test_no_more_than_so_many_wait() -> None:
    bridge = ElicitationBridge()
    async with bridge.subscribe() as questions:
        asked = [asyncio.ensure_future(bridge.form(f"git{number}", FORM)) for number in range(64)]
        await anext(questions)

        assert action(await bridge.form("git", FORM)) == "decline"
        assert len(bridge.waiting) == 64
    await asyncio.gather(*asked)


@pytest.mark.row("CB-12")
async def test_a_question_waits_at_most_five_minutes() -> None:
    bridge = ElicitationBridge()
    loop = asyncio.get_running_loop()
    async with bridge.subscribe():
        before = loop.time()

        assert action(await bridge.form("git", FORM)) == "decline"

    assert loop.time() - before == pytest.approx(300)


async def test_a_server_that_gives_up_takes_its_question_back() -> None:
    bridge = ElicitationBridge()
    async with bridge.subscribe() as questions:
        asked = asyncio.ensure_future(bridge.form("git", FORM))
        question = await anext(questions)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

        await question.wait()
        assert question.over
        assert not question.decline()
        assert bridge.waiting == ()


@pytest.mark.row("CB-12")
async def test_a_question_that_is_over_is_dropped_from_all_queues() -> None:
    bridge = ElicitationBridge()
    async with bridge.subscribe() as busy, bridge.subscribe() as idle:
        for number in range(500):
            asked = asyncio.ensure_future(bridge.form("git", FORM))
            while not bridge.waiting:  # noqa: ASYNC110 - a turn of the loop, or two
                await asyncio.sleep(0)
            if number % 2:
                bridge.waiting[0].decline()
            else:
                asked.cancel()
            await asyncio.wait((asked,))

        assert (len(busy), len(idle), bridge.waiting) == (0, 0, ())


async def test_a_question_that_timed_out_is_not_withdrawn() -> None:
    bridge = ElicitationBridge(cap=1.0)
    async with bridge.subscribe() as questions:
        asked = asyncio.ensure_future(bridge.form("git", FORM))
        question = await anext(questions)
        await question.wait()
        assert (question.over, question.withdrawn, action(await asked)) == (True, False, "decline")

        asked = asyncio.ensure_future(bridge.form("git", FORM))
        question = await anext(questions)
        asked.cancel()
        await question.wait()
        assert (question.over, question.withdrawn) == (True, True)


async def test_a_closed_subscription_gets_no_more_questions() -> None:
    bridge = ElicitationBridge()
    async with bridge.subscribe() as other:
        leaving = bridge.subscribe()
        async with leaving:
            asked = asyncio.ensure_future(bridge.form("git", FORM))
            question = await anext(other)
        with pytest.raises(StopAsyncIteration):
            await anext(leaving)
        question.decline()
        await asked


@pytest.mark.row("CB-12")
async def test_a_server_that_asks_without_end_leaves_places_for_the_others() -> None:
    bridge = ElicitationBridge()
    async with bridge.subscribe() as questions:
        flood = [asyncio.ensure_future(bridge.form("evil", FORM)) for _ in range(64)]
        more = [asyncio.ensure_future(bridge.form("worse", FORM)) for _ in range(64)]
        await anext(questions)

        good = asyncio.ensure_future(bridge.form("good", FORM))
        async for question in questions:
            if question.server == "good":
                question.accept({"branch": "main"})
                break
        assert action(await good) == "accept"
        assert sorted(map(action, [one.result() for one in (*flood, *more) if one.done()])) == ["decline"] * 80
    await asyncio.gather(*flood, *more)


@pytest.mark.parametrize(("limit", "cap"), [(0, 1), (1, 0), (1, float("nan"))])
def test_bounds_are_checked(limit: int, cap: float) -> None:
    with pytest.raises(ConfigError, match="limit has to be at least 1"):
        ElicitationBridge(limit=limit, cap=cap)


# --- in a host


def asking() -> Server:
    server = Server("asking")

    @server.tool
    async def branch(ctx: Context) -> str:
        answer = await ctx.elicit("Which branch?", dict(FORM.schema))
        return f"{answer.action}: {getattr(answer, 'value', None)}"

    return server


async def answer_all(bridge: ElicitationBridge, seen: list[OpenQuestion]) -> None:
    async with bridge.subscribe() as questions:
        async for question in questions:
            seen.append(question)
            question.accept({"branch": "main"})


@pytest.mark.row("CB-11", "CB-13")
@pytest.mark.parametrize(
    ("rule", "says", "asked"), [("allow", "accept: {'branch': 'main'}", 1), ("deny", "decline: None", 0)]
)
async def test_a_host_asks_its_user_where_the_rules_let_it(rule: Any, says: str, asked: int) -> None:
    bridge = ElicitationBridge()
    consent = Consent(Permissions([Rule(rule, "Elicit(ask)"), Rule("allow", "branch", "ask")]))
    seen: list[OpenQuestion] = []
    answering = asyncio.ensure_future(answer_all(bridge, seen))
    async with Host({"ask": asking()}, elicitation=bridge.form, consent=consent) as host:
        assert await host.call("ask:branch") == says
    answering.cancel()
    await asyncio.wait((answering,))

    assert len(seen) == asked
