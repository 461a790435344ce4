"""Handlers that end with their questions and run again: on any server with the same keys in the stateless era, and beside a session in the handshake era."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.tasks.stateless_client import ABLE, StatelessClient, asking, ended

from greenroom import Accepted, Context, Message, PeerError, Server, Settings
from greenroom.actors.server_questions import Declined, Question
from greenroom.protocol.input_required import MOST_RECORDED, MOST_ROUNDS, InputRequired, RequestState
from greenroom.protocol.sealing import KeyRing
from greenroom.transports.interfaces import Peer
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

KEY = KeyRing.new_key()


@dataclass
class Traveller:
    """A form with one field."""

    name: str


NAME = Question.elicit("Who travels?", Traveller, key="who")
GREETING = Question.sample("Write a greeting")
ROOTS = Question.roots()
ADA = {"action": "accept", "content": {"name": "Ada"}}
HELLO = {"role": "assistant", "content": {"type": "text", "text": "Hello"}, "model": "m"}


def traveller_server(runs: list[Any], **settings: Any) -> Server:
    """A server whose handlers note each of their runs."""
    server = Server("travel", settings=Settings(seal_keys=[KEY], **settings))

    @server.tool
    async def book(ctx: Context, day: str) -> str:
        """Two rounds, which end by raising."""
        runs.append(("book", ctx.request_state))
        who = ctx.answers.require(NAME, state={"day": day})
        greeting = ctx.answers.require(GREETING, state="second")
        return f"{greeting.text}, {who.value.name}" if isinstance(who, Accepted) else "no booking"

    @server.tool
    def ask_both(ctx: Context) -> Traveller | InputRequired:
        """One round with two questions, which ends by returning, in a thread."""
        who, roots = ctx.answers.get(NAME), ctx.answers.get(ROOTS)
        if who is None or roots is None:
            return InputRequired(NAME, ROOTS)
        assert isinstance(who, Accepted)
        return Traveller(f"{who.value.name} in {roots[0].uri}")

    @server.tool
    async def from_a_group(ctx: Context) -> str:
        """The questions come out of a task group."""

        async def one() -> str:
            return ctx.answers.require(GREETING).text

        async with asyncio.TaskGroup() as group:
            found = group.create_task(one())
        return found.result()

    @server.tool
    async def never_content(ctx: Context) -> str:
        """Asks the same question whatever the answer is."""
        runs.append("never_content")
        raise InputRequired(NAME)

    @server.tool
    async def mixed(ctx: Context) -> str:
        """One question is awaited after another has ended the earlier run."""
        who = ctx.answers.require(NAME)
        roots = await ctx.roots()
        assert isinstance(who, Accepted)
        return f"{who.value.name} in {len(roots)} places"

    @server.tool
    async def later(ctx: Context) -> str:
        """A state and no question."""
        if ctx.request_state is None:
            raise InputRequired(state=1)
        return f"now: {ctx.request_state}"

    @server.prompt
    def letter(ctx: Context, to: str = "") -> list[Message]:
        """A prompt that asks."""
        return [Message("user", f"Dear {ctx.answers.require(NAME)}")]

    @server.resource("travel://plan")
    def plan(ctx: Context) -> str | InputRequired:
        """A resource that asks."""
        return InputRequired(NAME) if NAME not in ctx.answers else "the plan"

    return server


@asynccontextmanager
async def clients_of(runs: list[Any], count: int = 2, **settings: Any) -> AsyncGenerator[list[StatelessClient]]:
    """A client of each of several servers, which share nothing but their key."""
    async with AsyncExitStack() as entered:
        servers = [traveller_server(runs, **settings) for _ in range(count)]
        companies = [await entered.enter_async_context(each.started()) for each in servers]
        yield [StatelessClient(each, capabilities=ABLE) for each in companies]


CALL: dict[str, Any] = {"name": "book", "arguments": {"day": "monday"}}


def always(result: dict[str, Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A client's function that answers every question alike."""
    return lambda params: result


def text_of(result: dict[str, Any]) -> str:
    assert result["resultType"] == "complete", result
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.row("26-R1", "26-R3", "26-R12")
async def test_each_round_may_come_to_another_server() -> None:
    runs: list[Any] = []
    async with clients_of(runs) as (one, two):
        first = await one.result("tools/call", **CALL)
        assert first["resultType"] == "input_required"
        assert list(first["inputRequests"]) == ["who"]

        second = await two.result("tools/call", **CALL, inputResponses={"who": ADA}, requestState=first["requestState"])
        assert second["resultType"] == "input_required"
        assert list(second["inputRequests"]) == [GREETING.key]
        assert second["requestState"] != first["requestState"]

        third = await one.result(
            "tools/call", **CALL, inputResponses={GREETING.key: HELLO}, requestState=second["requestState"]
        )
        assert text_of(third) == "Hello, Ada"
    assert runs == [("book", None), ("book", {"day": "monday"}), ("book", "second")]


async def test_nothing_waits_between_two_rounds() -> None:
    async with clients_of([], 1) as (client,):
        for _ in range(5):
            await client.result("tools/call", **CALL)
        assert client.company.exchanges.open == 0
        assert client.company.exchanges.parked == 0


