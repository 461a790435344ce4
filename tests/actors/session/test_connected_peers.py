"""Connected sessions: how they are listed, limited and ended, and how they are notified outside of calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.company import Company, UnknownSession
from greenroom.actors.settings import Settings
from greenroom.protocol.errors import McpError
from greenroom.supervision import (
    GenServer,
    ProcessExited,
    Supervisor,
    child,
    is_alive,
    kill,
    start,
    stop,
    wait_down,
    whereis,
)
from greenroom.supervision.testing import start_supervised
from greenroom.transports.interfaces import Peer

from .session_client import (
    CLIENT,
    ScriptedTools,
    SessionClient,
    echo,
    initialize_request,
    join,
    message,
    messages_in,
    open_company,
    read,
    turns,
)

if TYPE_CHECKING:
    from greenroom.actors.worker_interfaces import Job

PEER = Peer("test")


async def test_ids_are_random_and_plain_text() -> None:
    company = await open_company()
    ids = [(await join(company)).session.id for _ in range(20)]
    assert len(set(ids)) == 20


@pytest.mark.row("SE-01")
@pytest.mark.row("SX-08")
async def test_an_id_has_128_random_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def token_hex(size: int) -> str:
        asked.append(size)
        return "0f" * size

    monkeypatch.setattr("greenroom.actors.process_names.secrets.token_hex", token_hex)
    player = await join(await open_company())
    assert asked == [16]
    assert player.session.id == "mcp_" + "0f" * 16


@pytest.mark.row("SE-04")
@pytest.mark.row("WC-08")
async def test_a_session_is_found_by_its_id_and_by_its_own_principal_only() -> None:
    company = await open_company()
    alice, eve = Peer("test", principal="alice"), Peer("test", principal="eve")
    player = await join(company, alice)
    id = player.session.id
    assert company.find(id, alice) is not None
    assert company.find(id, Peer("other", "1.2.3.4", "alice")) is not None
    for stranger in (eve, PEER):
        assert company.find(id, stranger) is None
    assert company.find("mcp_unknown", alice) is None
    assert company.find("", alice) is None
    await player.session.end()
    assert company.find(id, alice) is None
    with pytest.raises(ProcessExited):
        await player.ask("ping")


@pytest.mark.row("SE-14")
async def test_an_ended_session_never_comes_back() -> None:
    company = await open_company()
    player = await join(company)
    ref = company.peers.ref(player.session.id)
    kill(ref)
    await wait_down(ref)
    await asyncio.sleep(100)
    assert company.find(player.session.id, PEER) is None
    assert company.peers.whereis(player.session.id) is None
    with pytest.raises(UnknownSession):
        company.peers.ref(player.session.id)


@pytest.mark.row("SE-05")
async def test_an_ended_session_leaves_nothing() -> None:
    company = await open_company()
    player = await join(company)
    assert (await player.ask("resources/subscribe", uri="x://y"))["result"] == {}
    assert await company.peers.subscriptions(player.session.id) == ["x://y"]
    pid = company.peers.whereis(player.session.id)
    await player.session.end()
    await turns()
    assert pid not in company.subscription_table.sessions
    assert company.subscription_table.subscribers == {}
    assert await company.peers.all() == []


async def test_an_ended_session_leaves_no_timer() -> None:
    async def asks(job: Job) -> Any:
        return await job.peer_channel.ask("roots/list", {}, 1000)

    company = await open_company(ScriptedTools(asks=asks, echo=echo), settings=Settings(session_lifetime=3600))
    loop: Any = asyncio.get_running_loop()
    await asyncio.sleep(5)

    def waiting() -> int:
        return sum(not handle.cancelled() for handle in loop._scheduled)

    before = waiting()
    player = await join(company)
    feed = await player.reply("tools/call", name="asks")
    await player.reply("tools/call", name="echo")
    await asyncio.sleep(20)
    assert waiting() > before
    await player.session.end()
    await read(feed)
    await asyncio.sleep(1)
    assert waiting() == before


# --- how many, and for how long


@pytest.mark.row("SE-10")
async def test_there_are_never_more_sessions_than_may_be() -> None:
    company = await open_company(settings=Settings(max_sessions=3))
    entered = await asyncio.gather(
        *(company.start_session(PEER, initialize_request(id=number)) for number in range(10))
    )
    refused = [each for each in entered if each.session is None]
    assert len(refused) == 7
    for each in refused:
        assert each.answer.status == 503
        error = message(each.answer.body)["error"]
        assert error == {"code": -32603, "message": "Maximum number of sessions reached"}
    with pytest.raises(McpError, match="Maximum number"):
        await company.connect(PEER)
    first = next(each.session for each in entered if each.session is not None)
    await first.end()
    assert (await company.start_session(PEER, initialize_request())).session is not None
    assert (await company.start_session(PEER, initialize_request())).session is None


@pytest.mark.row("SE-10")
async def test_the_place_of_a_session_that_was_killed_is_free() -> None:
    company = await open_company(settings=Settings(max_sessions=1))
    for _ in range(3):
        player = await join(company)
        ref = company.peers.ref(player.session.id)
        kill(ref)
        await wait_down(ref)
        await turns()


@pytest.mark.row("SE-02")
@pytest.mark.row("SE-11")
async def test_an_idle_session_is_ended() -> None:
    company = await open_company()
    player = await join(company)
    await asyncio.sleep(1799)
    await player.ask("ping")
    await asyncio.sleep(1799)
    await player.tell("notifications/progress")
    await asyncio.sleep(1799)
    assert company.find(player.session.id, PEER) is not None
    await asyncio.sleep(2)
    assert company.find(player.session.id, PEER) is None


@pytest.mark.row("SE-11")
async def test_a_short_patience_is_kept() -> None:
    company = await open_company(settings=Settings(session_idle=2))
    player = await join(company)
    await asyncio.sleep(1.9)
    assert company.find(player.session.id, PEER) is not None
    await asyncio.sleep(0.2)
    assert company.find(player.session.id, PEER) is None


@pytest.mark.row("SE-11")
async def test_looking_for_a_session_does_not_keep_it() -> None:
    company = await open_company(settings=Settings(session_idle=10))
    player = await join(company)
    for _ in range(9):
        await asyncio.sleep(1)
        assert company.find(player.session.id, PEER) is not None
    await asyncio.sleep(1.5)
    assert company.find(player.session.id, PEER) is None


@pytest.mark.row("SE-11")
async def test_a_session_that_serves_a_call_is_spared() -> None:
    async def slow(job: Job) -> Any:
        await asyncio.sleep(100)
        return {}

    company = await open_company(ScriptedTools(slow=slow), settings=Settings(session_idle=10, call_timeout=None))
    player = await join(company)
    assert "result" in await player.call("slow")
    await asyncio.sleep(25)
    assert company.find(player.session.id, PEER) is None


@pytest.mark.row("SE-11")
async def test_a_session_with_a_reader_is_spared() -> None:
    company = await open_company(settings=Settings(session_idle=10))
    player = await join(company)
    feed = await player.session.listen()
    await read(feed, 100)
    assert company.find(player.session.id, PEER) is not None
    feed.leave()
    await asyncio.sleep(25)
    assert company.find(player.session.id, PEER) is None


@pytest.mark.row("SE-02")
async def test_listening_is_saying_something() -> None:
    company = await open_company(settings=Settings(session_idle=10))
    player = await join(company)
    for _ in range(5):
        await asyncio.sleep(9)
        (await player.session.listen()).leave()
    assert company.find(player.session.id, PEER) is not None


@pytest.mark.row("SE-11")
@pytest.mark.row("SE-12")
async def test_without_limits_a_session_stays() -> None:
    company = await open_company(settings=Settings(session_idle=None))
    player = await join(company)
    await asyncio.sleep(1_000_000)
    assert (await player.ask("ping"))["result"] == {}


@pytest.mark.row("SE-12")
async def test_a_session_lifetime_ends_calls_in_flight() -> None:
    async def slow(job: Job) -> Any:
        await asyncio.sleep(1000)

    company = await open_company(ScriptedTools(slow=slow), settings=Settings(session_lifetime=50, call_timeout=None))
    player = await join(company)
    feed = await player.session.listen()
    waiting = player.later("slow")
    await asyncio.sleep(49)
    assert company.find(player.session.id, PEER) is not None
    await asyncio.sleep(2)
    with pytest.raises(ProcessExited):
        await waiting
    await feed.next()
    assert await feed.next() is None


async def test_a_channel_is_the_transports_to_end() -> None:
    company = await open_company(settings=Settings(session_idle=10))
    session = await company.connect(PEER)
    await asyncio.sleep(100)
    assert is_alive(session.ref)
    await session.end()
    assert not is_alive(session.ref)


# --- who is there


@pytest.mark.row("SE-18")
@pytest.mark.row("SC-08")
async def test_sessions_are_listed_by_what_their_clients_can_do() -> None:
    company = await open_company()
    sampler = await join(company, capabilities={"sampling": {}})
    both = await join(company, capabilities={"sampling": {"tools": {}}, "roots": {}}, version="2025-06-18")
    nothing = await join(company, capabilities={})

    async def able(capability: str) -> list[str]:
        return [card.id for card in await company.peers.able_to(capability)]

    assert await able("sampling") == [sampler.session.id, both.session.id]
    assert await able("sampling.tools") == [both.session.id]
    assert await able("roots") == [both.session.id]
    assert await able("elicitation") == []
    assert [card.id for card in await company.peers.all()] == [player.session.id for player in (sampler, both, nothing)]
    card = company.peers.info(both.session.id)
    assert (card.version, card.client_info) == ("2025-06-18", CLIENT)
    await both.session.end()
    assert await able("roots") == []


@pytest.mark.row("SE-19")
async def test_a_session_can_be_looked_at_and_ended_from_outside() -> None:
    company = await open_company()
    player = await join(company)
    id = player.session.id
    assert company.peers.whereis(id) == company.peers.ref(id).pid
    await company.peers.set_log_level(id, "error")
    with pytest.raises(ValueError, match="a level is one of"):
        await company.peers.set_log_level(id, "loud")
    await asyncio.sleep(3)
    seen = await company.peers.snapshot(id)
    assert seen["level"] == "error"
    assert seen["idle"] == 3
    assert (seen["id"], seen["version"], seen["ready"], seen["client"]) == (id, "2025-11-25", True, CLIENT)
    assert (seen["calls"], seen["questions"]) == ([], [])
    await company.peers.end(id)
    await company.peers.end(id)
    assert company.find(id, PEER) is None


@pytest.mark.row("SE-19")
async def test_the_initialized_notification_takes_effect_before_it_is_acknowledged() -> None:
    company = await open_company()
    entered = await company.start_session(PEER, initialize_request())
    assert entered.session is not None
    assert not company.peers.info(entered.session.id).ready
    await SessionClient(company, entered.session).tell("notifications/initialized")
    assert company.peers.info(entered.session.id).ready


# --- telling


async def heard(player: SessionClient) -> list[dict[str, Any]]:
    feed = await player.session.listen()
    found = messages_in(await read(feed))
    feed.leave()
    return found


@pytest.mark.row("SE-21")
async def test_a_broadcast_reaches_all_sessions_and_returns_their_number() -> None:
    company = await open_company()
    players = [await join(company) for _ in range(3)]
    await company.start_session(PEER, initialize_request())  # one that is not ready yet hears nothing
    assert await company.peers.broadcast("notifications/x", {"a": 1}) == 3
    for player in players:
        assert await heard(player) == [{"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": 1}}]


@pytest.mark.row("SC-02")
@pytest.mark.row("TF-20")
async def test_progress_can_be_sent_outside_of_a_call() -> None:
    company = await open_company()
    player, other = await join(company), await join(company)
    assert company.peers.progress(player.session.id, "t", 1)
    assert company.peers.progress(player.session.id, 7, 2, 10, "soon")
    assert not company.peers.progress("mcp_unknown", "t", 1)
    assert [each["params"] for each in await heard(player)] == [
        {"progressToken": "t", "progress": 1},
        {"progressToken": 7, "progress": 2, "total": 10, "message": "soon"},
    ]
    assert await heard(other) == []


@pytest.mark.row("SC-03")
@pytest.mark.row("SE-17")
async def test_log_messages_can_be_sent_outside_of_a_call() -> None:
    company = await open_company()
    player = await join(company)
    id = player.session.id
    assert company.peers.log(id, "error", {"a": 1}, "db")
    assert company.peers.log(id, "info", "text")
    company.peers.log(id, "debug", "too detailed")
    assert not company.peers.log(id, "loud", "no such level")
    assert [each["params"] for each in await heard(player)] == [
        {"level": "error", "data": {"a": 1}, "logger": "db"},
        {"level": "info", "data": "text"},
    ]


@pytest.mark.row("SC-01")
@pytest.mark.row("SE-09")
async def test_an_update_reaches_the_subscribed_sessions() -> None:
    company = await open_company()
    player, other = await join(company), await join(company)
    assert (await player.ask("resources/subscribe", uri="x://y"))["result"] == {}
    company.registry.notify_resource_updated("x://y", {"title": "new"})
    company.registry.notify_resource_updated("x://z")
    await asyncio.sleep(1)
    assert await heard(player) == [
        {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x://y", "title": "new"}}
    ]
    assert await heard(other) == []
    assert (await player.ask("resources/unsubscribe", uri="x://y"))["result"] == {}
    company.registry.notify_resource_updated("x://y")
    await asyncio.sleep(1)
    assert await heard(player) == []


@pytest.mark.row("SE-09")
async def test_a_client_that_initializes_again_has_to_subscribe_again() -> None:
    company = await open_company()
    player = await join(company)
    await player.ask("resources/subscribe", uri="x://y")
    await player.reply("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=CLIENT)
    await player.tell("notifications/initialized")
    assert await company.peers.subscriptions(player.session.id) == []


async def test_an_update_that_cannot_be_encoded_is_reported_and_the_sessions_go_on() -> None:
    company = await open_company()
    player = await join(company)
    await player.ask("resources/subscribe", uri="x://y")
    company.registry.notify_resource_updated("x://y", {"title": "half \ud800"})
    await asyncio.sleep(1)
    assert await heard(player) == []
    assert (await player.ask("ping"))["result"] == {}


@pytest.mark.row("SC-04")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_restarted_subscriptions_process_misses_no_change(when: str) -> None:
    company = await open_company()
    if when == "before":
        kill(company.subscriptions)  # the session joins a process that is not there yet
        player = await join(company)
    else:
        player = await join(company)
        kill(company.subscriptions)  # with the word that it has just been sent
    await asyncio.sleep(1)
    await heard(player)
    company.registry.notify_list_changed("prompt")
    await asyncio.sleep(1)
    assert [each["method"] for each in await heard(player)] == ["notifications/prompts/list_changed"]


@pytest.mark.row("SC-04")
@pytest.mark.row("WC-23")
async def test_a_registration_is_announced_to_every_ready_session() -> None:
    company = await open_company()
    player = await join(company)
    await company.start_session(PEER, initialize_request())

    async def tool() -> str:
        return "x"

    await company.registry.register_tool("tool", tool)
    await asyncio.sleep(1)
    assert [each["method"] for each in await heard(player)] == ["notifications/tools/list_changed"]


# --- the tree


async def test_a_company_is_one_child_and_two_share_no_names() -> None:
    one, other = (Company(Settings(name="twin"), work=ScriptedTools(echo=echo).work) for _ in range(2))
    top = await start_supervised(Supervisor, [one.child_spec(), child(Supervisor, [other.child_spec()])])
    assert top is not None
    players = [await join(one), await join(other)]
    for player in players:
        assert "result" in await player.call("echo")
    assert one.find(players[1].session.id, PEER) is None
    for role in ("company", "registry", "subscriptions", "workers", "sessions", "listeners"):
        assert whereis(one.name(role)) != whereis(other.name(role))
    kill(one.name("company"))
    await turns()
    assert "result" in await players[1].call("echo")
    await asyncio.sleep(1)
    assert "result" in await (await join(one)).call("echo")


@pytest.mark.parametrize("role", ["company", "listeners"])
async def test_a_successor_waits_for_what_its_predecessor_left_behind(role: str) -> None:
    open_ports: list[int] = []

    class Slow(GenServer):
        """A listener that takes a while to close its port."""

        traps_exit = True

        def init(self) -> None:
            assert not open_ports, "the port is taken"
            open_ports.append(1)

        async def terminate(self, reason: Any) -> None:
            await asyncio.sleep(3)
            open_ports.clear()

    company = Company(work=ScriptedTools(echo=echo).work, listeners=[child(Slow)])
    await start_supervised(company.child_spec())
    kill(company.name(role))
    await asyncio.sleep(10)
    assert open_ports == [1]
    assert "result" in await (await join(company)).call("echo")


async def test_listeners_stop_first_and_sessions_while_workers_still_are_there() -> None:
    stopped: list[str] = []

    class Listener(Supervisor):
        """A child that records its stop."""

        async def terminate(self, reason: Any) -> None:
            stopped.append("listener")
            assert is_alive(company.sessions)
            assert is_alive(company.workers)
            await super().terminate(reason)

    company = Company(work=ScriptedTools(echo=echo).work, listeners=[child(Listener, [])])
    top = await start(Supervisor, [company.child_spec()])
    player = await join(company)
    feed = await player.session.listen()
    await stop(top)
    assert stopped == ["listener"]
    await feed.next()
    assert await feed.next() is None
