"""The session, who we are, where we are sent, and the end."""

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

from .scripted_server import SESSION, Visit, event, scripted
from .wire_and_server import facing, lost, says
from .wire_owner import HELLO, opened

if TYPE_CHECKING:
    from collections.abc import Mapping


# --- headers


@pytest.mark.row("CT-02", "CT-07")
async def test_what_is_said_in_which_request() -> None:
    async with facing() as (owner, server):
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
        assert all(each.headers["host"] == f"127.0.0.1:{server.port}" for each in server.visits)


@pytest.mark.row("CT-07")
async def test_a_server_without_sessions_is_given_none_back() -> None:
    async with scripted() as server:
        server.session = ""
        async with opened(HttpRoute(server.url)) as owner:
            await owner.greet()
            await owner.answer(owner.call("any"))
        assert not server.seen("DELETE")
        assert not any("mcp-session-id" in each.headers for each in server.visits)


async def test_a_session_id_that_cannot_be_sent_back_is_refused() -> None:
    async with scripted() as server:
        server.session = "two words"
        async with opened(HttpRoute(server.url)) as owner:
            owner.ask("initialize", HELLO)
            heard = await owner.hear()
            assert isinstance(heard, UnansweredRequest)
            assert isinstance(heard.error, NotMcp)


async def test_headers_of_ones_own_and_secrets_of_the_url() -> None:
    async with scripted() as server:
        url = server.url.replace("http://", "http://me:se%20cret@") + "?key=hidden"
        route = HttpRoute(url, headers={"X-Tenant": "blue"}, credentials=FixedHeaders({"X-Key": "hush"}))
        for shown in (repr(route), route.description, str(route.address), repr(route.credentials)):
            assert not any(secret in shown for secret in ("cret", "hidden", "me:", "hush"))
        async with opened(route) as owner:
            await owner.greet()
            assert owner.wire.description == server.url
        visit = server.visits[0]
        assert visit.path == "/mcp?key=hidden"
        assert visit.headers["x-tenant"] == "blue"
        assert visit.headers["x-key"] == "hush"
        assert visit.headers["authorization"] == "Basic bWU6c2UgY3JldA=="


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
async def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ConfigError):
        HttpRoute(url)


