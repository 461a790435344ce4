"""Requests answered with a status and no reply: sent again if surely not executed, otherwise reported with or without that certainty."""

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

from .scripted_server import event, kind, scripted_server
from .test_sessions import Keys
from .wire_and_server import wire_and_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .scripted_server import Handler, ReceivedRequest, ScriptedServer

HERE = "program.one"
SIBLING = "program.two"
ELSEWHERE = "other.one"


def head(status: int, **headers: str) -> ResponseHead:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return ResponseHead(status, b"1.1", lines)


# --- whether a request was executed


@pytest.mark.parametrize(
    ("status", "by", "ours", "not_done"),
    [
        # a server that names its process
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
        # a server that does not
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
def test_a_refusal_is_trusted_from_the_process_that_has_the_session(
    status: int, by: str, ours: str, *, not_done: bool
) -> None:
    said = {"greenroom_instance": by} if by else {}
    assert is_not_done(head(status, **said), ours) is not_done


@pytest.mark.parametrize(
    ("status", "by", "ours", "not_done"),
    [
        # any process of a server that names itself refuses in its own name
        *(
            (status, by, ours, True)
            for status in (401, 404, 413, 429, 503)
            for by in (HERE, ELSEWHERE)
            for ours in (HERE, "")
        ),
        # what stands in front of such a server may have forwarded the request
        (401, "", HERE, True),
        (413, "", HERE, True),
        (429, "", HERE, False),
        (404, "", HERE, False),
        (503, "", HERE, False),
        # a server that does not name itself
        (401, "", "", True),
        (429, "", "", True),
        (404, "", "", False),
        (503, "", "", False),
    ],
)
def test_any_process_may_refuse_a_request_that_stands_alone(status: int, by: str, ours: str, *, not_done: bool) -> None:
    said = {"greenroom_instance": by} if by else {}
    assert is_not_done(head(status, **said), ours, alone=True) is not_done


def test_a_403_for_more_scopes_is_a_challenge_and_another_is_not() -> None:
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
def test_retry_after_is_a_number_or_a_date_by_the_servers_clock(said: str, seconds: float | None) -> None:
    lines = [(b"date", b"Wed, 18 Nov 2026 10:00:00 GMT"), (b"retry-after", said.encode("latin-1"))]
    assert retry_after(ResponseHead(429, b"1.1", lines)) == seconds


def test_a_date_without_the_servers_own_is_compared_with_the_local_clock() -> None:
    found = retry_after(head(429, retry_after=formatdate(time.time() + 100, usegmt=True)))
    assert found is not None
    assert 90 < found <= 100


# --- 404: the session


def refusing(status: int, *, times: int = 1, **headers: str) -> Handler:
    left = times

    async def call(received: ReceivedRequest) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            await received.reply(status, b"no", **headers)
        else:
            await received.result({"content": [{"type": "text", "text": "done"}]})

    return call


def of_instance(server: ScriptedServer, instance: str = HERE) -> None:
    """From now on the server names its process with each session."""

    async def hello(received: ReceivedRequest) -> None:
        said: dict[str, Any] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "s", "version": "1"},
        }
        await received.result(said, mcp_session_id=server.session, greenroom_instance=instance)

    server.on("initialize", hello)


@pytest.mark.parametrize("by", ["", SIBLING, ELSEWHERE])
async def test_a_call_in_an_unknown_session_may_have_been_executed_and_the_next_is_answered(by: str) -> None:
    said: Any = {"greenroom_instance": by} if by else {}
    async with scripted_server(call=refusing(404, **said)) as server:
        of_instance(server)
        async with Client(server.url) as client:
            with pytest.raises(RequestLost) as caught:
                await client.call("any")
            assert isinstance(caught.value.cause, SessionGone)
            assert caught.value.maybe_done
            assert len(server.seen("tools/call")) == 1
            assert await client.call("any") == "done"
            assert len(server.seen("initialize")) == 2


async def test_an_expired_session_of_the_same_process_is_started_anew_with_the_call() -> None:
    async with scripted_server(call=refusing(404, greenroom_instance=HERE)) as server:
        of_instance(server)
        async with Client(server.url) as client:
            assert await client.call("any") == "done"
            assert len(server.seen("initialize")) == 2


async def test_an_idempotent_request_is_repeated_in_a_new_session() -> None:
    async with scripted_server(call=refusing(404)) as server, Client(server.url) as client:
        assert (await client.call_tool("any", idempotent=True)).text == "done"


# --- 429 and 503: retry later


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_a_429_is_retried_within_the_deadline(form: str) -> None:
    later = "5" if form == "seconds" else "Wed, 18 Nov 2026 10:00:05 GMT"
    call = refusing(429, times=2, retry_after=later, date="Wed, 18 Nov 2026 10:00:00 GMT")
    async with scripted_server(call=call) as server, Client(server.url, timeout=60.0) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await client.call("any") == "done"
        assert 10.0 <= loop.time() - began <= 15.0
        assert len(server.seen("tools/call")) == 3


