"""Delivery of messages: on the call's own stream, the general one, or the channel; and how a reader resumes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.session_streams import TRUNCATED
from greenroom.actors.settings import Settings
from greenroom.supervision import ProcessExited, kill, wait_down
from greenroom.transports.interfaces import EncodedReply, Peer

from .session_client import (
    CAPABILITIES,
    CLIENT,
    ScriptedTools,
    SessionClient,
    echo,
    join,
    message,
    messages_in,
    open_company,
    read,
    turns,
)

if TYPE_CHECKING:
    from greenroom.actors.company import Company
    from greenroom.actors.worker_interfaces import Job
    from greenroom.transports.interfaces import Feed, FeedEvent

PEER = Peer("test")


class Stage(ScriptedTools):
    """A tool that says something each time it is let, and answers in the end."""

    def __init__(self) -> None:
        super().__init__(steps=self.steps, echo=echo, log=self.log, flood=self.flood)
        self.gates: dict[str | int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(0))

    async def steps(self, job: Job) -> Any:
        """Say `count` things."""
        for number in range(job.params["arguments"]["count"]):
            await self.gates[job.request_id].acquire()
            job.peer_channel.emit("notifications/progress", {"progressToken": "t", "progress": number})
        await self.gates[job.request_id].acquire()
        return {"done": True}

    async def log(self, job: Job) -> Any:
        """Log one message of each level."""
        for level in ("debug", "info", "error", "emergency"):
            job.peer_channel.log(level, level, None)
        return {}

    async def flood(self, job: Job) -> Any:
        """Say as much as possible without a pause; answer how much was taken."""
        taken = sum(job.peer_channel.emit("notifications/progress", {"progress": number}) for number in range(5000))
        return {"taken": taken}

    def let(self, times: int = 1, id: str | int = "c") -> None:
        for _ in range(times):
            self.gates[id].release()


async def begin(version: str = "2025-11-25", **settings: Any) -> tuple[Company, Stage, SessionClient]:
    stage = Stage()
    company = await open_company(stage, settings=Settings(**settings))
    return company, stage, await join(company, version=version)


def ids(events: list[FeedEvent]) -> list[str]:
    return [event.id for event in events]


async def feed_of(player: SessionClient, stage: Stage, count: int = 2, id: str = "c") -> Feed:
    """A call that has said one thing."""
    waiting = player.later("steps", id=id, count=count)
    await turns()
    stage.let(id=id)
    feed = await waiting
    assert not isinstance(feed, EncodedReply)
    assert feed is not None
    return feed  # type: ignore[no-any-return] # the reply of the seam


@pytest.mark.row("WC-23")
async def test_the_first_message_makes_the_reply_a_stream_that_ends_with_the_result() -> None:
    _, stage, player = await begin()
    feed = await feed_of(player, stage)
    stage.let(2)
    events = await read(feed)
    assert ids(events) == ["p1:0", "p1:1", "p1:2", "p1:3"]
    assert events[0].data == b""
    assert [each.get("method") for each in messages_in(events)] == ["notifications/progress"] * 2 + [None]
    assert [event.answers for event in events] == [None, None, None, "c"]
    assert messages_in(events)[-1]["id"] == "c"
    assert await feed.next() is None


async def test_a_call_without_messages_has_a_plain_reply() -> None:
    _, _, player = await begin()
    assert isinstance(await player.reply("tools/call", name="echo"), EncodedReply)


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_older_clients_get_no_event_without_data(version: str) -> None:
    _, stage, player = await begin(version)
    feed = await feed_of(player, stage)
    stage.let(2)
    assert ids(await read(feed)) == ["p1:1", "p1:2", "p1:3"]
    general = await player.session.listen()
    assert await general.next(1) == []


async def test_each_call_has_its_own_stream_and_event_ids_are_unique() -> None:
    _, stage, player = await begin()
    feeds = [await feed_of(player, stage, 1, id) for id in "ab"]
    stage.let(id="a")
    stage.let(id="b")
    events = [event for feed in feeds for event in await read(feed)]
    assert ids(events) == ["p1:0", "p1:1", "p1:2", "p2:0", "p2:1", "p2:2"]
    assert [each["id"] for each in messages_in(events) if "id" in each] == ["a", "b"]


@pytest.mark.row("WC-17")
async def test_a_cancelled_call_ends_its_stream_without_an_answer() -> None:
    _, stage, player = await begin()
    feed = await feed_of(player, stage)
    await player.cancel("c")
    assert all("id" not in each for each in messages_in(await read(feed)))
    assert await feed.next() is None


# --- coming back


@pytest.mark.row("SE-06")
async def test_a_reader_that_lost_a_calls_stream_resumes_it() -> None:
    _, stage, player = await begin()
    feed = await feed_of(player, stage, 3)
    assert ids(await read(feed)) == ["p1:0", "p1:1"]
    feed.leave()
    stage.let(2)
    await turns()
    again = await player.session.listen("p1:1")
    assert ids(await read(again)) == ["p1:2", "p1:3"]
    again.leave()
    stage.let()
    await turns()
    last = await player.session.listen("p1:2")
    events = await read(last)
    assert ids(events) == ["p1:3", "p1:4"]
    assert messages_in(events)[-1]["result"] == {"done": True}
    assert await last.next() is None


async def test_a_reader_may_resume_from_the_first_event() -> None:
    _, stage, player = await begin()
    feed = await feed_of(player, stage, 1)
    feed.leave()
    stage.let()
    await turns()
    assert ids(await read(await player.session.listen("p1:0"))) == ["p1:1", "p1:2"]


async def test_an_interrupted_stream_asks_to_reconnect_and_the_call_goes_on() -> None:
    stage = Stage()

    async def interrupts(job: Job) -> Any:
        assert job.peer_channel.interrupt_stream(0.5)
        await asyncio.sleep(1)
        return {"late": True}

    stage.tools["interrupts"] = interrupts
    player = await join(await open_company(stage))
    feed = await player.reply("tools/call", name="interrupts", id=1)
    events = list(await feed.next() or ())
    assert await feed.next() is None
    assert [(event.id, event.data, event.retry) for event in events] == [("p1:0", b"", None), ("p1:0", b"", 500)]
    await asyncio.sleep(2)
    events = await read(await player.session.listen("p1:0"))
    assert messages_in(events)[-1]["result"] == {"late": True}


async def test_older_clients_are_not_interrupted() -> None:
    stage = Stage()

    async def interrupts(job: Job) -> Any:
        job.peer_channel.interrupt_stream(0.5)
        return {"late": True}

    stage.tools["interrupts"] = interrupts
    player = await join(await open_company(stage), version="2025-06-18")
    assert (await player.call("interrupts"))["result"] == {"late": True}


@pytest.mark.row("SE-08")
@pytest.mark.row("SE-21")
async def test_messages_without_a_reader_are_kept() -> None:
    company, _, player = await begin()
    for number in range(3):
        assert await company.peers.broadcast("notifications/x", {"n": number}) == 1
    await turns()
    feed = await player.session.listen()
    events = await read(feed)
    assert ids(events) == ["g0:0", "g0:1", "g0:2", "g0:3"]
    assert [each["params"]["n"] for each in messages_in(events)] == [0, 1, 2]


@pytest.mark.row("SE-06")
async def test_a_reader_of_the_general_stream_resumes_after_what_it_has_read() -> None:
    company, _, player = await begin()
    feed = await player.session.listen()
    for number in range(2):
        company.peers.notify(player.session.id, "notifications/x", {"n": number})
    assert ids(await read(feed)) == ["g0:0", "g0:1", "g0:2"]
    feed.leave()
    company.peers.notify(player.session.id, "notifications/x", {"n": 2})
    await turns()
    assert ids(await read(await player.session.listen("g0:1"))) == ["g0:2", "g0:3"]
    assert ids(await read(await player.session.listen("g0:0"))) == ["g0:1", "g0:2", "g0:3"]
    assert ids(await read(await player.session.listen())) == ["g0:3"]  # the mark: everything was delivered


@pytest.mark.row("SE-07")
@pytest.mark.parametrize("id", ["g0:1", "g0:99", "p1:1", "nonsense", ""])
async def test_a_reader_that_reconnects_too_late_gets_a_marker_and_nothing_twice(id: str) -> None:
    company, _, player = await begin(buffer_events=2)
    feed = await player.session.listen()
    for number in range(6):
        company.peers.notify(player.session.id, "notifications/x", {"n": number})
        await turns()
        await feed.next(1)
    feed.leave()
    company.peers.notify(player.session.id, "notifications/x", {"n": 6})
    await turns()
    events = await read(await player.session.listen(id))
    assert [event.data for event in events[:1]] == [TRUNCATED]
    assert [each["params"].get("n") for each in messages_in(events)] == [None, 6]


@pytest.mark.row("SE-16")
async def test_a_second_reader_takes_the_general_stream_over() -> None:
    company, _, player = await begin()
    first = await player.session.listen()
    await first.next()
    waiting = asyncio.create_task(first.next())
    await turns()
    second = await player.session.listen()
    assert await waiting is None
    first.leave()
    company.peers.notify(player.session.id, "notifications/x", {})
    events = await read(second)
    assert [each["method"] for each in messages_in(events)] == ["notifications/x"]


async def test_finished_streams_are_kept_for_a_while_and_not_for_ever() -> None:
    _, stage, player = await begin()
    feed = await feed_of(player, stage, 1)
    stage.let()
    events = await read(feed)
    assert ids(events)[-1] == "p1:2"
    await asyncio.sleep(20)
    assert ids(await read(await player.session.listen("p1:1"))) == ["p1:2"]
    await asyncio.sleep(60)
    again = await read(await player.session.listen("p1:1"))
    assert [event.data for event in again] == [TRUNCATED]


async def test_a_finished_stream_that_is_being_read_is_kept() -> None:
    _, stage, player = await begin()
    feed = await feed_of(player, stage, 1)
    stage.let()
    await asyncio.sleep(200)
    assert ids(await read(feed)) == ["p1:0", "p1:1", "p1:2"]
    await asyncio.sleep(100)
    again = await read(await player.session.listen("p1:1"))
    assert [event.data for event in again] == [TRUNCATED]


# --- the end


@pytest.mark.row("SE-15")
@pytest.mark.parametrize("how", ["ended", "killed", "sessions killed", "stopped"])
async def test_however_a_session_ends_its_streams_do_too_and_what_was_owed_is_answered(how: str) -> None:
    company, stage, player = await begin()
    general = await player.session.listen()
    await general.next()
    reading = asyncio.create_task(general.next())
    feed = await feed_of(player, stage)
    await turns()
    if how == "ended":
        await player.session.end()
    elif how == "killed":
        kill(company.peers.ref(player.session.id))
    elif how == "sessions killed":
        kill(company.sessions)
    else:
        await company.peers.end(player.session.id)
    assert await reading is None
    events = await read(feed)
    assert [each.get("id") for each in messages_in(events)] == [None, "c"]
    assert messages_in(events)[-1]["error"]["code"] == -32603
    assert await feed.next() is None
    with pytest.raises(ProcessExited):
        await player.session.listen()


async def test_a_channel_ends_with_its_session() -> None:
    company = await open_company(Stage())
    session = await company.connect(PEER)
    assert session.channel is not None
    reading = asyncio.create_task(session.channel.next())
    await turns()
    kill(session.ref)
    assert await reading is None
    await wait_down(session.ref)


# --- channels


async def on_channel(stage: Stage, **settings: Any) -> tuple[SessionClient, Feed]:
    company = await open_company(stage, settings=Settings(**settings))
    session = await company.connect(PEER)
    player = SessionClient(company, session)
    feed = session.channel
    assert feed is not None
    reply = await player.reply("initialize", protocolVersion="2025-11-25", capabilities=CAPABILITIES, clientInfo=CLIENT)
    assert reply is feed
    await player.tell("notifications/initialized")
    await feed.next()
    return player, feed


async def test_a_channel_delivers_in_order() -> None:
    stage = Stage()
    player, feed = await on_channel(stage)
    assert await player.reply("tools/call", id="a", name="steps", arguments={"count": 1}) is feed
    assert await player.reply("tools/call", id="b", name="echo") is feed
    assert await player.reply("ping", id="c") is feed
    await turns()
    stage.let(2, "a")
    events = await read(feed)
    assert [event.answers for event in events] == ["c", "b", None, "a"]
    assert {event.id for event in events} == {""}
    assert await player.session.listen() is feed


async def test_on_a_channel_a_cancelled_call_is_never_answered() -> None:
    stage = Stage()
    player, feed = await on_channel(stage)
    await player.reply("tools/call", id="a", name="steps", arguments={"count": 1})
    await turns()
    await player.cancel("a")
    stage.let(5, "a")
    assert await read(feed) == []


async def test_a_full_channel_takes_no_request_until_there_is_room() -> None:
    player, feed = await on_channel(Stage(), channel_events=2)
    await player.reply("ping", id=1)
    await player.reply("ping", id=2)
    third = asyncio.create_task(player.reply("ping", id=3))
    await asyncio.sleep(10)
    assert not third.done()
    assert len(await feed.next() or ()) == 2
    await third
    assert [event.answers for event in await read(feed)] == [3]


# --- what may be said


@pytest.mark.row("SE-17")
@pytest.mark.row("WC-23")
async def test_log_messages_below_the_sessions_level_are_left_out() -> None:
    _, _, player = await begin()
    assert await levels_heard(player) == ["info", "error", "emergency"]
    await player.ask("logging/setLevel", level="error")
    assert await levels_heard(player) == ["error", "emergency"]
    await player.ask("logging/setLevel", level="debug")
    assert await levels_heard(player) == ["debug", "info", "error", "emergency"]


async def levels_heard(player: SessionClient) -> list[str]:
    feed = await player.reply("tools/call", name="log")
    return [each["params"]["level"] for each in messages_in(await read(feed)) if "params" in each]


async def test_a_flooding_handler_is_told_that_its_messages_are_dropped() -> None:
    _, _, player = await begin()
    feed = await player.reply("tools/call", name="flood")
    events = await read(feed)
    taken = messages_in(events)[-1]["result"]["taken"]
    assert 0 < taken < 5000
    assert TRUNCATED in [event.data for event in events]


async def test_after_the_reply_nothing_more_is_sent() -> None:
    kept: list[Any] = []
    stage = Stage()

    async def keeps(job: Job) -> Any:
        kept.append(job.peer_channel)
        return {}

    stage.tools["keeps"] = keeps
    company = await open_company(stage)
    player = await join(company)
    assert "result" in await player.call("keeps")
    kept[0].emit("notifications/progress", {})
    kept[0].interrupt_stream(1)
    feed = await player.session.listen()
    assert all(not event.data for event in await read(feed))


async def test_messages_are_one_line() -> None:
    company, _, player = await begin()
    company.peers.notify(player.session.id, "notifications/x", {"text": "a\nb\u2028c"})
    feed = await player.session.listen()
    (found,) = messages_in(await read(feed))
    assert found["params"]["text"] == "a\nb\u2028c"
    assert message(b'{"jsonrpc":"2.0"}') == {"jsonrpc": "2.0"}
