"""One snapshot a second for all viewers; views of servers in both eras, of a host whose upstream dies, and of pools; acts on all of them."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.actors.federation.fake_upstreams import Upstairs, all_ready, call, federated, reaches, spec
from tests.actors.pools import handlers
from tests.actors.pools.local_processes import House, LocalProvider

from greenroom import Client, Context, Host, Server
from greenroom import event_types as events
from greenroom.actors.federation.upstream_spec import UpstreamState
from greenroom.actors.pools.pool_options import Pool
from greenroom.observe import observatory as module
from greenroom.observe.observatory import Observatory
from greenroom.observe.view_models import VIEW_TYPES, ActOutcome
from greenroom.protocol.errors import PeerError
from greenroom.supervision import GenServer, Supervisor, child, start, whereis
from greenroom.supervision.event_bus import bus
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.company import Company

HOSTILE = "\x1b[2J\u202e<script>"


def shop() -> Server:
    """A server with a tool that waits, one that answers, and one that breaks."""
    server = Server("shop")

    @server.tool
    async def wait(password: str = "") -> str:
        """Wait for a customer."""
        await asyncio.sleep(4)
        return "closed"

    @server.tool
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("What is your name?", str)
        return str(answer)

    @server.tool
    def fall() -> None:
        raise KeyError("order 7")

    @server.tool(long_running=True)
    async def bake() -> str:
        await asyncio.sleep(600)
        return "bread"

    return server


@asynccontextmanager
async def observed(program: str = "shop", **options: Any) -> AsyncGenerator[Observatory]:
    """An observatory of this node."""
    observatory = Observatory(program, **options)
    observatory.start()
    try:
        yield observatory
    finally:
        observatory.stop()


@asynccontextmanager
async def open_shop(**options: Any) -> AsyncGenerator[tuple[Company, Observatory]]:
    """The shop, observed."""
    async with shop().started() as company, observed(**options) as observatory:
        yield company, observatory


async def look(observatory: Observatory, name: str, **query: Any) -> Any:
    """A view as it is now."""
    observatory.forget()
    return await observatory.view(name, **query)


async def until_calls(observatory: Observatory, count: int) -> list[Any]:
    """The calls of the server, when so many are worked on."""
    view: Any = None
    for _ in range(50):
        view = await look(observatory, "calls")
        found = [row for row in view.rows if row.side == "server" and row.pid]
        if len(found) >= count:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(view)


# --- one snapshot for all


async def test_all_viewers_share_one_view_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    plain = Observatory._make

    async def count(self: Observatory, name: str, query: Any) -> Any:
        made.append(name)
        return await plain(self, name, query)

    monkeypatch.setattr(Observatory, "_make", count)
    async with observed() as observatory:

        async def watch() -> list[float]:
            moments: list[float] = []
            async for _ in observatory.changes():
                moments.append((await observatory.view("tree")).at)
                if len(moments) == 5:
                    break
            return moments

        seen = await asyncio.gather(*(watch() for _ in range(20)))
        assert made == ["tree"] * 5
        assert all(each == seen[0] for each in seen)
        steps = [later - earlier for earlier, later in zip(seen[0], seen[0][1:], strict=False)]
        assert steps == pytest.approx([module.REFRESH] * 4, abs=0.1)


async def test_a_viewer_that_leaves_takes_no_view_from_the_others() -> None:
    await start(Supervisor, [child(GenServer).but(id=number) for number in range(3)])
    async with observed() as observatory:
        leaving, staying = (asyncio.ensure_future(observatory.view("tree")) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        view: Any = await staying
        assert len(view.rows) == 4


async def test_the_views_that_are_kept_are_bounded() -> None:
    async with observed() as observatory:
        for number in range(3 * module.MOST_VIEWS):
            await observatory.view("tree", text=f"{number}")
        assert len(observatory._views) <= module.MOST_VIEWS


async def test_viewers_are_let_go_when_the_program_stops() -> None:
    async with observed() as observatory:
        watching = asyncio.ensure_future(_watched(observatory))
        await asyncio.sleep(2.5)
    assert await watching == [0, 1, 2]


async def _watched(observatory: Observatory) -> list[int]:
    return [beat async for beat in observatory.changes()]


async def test_nothing_listens_after_the_stop_and_details_are_heard_only_for_viewers_of_details() -> None:
    async with observed() as observatory:
        assert heard() == (True, False)
        await observatory.view("tree")
        assert heard() == (True, False)
        await observatory.view("wire")
        assert heard() == (True, True)
        await asyncio.sleep(20)
        await look(observatory, "calls")
        await asyncio.sleep(20)
        assert heard() == (True, True)
        await asyncio.sleep(15)
        assert heard() == (True, False)
    assert heard() == (False, False)
    async with observed(capture=True):
        assert heard() == (True, True)
    assert heard() == (False, False)


def heard() -> tuple[bool, bool]:
    """Whether there is a listener for events, and one for details."""
    return bus.listener is not None, bus.detail_listener is not None


# --- a server in both eras


@pytest.mark.parametrize("era", ["session", "exchange"])
async def test_a_call_is_followed_from_its_arrival_to_its_reply(era: str) -> None:
    async with open_shop(capture=["wait"], acts=True) as (company, observatory):
        if era == "session":
            async with WireProbe(company) as probe:
                calling = asyncio.ensure_future(probe.call("wait", password="hunter2"))
                await follow(observatory, era)
                await calling
                await followed(observatory)
                (session,) = (await look(observatory, "sessions")).rows
                assert (session.side, session.state, session.calls, session.revision) == (
                    "server",
                    "ready",
                    0,
                    "2025-11-25",
                )
        else:
            async with Client(_route(company)) as client:
                calling = asyncio.ensure_future(client.call("wait", password="hunter2"))
                await follow(observatory, era)
                await calling
                await followed(observatory)


def _route(company: Company) -> Any:
    from greenroom.transports.client.memory_route import MemoryRoute  # noqa: PLC0415 - used once

    return MemoryRoute(company)


async def follow(observatory: Observatory, era: str) -> None:
    await until_calls(observatory, 1)
    await asyncio.sleep(0.1)
    (row,) = [each for each in await until_calls(observatory, 1) if each.name == "wait"]
    assert (row.way, row.outcome, row.acts, row.step) == (era, "", ["cancel"], "worker")
    process = await look(observatory, "process", pid=row.pid)
    assert "in wait" in process.stack
    tools = await look(observatory, "tools", tool="wait", program="shop")
    assert [each.in_flight for each in tools.rows if each.side == "server"] == [1]
    now = await look(observatory, "now")
    assert now.calls >= 1
    assert now.processes > now.supervisors > 0


async def followed(observatory: Observatory) -> None:
    ended = await look(observatory, "calls", ended=True, text="wait")
    row = next(each for each in ended.rows if each.side == "server")
    assert (row.outcome, row.seconds) == ("result", pytest.approx(4, abs=1))
    view = await look(observatory, "call", call=row.call)
    steps = [each.step for each in view.steps]
    assert (steps[0], steps[-1]) == ("accepted", "reply")
    assert steps.index("queued") < steps.index("worker")
    assert "hunter2" not in msgspec.json.encode(view).decode()


async def test_arguments_are_shown_of_captured_tools_alone() -> None:
    async with open_shop(capture=["add"]) as (company, observatory), Client(_route(company)) as client:
        await client.call("add", a=1234)
        with pytest.raises(Exception, match="fall"):
            await client.call("fall")
        wire = (await look(observatory, "wire")).groups
        texts = {group.name: "".join(each.body or "" for each in group.frames) for group in wire}
        assert "1234" in texts["add"]
        assert "arguments" not in texts["fall"]
        assert b"1234" in b"".join(observatory.recording())


async def test_a_crash_of_a_tool_is_grouped_and_told() -> None:
    async with open_shop() as (company, observatory), Client(_route(company)) as client:
        for _ in range(3):
            with pytest.raises(Exception, match="fall"):
                await client.call("fall")
        view = await look(observatory, "crashes")
        (group,) = view.groups
        assert (group.count, "KeyError" in group.reason) == (3, True)
        opened = await look(observatory, "crashes", crash=group.group)
        assert len(opened.crashes) == 3
        assert "in fall" in opened.crashes[0].stack
        now = await look(observatory, "now")
        assert now.crashes_total == 3
        assert [each.kind for each in now.notices][:3] == ["ProcessCrashed"] * 3
        tools = await look(observatory, "tools", tool="fall")
        assert [(each.calls, each.crashes) for each in tools.rows if each.side == "server"] == [(3, 3)]
        assert tools.outcomes.get("worker_crashed") == 3 or tools.outcomes


async def test_a_question_waits_in_the_view_until_it_is_answered() -> None:
    async with open_shop() as (company, observatory):
        probe = WireProbe(company, capabilities={"elicitation": {}}, answers={"elicitation/create": _late})
        async with probe:
            calling = asyncio.ensure_future(probe.call("ask"))
            await asyncio.sleep(1)
            (question,) = (await look(observatory, "questions")).rows
            assert (question.method, question.side, question.tool) == ("elicitation/create", "server", "ask")
            await calling
            after = await look(observatory, "questions")
            assert (after.rows, after.outcomes) == ([], {"accept": 1})


async def _late(params: dict[str, Any]) -> dict[str, Any]:
    await asyncio.sleep(2)
    return {"action": "accept", "content": {"value": "Ada"}}


async def test_every_view_of_a_busy_server_is_json_and_reads_back() -> None:
    async with (
        open_shop(capture=True, acts=True, faults=True) as (company, observatory),
        Client(_route(company)) as client,
    ):
        await client.call("add", a=1)
        observatory.record.take(
            events.SessionOpened(side="client", program=HOSTILE, session="s", revision="r", peer=HOSTILE)
        )
        for name, kind in VIEW_TYPES.items():
            view = await look(
                observatory,
                name,
                **({"pid": str(whereis(company.name("registry")))} if name in ("process", "faults") else {}),
            )
            data = msgspec.json.encode(view)
            assert type(msgspec.json.decode(data, type=kind)) is kind
            assert "\x1b" not in data.decode()
            assert "\u202e" not in data.decode()


async def test_where_a_tool_runs_is_one_word() -> None:
    server = Server("shop")
    server.tool(isolation=Pool(size=1, warm=0))(handlers.add)
    for isolation in ("loop", "thread", None):

        @server.tool(name=f"async_{isolation}", isolation=isolation)
        async def tool() -> None: ...

        @server.tool(name=f"sync_{isolation}", isolation=isolation)
        def plain_tool() -> None: ...

    async with server.started(), observed() as observatory:
        rows = (await look(observatory, "tools")).rows
        assert {each.name: each.isolation for each in rows} == {
            "add": "process",
            "async_loop": "loop",
            "sync_loop": "loop",
            "async_thread": "thread",
            "sync_thread": "thread",
            "async_None": "loop",
            "sync_None": "thread",
        }


async def test_the_rate_of_the_first_failure_is_that_of_a_minute() -> None:
    async with open_shop() as (company, observatory), WireProbe(company) as probe:
        await asyncio.sleep(300)
        await probe.call("fall")
        now = await look(observatory, "now")
        assert (now.failed_total, now.failed_per_second) == (1, pytest.approx(1 / 60, rel=0.1))
        curves = {each.name: [value for value in each.values if value is not None] for each in now.curves}
        assert not any(curves["failed"] + curves["restarts"])
        assert len(curves["failed"]) == len(curves["restarts"]) == 60


async def test_streams_that_were_closed_are_not_open() -> None:
    async with observed() as observatory:
        assert bus.listener is not None
        for stream in (1, 2):
            bus.listener(events.StreamOpened(program="shop", stream=stream, kind="listen"))
        bus.listener(events.StreamOpened(program="shop", stream=3, kind="call"))
        bus.listener(events.StreamClosed(program="shop", stream=1, kind="listen", seconds=1.0))
        view, now = await look(observatory, "sessions"), await look(observatory, "now")
        assert (view.streams_total, sorted(each.stream for each in view.streams)) == (2, [2, 3])
        assert (now.streams, now.listens) == (1, 1)


async def test_the_calls_of_a_host_are_those_that_it_makes_and_of_a_gateway_those_that_it_answers() -> None:
    front = Server("front")
    front.mount(Host({"shop": shop()}))
    async with Host({"shop": shop()}) as alone, observed("alone") as observatory:
        await alone.call("shop:add", a=1)
        assert (await look(observatory, "now")).calls_total == observatory.record.sides["client"].calls
        async with front.started() as company, WireProbe(company) as probe:
            await probe.call("shop__add", a=1)
            assert (await look(observatory, "now")).calls_total == observatory.record.sides["server"].calls
        assert len({each.calls for each in observatory.record.sides.values()}) == 2


async def test_sessions_that_were_open_are_a_curve() -> None:
    async with open_shop() as (company, observatory):
        async with WireProbe(company), WireProbe(company):
            await asyncio.sleep(10)
        await asyncio.sleep(10)
        curves = {each.name: each.values for each in (await look(observatory, "sessions")).curves}
    counts = [each for each in curves["sessions"] if each is not None]
    assert curves.keys() == {"sessions", "streams"}
    assert (max(counts), counts[-1]) == (2, 0)


# --- hosts and pools


async def test_an_upstream_that_dies_is_seen_and_parked_and_retried() -> None:
    route = Upstairs("echo", "second")
    async with federated({"one": spec(route)}) as federation, observed("host", acts=True) as observatory:
        await all_ready(federation)
        await call(federation, "one")
        (row,) = (await look(observatory, "upstreams")).rows
        assert (row.upstream, row.state, row.tools, row.acts, row.calls) == (
            "one",
            "ready",
            2,
            ["restart", "park"],
            row.calls,
        )
        assert row.calls >= 1
        assert done(await observatory.act("park", "one", principal="ada"))
        await reaches(federation, "one", UpstreamState.PARKED)
        await asyncio.sleep(1)
        (row,) = (await look(observatory, "upstreams")).rows
        assert (row.state, row.acts, row.next_attempt, row.pid) == ("parked", ["retry"], None, "")
        assert "operator" in row.reason
        await asyncio.sleep(3_600)
        (row,) = (await look(observatory, "upstreams")).rows
        assert row.state == "parked"
        assert done(await observatory.act("retry", "one"))
        await reaches(federation, "one", UpstreamState.READY)
        assert done(await observatory.act("restart", f"{row.program}/one"))
        await reaches(federation, "one", UpstreamState.READY)
        assert await call(federation, "one") == "echo"
        await asyncio.sleep(1)
        (row,) = (await look(observatory, "upstreams")).rows
        assert row.restarts == 2  # after it was parked, and by an operator
        changes = [each.text for each in (await look(observatory, "upstreams")).notices]
        assert any("parked" in each for each in changes)
        assert not done(await observatory.act("retry", "two"))


async def test_connections_that_were_open_before_are_among_the_sessions_until_they_end() -> None:
    async with federated({"one": spec(Upstairs())}) as federation:
        await all_ready(federation)
        await asyncio.sleep(60)
        async with observed("host", acts=True) as observatory:
            (row,) = (await look(observatory, "sessions")).rows
            assert (row.side, row.program, row.age) == ("client", "one", pytest.approx(60, abs=2))
            await observatory.act("park", "one")
            await reaches(federation, "one", UpstreamState.PARKED)
            await asyncio.sleep(1)
            assert (await look(observatory, "sessions")).rows == []


async def test_servers_of_the_same_name_of_two_hosts_are_counted_apart() -> None:
    async with (
        observed("hosts") as observatory,
        federated({"one": spec(Upstairs("echo"))}, "left") as left,
        federated({"one": spec(Upstairs("echo", "second"))}, "right") as right,
    ):
        await all_ready(left)
        await all_ready(right)
        before = {each.program: each.calls for each in (await look(observatory, "upstreams")).rows}
        await call(left, "one")
        after = {each.program: each.calls for each in (await look(observatory, "upstreams")).rows}
        assert {host: after[host] - before[host] for host in after} == {str(left.key): 1, str(right.key): 0}
        rows = (await look(observatory, "tools", tool="echo")).rows
        assert {each.place: each.calls for each in rows} == {"left/one": 1, "right/one": 0}
        (row,) = (await look(observatory, "tools", tool="echo", program="left/one")).rows
        assert (row.program, row.calls) == ("one", 1)


async def test_an_upstream_that_is_retried_while_it_is_being_parked_comes_back() -> None:
    async with federated({"one": spec(Upstairs())}) as federation, observed("host", acts=True) as observatory:
        await all_ready(federation)
        await asyncio.gather(observatory.act("park", "one"), observatory.act("retry", "one"))
        await observatory.act("retry", "one")
        await reaches(federation, "one", UpstreamState.READY)


@pytest.mark.greenroom(leaks=False, reason="the workers of the house end with the node")
async def test_a_pool_shows_its_processes_and_is_recycled() -> None:
    provider = LocalProvider()
    house = House(provider)
    house.tool(handlers.add, Pool(size=2))
    await house.open()
    async with house.probe() as probe, observed(acts=True) as observatory:
        await probe.call("add", a=1, b=2)
        (pool,) = (await look(observatory, "pools")).rows
        assert (pool.tools, pool.most, pool.acts) == (["add"], 2, ["recycle"])
        assert [(each.state, each.process, each.calls) for each in pool.workers] == [("idle", 4711, 1)]
        assert done(await observatory.act("recycle", pool.pool))
        await probe.call("add", a=1, b=2)
        assert provider.attempts == 2
        assert not done(await observatory.act("recycle", "999"))


# --- acts


def done(outcome: ActOutcome) -> bool:
    """Whether an act was done."""
    return outcome.is_done


@pytest.mark.parametrize(
    "act",
    [
        "kill",
        "restart",
        "retry",
        "park",
        "recycle",
        "cancel",
        "cancel_task",
        "drain",
        "undrain",
        "replay",
        "inject",
        "nothing",
    ],
)
async def test_an_act_that_is_not_allowed_or_has_no_target_is_refused_and_logged(act: str) -> None:
    emitted: list[events.Event] = []
    for allowed in (False, True):
        async with observed(acts=allowed) as observatory:
            unsubscribe = bus.subscribe(emitted.append)
            outcome = await observatory.act(act, HOSTILE, principal="ada", kind="kill")
            unsubscribe()
            assert not outcome.is_done
            assert outcome.text
            assert "\x1b" not in outcome.text + outcome.target
    told = [each for each in emitted if isinstance(each, events.ActDone)]
    assert [(each.act, each.principal) for each in told] == [(act, "ada")] * 2
    assert all(each.outcome.startswith("not done") for each in told)


@pytest.mark.parametrize("era", ["session", "exchange"])
async def test_a_call_that_an_operator_cancels_ends_with_an_error_for_its_caller(era: str) -> None:
    async with (
        open_shop(acts=True) as (company, observatory),
        WireProbe(company) as probe,
        Client(_route(company)) as client,
    ):
        calling = asyncio.ensure_future(probe.call("wait") if era == "session" else client.call("wait"))
        (row,) = await until_calls(observatory, 1)
        outcome = await observatory.act("cancel", str(row.call), principal="ada")
        assert done(outcome), outcome
        with pytest.raises(PeerError, match="operator"):
            await calling
        again = await observatory.act("cancel", str(row.call))
        assert not done(again)
        ended = await look(observatory, "call", call=row.call)
        assert ended.row.outcome == "cancelled"


async def test_a_task_is_listed_and_cancelled() -> None:
    async with open_shop(acts=True) as (company, observatory), WireProbe(company) as probe:
        await probe.call("bake")
        await asyncio.sleep(0.1)
        (row,) = (await look(observatory, "tasks")).rows
        assert (row.name, row.status, row.acts) == ("bake", "working", ["cancel_task"])
        assert done(await observatory.act("cancel_task", row.task, principal="ada"))
        await asyncio.sleep(1)
        view = await look(observatory, "tasks")
        assert [(each.status, each.is_ended) for each in view.rows] == [("cancelled", True)]
        assert view.counts == {"cancelled": 1}


async def test_a_supervised_process_is_restarted_and_killed() -> None:
    async with open_shop(acts=True) as (company, observatory):
        before = whereis(company.name("subscriptions"))
        assert done(await observatory.act("restart", str(before), principal="ada"))
        between = whereis(company.name("subscriptions"))
        assert between not in (None, before)
        assert done(await observatory.act("kill", str(between), principal="ada"))
        await asyncio.sleep(0.1)
        assert whereis(company.name("subscriptions")) not in (None, before, between)
        top = (await look(observatory, "tree")).rows[0]
        assert not done(await observatory.act("restart", top.pid))


async def test_a_tool_is_tried_with_its_arguments_checked() -> None:
    async with open_shop(acts=True) as (_, observatory):
        outcome = await observatory.try_tool("shop", "add", {"a": 40}, principal="ada")
        assert (outcome.is_done, json.loads(outcome.result or "")["structuredContent"]) == (True, 42)
        wrong = await observatory.try_tool("shop", "add", {"a": "x"})
        assert json.loads(wrong.result or "")["isError"]
        assert not (await observatory.try_tool("shop", "sell", {})).is_done
        assert not (await observatory.try_tool("bank", "add", {"a": 1})).is_done
        tools = await look(observatory, "tools", tool="add", program="shop")
        assert tools.can_try
        assert tools.schema["required"] == ["a"]


async def test_a_tool_can_be_tried_again_whatever_else_has_its_name() -> None:
    async with open_shop(acts=True) as (_, observatory):
        for number in range(5):
            assert bus.listener is not None
            bus.listener(events.CallStarted(number + 10**9, "client", "rival", "client", "tools/call", "add"))
            bus.listener(
                events.CallEnded(number + 10**9, "client", "rival", "client", "tools/call", "result", 0.1, "add")
            )
        for program in ("shop", ""):
            for _ in range(2):
                tools = await look(observatory, "tools", tool="add", program=program)
                assert tools.can_try
                assert tools.schema["required"] == ["a"]
                assert (await observatory.try_tool("shop", "add", {"a": 1})).is_done


async def test_a_captured_request_is_sent_again() -> None:
    async with open_shop(acts=True, capture=True) as (company, observatory):
        body = msgspec.json.encode(
            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}}
        )
        assert bus.detail_listener is not None
        for method in (body, body.replace(b"tools/call", b"tasks/list")):
            bus.detail_listener(
                events.FramePassed(
                    side="server", program=company.settings.name, direction="in", transport="http", body=method
                )
            )
        later, first = [group.frames[0].number for group in (await look(observatory, "wire")).groups]
        outcome = await observatory.act("replay", str(first), principal="ada")
        assert json.loads(outcome.result or "")["structuredContent"] == 3
        assert not done(await observatory.act("replay", str(later)))


async def test_a_program_is_drained_and_undrained_by_its_own_functions() -> None:
    drained: list[bool] = []
    async with observed(
        acts=True, drain=lambda: drained.append(True), undrain=lambda: drained.append(False)
    ) as observatory:
        assert done(await observatory.act("drain", ""))
        assert done(await observatory.act("undrain", ""))
    assert drained == [True, False]