@pytest.mark.row("26-R4")
async def test_several_questions_go_out_together_and_a_missing_answer_is_asked_for_again() -> None:
    call: dict[str, Any] = {"name": "ask_both", "arguments": {}}
    async with clients_of([], 1) as (client,):
        first = await client.result("tools/call", **call)
        assert list(first["inputRequests"]) == ["who", ROOTS.key]

        half = await client.result(
            "tools/call", **call, inputResponses={"who": ADA, "other": {}}, requestState=first["requestState"]
        )
        assert half["resultType"] == "input_required"

        roots = {"roots": [{"uri": "file:///a"}]}
        whole = await client.result(
            "tools/call", **call, inputResponses={ROOTS.key: roots}, requestState=half["requestState"]
        )
        assert whole["structuredContent"] == {"name": "Ada in file:///a"}


async def test_questions_that_come_out_of_a_task_group_are_asked() -> None:
    call: dict[str, Any] = {"name": "from_a_group", "arguments": {}}
    async with clients_of([], 1) as (client,):
        first = await client.result("tools/call", **call)
        again = {"inputResponses": {GREETING.key: HELLO}, "requestState": first["requestState"]}
        assert text_of(await client.result("tools/call", **call, **again)) == "Hello"


@pytest.mark.row("26-R2")
async def test_prompts_and_resources_may_ask() -> None:
    async with clients_of([], 1) as (client,):
        for method, params in (("prompts/get", {"name": "letter"}), ("resources/read", {"uri": "travel://plan"})):
            first = await client.result(method, **params)
            assert list(first["inputRequests"]) == ["who"]
            assert "ttlMs" not in first
            again = {"inputResponses": {"who": ADA}, "requestState": first["requestState"]}
            assert (await client.result(method, **params, **again))["resultType"] == "complete"


@pytest.mark.row("26-R5", "26-M9")
async def test_a_question_that_was_not_declared_is_not_asked() -> None:
    server = traveller_server([])
    async with server.started() as company:
        client = StatelessClient(company, capabilities={"elicitation": {"url": {}}, "sampling": {}})
        reply = await client.reply("tools/call", **CALL)
        error = json.loads(reply.body)["error"]
        assert (reply.status, error["code"]) == (400, -32021)
        assert error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}


@pytest.mark.row("26-R9", "26-R10")
async def test_a_state_is_good_for_its_principal_and_request_alone() -> None:
    async with clients_of([], 1) as (client,):
        ada = StatelessClient(client.company, Peer("test", principal="ada"), ABLE)
        eve = StatelessClient(client.company, Peer("test", principal="eve"), ABLE)
        first = await ada.result("tools/call", **CALL)
        state = first["requestState"]

        async def reason(who: StatelessClient, **params: Any) -> str:
            error = await who.error("tools/call", **{**CALL, "inputResponses": {"who": ADA}, **params})
            assert error["code"] == -32602
            found: str = error["data"]["reason"]
            return found

        assert await reason(eve, requestState=state) == "tampered"
        assert await reason(client, requestState=state) == "tampered"
        assert await reason(ada, requestState=state[:-1]) == "tampered"
        assert await reason(ada, requestState=state, arguments={"day": "friday"}) == "other_request"
        assert await reason(ada, requestState=state, name="ask_both") == "other_request"
        done = await ada.result("tools/call", **CALL, inputResponses={"who": ADA}, requestState=state)
        assert done["resultType"] == "input_required"


@pytest.mark.row("26-R11")
async def test_a_response_that_does_not_fit_is_refused() -> None:
    async with clients_of([], 1) as (client,):
        wrong: list[dict[str, Any]] = [
            {"action": "accept"},
            {"action": "accept", "content": {"name": 7}},
            {"roots": []},
        ]
        for response in wrong:
            error = await client.error("tools/call", **CALL, inputResponses={"who": response})
            assert error["code"] == -32602
            assert error["data"] == {"key": "who", "reason": "bad_response"}


async def test_answers_may_come_with_the_first_request() -> None:
    async with clients_of([], 1) as (client,):
        responses = {"who": {"action": "decline"}, GREETING.key: HELLO, "extra": {}}
        assert text_of(await client.result("tools/call", **CALL, inputResponses=responses)) == "no booking"


@pytest.mark.row("26-R10")
async def test_a_state_expires_and_counts_its_rounds() -> None:
    async with clients_of([], 1, parked_timeout=60.0) as (client,):
        first = await client.result("tools/call", **CALL)
        await asyncio.sleep(59)
        again = {"inputResponses": {"who": ADA}, "requestState": first["requestState"]}
        second = await client.result("tools/call", **CALL, **again)
        await asyncio.sleep(2)
        error = await client.error("tools/call", **CALL, **again)
        assert (error["code"], error["data"]) == (-32602, {"reason": "expired"})

        ring = client.company.sealing
        texts = [first["requestState"], second["requestState"]]
        states = [RequestState.open(ring, text, "", "tools/call", CALL, 0.0) for text in texts]
        assert [state.round for state in states] == [1, 2]


