"""Questions to the peer: sent where they can be answered, answered once, and never by another peer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.company import UnknownSession
from greenroom.actors.peer_channels import NoStream
from greenroom.actors.settings import Settings
from greenroom.actors.worker_interfaces import Hooks
from greenroom.protocol.errors import LocalProtocolError, McpError, PeerError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcResponse
from greenroom.supervision import CallTimeout, ProcessExited, kill
from greenroom.transports.interfaces import Peer

from .session_client import CLIENT, ScriptedTools, SessionClient, echo, join, messages_in, open_company, read, turns

if TYPE_CHECKING:
    from greenroom.actors.company import Company
    from greenroom.actors.worker_interfaces import Job
    from greenroom.transports.interfaces import Feed

PEER = Peer("test")
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "hi"}, "model": "m"}


async def asks(job: Job) -> Any:
    """Ask the peer what the arguments say, and tell what came of it."""
    arguments = job.params["arguments"]
    try:
        answer = await job.peer_channel.ask(
            arguments["method"], arguments.get("params", {}), arguments.get("timeout", 30)
        )
    except CallTimeout:
        return {"timeout": True}
    except NoStream as error:
        return {"unreachable": str(error)}
    except McpError as error:
        return {"error": error.to_wire(), "peer": isinstance(error, PeerError)}
    return {"answer": answer}


async def begin(**changes: Any) -> tuple[Company, SessionClient]:
    company = await open_company(ScriptedTools(asks=asks, echo=echo))
    return company, await join(company, **changes)


async def asked(
    player: SessionClient, method: str = "sampling/createMessage", **more: Any
) -> tuple[Feed, dict[str, Any]]:
    """A call that asks, and the question as the peer sees it."""
    feed = await player.reply(
        "tools/call", name="asks", arguments={"method": method, "params": SAMPLING[method], **more}
    )
    (question,) = messages_in(await read(feed, 0.1))
    return feed, question


SAMPLING: dict[str, Any] = {
    "sampling/createMessage": {"messages": [], "maxTokens": 5},
    "elicitation/create": {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}},
    "roots/list": {},
    "ping": {},
}


async def result_of(feed: Feed) -> dict[str, Any]:
    """The tool's result."""
    (answer,) = [each for each in messages_in(await read(feed, 100)) if "result" in each]
    result: dict[str, Any] = answer["result"]
    return result


@pytest.mark.row("SC-11")
async def test_a_question_goes_onto_the_stream_of_its_call_and_is_answered() -> None:
    _, player = await begin()
    feed, question = await asked(player)
    assert question["id"] == "srv-1"
    assert question["method"] == "sampling/createMessage"
    assert question["params"] == SAMPLING["sampling/createMessage"]
    assert feed.name == "p1"
    await player.session.respond(JsonRpcResponse("srv-1", SAMPLED))
    assert await result_of(feed) == {"answer": SAMPLED}


@pytest.mark.row("SC-11")
async def test_ids_count_up_and_answers_find_their_questions() -> None:
    _, player = await begin()
    feeds: list[Feed] = []
    for number in range(3):
        feed, question = await asked(player, "roots/list")
        assert question["id"] == f"srv-{number + 1}"
        feeds.append(feed)
    for number in (2, 0, 1):
        await player.session.respond(JsonRpcResponse(f"srv-{number + 1}", {"roots": [{"uri": f"file:///{number}"}]}))
    for number, feed in enumerate(feeds):
        assert await result_of(feed) == {"answer": {"roots": [{"uri": f"file:///{number}"}]}}


@pytest.mark.row("SC-11")
async def test_the_peers_error_is_the_askers() -> None:
    _, player = await begin()
    feed, _ = await asked(player)
    await player.session.respond(JsonRpcError("srv-1", PeerError(-1, "the user said no", {"x": 1})))
    assert await result_of(feed) == {
        "error": {"code": -1, "message": "the user said no", "data": {"x": 1}},
        "peer": True,
    }


@pytest.mark.row("SC-09")
async def test_answers_to_nothing_are_ignored() -> None:
    company, player = await begin()
    other = await join(company)
    feed, _ = await asked(player)
    for id in ("srv-2", "srv-", "", 1, "nonsense"):
        await player.session.respond(JsonRpcResponse(id, SAMPLED))
    await player.session.respond(JsonRpcError(None, PeerError(-1, "whose?")))
    await other.session.respond(JsonRpcResponse("srv-1", SAMPLED | {"model": "evil"}))
    await player.session.respond(JsonRpcResponse("srv-1", SAMPLED))
    await player.session.respond(JsonRpcResponse("srv-1", SAMPLED | {"model": "twice"}))
    assert await result_of(feed) == {"answer": SAMPLED}
    await player.session.respond(JsonRpcResponse("srv-1", SAMPLED))
    assert (await player.ask("ping"))["result"] == {}