@pytest.mark.parametrize(("said", "waits"), [("7", 7.0), ("9999", 60.0)])
async def test_a_refused_handshake_is_retried_later(said: str, waits: float) -> None:
    async with scripted_server() as server:
        left = [429]

        async def hello(received: ReceivedRequest) -> None:
            if left:
                await received.reply(left.pop(), retry_after=said)
            else:
                await server.behave(received)

        server.on("initialize", hello)
        settings = ClientSettings(init_timeout=120.0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with Client(server.url, settings=settings, patient=True) as client:
            assert waits <= loop.time() - began <= waits + 1
            assert await client.call("any") == "hi"


async def test_a_429_beyond_the_deadline_is_reported_at_once_as_not_executed() -> None:
    call = refusing(429, times=9, retry_after="90")
    async with scripted_server(call=call) as server, Client(server.url, timeout=30.0) as client:
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
    async with scripted_server(call=call) as server, Client(server.url, timeout=None) as client:
        with pytest.raises(RequestLost) as caught:
            await client.call("any")
        assert not caught.value.maybe_done
        assert len(server.seen("tools/call")) == 9


async def test_a_429_without_a_time_is_retried_at_growing_intervals() -> None:
    async with scripted_server(call=refusing(429, times=3)) as server, Client(server.url, timeout=60.0) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await client.call("any") == "done"
        assert 7.0 <= loop.time() - began <= 9.0


async def test_many_retries_are_spread_over_time() -> None:
    at: list[float] = []

    async def call(received: ReceivedRequest) -> None:
        at.append(asyncio.get_running_loop().time())
        if len(at) <= 20:
            await received.reply(429, retry_after="8")
        else:
            await received.result({"content": []})

    async with scripted_server(call=call) as server, Client(server.url, timeout=60.0) as client:
        await asyncio.gather(*(client.call_tool("any") for _ in range(20)))
        assert max(at[20:]) - min(at[20:]) > 0.5


async def test_a_cancelled_retry_is_not_sent() -> None:
    async with (
        scripted_server(call=refusing(429, retry_after="5")) as server,
        Client(server.url, timeout=60.0) as client,
    ):
        call = asyncio.ensure_future(client.call("any"))
        await server.until("tools/call")
        await asyncio.sleep(1)
        call.cancel()
        await asyncio.sleep(20)
        assert len(server.seen("tools/call")) == 1


async def test_a_waiting_retry_moves_to_the_next_session() -> None:
    async with scripted_server(call=refusing(429, retry_after="5")) as server:
        of_instance(server)
        server.on("tools/call", refusing(429, retry_after="5", greenroom_instance=HERE))
        async with Client(server.url, timeout=60.0) as client:
            call = asyncio.ensure_future(client.call("any"))
            await server.until("tools/call")
            server.on("ping", refusing(404))
            await asyncio.sleep(1)
            await client.ping()
            assert len(server.seen("tools/call")) == 1  # the new session gets it only when it is due
            assert await call == "done"
            assert len(server.seen("initialize")) == 2


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_call_refused_by_a_proxy_may_have_been_executed(status: int) -> None:
    async with scripted_server(call=refusing(status, retry_after="1")) as server:
        of_instance(server)
        async with Client(server.url) as client:
            with pytest.raises(RequestLost) as caught:
                await client.call("any")
            assert caught.value.maybe_done
            assert len(server.seen("tools/call")) == 1
            assert (await client.call_tool("any")).text == "done"


@pytest.mark.parametrize(("by", "times"), [(HERE, 2), (SIBLING, 1)])
@pytest.mark.parametrize("status", [429, 503])
async def test_a_call_refused_by_another_worker_of_the_program_may_have_been_executed(
    status: int, by: str, times: int
) -> None:
    """A proxy that lost the first worker during the call has sent it to the second one."""
    async with scripted_server(call=refusing(status, retry_after="1", greenroom_instance=by)) as server:
        of_instance(server)
        async with Client(server.url) as client:
            if times == 2:
                assert await client.call("any") == "done"
            else:
                with pytest.raises(RequestLost) as caught:
                    await client.call("any")
                assert caught.value.maybe_done
            assert len(server.seen("tools/call")) == times


async def test_a_503_with_a_time_is_retried_if_the_request_is_idempotent() -> None:
    async with (
        scripted_server(call=refusing(503, retry_after="4")) as server,
        Client(server.url, timeout=60.0) as client,
    ):
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await client.call_tool("any", idempotent=True)).text == "done"
        assert loop.time() - began >= 4.0


# --- other statuses


