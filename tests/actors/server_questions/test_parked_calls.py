"""Calls of the stateless era that await an answer: they are parked, bounded in number and time, and go on once, for their own caller and request."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.tasks.stateless_client import ABLE, StatelessClient

from greenroom import Accepted, BadAnswer, Context, McpError, Server, Settings
from greenroom.actors import exchange_table
from greenroom.protocol.input_required import LONGEST_KEY
from greenroom.supervision import current_node
from greenroom.transports.interfaces import EncodedReply, Peer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.company import Company
    from greenroom.actors.exchange import Exchange

ADA: dict[str, Any] = {"action": "accept", "content": {"value": "Ada"}}


@dataclass
class Booking:
    """A server that books, and what its handlers have done."""

    server: Server
    done: list[str] = field(default_factory=list[str])
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    company: Company = field(init=False)

    def client(self, principal: str | None = None, capabilities: dict[str, Any] = ABLE) -> StatelessClient:
        """A client of that principal."""
        return StatelessClient(self.company, Peer("test", principal=principal), capabilities)


@asynccontextmanager
async def booking(**settings: Any) -> AsyncGenerator[Booking]:
    """A running server with tools that ask while they run."""
    stage = Booking(Server("booking", settings=Settings(**settings)))
    server, done = stage.server, stage.done

    @server.tool
    async def book(ctx: Context, day: str) -> str:
        """Does something before each of its two questions."""
        done.append("begun")
        try:
            who = await ctx.elicit("Who?", str, key="who")
            done.append("named")
            agreed = await ctx.elicit("Sure?", key="sure")
        except BaseException as error:
            done.append(f"ended by {type(error).__name__}")
            raise
        assert isinstance(who, Accepted)
        return f"{day}: {who.value}, {agreed.action}"

    @server.tool(annotations={"idempotentHint": True})
    async def look_up(ctx: Context) -> str:
        """May be run again."""
        done.append("looked up")
        who = await ctx.elicit("Who?", str, key="who")
        again = await ctx.elicit("Who?", str, key="who")
        return f"{who.action} {again.action}"

    @server.tool(annotations={"readOnlyHint": True})
    async def linger(ctx: Context) -> str:
        """May be run again, and works on for a while after its answer."""
        done.append("lingered")
        await ctx.elicit("Who?", str, key="who")
        await stage.gate.wait()
        return "done"

    @server.tool(timeout=3)
    async def hurry(ctx: Context) -> str:
        """Has a time of its own."""
        return (await ctx.elicit("Who?", str, key="who")).action

    @server.tool
    async def ask_at_once(ctx: Context) -> str:
        """Asks two equal questions and another one at a time."""
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ctx.elicit("Who?", str, key="who")) for _ in range(2)]
            roots = group.create_task(ctx.roots())
        return f"{[each.result().action for each in asked]}, {len(roots.result())} roots"

    @server.tool
    async def sign_in(ctx: Context) -> str:
        """Sends its user to a page."""
        return (await ctx.elicit_url("Sign in", "https://a.example/{elicitation_id}", "id-7")).action

    @server.tool
    async def strict(ctx: Context) -> str:
        """Says what is wrong with an answer."""
        try:
            await ctx.elicit("How many?", int, key="count")
        except BadAnswer as error:
            return f"bad: {len(error.problems)}"
        return "fine"

    @server.completion("to", prompt="letter")
    async def suggest(ctx: Context, begun: str) -> list[str]:
        """A completion may not ask."""
        return [(await ctx.elicit("Who?", str)).action]

    @server.prompt
    def letter(to: str) -> str:
        return to

    async with server.started() as stage.company:
        yield stage


BOOK: dict[str, Any] = {"name": "book", "arguments": {"day": "monday"}}
LOOK_UP: dict[str, Any] = {"name": "look_up", "arguments": {}}
AT_ONCE: dict[str, Any] = {"name": "ask_at_once", "arguments": {}}
HURRY: dict[str, Any] = {"name": "hurry", "arguments": {}}


def again(first: dict[str, Any], **responses: dict[str, Any]) -> dict[str, Any]:
    """The two fields of a retry."""
    assert first["resultType"] == "input_required", first
    return {"inputResponses": responses, "requestState": first["requestState"]}


def text_of(result: dict[str, Any]) -> str:
    assert result["resultType"] == "complete", result
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.row("26-R1", "26-R12")
async def test_a_call_goes_on_where_it_asked() -> None:
    async with booking() as stage:
        client = stage.client()
        first = await client.result("tools/call", **BOOK)
        assert list(first["inputRequests"]) == ["who"]
        assert stage.company.exchanges.parked == 1
        second = await client.result("tools/call", **BOOK, **again(first, who=ADA))
        assert list(second["inputRequests"]) == ["sure"]
        last = await client.result("tools/call", **BOOK, **again(second, sure={"action": "accept"}))
        assert text_of(last) == "monday: Ada, accept"
        assert stage.done == ["begun", "named"]
        assert (stage.company.exchanges.parked, stage.company.exchanges.open) == (0, 0)


@pytest.mark.row("26-R10")
async def test_a_state_whose_call_goes_on_is_used_also_for_a_tool_that_may_run_again() -> None:
    async with booking() as stage:
        client = stage.client()
        linger: dict[str, Any] = {"name": "linger", "arguments": {}}
        retry = again(await client.result("tools/call", **linger), who=ADA)
        going_on = asyncio.create_task(client.result("tools/call", **linger, **retry))
        await asyncio.sleep(0)  # its request is taken in the turn in which it begins
        assert stage.company.exchanges.parked == 0
        assert (await client.error("tools/call", **linger, **retry))["data"] == {"reason": "used"}
        stage.gate.set()
        assert text_of(await going_on) == "done"
        assert stage.done == ["lingered"]
        repeated = await client.result("tools/call", **linger, **retry)  # the call has its answer: the tool runs again
        assert text_of(repeated) == "done"
        assert stage.done == ["lingered", "lingered"]


@pytest.mark.row("26-R4", "26-R11")
async def test_questions_of_a_task_group_are_one_round_and_what_is_missing_is_asked_again() -> None:
    async with booking() as stage:
        client = stage.client()
        first = await client.result("tools/call", **AT_ONCE)
        keys = list(first["inputRequests"])
        assert len(keys) == 3
        assert keys[:2] == ["who", "who-2"]
        half = await client.result("tools/call", **AT_ONCE, **again(first, who=ADA, unknown=ADA))
        assert list(half["inputRequests"]) == keys[1:]
        rest: dict[str, dict[str, Any]] = {keys[1]: {"action": "decline"}, keys[2]: {"roots": []}}
        whole = await client.result("tools/call", **AT_ONCE, **again(half, **rest))
        assert text_of(whole) == "['accept', 'decline'], 0 roots"


@pytest.mark.row("26-R4")
async def test_equal_keys_stay_apart_and_within_their_longest() -> None:
    async with booking() as stage:

        @stage.server.tool
        async def ask_alike(ctx: Context) -> str:
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(ctx.elicit("Who?", str, key="k" * LONGEST_KEY))
            return "answered"

        client = stage.client()
        call: dict[str, Any] = {"name": "ask_alike", "arguments": {}}
        asked = await client.result("tools/call", **call)
        assert [len(key) for key in asked["inputRequests"]] == [LONGEST_KEY, LONGEST_KEY - 2, LONGEST_KEY - 2]
        answers = dict.fromkeys(asked["inputRequests"], ADA)
        assert text_of(await client.result("tools/call", **call, **again(asked, **answers))) == "answered"


@pytest.mark.row("26-R12")
async def test_a_call_has_no_more_questions_open_than_a_session() -> None:
    async with booking(max_asks=3) as stage:

        @stage.server.tool
        async def ask_many(ctx: Context) -> list[str]:
            asked = await asyncio.gather(*(ctx.elicit(f"{n}?") for n in range(5)), return_exceptions=True)
            return [str(each) for each in asked if isinstance(each, McpError)]

        client = stage.client()
        call: dict[str, Any] = {"name": "ask_many", "arguments": {}}
        first = await client.result("tools/call", **call)
        assert len(first["inputRequests"]) == 3
        answers = {key: {"action": "decline"} for key in first["inputRequests"]}
        done = await client.result("tools/call", **call, **again(first, **answers))
        assert text_of(done).count("Too many questions at once: at most 3 may be open") == 2


@pytest.mark.row("26-R10")
async def test_a_state_is_used_once() -> None:
    async with booking() as stage:
        client = stage.client()
        first = await client.result("tools/call", **BOOK)
        second = await client.result("tools/call", **BOOK, **again(first, who=ADA))

        error = await client.error("tools/call", **BOOK, **again(first, who=ADA))
        assert (error["code"], error["data"]["reason"]) == (-32602, "used")
        last = await client.result("tools/call", **BOOK, **again(second, sure={"action": "decline"}))
        assert text_of(last) == "monday: Ada, decline"

        error = await client.error("tools/call", **BOOK, **again(second, sure={"action": "accept"}))
        assert (error["code"], error["data"]["reason"]) == (-32602, "gone")
        assert stage.done == ["begun", "named"]


async def test_two_retries_at_a_time_go_on_once() -> None:
    async with booking() as stage:
        client = stage.client()
        first = await client.result("tools/call", **BOOK)
        retry = again(first, who=ADA)
        one, two = await asyncio.gather(*(client.answer("tools/call", **BOOK, **retry) for _ in range(2)))
        assert [("error" in each) for each in (one, two)].count(True) == 1
        assert stage.done == ["begun", "named"]


@pytest.mark.row("26-R9", "26-R10")
async def test_a_parked_call_goes_on_for_its_principal_and_its_request_alone() -> None:
    async with booking() as stage:
        ada, eve = stage.client("ada"), stage.client("eve")
        first = await ada.result("tools/call", **BOOK)
        retry = again(first, who=ADA)

        foreign = await eve.error("tools/call", **BOOK, **retry)
        changed = await ada.error("tools/call", **BOOK, **{**retry, "requestState": retry["requestState"][:-2] + "AA"})
        assert foreign == changed
        assert foreign["data"] == {"reason": "tampered"}
        other = await ada.error("tools/call", **{**BOOK, "arguments": {"day": "friday"}}, **retry)
        assert other["data"] == {"reason": "other_request"}
        assert stage.done == ["begun"]
        assert list((await ada.result("tools/call", **BOOK, **retry))["inputRequests"]) == ["sure"]


@pytest.mark.row("26-R11")
async def test_a_malformed_response_is_refused_and_the_call_stays_parked() -> None:
    async with booking() as stage:
        client = stage.client()
        first = await client.result("tools/call", **BOOK)
        malformed: list[Any] = [7, None, {"action": "perhaps"}, {"roots": []}]
        for response in malformed:
            error = await client.error(
                "tools/call", **BOOK, inputResponses={"who": response}, requestState=first["requestState"]
            )
            assert error["code"] == -32602
        not_objects: list[Any] = [None, [], "x"]
        for responses in not_objects:
            error = await client.error(
                "tools/call", **BOOK, inputResponses=responses, requestState=first["requestState"]
            )
            assert error["code"] == -32602
        assert (await client.result("tools/call", **BOOK, **again(first, who=ADA)))["resultType"] == "input_required"


@pytest.mark.row("26-R11")
async def test_an_answer_may_come_before_its_question_and_is_checked_like_any_other() -> None:
    async with booking() as stage:
        client = stage.client()
        first = await client.result("tools/call", **BOOK, inputResponses={"who": ADA, "unknown": {}})
        assert list(first["inputRequests"]) == ["sure"]
        error = await client.error("tools/call", **BOOK, inputResponses={"who": {"action": "perhaps"}})
        assert (error["code"], error["data"]) == (-32602, {"key": "who", "reason": "bad_response"})


async def test_an_answer_that_does_not_fit_the_form_is_the_handlers_to_refuse() -> None:
    call: dict[str, Any] = {"name": "strict", "arguments": {}}
    async with booking() as stage:
        client = stage.client()
        first = await client.result("tools/call", **call)
        last = await client.result("tools/call", **call, **again(first, count=ADA))
        assert text_of(last) == "bad: 1"


@pytest.mark.row("26-R12")
async def test_parked_calls_are_bounded_for_each_principal_and_in_all() -> None:
    async with booking(max_parked=3, max_parked_per_principal=2) as stage:
        ada, eve = stage.client("ada"), stage.client("eve")
        states = [await ada.result("tools/call", **BOOK) for _ in range(2)]
        refused = await ada.error("tools/call", **BOOK)
        assert refused["message"] == "Too many calls wait for answers: one caller may have 2"
        assert stage.company.exchanges.parked == 2
        assert (await eve.result("tools/call", **BOOK))["resultType"] == "input_required"
        refused = await stage.client("bob").error("tools/call", **BOOK)
        assert refused["message"] == "Too many calls wait for answers: at most 3 may"

        await ada.result("tools/call", **BOOK, **again(states[0], who={"action": "accept", "content": {"value": "A"}}))
        assert stage.company.exchanges.parked == 3
        assert stage.company.exchanges.open == 0


async def test_the_log_says_why_a_state_was_refused_and_the_client_does_not_learn_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="greenroom.access")
    async with booking() as old, booking() as new:
        first = await old.client("ada").result("tools/call", **BOOK)
        state = first["requestState"]
        changed = (
            f"{state[:-9]}{'A' if state[-9] != 'A' else 'B'}{state[-8:]}"  # the last letter may have bits of no byte
        )
        for stage, principal, sent in [(new, "ada", state), (old, "eve", state), (old, "ada", changed)]:
            error = await stage.client(principal).error("tools/call", **BOOK, requestState=sent)
            assert error["data"] == {"reason": "tampered"}
    noted = [each.__dict__["greenroom"]["outcome"] for each in caplog.records if each.name == "greenroom.access"]
    assert noted[1:] == [f"error -32602 (requestState: {why})" for why in ("key", "tag", "tag")]
    assert state not in caplog.text


@pytest.mark.row("26-R12")
@pytest.mark.parametrize(("others", "limit"), [(0, "MOST_PARKED_BYTES_EACH"), (1, "MOST_PARKED_BYTES")])
@pytest.mark.parametrize("where", ["request", "_meta", "answer", "_meta of the retry"])
async def test_what_parked_calls_make_the_server_keep_is_bounded(
    monkeypatch: pytest.MonkeyPatch, others: int, limit: str, where: str
) -> None:
    monkeypatch.setattr(exchange_table, limit, 50_000)
    large = "x" * 60_000
    async with booking() as stage:
        ada = stage.client("ada")
        day, noise = large if where == "request" else "monday", {"_meta": {"noise": large}}
        request = {"name": "book", "arguments": {"day": day}}
        first = await ada.result("tools/call", **request, **(noise if where == "_meta" else {}))
        if where in ("answer", "_meta of the retry"):
            assert (await ada.result("tools/call", **BOOK))["resultType"] == "input_required", "nothing is large yet"
            name = large if where == "answer" else "Ada"
            who = {"action": "accept", "content": {"value": name}}
            more = {} if where == "answer" else noise
            first = await ada.result("tools/call", **request, **again(first, who=who), **more)
        assert first["resultType"] == "input_required", "one call may be large"

        eve = stage.client("eve" if others else "ada")
        refused = await eve.error("tools/call", **BOOK)
        assert refused["message"] == "Too many calls wait for answers: together their requests are too large"
        if not others:
            assert (await stage.client("eve").result("tools/call", **BOOK))["resultType"] == "input_required"

        await asyncio.sleep(stage.company.settings.parked_timeout + 1)
        assert (await ada.result("tools/call", **BOOK))["resultType"] == "input_required", "there is room again"


@pytest.mark.row("26-R12")
async def test_a_call_is_parked_for_some_time_and_then_ended() -> None:
    async with booking(parked_timeout=60.0) as stage:
        client = stage.client()
        first = await client.result("tools/call", **BOOK)
        await asyncio.sleep(59)
        assert stage.company.exchanges.parked == 1
        await asyncio.sleep(2)
        assert stage.company.exchanges.parked == 0
        assert stage.done == ["begun", "ended by NoStream"]
        error = await client.error("tools/call", **BOOK, **again(first, who=ADA))
        assert (error["code"], error["data"]) == (-32602, {"reason": "expired"})


@pytest.mark.row("26-R12")
async def test_a_call_whose_own_time_is_over_while_it_is_parked_says_so_and_is_forgotten_in_time() -> None:
    async with booking(parked_timeout=60.0) as stage:
        client = stage.client()
        asked = [await client.result("tools/call", **HURRY) for _ in range(2)]
        await asyncio.sleep(50)
        assert stage.company.exchanges.parked == 2
        last = await client.result("tools/call", **HURRY, **again(asked[0], who=ADA))
        assert last["isError"]
        assert last["content"][0]["text"] == "Tool 'hurry' timed out after 3 s"
        await asyncio.sleep(11)
        assert (stage.company.exchanges.parked, stage.company.exchanges.open) == (0, 0)


async def test_waiting_for_an_answer_does_not_count_as_silence() -> None:
    async with booking(call_timeout=1.0) as stage:
        client = stage.client()
        first = await client.result("tools/call", **BOOK)
        await asyncio.sleep(100)
        assert list((await client.result("tools/call", **BOOK, **again(first, who=ADA)))["inputRequests"]) == ["sure"]


async def test_a_tool_that_may_be_repeated_runs_again_with_its_answers_when_its_call_is_gone() -> None:
    async with booking(seal_keys=["A" * 43]) as one, booking(seal_keys=["A" * 43]) as two:
        first = await one.client().result("tools/call", **LOOK_UP)
        second = await one.client().result("tools/call", **LOOK_UP, **again(first, who=ADA))
        (key,) = second["inputRequests"]
        last = await two.client().result("tools/call", **LOOK_UP, **again(second, **{key: {"action": "decline"}}))
        assert text_of(last) == "accept decline"
        assert two.done == ["looked up"]


async def test_another_tool_is_never_run_again_in_silence() -> None:
    async with booking(seal_keys=["A" * 43]) as one, booking(seal_keys=["A" * 43]) as two:
        first = await one.client().result("tools/call", **BOOK)
        error = await two.client().error("tools/call", **BOOK, **again(first, who=ADA))
        assert (error["code"], error["data"]) == (-32602, {"reason": "gone", "maybe_done": True})
        assert two.done == []


@pytest.mark.row("26-F8")
async def test_a_page_is_asked_for_without_an_id() -> None:
    call: dict[str, Any] = {"name": "sign_in", "arguments": {}}
    async with booking() as stage:
        client = stage.client()
        first = await client.result("tools/call", **call)
        ((key, asked),) = first["inputRequests"].items()
        assert asked == {
            "method": "elicitation/create",
            "params": {"mode": "url", "message": "Sign in", "url": "https://a.example/id-7"},
        }
        assert (
            text_of(await client.result("tools/call", **call, **again(first, **{key: {"action": "accept"}})))
            == "accept"
        )


@pytest.mark.row("26-R5", "26-F9", "26-M9")
async def test_what_a_request_did_not_declare_is_not_asked_whatever_an_earlier_one_declared() -> None:
    async with booking() as stage:
        await stage.client().result("tools/call", **BOOK)
        undeclared: list[dict[str, Any]] = [{}, {"sampling": {}}, {"elicitation": {"url": {}}}]
        for declared in undeclared:
            reply = await stage.client(capabilities=declared).reply("tools/call", **BOOK)
            error = json.loads(reply.body)["error"]
            assert (reply.status, error["code"]) == (400, -32021)
            assert error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}
        url = await stage.client(capabilities={"elicitation": {}}).error("tools/call", name="sign_in", arguments={})
        assert url["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}


@pytest.mark.row("26-R2")
async def test_a_completion_cannot_ask() -> None:
    async with booking() as stage:
        params = {"ref": {"type": "ref/prompt", "name": "letter"}, "argument": {"name": "to", "value": ""}}
        message = await stage.client().answer("completion/complete", **params)
        assert "error" in message
        assert "input_required" not in json.dumps(message)
        assert stage.company.exchanges.parked == 0


async def test_a_parked_call_needs_no_open_request_and_a_cancelled_retry_ends_it() -> None:
    async with booking() as stage:
        client = stage.client()
        first = await client.result("tools/call", **LOOK_UP)
        sending = asyncio.ensure_future(
            stage.company.exchange(client.peer, client.request("tools/call", {**LOOK_UP, **again(first)}))
        )
        await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await asyncio.sleep(1)
        assert (stage.company.exchanges.parked, stage.company.exchanges.open) == (0, 0)


async def test_a_client_that_leaves_while_its_questions_are_on_their_way_leaves_no_parked_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with booking() as stage:
        client = stage.client("ada")
        park = exchange_table.Exchanges.park

        def leave(table: exchange_table.Exchanges, exchange: Exchange) -> str:
            current_node().loop.call_soon(calling.cancel)  # before the reply that is made now is awaited
            return park(table, exchange)

        monkeypatch.setattr(exchange_table.Exchanges, "park", leave)
        calling = asyncio.ensure_future(client.reply("tools/call", **BOOK))
        await asyncio.wait([calling])
        assert calling.cancelled()
        await asyncio.sleep(1)
        assert (stage.company.exchanges.parked, stage.company.exchanges.open) == (0, 0)
        assert len(stage.done) == 2, stage.done
        assert stage.done[1].startswith("ended by")


async def test_the_reply_of_each_round_names_its_own_request() -> None:
    async with booking() as stage:
        client = stage.client()
        first = await client.reply("tools/call", **BOOK)
        assert isinstance(first, EncodedReply)
        one = json.loads(first.body)
        two = await client.answer("tools/call", **BOOK, **again(one["result"], who=ADA))
        three = await client.answer("tools/call", **BOOK, **again(two["result"], sure={"action": "accept"}))
        assert [one["id"], two["id"], three["id"]] == [1, 2, 3]