@pytest.mark.row("SC-11")
async def test_an_answer_that_is_none_is_an_error() -> None:
    _, player = await begin()
    feed, _ = await asked(player)
    await player.session.respond(JsonRpcResponse("srv-1", {"content": 7}))
    result = await result_of(feed)
    assert result["error"]["code"] == -32603


@pytest.mark.row("SC-11")
async def test_a_question_that_is_not_answered_in_time_is_given_up() -> None:
    _, player = await begin()
    began = asyncio.get_running_loop().time()
    feed, _ = await asked(player, timeout=7)
    messages = messages_in(await read(feed, 100))
    assert asyncio.get_running_loop().time() - began == 7
    assert messages[0]["method"] == "notifications/cancelled"
    assert messages[0]["params"]["requestId"] == "srv-1"
    assert messages[1]["result"] == {"timeout": True}
    await player.session.respond(JsonRpcResponse("srv-1", SAMPLED))


async def test_waiting_for_the_peer_does_not_count_as_silence() -> None:
    company = await open_company(ScriptedTools(asks=asks), settings=Settings(call_timeout=10))
    player = await join(company)
    feed, question = await asked(player, timeout=100)
    await asyncio.sleep(90)
    await player.session.respond(JsonRpcResponse(question["id"], SAMPLED))
    assert await result_of(feed) == {"answer": SAMPLED}


async def test_the_time_of_silence_begins_with_the_answer_not_with_the_question() -> None:
    async def slow(job: Job) -> Any:
        answer = await asks(job)
        await asyncio.sleep(job.params["arguments"]["last"])
        return answer

    company = await open_company(ScriptedTools(asks=slow), settings=Settings(call_timeout=10))
    player = await join(company)
    for last, ends in ((9, {"answer": SAMPLED}), (11, "said nothing for 10 s")):
        feed, question = await asked(player, timeout=100, last=last)
        await asyncio.sleep(95)
        await player.session.respond(JsonRpcResponse(question["id"], SAMPLED))
        assert str(ends) in str(await result_of(feed))
    feed, _ = await asked(player, timeout=95, last=9)
    assert await result_of(feed) == {"timeout": True}, "so it does where the answer did not come"


@pytest.mark.row("SX-09")
@pytest.mark.row("SC-08")
@pytest.mark.row("SC-11")
@pytest.mark.parametrize(
    ("capabilities", "method", "params", "needed"),
    [
        ({}, "sampling/createMessage", {}, "sampling"),
        ({}, "elicitation/create", {}, "elicitation"),
        ({}, "roots/list", {}, "roots"),
        ({"sampling": {}}, "sampling/createMessage", {"tools": [{"name": "x"}]}, "sampling.tools"),
        ({"elicitation": {}}, "elicitation/create", {"mode": "url"}, "elicitation.url"),
        ({"elicitation": {"url": {}}}, "elicitation/create", {}, "elicitation.form"),
    ],
)
async def test_what_the_client_has_not_declared_is_never_asked(
    capabilities: Any, method: str, params: Any, needed: str
) -> None:
    _, player = await begin(capabilities=capabilities)
    answer = await player.call("asks", method=method, params=params)  # no stream was made, so nothing was sent
    assert needed in answer["result"]["error"]["message"]
    assert answer["result"]["peer"] is False


async def test_what_a_revision_does_not_have_is_never_asked() -> None:
    _, player = await begin(version="2025-03-26")
    answer = await player.call("asks", method="elicitation/create", params=SAMPLING["elicitation/create"])
    assert "2025-03-26" in answer["result"]["error"]["message"]


async def test_a_question_that_cannot_be_encoded_is_the_askers_error() -> None:
    company, player = await begin()
    feed = await player.session.listen()
    with pytest.raises(LocalProtocolError):
        await company.peers.ask(player.session.id, "roots/list", {"half": "\ud800"})
    feed.leave()
    assert (await company.peers.snapshot(player.session.id))["questions"] == []


async def test_only_so_many_questions_are_open() -> None:
    company = await open_company(ScriptedTools(asks=asks), settings=Settings(max_asks=1))
    player = await join(company)
    await asked(player)
    answer = await player.call("asks", method="roots/list")
    assert "at most 1" in answer["result"]["error"]["message"]


async def test_when_the_call_is_cancelled_its_question_is_taken_back() -> None:
    company, player = await begin()
    feed, _ = await asked(player)
    await player.cancel(1)
    messages = messages_in(await read(feed))
    assert [each["method"] for each in messages] == ["notifications/cancelled"]
    assert (await company.peers.snapshot(player.session.id))["questions"] == []


