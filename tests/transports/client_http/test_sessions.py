"""Sessions of the HTTP wire: headers, credentials, redirects, limits, and the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from greenroom import ConfigError
from greenroom.supervision import Killed, Shutdown, exit, inbox, kill, spawn, wait_down
from greenroom.transports.client.errors import HttpError, NotMcp, SessionGone, Unauthorized, WireFull
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.http_settings import HttpSettings
from greenroom.transports.client.interfaces import FixedHeaders, UnansweredRequest

from .scripted_server import SESSION, ReceivedRequest, event, scripted_server
from .wire_and_server import lost, responding, wire_and_server
from .wire_owner import HELLO, open_wire

if TYPE_CHECKING:
    from collections.abc import Mapping


# --- headers


@pytest.mark.row("CT-02", "CT-07")
async def test_each_kind_of_request_has_its_headers() -> None:
    async with wire_and_server() as (owner, server):
        await owner.answer(owner.call("any"))
        await owner.close()
        hello, told, stream, call, goodbye = (
            server.seen(what)[0].headers
            for what in ("initialize", "notifications/initialized", "GET", "tools/call", "DELETE")
        )
        for each in (hello, told, call):
            assert each["content-type"] == "application/json"
            assert each["accept"] == "application/json, text/event-stream"
        for each in (told, stream, call, goodbye):
            assert each["mcp-session-id"] == SESSION
            assert each["mcp-protocol-version"] == "2025-11-25"
        assert "mcp-session-id" not in hello
        assert "mcp-protocol-version" not in hello
        assert stream["accept"] == "text/event-stream"
        assert all(each.headers["host"] == f"127.0.0.1:{server.port}" for each in server.requests)


@pytest.mark.row("CT-07")
async def test_a_server_without_sessions_gets_no_session_id() -> None:
    async with scripted_server() as server:
        server.session = ""
        async with open_wire(HttpRoute(server.url)) as owner:
            await owner.greet()
            await owner.answer(owner.call("any"))
        assert not server.seen("DELETE")
        assert not any("mcp-session-id" in each.headers for each in server.requests)


async def test_an_invalid_session_id_is_refused() -> None:
    async with scripted_server() as server:
        server.session = "two words"
        async with open_wire(HttpRoute(server.url)) as owner:
            owner.ask("initialize", HELLO)
            heard = await owner.hear()
            assert isinstance(heard, UnansweredRequest)
            assert isinstance(heard.error, NotMcp)


async def test_custom_headers_and_secrets_of_the_url_are_sent() -> None:
    async with scripted_server() as server:
        url = server.url.replace("http://", "http://me:se%20cret@") + "?key=hidden"
        route = HttpRoute(url, headers={"X-Tenant": "blue"}, credentials=FixedHeaders({"X-Key": "hush"}))
        for shown in (repr(route), route.description, str(route.address), repr(route.credentials)):
            assert not any(secret in shown for secret in ("cret", "hidden", "me:", "hush"))
        async with open_wire(route) as owner:
            await owner.greet()
            assert owner.wire.description == server.url
        received = server.requests[0]
        assert received.path == "/mcp?key=hidden"
        assert received.headers["x-tenant"] == "blue"
        assert received.headers["x-key"] == "hush"
        assert received.headers["authorization"] == "Basic bWU6c2UgY3JldA=="


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mcp",
        "ftp://x/",
        "http://",
        "http://x:port/",
        "http://x/\r\nhost: y",
        "http://x/a b",
        "http://ü/",
        "file:///x",
    ],
)
async def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        HttpRoute(url)


@pytest.mark.parametrize(
    "headers", [{"a b": "c"}, {"a": "b\r\nc: d"}, {"Content-Length": "3"}, {"Mcp-Session-Id": "x"}, {"Host": "y"}]
)
async def test_an_invalid_or_reserved_custom_header_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        HttpRoute("http://x/", headers=headers)


# --- a lost session


async def test_a_lost_session_is_reported_to_all_requests_and_proves_nothing_about_execution() -> None:
    async def gone(received: ReceivedRequest) -> None:
        await received.json(
            {"jsonrpc": "2.0", "id": received.id, "error": {"code": -32600, "message": "who?"}}, status=404
        )

    async with wire_and_server(gone) as (owner, server):
        ids = {owner.call("any") for _ in range(16)}
        for _ in range(16):
            heard = await owner.hear()
            assert isinstance(heard, UnansweredRequest)
            assert isinstance(heard.error, SessionGone)
            assert not heard.resend
            ids.remove(heard.id)  # type: ignore[arg-type]
        assert not ids
        assert isinstance(await owner.end(), SessionGone)
        assert not server.seen("DELETE")


async def test_requests_in_flight_have_a_moment_left_when_the_session_is_lost() -> None:
    async def call(received: ReceivedRequest) -> None:
        if received.message["params"]["name"] == "slow":
            await asyncio.sleep(0.5)
            await received.result({"ok": 1})
        else:
            await received.reply(404)

    async with wire_and_server(call) as (owner, _):
        slow, gone = owner.call("slow"), owner.call("gone")
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert heard.id == gone
        again = owner.call("again")
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (again, True)
        assert await owner.answer(slow) == {"ok": 1}
        assert isinstance(await owner.end(), SessionGone)


async def test_a_404_without_a_session_does_not_end_one() -> None:
    async def gone(received: ReceivedRequest) -> None:
        await received.reply(404)

    async with scripted_server(call=gone) as server:
        server.session = ""
        async with open_wire(HttpRoute(server.url)) as owner:
            await owner.greet()
            error = (await lost(owner)).error
            assert type(error) is HttpError


async def test_the_standalone_stream_can_report_the_lost_session() -> None:
    async def stream(received: ReceivedRequest) -> None:
        if [each for each in seen if each == received.method]:
            await received.reply(404)
        else:
            seen.append(received.method)
            await received.stream(event(None, id="1"))
            received.close()

    seen: list[str] = []
    async with wire_and_server(GET=stream) as (owner, _):
        assert isinstance(await owner.end(), SessionGone)


# --- credentials


class Keys:
    """Credentials with a second key."""

    def __init__(self, *keys: str, slow: bool = False) -> None:
        self.keys = list(keys)
        self.slow = slow
        self.challenges: list[tuple[int, str, Any]] = []

    async def headers(self) -> Mapping[str, str]:
        if self.slow:
            await asyncio.sleep(0.1)
        return {"Authorization": f"Bearer {self.keys[0]}"}

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        self.challenges.append((status, challenge, dict(sent)))
        if len(self.keys) > 1 and sent["Authorization"] == f"Bearer {self.keys[0]}":
            del self.keys[0]
            return True
        return sent["Authorization"] != f"Bearer {self.keys[0]}"


def guarded(status: int = 401, challenge: str = 'Bearer realm="x"') -> Any:
    async def call(received: ReceivedRequest) -> None:
        if received.headers.get("authorization") == "Bearer new":
            await received.result()
        else:
            await received.reply(status, b"no", www_authenticate=challenge)

    return call


@pytest.mark.row("CT-08")
@pytest.mark.parametrize("slow", [False, True])
async def test_refused_credentials_are_retried_once(*, slow: bool) -> None:
    keys = Keys("old", "new", slow=slow)
    async with wire_and_server(guarded(), credentials=keys) as (owner, server):
        assert await owner.answer(owner.call("any")) == {}
        assert keys.challenges == [(401, 'Bearer realm="x"', {"Authorization": "Bearer old"})]
        assert await owner.answer(owner.call("any")) == {}
        assert len(server.seen("tools/call")) == 3


@pytest.mark.row("CT-08")
@pytest.mark.parametrize("keys", [("old",), ("old", "older")])
async def test_credentials_refused_twice_are_not_retried(keys: tuple[str, ...]) -> None:
    async with wire_and_server(guarded(), credentials=Keys(*keys)) as (owner, server):
        error = (await lost(owner)).error
        assert isinstance(error, Unauthorized)
        assert (error.status, error.challenge) == (401, 'Bearer realm="x"')
        assert len(server.seen("tools/call")) == len(keys)


@pytest.mark.row("CT-08")
async def test_an_anonymous_request_is_not_retried() -> None:
    async with wire_and_server(guarded()) as (owner, server):
        assert isinstance((await lost(owner)).error, Unauthorized)
        assert len(server.seen("tools/call")) == 1


async def test_a_403_for_more_scopes_is_retried_and_another_is_not() -> None:
    keys = Keys("old", "new")
    async with wire_and_server(guarded(403, 'Bearer error="insufficient_scope"'), credentials=keys) as (owner, _):
        assert await owner.answer(owner.call("any")) == {}
    keys = Keys("old", "new")
    async with wire_and_server(guarded(403, ""), credentials=keys) as (owner, _):
        error = (await lost(owner)).error
        assert type(error) is HttpError
        assert not keys.challenges


async def test_credentials_may_return_the_same_mapping_with_new_contents() -> None:
    class Same:
        said: ClassVar[dict[str, str]] = {"X-Key": "1"}

        async def headers(self) -> Mapping[str, str]:
            return self.said

        async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
            return False

    async with wire_and_server(credentials=Same()) as (owner, server):
        for key in ("2", "3"):
            Same.said["X-Key"] = key
            await owner.answer(owner.call("any"))
            assert server.seen("tools/call")[-1].headers["x-key"] == key


async def test_failing_and_invalid_credentials_are_reported() -> None:
    keys = Keys("new")
    async with wire_and_server(credentials=keys) as (owner, server):
        # The stream may be open before this notification has its credentials, and without them it ends the wire.
        await server.until("notifications/initialized")
        keys.keys[0] = "a\r\nb: c"
        owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert isinstance(heard.error, Unauthorized)
        keys.keys.clear()
        owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert isinstance(heard.error, Unauthorized)
        keys.keys.append("new")


# --- redirects


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_within_the_origin_is_followed_and_remembered(status: int) -> None:
    async def initialize(received: ReceivedRequest) -> None:
        if received.path == "/mcp":
            await received.reply(status, location="/mcp/")
        else:
            await server.behave(received)

    async with scripted_server(initialize=initialize) as server, open_wire(HttpRoute(server.url)) as owner:
        await owner.greet()
        await owner.answer(owner.call("any"))
        assert [each.path for each in server.seen("initialize")] == ["/mcp", "/mcp/"]
        assert server.seen("tools/call")[0].path == "/mcp/"


@pytest.mark.parametrize(
    ("status", "location"),
    [
        (307, "http://localhost:PORT/mcp"),
        (308, "https://127.0.0.1:PORT/mcp"),
        (307, "http://127.0.0.1/mcp"),
        (307, "//evil.example/mcp"),
        (307, "http://user@127.0.0.1:PORT/mcp"),
        (307, ""),
        (302, "/mcp/"),
        (303, "/mcp/"),
    ],
)
async def test_other_redirects_are_refused(status: int, location: str) -> None:
    async def away(received: ReceivedRequest) -> None:
        port = received.headers["host"].partition(":")[2]
        await received.reply(status, location=location.replace("PORT", port))

    async with wire_and_server(away) as (owner, server):
        error = (await lost(owner)).error
        assert isinstance(error, HttpError)
        assert error.status == status
        calls = len(server.seen("tools/call"))
        assert calls == (4 if location == "" else 1)


async def test_redirects_in_a_circle_are_given_up() -> None:
    async def circle(received: ReceivedRequest) -> None:
        await received.reply(307, location="/b" if received.path == "/a" else "/a")

    async with wire_and_server(circle) as (owner, server):
        assert isinstance((await lost(owner)).error, HttpError)
        assert len(server.seen("tools/call")) == 4


# --- limits, and the end


async def test_queued_messages_are_limited_by_number_and_by_bytes() -> None:
    settings = HttpSettings(max_connections=2, max_waiting=3, max_waiting_bytes=10_000)
    async with wire_and_server(responding(b"", end="wait"), settings) as (owner, _):
        ids = [owner.call("any") for _ in range(5)]
        with pytest.raises(WireFull):
            owner.call("any")
        for id in ids:
            owner.wire.forget(id)
        first = owner.call("any", text="x" * 9_500)
        with pytest.raises(WireFull):
            owner.call("any", text="x" * 1_000)
        owner.wire.forget(first)
        assert await owner.answer(owner.ask("ping"))


async def test_queued_messages_are_sent_before_the_session_is_deleted() -> None:
    async def slow(received: ReceivedRequest) -> None:
        await asyncio.sleep(1)
        await received.reply(202)

    async with wire_and_server() as (owner, server):
        server.on("notifications/last", slow)
        owner.note("notifications/last")
        await owner.close()
        assert owner.ended == Shutdown()
        assert [each.method for each in server.requests[-2:]] == ["POST", "DELETE"]


async def test_the_session_is_deleted_when_the_owner_dies() -> None:
    async with scripted_server() as server:

        async def live() -> None:
            async with open_wire(HttpRoute(server.url)) as owner:
                await owner.greet()
                kill(owner.me.pid)

        async with inbox():
            pid = spawn(live)
            await wait_down(pid)
            await server.until("DELETE")


async def test_a_killed_wire_leaves_nothing_and_raises_nothing_afterwards() -> None:
    async with wire_and_server(responding(b"", end="wait")) as (owner, server):
        id = owner.call("any")
        (received,) = await server.until("tools/call")
        kill(owner.wire.pid)
        await received.gone()
        mail = await owner.me.receive()
        assert mail.reason == Killed()
        owner.call("any")
        owner.note("notifications/x")
        owner.wire.forget(id)
        owner.wire.on_negotiated("2025-11-25")
        exit(owner.wire.pid, Shutdown())
        assert owner.silent()


@pytest.mark.parametrize("credentials", [None, FixedHeaders({"authorization": "Bearer credentials"})])
async def test_authorization_is_sent_once_however_often_it_was_given(credentials: FixedHeaders | None) -> None:
    async with scripted_server() as server:
        url = server.url.replace("http://", "http://user:password@")
        route = HttpRoute(url, headers={"Authorization": "Bearer headers"}, credentials=credentials)
        async with open_wire(route) as owner:  # the server checks that no header is duplicated
            await owner.greet()
        said = "Bearer headers" if credentials is None else "Bearer credentials"
        assert {received.headers["authorization"] for received in server.requests} == {said}
