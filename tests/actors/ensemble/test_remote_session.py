"""A session of another node as a transport holds it: its requests, and its errors when nothing was asked. The session server there is played."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from greenroom.actors.ensemble.session_router import (
    LOST,
    SESSION_SERVER,
    UNFETCHED,
    AcceptedMessage,
    FeedHandle,
    NoSuchSession,
    RemoteFeed,
    RemoteSession,
    SessionEndedMeanwhile,
    SessionRequest,
    SessionServer,
    pack_message,
    serve_feed,
    unpack_message,
)
from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse
from greenroom.supervision import GenServer, Options, Ref, Reply, inbox, is_alive, kill, spawn, start
from greenroom.supervision.kernel.errors import ProcessExited
from greenroom.transports.interfaces import EncodedReply, FeedEvent, Peer, RequestNotDelivered

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

ALICE = Peer("http", principal="alice")
ASKED = JsonRpcRequest(7, "tools/list", {})


class There(SessionServer):
    """The session server of another node, which answers every request as the test says."""

    def __init__(self) -> None:
        self.says: Any = AcceptedMessage()
        self.requests: list[SessionRequest] = []

    def init(self) -> None:
        """It knows of no others."""

    def handle_call(self, request: Any, caller: Any) -> Any:
        self.requests.append(request)
        return Reply(self.says)

    def say(self, what: Any) -> None:
        self.says = what

    def all_requests(self) -> list[SessionRequest]:
        return self.requests


class Home(GenServer):
    """The session server here: requests come from it."""


class Scene(NamedTuple):
    session: RemoteSession
    there: Ref[There]

    async def says(self, what: Any) -> None:
        await self.there.call(There.say, what)

    async def requests(self) -> list[SessionRequest]:
        return await self.there.call(There.all_requests)


@asynccontextmanager
async def scene(*, channel: bool = False) -> AsyncGenerator[Scene]:
    await Options(name=SESSION_SERVER).start(Home)
    there = await Options(name="session server there").start(There)
    async with inbox():
        yield Scene(RemoteSession("mcp_x", Ref("session server there"), ALICE, channel=channel), there)


# --- requests


@pytest.mark.parametrize(
    "message",
    [
        ASKED,
        JsonRpcNotification("notifications/progress", {"progress": 1}),
        JsonRpcResponse("r-1", {"roots": []}),
        JsonRpcError("r-2", PeerError(ErrorCode.INVALID_PARAMS, "no such root", {"uri": "x"})),
    ],
    ids=lambda each: type(each).__name__,
)
def test_messages_arrive_as_they_were(message: Any) -> None:
    came = unpack_message(pack_message(message))
    if isinstance(message, JsonRpcError):
        assert (came.id, came.error.code, came.error.message, came.error.data) == (
            message.id,
            message.error.code,
            message.error.message,
            message.error.data,
        )
    else:
        assert came == message


async def test_everything_is_said_there_on_behalf_of_its_peer() -> None:
    async with scene() as at:
        assert at.session.channel is None
        await at.session.notify(JsonRpcNotification("notifications/initialized", {}))
        failure = JsonRpcError(1, PeerError(ErrorCode.INTERNAL_ERROR, "it broke"))
        await at.session.respond(failure)
        await at.session.end()
        await at.says(EncodedReply(b"{}"))
        assert await at.session.request(ASKED) == EncodedReply(b"{}")
        assert await at.session.once(ASKED, "2025-11-25") == EncodedReply(b"{}")
        requests = await at.requests()
        assert {(each.session, each.peer) for each in requests} == {("mcp_x", ALICE)}
        assert len({each.method for each in requests}) == 5
        assert unpack_message(requests[1].args[0]).error.message == "it broke"
        assert "mcp_x" not in repr(at.session), "a session id is a credential"


async def test_messages_of_a_remote_channel_are_not_delivered_on_this_node() -> None:
    async with scene(channel=True) as at:
        feed: Any = await at.session.request(ASKED)
        channel: Any = at.session.channel
        assert feed is channel
        assert await feed.next() is None
        feed.leave()


async def test_of_a_session_that_is_not_there_nothing_was_asked() -> None:
    async with scene() as at:
        await at.says(NoSuchSession())
        with pytest.raises(RequestNotDelivered):
            await at.session.request(ASKED)


async def test_a_session_that_ends_during_a_request_leaves_its_outcome_unknown() -> None:
    async with scene() as at:
        await at.says(SessionEndedMeanwhile())
        with pytest.raises(ProcessExited) as caught:
            await at.session.request(ASKED)
        assert not isinstance(caught.value, RequestNotDelivered)


async def test_where_no_session_server_is_nothing_was_asked() -> None:
    async with scene() as at:
        kill(at.there)
        await asyncio.sleep(0.01)
        with pytest.raises(RequestNotDelivered):
            await at.session.request(ASKED)


async def test_while_the_session_server_here_is_being_started_anew_nothing_is_asked() -> None:
    there = await Options(name="session server there").start(There)
    async with inbox():
        with pytest.raises(RequestNotDelivered):
            await RemoteSession("mcp_x", Ref("session server there"), ALICE, channel=False).request(ASKED)
        assert await there.call(There.all_requests) == []


# --- feeds


class Feed:
    """A feed on the other node, whose events come from the test."""

    name = "feed-1"

    def __init__(self) -> None:
        self.events: asyncio.Queue[Sequence[FeedEvent] | None] = asyncio.Queue()
        self.left = 0

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
        return await self.events.get()

    def leave(self) -> None:
        self.left += 1


async def borrowed(feed: Feed, home: Any, owes: int | None = None) -> tuple[RemoteFeed, Any]:
    lender = spawn(serve_feed, feed, home)
    return RemoteFeed(feed.name, lender, owes), lender


FIRST, LAST = FeedEvent("1", b"one"), FeedEvent("2", b"two", answers=7)


async def test_a_feed_is_fetched_batch_by_batch_until_it_ends() -> None:
    feed = Feed()
    async with inbox() as me:
        reading, lender = await borrowed(feed, me.pid, 7)
        assert await reading.next(1) == (), "nothing has come, and the question stays"
        feed.events.put_nowait([FIRST])
        assert await reading.next() == [FIRST]
        feed.events.put_nowait([LAST])
        feed.events.put_nowait(None)
        assert await reading.next() == [LAST]
        assert await reading.next() is None
        assert await reading.next() is None
        reading.leave()
        assert feed.left == 1
        assert not is_alive(lender)


async def test_a_feed_whose_node_is_lost_ends_with_the_answer_that_it_owes() -> None:
    feed = Feed()
    async with inbox() as me:
        reading, lender = await borrowed(feed, me.pid, 7)
        feed.events.put_nowait([FIRST])
        assert await reading.next() == [FIRST]
        kill(lender)
        told = await reading.next()
        assert told is not None
        (event,) = told
        assert (event.answers, json.loads(event.data)["error"]["message"]) == (7, LOST)
        assert await reading.next() is None


@pytest.mark.parametrize("owes", [None, 7], ids=["owes nothing", "has answered"])
async def test_a_feed_that_owes_nothing_just_ends_with_its_node(owes: int | None) -> None:
    feed = Feed()
    async with inbox() as me:
        reading, lender = await borrowed(feed, me.pid, owes)
        feed.events.put_nowait([LAST])
        assert await reading.next() == [LAST]
        kill(lender)
        assert await reading.next() is None


async def test_a_reader_that_leaves_here_has_left_there() -> None:
    feed = Feed()
    async with inbox() as me:
        reading, lender = await borrowed(feed, me.pid)
        assert await reading.next(1) == ()
        reading.leave()
        reading.leave()
        await asyncio.sleep(0.01)
        assert not is_alive(lender)
        assert feed.left == 1
        assert await reading.next() is None


async def test_a_feed_that_is_never_fetched_is_closed() -> None:
    feed = Feed()
    async with inbox() as me:
        reading, _ = await borrowed(feed, me.pid)
        await asyncio.sleep(UNFETCHED + 1)
        assert feed.left == 1
        assert await reading.next() is None


async def test_a_feed_is_left_when_the_session_server_that_borrowed_it_is_gone() -> None:
    feed = Feed()
    async with inbox():
        home = await start(Home)
        await borrowed(feed, home.pid)
        await asyncio.sleep(0.01)
        kill(home)
        await asyncio.sleep(0.01)
        assert feed.left == 1


async def test_the_stream_of_a_session_is_lent() -> None:
    feed = Feed()
    async with scene() as at, inbox() as me:
        await at.says(FeedHandle(feed.name, spawn(serve_feed, feed, me.pid)))
        opened = await at.session.listen("e-1")
        assert opened.name == "feed-1"
        feed.events.put_nowait([FIRST])
        assert await opened.next() == [FIRST]
        opened.leave()
        assert [each.args for each in await at.requests()] == [("e-1",)]