async def test_a_question_after_the_call_is_over_is_refused() -> None:
    kept: list[Any] = []

    async def keeps(job: Job) -> Any:
        kept.append(job.peer_channel)
        return {}

    player = await join(await open_company(ScriptedTools(keeps=keeps)))
    await player.call("keeps")
    with pytest.raises(NoStream, match="over"):
        await kept[0].ask("roots/list", {}, 5)


async def test_askers_get_an_error_when_the_session_ends() -> None:
    company, player = await begin()
    feed = await player.session.listen()
    asking = asyncio.create_task(company.peers.roots(player.session.id))
    await turns()
    kill(company.peers.ref(player.session.id))
    with pytest.raises(ProcessExited):
        await asking
    feed.leave()


# --- out of a call


@pytest.mark.row("SC-05")
@pytest.mark.row("SC-06")
@pytest.mark.row("SC-07")
@pytest.mark.row("SC-09")
async def test_a_server_asks_on_the_general_stream() -> None:
    company, player = await begin()
    feed = await player.session.listen()
    peers, id = company.peers, player.session.id
    asking = [
        asyncio.create_task(peers.sample(id, SAMPLING["sampling/createMessage"])),
        asyncio.create_task(peers.elicit(id, SAMPLING["elicitation/create"])),
        asyncio.create_task(peers.roots(id)),
    ]
    questions = messages_in(await read(feed))
    assert [each["method"] for each in questions] == ["sampling/createMessage", "elicitation/create", "roots/list"]
    answers: list[dict[str, Any]] = [SAMPLED, {"action": "decline"}, {"roots": [{"uri": "file:///x"}]}]
    for question, answer in zip(questions, answers, strict=True):
        await player.session.respond(JsonRpcResponse(question["id"], answer))
    assert [await each for each in asking] == [SAMPLED, {"action": "decline"}, [{"uri": "file:///x"}]]


@pytest.mark.row("SC-05")
async def test_without_a_stream_the_peer_cannot_be_asked() -> None:
    company, player = await begin()
    with pytest.raises(NoStream, match="no open stream"):
        await company.peers.roots(player.session.id)
    with pytest.raises(UnknownSession, match="no session"):
        await company.peers.roots("mcp_unknown")


@pytest.mark.row("SC-05")
async def test_the_general_deadline_for_questions_is_thirty_seconds() -> None:
    company, player = await begin()
    feed = await player.session.listen()
    began = asyncio.get_running_loop().time()
    with pytest.raises(CallTimeout):
        await company.peers.roots(player.session.id)
    assert asyncio.get_running_loop().time() - began == 30
    with pytest.raises(CallTimeout):
        await company.peers.roots(player.session.id, timeout=2)
    assert asyncio.get_running_loop().time() - began == 32
    feed.leave()


@pytest.mark.row("SC-08")
async def test_a_server_asks_nothing_that_was_not_declared() -> None:
    company, player = await begin(capabilities={})
    feed = await player.session.listen()
    for method in ("sampling/createMessage", "elicitation/create", "roots/list"):
        with pytest.raises(McpError, match="has not declared"):
            await company.peers.ask(player.session.id, method, SAMPLING[method])
    assert messages_in(await read(feed)) == []


async def test_on_a_channel_questions_and_answers_share_it() -> None:
    company = await open_company(ScriptedTools(asks=asks))
    session = await company.connect(PEER)
    player = SessionClient(company, session)
    await player.reply("initialize", protocolVersion="2025-11-25", capabilities={"roots": {}}, clientInfo=CLIENT)
    await player.tell("notifications/initialized")
    feed = session.channel
    assert feed is not None
    await player.reply("tools/call", id="c", name="asks", arguments={"method": "roots/list"})
    question = messages_in(await read(feed))[-1]
    await session.respond(JsonRpcResponse(question["id"], {"roots": []}))
    (answer,) = messages_in(await read(feed))
    assert (answer["id"], answer["result"]) == ("c", {"answer": {"roots": []}})
    asking = asyncio.create_task(company.peers.roots(session.id))
    (question,) = messages_in(await read(feed))
    await session.respond(JsonRpcResponse(question["id"], {"roots": []}))
    assert await asking == []


@pytest.mark.row("SC-10")
@pytest.mark.row("WC-22")
async def test_errors_of_the_roots_hook_affect_no_call() -> None:
    heard: list[Any] = []

    async def roots_changed(params: Any, facts: Any) -> None:
        heard.append((params, facts.session_id, facts.state))
        raise ValueError("swallowed")

    company = await open_company(hooks=Hooks(roots_changed=roots_changed, init=lambda _: "state"))
    player = await join(company)
    await player.tell("notifications/roots/list_changed", x=1)
    await turns()
    assert heard == [({"x": 1}, player.session.id, "state")]
    assert "result" in await player.call("echo")
