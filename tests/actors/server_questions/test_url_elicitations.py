"""URL elicitations: which client is asked, which one is told of the end, and what a dead session leaves."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.session.session_client import messages_in, read, turns

from greenroom import (
    Accepted,
    Client,
    Context,
    Declined,
    Dismissed,
    McpError,
    PeerError,
    Server,
    UrlElicitation,
    UrlElicitationRequired,
)
from greenroom.actors.process_names import ProcessName
from greenroom.protocol.errors import LocalProtocolError
from greenroom.protocol.jsonrpc import JsonRpcRequest, JsonRpcResponse
from greenroom.supervision import CallTimeout, registered
from greenroom.transports.interfaces import Peer
from greenroom.wire_probe import WireProbe

from .question_server import EVERYTHING, result_text, running_question_server

if TYPE_CHECKING:
    from .question_server import QuestionServer

URL = "https://pay.example/?e={elicitation_id}"
DONE = "notifications/elicitation/complete"
seen: list[Any] = []


async def pay(ctx: Context) -> str:
    """Have the user pay."""
    answer = await ctx.elicit_url("Please pay.", URL)
    seen.append(answer)
    return answer.action


async def use(ctx: Context) -> str:
    """Go on once the user has connected an account."""
    if ctx.meta.get("paid"):
        return "used"
    raise UrlElicitationRequired(UrlElicitation("Connect your account.", URL))


def accepts(_: Any) -> dict[str, Any]:
    return {"action": "accept"}


def out(stage: QuestionServer) -> list[str]:
    """The ids of all pages that users of this company are out on."""
    key = stage.company.key
    return [name.id for name in registered() if isinstance(name, ProcessName) and name[:2] == (key, "elicitation")]


@pytest.mark.row("SC-06", "SC-11")
async def test_the_client_is_asked_to_send_its_user_to_the_page() -> None:
    asked: list[dict[str, Any]] = []

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return {"action": "accept"}

    async with running_question_server(pay) as stage:
        probe = await stage.probe({"elicitation/create": answer})
        assert result_text(await probe.call("pay")) == "accept"
        [params] = asked
        id = params["elicitationId"]
        assert params == {
            "mode": "url",
            "message": "Please pay.",
            "url": f"https://pay.example/?e={id}",
            "elicitationId": id,
        }
        assert seen.pop() == Accepted(id)
        assert out(stage) == [id]


@pytest.mark.row("SC-06")
@pytest.mark.parametrize(("action", "value"), [("decline", Declined()), ("cancel", Dismissed())])
async def test_a_declined_url_elicitation_is_forgotten(action: str, value: object) -> None:
    async with running_question_server(pay) as stage:
        probe = await stage.probe({"elicitation/create": lambda _: {"action": action}})
        assert result_text(await probe.call("pay")) == action
        assert seen.pop() == value
        assert out(stage) == []


@pytest.mark.row("SC-06")
@pytest.mark.row("SC-09")
@pytest.mark.row("WC-23")
async def test_only_the_asked_client_is_notified_of_the_end_and_only_once() -> None:
    async with running_question_server(pay) as stage:
        first, second = [await stage.probe({"elicitation/create": accepts}) for _ in range(2)]
        ids: list[str] = []
        for probe in (first, second):
            await probe.call("pay")
            ids.append(seen.pop().value)
        assert stage.server.elicitation_complete(ids[0])
        assert await first.wait_for_notifications(DONE) == [{"elicitationId": ids[0]}]
        assert not stage.server.elicitation_complete(ids[0])
        assert not stage.server.elicitation_complete("unknown")
        assert out(stage) == [ids[1]]
        await second.request("ping")
        assert second.notifications(DONE) == []
        assert stage.server.peers.elicitation_complete(ids[1])
        assert await second.wait_for_notifications(DONE) == [{"elicitationId": ids[1]}]
        await first.request("ping")
        assert first.notifications(DONE) == [{"elicitationId": ids[0]}]


@pytest.mark.row("SC-06")
async def test_the_end_may_be_reported_from_any_thread() -> None:
    async with running_question_server(pay) as stage:
        probe = await stage.probe({"elicitation/create": accepts})
        await probe.call("pay")
        id = seen.pop().value
        known: list[bool] = []

        def webhook() -> None:
            known.extend(stage.server.elicitation_complete(each) for each in (id, "unknown"))

        thread = threading.Thread(target=webhook)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert known == [True, False]
        assert await probe.wait_for_notifications(DONE) == [{"elicitationId": id}]


@pytest.mark.row("SC-06")
async def test_the_page_can_see_whose_user_it_is_for() -> None:
    async with running_question_server(pay) as stage:
        probe = await stage.probe({"elicitation/create": accepts})
        await probe.call("pay")
        id = seen.pop().value
        card = stage.server.peers.elicited(id)
        assert card is not None
        assert (card.client_info["name"], card.peer.principal) == ("probe", None)
        assert stage.server.peers.elicited("unknown") is None


@pytest.mark.row("SC-06")
@pytest.mark.row("SC-11")
async def test_the_end_is_sent_on_the_calls_stream_while_the_call_is_in_flight() -> None:
    done = asyncio.Event()

    async def waits(ctx: Context) -> str:
        answer = await ctx.elicit_url("Please pay.", URL)
        seen.append(answer)
        await done.wait()
        return "thanks"

    async with running_question_server(waits) as stage:
        player = await stage.player()
        feed = await player.reply("tools/call", name="waits", arguments={})
        [question] = messages_in(await read(feed, 0.1))
        await player.session.respond(JsonRpcResponse(question["id"], {"action": "accept"}))
        await turns()
        id = seen.pop().value
        assert stage.server.elicitation_complete(id)
        assert [each["params"] for each in messages_in(await read(feed, 0.1))] == [{"elicitationId": id}]
        done.set()
        [answer] = messages_in(await read(feed))
        assert result_text(answer["result"]) == "thanks"


@pytest.mark.row("SC-06")
async def test_after_the_call_the_end_is_sent_on_the_general_stream() -> None:
    async with running_question_server(use) as stage:
        player = await stage.player()
        answer = await player.call("use")
        [page] = answer["error"]["data"]["elicitations"]
        assert stage.server.elicitation_complete(page["elicitationId"])
        feed = await player.session.listen()
        [word] = messages_in(await read(feed))
        assert (word["method"], word["params"]) == (DONE, {"elicitationId": page["elicitationId"]})


async def test_a_user_may_be_done_before_the_client_has_answered() -> None:
    agreed = asyncio.Event()

    async def answer(params: dict[str, Any]) -> dict[str, Any]:
        seen.append(params["elicitationId"])
        agreed.set()
        await asyncio.sleep(5)
        return {"action": "accept"}

    async with running_question_server(pay) as stage:
        probe = await stage.probe({"elicitation/create": answer})
        call = await probe.ask("tools/call", {"name": "pay", "arguments": {}})
        await agreed.wait()
        id = seen.pop()
        assert stage.server.elicitation_complete(id)
        assert await probe.wait_for_notifications(DONE) == [{"elicitationId": id}]
        assert result_text((await probe.answer(call, within=10))["result"]) == "accept"
        assert seen.pop() == Accepted(id)
        assert out(stage) == []


# --- the error


@pytest.mark.row("WC-25")
@pytest.mark.row("SC-06")
async def test_a_call_can_fail_with_a_url_elicitation_required_error() -> None:
    async with running_question_server(use) as stage:
        probe = await stage.probe()
        with pytest.raises(PeerError) as refused:
            await probe.call("use")
        assert (refused.value.code, refused.value.message) == (-32042, "The user has to open a page first.")
        [page] = refused.value.data["elicitations"]
        id = page["elicitationId"]
        assert page == {
            "mode": "url",
            "message": "Connect your account.",
            "url": f"https://pay.example/?e={id}",
            "elicitationId": id,
        }
        assert out(stage) == [id]
        assert stage.server.elicitation_complete(id)
        assert await probe.wait_for_notifications(DONE) == [{"elicitationId": id}]
        params = {"name": "use", "arguments": {}, "_meta": {"paid": True}}
        assert result_text(await probe.request("tools/call", params)) == "used"


@pytest.mark.row("WC-25")
async def test_so_can_a_read_and_a_prompt() -> None:
    async with running_question_server() as stage:

        @stage.server.resource("stage://secret")
        def secret() -> str:
            raise UrlElicitationRequired(UrlElicitation("Connect.", URL))

        @stage.server.prompt
        def greet() -> Any:
            return UrlElicitationRequired([UrlElicitation("Connect.", URL), UrlElicitation("And pay.", URL)])

        probe = await stage.probe()
        asks: list[tuple[str, dict[str, Any], int]] = [
            ("resources/read", {"uri": "stage://secret"}, 1),
            ("prompts/get", {"name": "greet", "arguments": {}}, 2),
        ]
        for method, params, count in asks:
            with pytest.raises(PeerError) as refused:
                await probe.request(method, params)
            pages = refused.value.data["elicitations"]
            assert (refused.value.code, len(pages)) == (-32042, count)
            assert all(stage.server.elicitation_complete(page["elicitationId"]) for page in pages)


@pytest.mark.row("SX-09")
@pytest.mark.row("SC-08")
@pytest.mark.parametrize(
    ("capabilities", "version"),
    [
        ({}, "2025-11-25"),
        ({"elicitation": {}}, "2025-11-25"),
        ({"elicitation": {"form": {}}}, "2025-11-25"),
        (EVERYTHING, "2025-06-18"),
        (EVERYTHING, "2025-03-26"),
        (EVERYTHING, "2024-11-05"),
    ],
)
async def test_url_elicitations_need_the_declared_capability(capabilities: dict[str, Any], version: str) -> None:
    async with running_question_server(pay, use) as stage:
        probe = await stage.probe({"elicitation/create": accepts}, capabilities=capabilities, version=version)
        for tool in ("pay", "use"):
            with pytest.raises(PeerError) as refused:
                await probe.call(tool)
            assert refused.value.code == -32600
            assert "elicitation" in refused.value.message
        assert [each for each in probe.received if "method" in each] == []
        assert out(stage) == []


async def test_without_a_session_only_the_error_is_sent() -> None:
    async with running_question_server(use) as stage:
        request = JsonRpcRequest(1, "tools/call", {"name": "use", "arguments": {}})
        new = await stage.company.once(Peer("test"), request, "2025-11-25")
        assert b"-32042" in new.body
        old = await stage.company.once(Peer("test"), request, "2025-06-18")
        assert b"-32600" in old.body
        assert out(stage) == []


@pytest.mark.row("SC-06")
@pytest.mark.parametrize(
    ("message", "url", "why"),
    [
        ("", "https://a.b", "tells the user why"),
        ("Go.", "http://a.b", "is not"),
        ("Go.", "https://a.b/\x1b", "percent"),
    ],
)
async def test_a_refused_url_is_the_handlers_error(message: str, url: str, why: str) -> None:
    async with running_question_server() as stage:
        probe = await stage.probe({"elicitation/create": accepts})
        [card] = await stage.server.peers.all()
        with pytest.raises(LocalProtocolError, match=why):
            await stage.server.session(card.id).elicit_url(message, url)
        raw = {"mode": "url", "message": message, "url": url, "elicitationId": "e1"}
        with pytest.raises(LocalProtocolError, match=why):
            await stage.server.peers.elicit(card.id, raw)
        assert [each for each in probe.received if "method" in each] == []


async def test_an_id_belongs_to_one_session() -> None:
    async with running_question_server() as stage:
        for _ in range(2):
            await stage.probe({"elicitation/create": accepts})
        one, other = [stage.server.session(card.id) for card in await stage.server.peers.all()]
        assert await one.elicit_url("Pay.", URL, "e1") == Accepted("e1")
        assert await one.elicit_url("Pay again.", URL, "e1") == Accepted("e1")
        with pytest.raises(LocalProtocolError, match="another session"):
            await other.elicit_url("Pay.", URL, "e1")
        assert stage.server.elicitation_complete("e1")
        await turns()
        assert await other.elicit_url("Pay.", URL, "e1") == Accepted("e1")


# --- the end of it all


@pytest.mark.row("SC-06")
async def test_a_sessions_elicitations_end_with_it() -> None:
    async with running_question_server(pay, use) as stage:
        async with WireProbe(stage.company, capabilities=EVERYTHING, answers={"elicitation/create": accepts}) as probe:
            await probe.call("pay")
            with pytest.raises(PeerError):
                await probe.call("use")
            ids = out(stage)
            assert len(ids) == 2
        await turns(100)
        assert out(stage) == []
        assert [stage.server.elicitation_complete(id) for id in ids] == [False, False]


@pytest.mark.row("SC-06")
async def test_a_session_keeps_a_limited_number_of_elicitations_and_forgets_the_oldest() -> None:
    async with running_question_server(use) as stage:
        probe = await stage.probe()
        ids: list[str] = []
        for _ in range(130):
            with pytest.raises(PeerError) as refused:
                await probe.call("use")
            ids.append(refused.value.data["elicitations"][0]["elicitationId"])
        assert out(stage) == ids[2:]
        assert not stage.server.elicitation_complete(ids[0])
        assert stage.server.elicitation_complete(ids[-1])


@pytest.mark.row("SC-11")
async def test_an_abandoned_question_forgets_its_url_elicitation() -> None:
    async def impatient(ctx: Context) -> str:
        try:
            await ctx.elicit_url("Please pay.", URL, timeout=3)
        except CallTimeout:
            return "never mind"
        return "paid"

    async def broken(_: Any) -> Any:
        raise McpError(-1, "no")

    async with running_question_server(impatient, pay) as stage:
        silent = await stage.probe({"elicitation/create": lambda _: asyncio.sleep(60)})
        assert result_text(await silent.call("impatient")) == "never mind"
        assert len(silent.notifications("notifications/cancelled")) == 1
        assert out(stage) == []
        call = await silent.ask("tools/call", {"name": "pay", "arguments": {}})
        await silent.wait_for_notifications("elicitation/create", 2)
        assert len(out(stage)) == 1
        await silent.cancel(call)
        await silent.wait_for_notifications("notifications/cancelled", 2)
        assert out(stage) == []
        refusing = await stage.probe({"elicitation/create": broken})
        with pytest.raises(PeerError, match="no"):
            await refusing.call("pay")
        assert out(stage) == []


@pytest.mark.row("SC-11")
async def test_a_call_that_is_cancelled_while_it_asks_has_not_crashed(caplog: pytest.LogCaptureFixture) -> None:
    async with running_question_server(pay) as stage:
        probe = await stage.probe({"elicitation/create": lambda _: asyncio.sleep(60)})
        call = await probe.ask("tools/call", {"name": "pay", "arguments": {}})
        await probe.wait_for_notifications("elicitation/create")
        await probe.cancel(call)
        await probe.wait_for_notifications("notifications/cancelled")
        await turns(100)
    assert "crash" not in caplog.text


async def test_a_page_to_visit_first_is_no_error_of_a_revision_without_sessions() -> None:
    server = Server("box-office")

    @server.tool
    async def enter() -> str:
        raise UrlElicitationRequired(UrlElicitation("Pay first.", URL))

    async with Client(server, mode="2026-07-28", url_elicitation=lambda page: page.accept()) as client:
        with pytest.raises(PeerError) as refused:
            await client.call("enter")
        assert refused.value.code == -32600
        assert "revision 2026-07-28 has no error that says which" in refused.value.message
