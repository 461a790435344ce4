"""A request that was answered with a status and no answer: sent again where it was surely not done, and otherwise said to be done or not."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, ClientClosed, ClientSettings, RequestLost, Unauthorized
from greenroom.transports import RequestTooLarge, SessionGone
from greenroom.transports.client.errors import ConnectFailed, is_not_done, retry_after
from greenroom.transports.client.http_connection_pool import ResponseHead
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.http_settings import HttpSettings
from greenroom.transports.client.interfaces import UnansweredRequest

from .scripted_server import event, kind, scripted
from .test_sessions import Keys
from .wire_and_server import facing

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .scripted_server import Handler, Scripted, Visit

HERE = "program.one"
SIBLING = "program.two"
ELSEWHERE = "other.one"


def head(status: int, **headers: str) -> ResponseHead:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return ResponseHead(status, b"1.1", lines)


# --- whether it was done


@pytest.mark.parametrize(
    ("status", "by", "ours", "not_done"),
    [
        # a server that says which process it is
        (401, HERE, HERE, True),
        (401, SIBLING, HERE, False),
        (401, ELSEWHERE, HERE, False),
        (401, "", HERE, True),
        (404, HERE, HERE, True),
        (404, SIBLING, HERE, False),
        (404, ELSEWHERE, HERE, False),
        (404, "", HERE, False),
        (413, HERE, HERE, True),
        (413, "", HERE, True),
        (413, ELSEWHERE, HERE, False),
        (429, HERE, HERE, True),
        (429, SIBLING, HERE, False),
        (429, ELSEWHERE, HERE, False),
        (429, "", HERE, False),
        (503, HERE, HERE, True),
        (503, SIBLING, HERE, False),
        (503, "", HERE, False),
        (502, "", HERE, False),
        (307, "", HERE, False),
        # one that does not
        (401, "", "", True),
        (401, ELSEWHERE, "", False),
        (404, "", "", False),
        (409, "", "", False),
        (413, "", "", True),
        (429, "", "", True),
        (429, ELSEWHERE, "", False),
        (500, "", "", False),
        (502, "", "", False),
        (503, "", "", False),
        (504, "", "", False),
        (307, "", "", True),
        (403, "", "", False),
    ],
)
def test_a_refusal_is_believed_of_the_process_that_has_the_session(
    status: int, by: str, ours: str, *, not_done: bool
) -> None:
    said = {"greenroom_instance": by} if by else {}
    assert is_not_done(head(status, **said), ours) is not_done


def test_a_403_that_asks_for_more_scopes_is_a_challenge_and_another_is_not() -> None:
    assert is_not_done(head(403, www_authenticate='Bearer error="insufficient_scope"'), "")
    assert not is_not_done(head(403, www_authenticate="Bearer"), "")


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("99999999999999999999999999999999999", 999_999_999.0),
        ("Wed, 18 Nov 2026 10:00:30 GMT", 30.0),
        ("Wed, 18 Nov 2026 09:00:00 GMT", 0.0),
        ("-1", None),
        ("1.5", None),
        ("\u00b2", None),
        ("soon", None),
        ("", None),
        ("Wed, 99 Nov 99999999 10:00:30 GMT", None),
        ("7" * 60_000, 777_777_777.0),
    ],
)
def test_when_to_try_again_is_a_number_or_a_date_by_the_servers_clock(said: str, seconds: float | None) -> None:
    lines = [(b"date", b"Wed, 18 Nov 2026 10:00:00 GMT"), (b"retry-after", said.encode("latin-1"))]
    assert retry_after(ResponseHead(429, b"1.1", lines)) == seconds


def test_a_date_without_the_servers_own_is_held_against_the_clock_here() -> None:
    found = retry_after(head(429, retry_after=formatdate(time.time() + 100, usegmt=True)))
    assert found is not None
    assert 90 < found <= 100


# --- 404: the session


def refusing(status: int, *, times: int = 1, **headers: str) -> Handler:
    left = times

    async def call(visit: Visit) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            await visit.reply(status, b"no", **headers)
        else:
            await visit.result({"content": [{"type": "text", "text": "done"}]})

    return call


def of_instance(server: Scripted, instance: str = HERE) -> None:
    """From now on it says which process it is, with each session."""

    async def hello(visit: Visit) -> None:
        said: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"},
        }
        await visit.result(said, mcp_session_id=server.session, greenroom_instance=instance)

    server.on("initialize", hello)


@pytest.mark.parametrize("by", ["", SIBLING, ELSEWHERE])
async def test_a_call_that_meets_an_unknown_session_may_have_been_done_and_the_next_one_is_answered(by: str) -> None:
    said: Any = {"greenroom_instance": by} if by else {}
    async with scripted(call=refusing(404, **said)) as server:
        of_instance(server)
        async with Client(server.url) as client:
            with pytest.raises(RequestLost) as caught:
                await client.call("any")
            assert isinstance(caught.value.cause, SessionGone)
            assert caught.value.maybe_done
            assert len(server.seen("tools/call")) == 1
            assert await client.call("any") == "done"
            assert len(server.seen("initialize")) == 2


async def test_a_session_that_expired_where_it_was_is_begun_anew_and_the_call_with_it() -> None:
    async with scripted(call=refusing(404, greenroom_instance=HERE)) as server:
        of_instance(server)
        async with Client(server.url) as client:
            assert await client.call("any") == "done"
            assert len(server.seen("initialize")) == 2


async def test_what_may_be_repeated_is_also_where_the_session_is_unknown() -> None:
    async with scripted(call=refusing(404)) as server, Client(server.url) as client:
        assert (await client.call_tool("any", idempotent=True)).text == "done"


# --- 429 and 503: later


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_429_is_waited_for_within_the_deadline(form: str) -> None:
    later = "5" if form == "seconds" else "Wed, 18 Nov 2026 10:00:05 GMT"
    call = refusing(429, times=2, retry_after=later, date="Wed, 18 Nov 2026 10:00:00 GMT")
    async with scripted(call=call) as server, Client(server.url, timeout=60.0) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await client.call("any") == "done"
        assert 10.0 <= loop.time() - began <= 15.0
        assert len(server.seen("tools/call")) == 3


@pytest.mark.parametrize(("said", "waits"), [("7", 7.0), ("9999", 60.0)])
async def test_a_handshake_that_is_told_to_come_later_does(said: str, waits: float) -> None:
    async with scripted() as server:
        left = [429]

        async def hello(visit: Visit) -> None:
            if left:
                await visit.reply(left.pop(), retry_after=said)
            else:
                await server.behave(visit)

        server.on("initialize", hello)
        settings = ClientSettings(init_timeout=120.0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with Client(server.url, settings=settings, patient=True) as client:
            assert waits <= loop.time() - began <= waits + 1
            assert await client.call("any") == "hi"


async def test_a_429_beyond_the_deadline_is_told_at_once_as_not_done_and_when_to_try() -> None:
    call = refusing(429, times=9, retry_after="90")
    async with scripted(call=call) as server, Client(server.url, timeout=30.0) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(RequestLost, match=r"it was not done; try again in 90 s") as caught:
            await client.call("any")
        assert loop.time() - began < 5
        assert not caught.value.maybe_done
        assert caught.value.retry_in == 90.0
        assert len(server.seen("tools/call")) == 1


async def test_a_429_without_end_is_given_up() -> None:
    call = refusing(429, times=99, retry_after="0")
    async with scripted(call=call) as server, Client(server.url, timeout=None) as client:
        with pytest.raises(RequestLost) as caught:
            await client.call("any")
        assert not caught.value.maybe_done
        assert len(server.seen("tools/call")) == 9


async def test_a_429_that_says_nothing_is_waited_for_longer_each_time() -> None:
    async with scripted(call=refusing(429, times=3)) as server, Client(server.url, timeout=60.0) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await client.call("any") == "done"
        assert 7.0 <= loop.time() - began <= 9.0


async def test_many_that_are_told_to_come_later_do_not_come_at_once() -> None:
    at: list[float] = []

    async def call(visit: Visit) -> None:
        at.append(asyncio.get_running_loop().time())
        if len(at) <= 20:
            await visit.reply(429, retry_after="8")
        else:
            await visit.result({"content": []})

    async with scripted(call=call) as server, Client(server.url, timeout=60.0) as client:
        await asyncio.gather(*(client.call_tool("any") for _ in range(20)))
        assert max(at[20:]) - min(at[20:]) > 0.5


async def test_whoever_gives_up_while_it_waits_is_not_called_for() -> None:
    async with scripted(call=refusing(429, retry_after="5")) as server, Client(server.url, timeout=60.0) as client:
        call = asyncio.ensure_future(client.call("any"))
        await server.until("tools/call")
        await asyncio.sleep(1)
        call.cancel()
        await asyncio.sleep(20)
        assert len(server.seen("tools/call")) == 1


async def test_a_call_that_waits_goes_to_the_next_session_where_this_one_has_ended() -> None:
    async with scripted(call=refusing(429, retry_after="5")) as server:
        of_instance(server)
        server.on("tools/call", refusing(429, retry_after="5", greenroom_instance=HERE))
        async with Client(server.url, timeout=60.0) as client:
            call = asyncio.ensure_future(client.call("any"))
            await server.until("tools/call")
            server.on("ping", refusing(404))
            await asyncio.sleep(1)
            await client.ping()
            assert len(server.seen("tools/call")) == 1  # the new session does not hear it before it is time
            assert await call == "done"
            assert len(server.seen("initialize")) == 2


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_what_something_in_between_refuses_may_have_been_done(status: int) -> None:
    async with scripted(call=refusing(status, retry_after="1")) as server:
        of_instance(server)
        async with Client(server.url) as client:
            with pytest.raises(RequestLost) as caught:
                await client.call("any")
            assert caught.value.maybe_done
            assert len(server.seen("tools/call")) == 1
            assert (await client.call_tool("any")).text == "done"


@pytest.mark.parametrize(("by", "times"), [(HERE, 2), (SIBLING, 1)])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_call_that_is_refused_by_another_worker_of_the_program_may_have_been_done(
    status: int, by: str, times: int
) -> None:
    """A proxy that lost the first worker in the middle of the call has sent it to the second one."""
    async with scripted(call=refusing(status, retry_after="1", greenroom_instance=by)) as server:
        of_instance(server)
        async with Client(server.url) as client:
            if times == 2:
                assert await client.call("any") == "done"
            else:
                with pytest.raises(RequestLost) as caught:
                    await client.call("any")
                assert caught.value.maybe_done
            assert len(server.seen("tools/call")) == times


async def test_a_503_with_a_time_is_waited_for_where_it_may_be_repeated() -> None:
    async with scripted(call=refusing(503, retry_after="4")) as server, Client(server.url, timeout=60.0) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await client.call_tool("any", idempotent=True)).text == "done"
        assert loop.time() - began >= 4.0


# --- others


@pytest.mark.parametrize(("by", "maybe_done"), [(HERE, False), (ELSEWHERE, True)])
async def test_a_413_is_no_call_that_was_done_and_is_not_sent_again(by: str, *, maybe_done: bool) -> None:
    async with scripted(call=refusing(413, greenroom_instance=by)) as server:
        of_instance(server)
        async with Client(server.url) as client:
            with pytest.raises(RequestLost) as caught:
                await client.call("any")
            assert isinstance(caught.value.cause, RequestTooLarge)
            assert caught.value.cause.size == len(server.seen("tools/call")[0].body)
            assert ("it was not done" in str(caught.value)) is not maybe_done
            assert caught.value.maybe_done is maybe_done
            assert len(server.seen("tools/call")) == 1


@pytest.mark.parametrize(("by", "times"), [(HERE, 2), (SIBLING, 1), ("", 2), (ELSEWHERE, 1)])
async def test_a_401_is_answered_with_another_token_and_a_second_call_only_where_the_first_was_not_done(
    by: str, times: int
) -> None:
    keys = Keys("old", "new")
    said: Any = {"greenroom_instance": by} if by else {}
    async with scripted(call=refusing(401, www_authenticate="Bearer", **said)) as server:
        of_instance(server)
        async with Client(HttpRoute(server.url, credentials=keys)) as client:
            if times == 2:
                assert await client.call("any") == "done"
            else:
                with pytest.raises(RequestLost) as caught:
                    await client.call("any")
                assert isinstance(caught.value.cause, Unauthorized)
                assert caught.value.maybe_done
                assert await client.call("any") == "done"
                assert server.seen("tools/call")[-1].headers["authorization"] == "Bearer new"
            assert len(server.seen("tools/call")) == 2


async def test_a_401_of_another_server_sends_again_what_may_be_repeated() -> None:
    call = refusing(401, www_authenticate="Bearer", greenroom_instance=ELSEWHERE)
    async with scripted(call=call) as server:
        of_instance(server)
        async with Client(HttpRoute(server.url, credentials=Keys("old", "new"))) as client:
            assert (await client.call_tool("any", idempotent=True)).text == "done"


@pytest.mark.parametrize(("status", "marks"), [(307, True), (308, True), (307, False)])
async def test_a_call_is_redirected_by_a_server_that_is_known_not_to_have_done_it(status: int, *, marks: bool) -> None:
    async with scripted(call=refusing(status, location="/elsewhere")) as server:
        if marks:
            of_instance(server)
        async with Client(server.url) as client:
            if marks:
                with pytest.raises(RequestLost, match="redirects") as caught:
                    await client.call("any")
                assert caught.value.maybe_done
                assert len(server.seen("tools/call")) == 1
            assert await client.call("any") == "done"
            assert server.seen("tools/call")[-1].path == "/elsewhere"


# --- the server does not listen any more, and something was seen


@pytest.mark.parametrize("how", ["its stream broke", "it was taken note of"])
async def test_a_call_that_was_seen_is_not_sent_again_since_another_finds_no_server(how: str) -> None:
    async def call(visit: Visit) -> None:
        if how == "its stream broke":
            await visit.stream(event(None, id="1", retry=60_000))
            visit.close()
        else:
            await visit.reply(202)

    settings = HttpSettings(idle=0.0)
    async with facing(call, settings=settings) as (owner, server):
        seen = owner.call("any")
        await server.until("tools/call")
        await asyncio.sleep(0.5)
        server.refuse()
        unseen = owner.call("any")
        heard: list[Any] = [await owner.hear()]
        assert isinstance(heard[0], UnansweredRequest)
        assert heard[0].id == unseen
        assert heard[0].resend
        assert isinstance(heard[0].error, ConnectFailed)
        assert owner.silent()
        assert seen in owner.wire._unanswered
        assert owner.ended is None


# --- whether the session is still there, asked before a call


@asynccontextmanager
async def after_its_stream_has_ended(**handlers: Handler) -> AsyncGenerator[tuple[Client, Scripted]]:
    """A client whose session's stream was there, and has just ended; it is not to be had again for ten seconds."""
    ended = asyncio.Event()

    async def stream(visit: Visit) -> None:
        if ended.is_set():
            await asyncio.sleep(10)
            await visit.reply(405)
        else:
            await visit.stream(event(None))
            await ended.wait()
            visit.close()

    async with scripted(GET=stream, **handlers) as server, Client(server.url, timeout=60.0) as client:
        await server.until("GET")
        await asyncio.sleep(0.1)
        ended.set()
        await asyncio.sleep(0.1)
        yield client, server


