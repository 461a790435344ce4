"""How a session begins, and what is refused before it has."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.actors.catalogue import CatalogueRef
from greenroom.actors.settings import Settings
from greenroom.actors.worker_interfaces import Hooks
from greenroom.protocol.errors import McpError
from greenroom.protocol.jsonrpc import JsonRpcRequest
from greenroom.supervision import count_children, kill
from greenroom.transports.interfaces import Peer

from .session_client import CLIENT, SessionClient, initialize_request, join, message, open_company, turns

PEER = Peer("test")
VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


async def sessions_of(company: Any) -> int:
    """How many there are, initialized or not."""
    return (await count_children(company.sessions)).active


@pytest.mark.row("WC-01")
@pytest.mark.row("WC-02")
@pytest.mark.parametrize("version", VERSIONS)
async def test_a_known_revision_is_the_one_that_is_agreed_on(version: str) -> None:
    company = await open_company()
    entered = await company.start_session(PEER, initialize_request(version))
    assert message(entered.answer.body)["result"]["protocolVersion"] == version
    assert entered.session is not None
    assert entered.session.version == version


@pytest.mark.row("WC-02")
@pytest.mark.parametrize("version", ["1999-01-01", "2026-07-28", "latest", ""])
async def test_for_an_unknown_revision_the_latest_is_offered(version: str) -> None:
    company = await open_company()
    entered = await company.start_session(PEER, initialize_request(version))
    assert message(entered.answer.body)["result"]["protocolVersion"] == "2025-11-25"


@pytest.mark.row("WC-02")
@pytest.mark.row("WC-06")
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"protocolVersion": 1, "capabilities": {}, "clientInfo": CLIENT},
        {"capabilities": {}, "clientInfo": CLIENT},
        {"protocolVersion": "2025-11-25", "clientInfo": CLIENT},
        {"protocolVersion": "2025-11-25", "capabilities": [], "clientInfo": CLIENT},
        {"protocolVersion": "2025-11-25", "capabilities": {}},
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x"}},
        {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": 1, "version": "1"}},
    ],
)
async def test_an_introduction_that_lacks_something_makes_no_session(params: dict[str, Any]) -> None:
    company = await open_company()
    entered = await company.start_session(PEER, JsonRpcRequest(5, "initialize", params))
    assert entered.session is None
    assert entered.answer.status == 400
    error = message(entered.answer.body)
    assert (error["id"], error["error"]["code"]) == (5, -32602)
    await turns()
    assert await sessions_of(company) == 0


@pytest.mark.row("WC-03")
async def test_the_server_declares_its_identity() -> None:
    settings = Settings(
        name="weather",
        version="2.1",
        title="The weather",
        description="rain or shine",
        website_url="https://example.com",
        icons=[{"src": "https://example.com/i.png", "mimeType": "image/png"}],
        instructions="Ask for a city.",
    )
    company = await open_company(settings=settings)
    result = message((await company.start_session(PEER, initialize_request())).answer.body)["result"]
    assert set(result) == {"protocolVersion", "capabilities", "serverInfo", "instructions"}
    assert result["instructions"] == "Ask for a city."
    assert result["serverInfo"] == {
        "name": "weather",
        "version": "2.1",
        "title": "The weather",
        "description": "rain or shine",
        "websiteUrl": "https://example.com",
        "icons": [{"src": "https://example.com/i.png", "mimeType": "image/png"}],
    }
    old = message((await company.start_session(PEER, initialize_request("2024-11-05"))).answer.body)["result"]
    assert old["serverInfo"] == {"name": "weather", "version": "2.1"}


@pytest.mark.row("WC-04")
async def test_an_empty_server_declares_every_capability() -> None:
    company = await open_company()
    result = message((await company.start_session(PEER, initialize_request())).answer.body)["result"]
    assert result["capabilities"] == {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {"listChanged": True},
        "logging": {},
    }


@pytest.mark.row("WC-05")
async def test_capabilities_follow_from_the_registrations_and_can_be_overridden() -> None:
    company = await open_company(
        settings=Settings(capabilities={"logging": False, "tools": {}}, experimental={"x": {"y": 1}})
    )

    async def weather(city: str) -> str:
        return city

    async def cities(argument: Any) -> list[str]:
        return [str(argument)]

    await company.registry.register_tool("weather", weather)
    await company.registry.register_completion(("prompt", "trip", "city"), cities)
    result = message((await company.start_session(PEER, initialize_request())).answer.body)["result"]
    assert result["capabilities"] == {"tools": {}, "completions": {}, "experimental": {"x": {"y": 1}}}
    oldest = message((await company.start_session(PEER, initialize_request("2024-11-05"))).answer.body)["result"]
    assert "completions" not in oldest["capabilities"]


@pytest.mark.row("WC-05")
@pytest.mark.row("WC-28")
async def test_what_is_switched_off_is_not_there() -> None:
    company = await open_company(settings=Settings(capabilities={"logging": None, "prompts": False}))
    player = await join(company)
    for method, params in (
        ("logging/setLevel", {"level": "info"}),
        ("prompts/list", {}),
        ("prompts/get", {"name": "x"}),
    ):
        assert (await player.ask(method, **params))["error"]["code"] == -32601


@pytest.mark.row("WC-24")
async def test_before_the_peer_is_ready_all_but_ping_is_refused() -> None:
    company = await open_company()
    entered = await company.start_session(PEER, initialize_request())
    assert entered.session is not None
    player = SessionClient(company, entered.session)
    assert (await player.ask("ping"))["result"] == {}
    for method, params in (
        ("tools/list", {}),
        ("tools/call", {"name": "echo"}),
        ("logging/setLevel", {"level": "info"}),
        ("no/such", {}),
    ):
        reply = await player.reply(method, **params)
        error = message(reply.body)["error"]
        assert reply.status == 200
        assert error["code"] == -32600
        assert "Server not initialized" in error["message"]
    await player.tell("notifications/initialized")
    assert "result" in await player.call("echo")


@pytest.mark.row("WC-22")
async def test_the_old_name_of_the_initialized_notification_is_accepted() -> None:
    company = await open_company()
    entered = await company.start_session(PEER, initialize_request())
    assert entered.session is not None
    player = SessionClient(company, entered.session)
    await player.tell("initialized")
    assert "result" in await player.call("echo")


@pytest.mark.row("WC-22")
@pytest.mark.row("WC-15")
async def test_unknown_notifications_are_ignored() -> None:
    player = await join(await open_company())
    await player.tell("notifications/no_such_thing", x=1)
    await player.tell("notifications/progress", progressToken=1, progress=2)
    await player.tell("notifications/cancelled")
    await player.tell("notifications/cancelled", requestId=None)
    await player.tell("notifications/cancelled", requestId=[1])
    await player.tell("notifications/roots/list_changed")
    assert (await player.ask("ping"))["result"] == {}
    assert (await player.ask("no/such"))["error"] == {"code": -32601, "message": "Method not found: no/such"}


@pytest.mark.row("WC-24")
async def test_the_gate_can_be_left_open() -> None:
    company = await open_company(settings=Settings(gate=False))
    entered = await company.start_session(PEER, initialize_request())
    assert entered.session is not None
    assert "result" in await SessionClient(company, entered.session).call("echo")


@pytest.mark.row("WC-09")
async def test_a_second_initialize_resets_the_session() -> None:
    company = await open_company()
    player = await join(company)
    again = await player.reply(
        "initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo={"name": "other", "version": "2"}
    )
    assert message(again.body)["result"]["protocolVersion"] == "2025-03-26"
    assert player.session.version == "2025-03-26"
    assert (await player.ask("tools/list"))["error"]["code"] == -32600
    await player.tell("notifications/initialized")
    assert "result" in await player.call("echo")
    assert await sessions_of(company) == 1


# --- the server's own init


async def test_the_server_makes_a_state_for_each_session() -> None:
    seen: list[Any] = []

    async def init(facts: Any) -> Any:
        await asyncio.sleep(1)
        seen.append((facts.version, facts.client_info["name"]))
        return {"visits": len(seen)}

    company = await open_company(hooks=Hooks(init=init))
    players = [await join(company) for _ in range(2)]
    assert seen == [("2025-11-25", "player")] * 2
    found = [company.peers.ref(player.session.id) for player in players]
    assert len(found) == 2


async def test_a_plain_init_runs_in_a_thread() -> None:
    company = await open_company(hooks=Hooks(init=lambda facts: facts.session_id))
    player = await join(company)
    assert (await player.ask("ping"))["result"] == {}


@pytest.mark.row("SX-07")
@pytest.mark.row("SE-10")
@pytest.mark.parametrize("error", [ValueError("secret"), SystemExit(3), KeyboardInterrupt(), BaseException("secret")])
async def test_a_failed_init_makes_no_session_and_frees_the_place(error: BaseException) -> None:
    async def init(facts: Any) -> Any:
        raise error

    company = await open_company(hooks=Hooks(init=init), settings=Settings(max_sessions=1))
    for _ in range(3):
        entered = await company.start_session(PEER, initialize_request(id="h"))
        assert entered.session is None
        assert entered.answer.status == 500
        answer = message(entered.answer.body)
        assert (answer["id"], answer["error"]["code"]) == ("h", -32603)
        assert "secret" not in answer["error"]["message"]
        await turns()
    assert await sessions_of(company) == 0


async def test_an_init_may_refuse_in_its_own_words() -> None:
    async def init(facts: Any) -> Any:
        raise McpError(-32001, "we are closed")

    company = await open_company(hooks=Hooks(init=init))
    entered = await company.start_session(PEER, initialize_request())
    assert entered.session is None
    assert entered.answer.status == 500
    assert message(entered.answer.body)["error"] == {"code": -32001, "message": "we are closed"}


async def test_the_size_of_an_introduction_is_limited() -> None:
    company = await open_company()
    entered = await company.start_session(PEER, initialize_request(clientInfo={"name": "x" * 100_000, "version": "1"}))
    assert entered.session is None
    assert message(entered.answer.body)["error"]["code"] == -32602


async def test_a_server_info_that_cannot_be_encoded_fails_one_reply() -> None:
    company = await open_company(settings=Settings(instructions="half \ud800"))
    entered = await company.start_session(PEER, initialize_request())
    assert entered.session is None
    assert message(entered.answer.body)["error"]["code"] == -32603


async def test_an_init_that_takes_too_long_makes_no_session() -> None:
    async def init(facts: Any) -> Any:
        await asyncio.Event().wait()

    company = await open_company(hooks=Hooks(init=init), settings=Settings(call_timeout=5))
    entered = await company.start_session(PEER, initialize_request())
    assert entered.session is None
    assert message(entered.answer.body)["error"]["code"] == -32603
    await asyncio.sleep(2)
    assert await sessions_of(company) == 0


async def test_a_peer_that_disconnects_during_init_leaves_no_session() -> None:
    begun = asyncio.Event()

    async def init(facts: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    company = await open_company(hooks=Hooks(init=init))
    entering = asyncio.create_task(company.start_session(PEER, initialize_request()))
    await begun.wait()
    assert await sessions_of(company) == 1
    entering.cancel()
    await asyncio.wait([entering])
    await turns()
    assert await sessions_of(company) == 0


@pytest.mark.parametrize("channel", ["", "channel"])
async def test_a_client_that_disconnects_during_the_handshake_leaves_no_session(channel: str) -> None:
    company = await open_company()
    for count in range(15):
        opening: asyncio.Task[Any] = asyncio.create_task(
            company.connect(PEER) if channel else company.start_session(PEER, initialize_request())
        )
        await turns(count)
        if opening.done():
            opened = await opening
            await (opened if channel else opened.session).end()
        opening.cancel()
        await asyncio.wait([opening])
    await asyncio.sleep(11)
    assert await sessions_of(company) == 0


async def test_a_session_that_dies_at_its_beginning_is_an_answer() -> None:
    async def init(facts: Any) -> Any:
        kill(company.sessions)
        await asyncio.Event().wait()

    company = await open_company(hooks=Hooks(init=init))
    entered = await company.start_session(PEER, initialize_request(id=9))
    assert (entered.session, entered.answer.status) == (None, 500)
    assert message(entered.answer.body)["id"] == 9


async def test_a_peer_that_gets_no_session_is_told_to_try_again() -> None:
    company = await open_company()
    kill(company.sessions)
    entered = await company.start_session(PEER, initialize_request())
    assert (entered.session, entered.answer.status) == (None, 503)
    assert "try again" in message(entered.answer.body)["error"]["message"]
    kill(company.sessions)
    answer = await company.once(PEER, JsonRpcRequest(1, "ping", {}))
    assert answer.status in (200, 503)
    await turns()
    assert (await company.start_session(PEER, initialize_request())).session is not None


async def test_on_a_channel_further_messages_wait_for_init() -> None:
    async def init(facts: Any) -> Any:
        await asyncio.sleep(3)
        return "state"

    company = await open_company(hooks=Hooks(init=init))
    session = await company.connect(PEER)
    player = SessionClient(company, session)
    began = asyncio.get_running_loop().time()
    await player.reply("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=CLIENT)
    assert asyncio.get_running_loop().time() - began == 3
    await player.tell("notifications/initialized")
    await player.reply("tools/call", name="echo")
    assert session.channel is not None
    events = list(await session.channel.next() or ())
    while len(events) < 2:
        events += await session.channel.next() or ()
    assert [event.answers for event in events] == [1, 2]


# --- levels


@pytest.mark.row("WC-28")
@pytest.mark.parametrize("level", ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"])
async def test_all_eight_levels_can_be_set(level: str) -> None:
    company = await open_company()
    player = await join(company)
    assert (await company.peers.snapshot(player.session.id))["level"] == "info"
    assert (await player.ask("logging/setLevel", level=level))["result"] == {}
    assert (await company.peers.snapshot(player.session.id))["level"] == level


@pytest.mark.row("WC-28")
@pytest.mark.parametrize("params", [{}, {"level": "loud"}, {"level": 1}, {"level": None}, {"level": "INFO"}])
async def test_no_other_level_can(params: dict[str, Any]) -> None:
    player = await join(await open_company())
    assert (await player.ask("logging/setLevel", **params))["error"]["code"] == -32602


@pytest.mark.row("WC-28")
async def test_the_level_hook_runs_first_and_may_refuse() -> None:
    heard: list[str] = []

    async def level(level: str, facts: Any) -> None:
        heard.append(level)
        if level == "debug":
            raise McpError(-32602, "not that")

    company = await open_company(hooks=Hooks(level=level))
    player = await join(company)
    assert (await player.ask("logging/setLevel", level="error"))["result"] == {}
    assert (await player.ask("logging/setLevel", level="debug"))["error"]["message"] == "not that"
    assert heard == ["error", "debug"]
    assert (await company.peers.snapshot(player.session.id))["level"] == "error"


@pytest.mark.row("WC-04")
async def test_two_companies_share_nothing() -> None:
    one, other = await open_company(), await open_company(catalogue_ref=CatalogueRef())
    player = await join(one)
    assert one.find(player.session.id, PEER) is not None
    assert other.find(player.session.id, PEER) is None