@pytest.mark.row("26-R2")
async def test_a_completion_cannot_end_with_questions() -> None:
    server = traveller_server([])

    @server.completion("to", prompt="letter")
    async def suggest(begun: str) -> list[str]:
        raise InputRequired(NAME)

    params = {"ref": {"type": "ref/prompt", "name": "letter"}, "argument": {"name": "to", "value": ""}}
    async with server.started() as company:
        message = await StatelessClient(company, capabilities=ABLE).answer("completion/complete", **params)
        assert "completion/complete cannot ask the client" in message["error"]["message"]


async def test_a_state_without_questions_brings_the_client_back() -> None:
    call: dict[str, Any] = {"name": "later", "arguments": {}}
    async with clients_of([], 1) as (client,):
        first = await client.result("tools/call", **call)
        assert "inputRequests" not in first
        assert text_of(await client.result("tools/call", **call, requestState=first["requestState"])) == "now: 1"


async def test_a_handler_may_await_one_question_and_end_with_another() -> None:
    call: dict[str, Any] = {"name": "mixed", "arguments": {}}
    async with clients_of([], 1) as (client,):
        first = await client.result("tools/call", **call)
        second = await client.result(
            "tools/call", **call, inputResponses={"who": ADA}, requestState=first["requestState"]
        )
        (key,) = second["inputRequests"]
        roots = {key: {"roots": [{"uri": "file:///a"}]}}
        third = await client.result("tools/call", **call, inputResponses=roots, requestState=second["requestState"])
        assert text_of(third) == "Ada in 1 places"


async def test_answers_that_no_state_can_carry_end_the_call() -> None:
    long = {**ADA, "content": {"name": "x" * MOST_RECORDED}}
    async with clients_of([], 1, expose_errors=True) as (client,):
        result = await client.result("tools/call", **CALL, inputResponses={"who": long})
        assert result["isError"]
        assert "put their id in state=" in result["content"][0]["text"]


async def test_a_handler_of_a_task_asks_in_its_task_and_runs_again_there() -> None:
    server = Server("late")

    @server.tool(task_support="required")
    async def late(ctx: Context) -> str:
        return str(ctx.answers.require(NAME))

    async with server.started() as company:
        client = StatelessClient(company)
        id = await client.start("late")
        assert list(await asking(client, id)) == ["who"]
        await client.result("tasks/update", taskId=id, inputResponses={"who": ADA})
        assert text_of((await ended(client, id))["result"]) == "Accepted(value=Traveller(name='Ada'))"


async def test_a_call_that_has_become_a_task_asks_in_its_task() -> None:
    server = Server("late")

    @server.tool(task_support="optional", defer_task=True)
    async def late(ctx: Context) -> str:
        await ctx.start_task()
        return str(ctx.answers.require(NAME))

    async with server.started() as company:
        client = StatelessClient(company)
        id = await client.start("late")
        assert list(await asking(client, id)) == ["who"]
        await client.result("tasks/update", taskId=id, inputResponses={"who": {"action": "decline"}})
        assert text_of((await ended(client, id))["result"]) == "Declined()"


# --- the handshake era


async def test_a_session_is_asked_while_the_call_goes_on() -> None:
    runs: list[Any] = []
    server = traveller_server(runs)
    answers = {"elicitation/create": always(ADA), "sampling/createMessage": always(HELLO)}
    async with server.started() as company, WireProbe(company, capabilities=ABLE, answers=answers) as probe:
        result = await probe.request("tools/call", CALL)
        assert result["content"][0]["text"] == "Hello, Ada"
    assert runs == [("book", None), ("book", {"day": "monday"}), ("book", "second")]


async def test_a_handler_that_ends_with_a_state_alone_runs_again_a_little_later() -> None:
    server = traveller_server([])
    async with server.started() as company, WireProbe(company) as probe:
        begun = asyncio.get_running_loop().time()
        result = await probe.request("tools/call", {"name": "later", "arguments": {}})
        assert result["content"][0]["text"] == "now: 1"
        assert asyncio.get_running_loop().time() - begun == pytest.approx(1.0, abs=0.1)


async def test_a_session_without_the_capability_gets_its_error() -> None:
    server = traveller_server([])
    async with server.started() as company, WireProbe(company, capabilities={}) as probe:
        with pytest.raises(PeerError, match="needs the capability 'elicitation'"):
            await probe.request("tools/call", CALL)


async def test_a_handler_that_is_never_content_is_ended() -> None:
    runs: list[Any] = []
    server = traveller_server(runs)
    answers = {"elicitation/create": always({"action": "decline"})}
    async with server.started() as company, WireProbe(company, capabilities=ABLE, answers=answers) as probe:
        result = await probe.request("tools/call", {"name": "never_content", "arguments": {}})
        assert result["isError"]
    assert runs == ["never_content"] * (MOST_ROUNDS + 1)


def test_a_declined_question_is_an_answer() -> None:
    assert NAME.answer_of({"action": "decline"}) == Declined()