@pytest.mark.parametrize(
    "headers", [{"a b": "c"}, {"a": "b\r\nc: d"}, {"Content-Length": "3"}, {"Mcp-Session-Id": "x"}, {"Host": "y"}]
)
async def test_what_is_no_header_of_ones_own(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        HttpRoute("http://x/", headers=headers)


# --- a session that is gone


async def test_a_session_that_is_gone_is_told_to_all_of_it_and_is_no_proof_that_nothing_was_done() -> None:
    async def gone(visit: Visit) -> None:
        await visit.json({"jsonrpc": "2.0", "id": visit.id, "error": {"code": -32600, "message": "who?"}}, status=404)

    async with facing(gone) as (owner, server):
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


async def test_what_is_under_way_when_the_session_goes_has_a_moment_left() -> None:
    async def call(visit: Visit) -> None:
        if visit.message["params"]["name"] == "slow":
            await asyncio.sleep(0.5)
            await visit.result({"ok": 1})
        else:
            await visit.reply(404)

    async with facing(call) as (owner, _):
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


async def test_a_404_without_a_session_is_no_end_of_one() -> None:
    async def gone(visit: Visit) -> None:
        await visit.reply(404)

    async with scripted(call=gone) as server:
        server.session = ""
        async with opened(HttpRoute(server.url)) as owner:
            await owner.greet()
            error = (await lost(owner)).error
            assert type(error) is HttpError


async def test_the_stream_can_bring_the_news_that_the_session_is_gone() -> None:
    async def stream(visit: Visit) -> None:
        if [each for each in seen if each == visit.method]:
            await visit.reply(404)
        else:
            seen.append(visit.method)
            await visit.stream(event(None, id="1"))
            visit.close()

    seen: list[str] = []
    async with facing(GET=stream) as (owner, _):
        assert isinstance(await owner.end(), SessionGone)


# --- who we are


class Keys:
    """Credentials that know a second key."""

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
    async def call(visit: Visit) -> None:
        if visit.headers.get("authorization") == "Bearer new":
            await visit.result()
        else:
            await visit.reply(status, b"no", www_authenticate=challenge)

    return call


@pytest.mark.row("CT-08")
@pytest.mark.parametrize("slow", [False, True])
async def test_refused_credentials_are_tried_once_more(*, slow: bool) -> None:
    keys = Keys("old", "new", slow=slow)
    async with facing(guarded(), credentials=keys) as (owner, server):
        assert await owner.answer(owner.call("any")) == {}
        assert keys.challenges == [(401, 'Bearer realm="x"', {"Authorization": "Bearer old"})]
        assert await owner.answer(owner.call("any")) == {}
        assert len(server.seen("tools/call")) == 3


@pytest.mark.row("CT-08")
@pytest.mark.parametrize("keys", [("old",), ("old", "older")])
async def test_and_not_twice(keys: tuple[str, ...]) -> None:
    async with facing(guarded(), credentials=Keys(*keys)) as (owner, server):
        error = (await lost(owner)).error
        assert isinstance(error, Unauthorized)
        assert (error.status, error.challenge) == (401, 'Bearer realm="x"')
        assert len(server.seen("tools/call")) == len(keys)


@pytest.mark.row("CT-08")
async def test_nobody_in_particular_is_not_tried_again() -> None:
    async with facing(guarded()) as (owner, server):
        assert isinstance((await lost(owner)).error, Unauthorized)
        assert len(server.seen("tools/call")) == 1


async def test_a_403_that_asks_for_more_is_refused_credentials_and_another_is_not() -> None:
    keys = Keys("old", "new")
    async with facing(guarded(403, 'Bearer error="insufficient_scope"'), credentials=keys) as (owner, _):
        assert await owner.answer(owner.call("any")) == {}
    keys = Keys("old", "new")
    async with facing(guarded(403, ""), credentials=keys) as (owner, _):
        error = (await lost(owner)).error
        assert type(error) is HttpError
        assert not keys.challenges


async def test_credentials_may_hand_out_the_same_mapping_with_other_things_in_it() -> None:
    class Same:
        said: ClassVar[dict[str, str]] = {"X-Key": "1"}

        async def headers(self) -> Mapping[str, str]:
            return self.said

        async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
            return False

    async with facing(credentials=Same()) as (owner, server):
        for key in ("2", "3"):
            Same.said["X-Key"] = key
            await owner.answer(owner.call("any"))
            assert server.seen("tools/call")[-1].headers["x-key"] == key


async def test_credentials_that_fail_or_are_no_headers() -> None:
    keys = Keys("new")
    async with facing(credentials=keys) as (owner, _):
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


# --- elsewhere


@pytest.mark.parametrize("status", [307, 308])
async def test_a_redirect_within_the_origin_is_followed_and_remembered(status: int) -> None:
    async def initialize(visit: Visit) -> None:
        if visit.path == "/mcp":
            await visit.reply(status, location="/mcp/")
        else:
            await server.behave(visit)

    async with scripted(initialize=initialize) as server, opened(HttpRoute(server.url)) as owner:
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
async def test_other_redirects_are_not(status: int, location: str) -> None:
    async def away(visit: Visit) -> None:
        port = visit.headers["host"].partition(":")[2]
        await visit.reply(status, location=location.replace("PORT", port))

    async with facing(away) as (owner, server):
        error = (await lost(owner)).error
        assert isinstance(error, HttpError)
        assert error.status == status
        calls = len(server.seen("tools/call"))
        assert calls == (4 if location == "" else 1)


async def test_redirects_in_a_circle() -> None:
    async def circle(visit: Visit) -> None:
        await visit.reply(307, location="/b" if visit.path == "/a" else "/a")

    async with facing(circle) as (owner, server):
        assert isinstance((await lost(owner)).error, HttpError)
        assert len(server.seen("tools/call")) == 4


# --- bounds, and the end


async def test_what_waits_is_bounded_by_number_and_by_bytes() -> None:
    settings = HttpSettings(max_connections=2, max_waiting=3, max_waiting_bytes=10_000)
    async with facing(says(b"", end="wait"), settings) as (owner, _):
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


async def test_what_was_said_last_is_still_sent_before_the_session_is_given_back() -> None:
    async def slow(visit: Visit) -> None:
        await asyncio.sleep(1)
        await visit.reply(202)

    async with facing() as (owner, server):
        server.on("notifications/last", slow)
        owner.note("notifications/last")
        await owner.close()
        assert owner.ended == Shutdown()
        assert [each.method for each in server.visits[-2:]] == ["POST", "DELETE"]


async def test_the_owner_dies_and_the_session_is_given_back() -> None:
    async with scripted() as server:

        async def live() -> None:
            async with opened(HttpRoute(server.url)) as owner:
                await owner.greet()
                kill(owner.me.pid)

        async with inbox():
            pid = spawn(live)
            await wait_down(pid)
            await server.until("DELETE")


async def test_a_wire_that_is_killed_leaves_nothing_and_nothing_raises_afterwards() -> None:
    async with facing(says(b"", end="wait")) as (owner, server):
        id = owner.call("any")
        (visit,) = await server.until("tools/call")
        kill(owner.wire.pid)
        await visit.gone()
        mail = await owner.me.receive()
        assert mail.reason == Killed()
        owner.call("any")
        owner.note("notifications/x")
        owner.wire.forget(id)
        owner.wire.on_negotiated("2025-11-25")
        exit(owner.wire.pid, Shutdown())
        assert owner.silent()


@pytest.mark.parametrize("credentials", [None, FixedHeaders({"authorization": "Bearer credentials"})])
async def test_who_we_are_is_said_once_however_often_it_was_given(credentials: FixedHeaders | None) -> None:
    async with scripted() as server:
        url = server.url.replace("http://", "http://user:password@")
        route = HttpRoute(url, headers={"Authorization": "Bearer headers"}, credentials=credentials)
        async with opened(route) as owner:  # the server looks that no header came twice
            await owner.greet()
        said = "Bearer headers" if credentials is None else "Bearer credentials"
        assert {visit.headers["authorization"] for visit in server.visits} == {said}