async def test_a_server_that_was_started_again_meanwhile_hears_of_a_call_in_its_own_session() -> None:
    async with after_its_stream_has_ended(ping=refusing(404)) as (client, server):
        assert (await asyncio.gather(*(client.call("any") for _ in range(3)))) == ["hi"] * 3
        assert [kind(visit) for visit in server.visits[3:] if kind(visit) != "GET"] == [
            "ping",
            "initialize",
            "notifications/initialized",
            *["tools/call"] * 3,
        ]


async def test_a_server_that_still_has_the_session_is_asked_once() -> None:
    async with after_its_stream_has_ended() as (client, server):
        assert [await client.call("any") for _ in range(3)] == ["hi"] * 3
        assert len(server.seen("ping")) == 1
        assert len(server.seen("initialize")) == 1
        assert client.line.status.generation == 1


async def test_a_server_that_does_not_say_is_called_all_the_same() -> None:
    async def silent(visit: Visit) -> None:
        await visit.gone()

    async with after_its_stream_has_ended(ping=silent) as (client, server):
        began = asyncio.get_running_loop().time()
        assert await client.call("any") == "hi"
        assert 5.0 <= asyncio.get_running_loop().time() - began <= 6.0
        assert len(server.seen("tools/call")) == 1


async def test_a_server_that_refuses_the_question_is_called_all_the_same() -> None:
    async with after_its_stream_has_ended(ping=refusing(500)) as (client, server):
        assert await client.call("any") == "hi"
        assert len(server.seen("tools/call")) == 1


async def test_nobody_is_waited_for_at_the_end() -> None:
    async def silent(visit: Visit) -> None:
        await visit.gone()

    async with after_its_stream_has_ended(ping=silent) as (client, server):
        call = asyncio.ensure_future(client.call("any"))
        await server.until("ping")
        began = asyncio.get_running_loop().time()
        await client.close()
        assert asyncio.get_running_loop().time() - began < 1.0
        with pytest.raises(ClientClosed):
            await call
        assert not server.seen("tools/call")


async def test_a_server_whose_streams_always_end_at_once_is_not_asked_each_time() -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream()
        visit.close()

    async with scripted(GET=stream) as server, Client(server.url) as client:
        await server.until("GET", 3)
        for _ in range(3):
            assert await client.call("any") == "hi"
            await server.until("GET", len(server.seen("GET")) + 1)
        assert len(server.seen("ping")) <= 1