@pytest.mark.parametrize(("by", "maybe_done"), [(HERE, False), (ELSEWHERE, True)])
async def test_a_413_was_not_executed_and_is_not_retried(by: str, *, maybe_done: bool) -> None:
    async with scripted_server(call=refusing(413, greenroom_instance=by)) as server:
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
async def test_a_401_is_retried_with_another_token_only_if_it_was_not_executed(by: str, times: int) -> None:
    keys = Keys("old", "new")
    said: Any = {"greenroom_instance": by} if by else {}
    async with scripted_server(call=refusing(401, www_authenticate="Bearer", **said)) as server:
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


async def test_a_401_of_another_server_is_retried_if_the_request_is_idempotent() -> None:
    call = refusing(401, www_authenticate="Bearer", greenroom_instance=ELSEWHERE)
    async with scripted_server(call=call) as server:
        of_instance(server)
        async with Client(HttpRoute(server.url, credentials=Keys("old", "new"))) as client:
            assert (await client.call_tool("any", idempotent=True)).text == "done"


@pytest.mark.parametrize(("status", "marks"), [(307, True), (308, True), (307, False)])
async def test_a_redirected_call_is_sent_again_only_if_it_was_not_executed(status: int, *, marks: bool) -> None:
    async with scripted_server(call=refusing(status, location="/elsewhere")) as server:
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


# --- the server is gone after it may have received a request


@pytest.mark.parametrize("how", ["its stream broke", "it was taken note of"])
async def test_a_call_that_was_received_is_not_resent_when_the_server_vanishes(how: str) -> None:
    async def call(received: ReceivedRequest) -> None:
        if how == "its stream broke":
            await received.stream(event(None, id="1", retry=60_000))
            received.close()
        else:
            await received.reply(202)

    settings = HttpSettings(idle=0.0)
    async with wire_and_server(call, settings=settings) as (owner, server):
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


# --- the ping before a call, after the stream has ended


@asynccontextmanager
async def after_its_stream_has_ended(**handlers: Handler) -> AsyncGenerator[tuple[Client, ScriptedServer]]:
    """A client whose standalone stream has just ended; it cannot be reopened for ten seconds."""
    ended = asyncio.Event()

    async def stream(received: ReceivedRequest) -> None:
        if ended.is_set():
            await asyncio.sleep(10)
            await received.reply(405)
        else:
            await received.stream(event(None))
            await ended.wait()
            received.close()

    async with scripted_server(GET=stream, **handlers) as server, Client(server.url, timeout=60.0) as client:
        await server.until("GET")
        await asyncio.sleep(0.1)
        ended.set()
        await asyncio.sleep(0.1)
        yield client, server


async def test_a_restarted_server_gets_a_call_in_its_own_session() -> None:
    async with after_its_stream_has_ended(ping=refusing(404)) as (client, server):
        assert (await asyncio.gather(*(client.call("any") for _ in range(3)))) == ["hi"] * 3
        assert [kind(received) for received in server.requests[3:] if kind(received) != "GET"] == [
            "ping",
            "initialize",
            "notifications/initialized",
            *["tools/call"] * 3,
        ]


async def test_a_server_that_still_has_the_session_is_pinged_once() -> None:
    async with after_its_stream_has_ended() as (client, server):
        assert [await client.call("any") for _ in range(3)] == ["hi"] * 3
        assert len(server.seen("ping")) == 1
        assert len(server.seen("initialize")) == 1
        assert client.line.status.generation == 1


async def test_a_server_that_does_not_answer_the_ping_gets_the_call_all_the_same() -> None:
    async def silent(received: ReceivedRequest) -> None:
        await received.gone()

    async with after_its_stream_has_ended(ping=silent) as (client, server):
        began = asyncio.get_running_loop().time()
        assert await client.call("any") == "hi"
        assert 5.0 <= asyncio.get_running_loop().time() - began <= 6.0
        assert len(server.seen("tools/call")) == 1


async def test_a_server_that_refuses_the_ping_gets_the_call_all_the_same() -> None:
    async with after_its_stream_has_ended(ping=refusing(500)) as (client, server):
        assert await client.call("any") == "hi"
        assert len(server.seen("tools/call")) == 1


async def test_a_pending_ping_does_not_delay_the_end() -> None:
    async def silent(received: ReceivedRequest) -> None:
        await received.gone()

    async with after_its_stream_has_ended(ping=silent) as (client, server):
        call = asyncio.ensure_future(client.call("any"))
        await server.until("ping")
        began = asyncio.get_running_loop().time()
        await client.close()
        assert asyncio.get_running_loop().time() - began < 1.0
        with pytest.raises(ClientClosed):
            await call
        assert not server.seen("tools/call")


async def test_a_server_whose_streams_always_end_at_once_is_not_pinged_each_time() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream()
        received.close()

    async with scripted_server(GET=stream) as server, Client(server.url) as client:
        await server.until("GET", 3)
        for _ in range(3):
            assert await client.call("any") == "hi"
            await server.until("GET", len(server.seen("GET")) + 1)
        assert len(server.seen("ping")) <= 1
