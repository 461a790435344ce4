"""Mentions of a host's resources: fetching and invalidation of lists, completion, and reading."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from greenroom import Server
from greenroom.actors.client.errors import RequestTimeout
from greenroom.actors.client.interfaces import Phase, ServerWelcome, Status
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.actors.mentions.mention_reader import ResourceListCache, TemplateWordsError, UnknownResource
from greenroom.client_targets import route_of
from greenroom.errors import ConfigError
from greenroom.host import Host
from greenroom.protocol.errors import BadAnswer, PeerError


def library(name: str = "library") -> Server:
    server = Server(name)

    @server.resource("note://readme", name="readme", title="Read me")
    def readme() -> str:
        return "read me first"

    @server.resource("note://release", name="release notes")
    def notes() -> str:
        return "nothing new"

    @server.resource("issue://{owner}/{number}", name="issue")
    def issue(owner: str, number: str) -> str:
        return f"{number} of {owner}"

    @server.completion("number", template="issue://{owner}/{number}")
    async def numbers(value: str) -> list[str]:
        return [each for each in ("7", "70", "8") if each.startswith(value)]

    return server


def lazily(server: Server) -> UpstreamSpec:
    return UpstreamSpec(route_of(server), lists=("tools", "prompts"))


def text_of(reply: Any) -> str:
    return "".join(each.text for each in reply.contents)


@pytest.mark.row("CB-15")
async def test_a_mention_is_read_by_name_title_or_uri() -> None:
    async with Host({"lib": library()}) as host:
        for word in ("readme", '"Read me"', "note://readme"):
            assert text_of(await host.mentions.read(f"@lib:{word}")) == "read me first"
        assert text_of(await host.mentions.read("@lib:issue ada 7")) == "7 of ada"
        assert text_of(await host.mentions.read("@lib:issue://bo/9")) == "9 of bo"


@pytest.mark.row("CB-15")
@pytest.mark.parametrize(
    ("typed", "error", "says"),
    [
        ("@lib:issue ada", TemplateWordsError, "needs 2 words, <owner> <number>, but has 1"),
        ("@lib:issue ada 7 8", TemplateWordsError, "needs 2 words"),
        ("@lib:readme now", TemplateWordsError, "takes no words, but has 1"),
        ("@lib:readm", UnknownResource, "has no resource 'readm'; did you mean readme"),
        ("@lbi:readme", UnknownResource, "no server is called 'lbi'; did you mean lib"),
        ("readme", UnknownResource, "write @server:resource"),
    ],
)
async def test_an_unreadable_mention_is_reported(typed: str, error: type[Exception], says: str) -> None:
    async with Host({"lib": library()}) as host:
        with pytest.raises(error, match=says):
            await host.mentions.read(typed)


async def test_a_text_is_read_with_all_its_mentions_and_one_that_is_wrong_spoils_no_other() -> None:
    async with Host({"lib": library()}) as host:
        read = await host.mentions.read_all("Look at @lib:readme, then @lib:issue ada 7 and @lib:nothing.")

    assert [(str(each.mention), each.uri, each.error is None) for each in read] == [
        ("@lib:readme", "note://readme", True),
        ("@lib:issue", "issue://ada/7", True),
        ("@lib:nothing", None, False),
    ]


@pytest.mark.row("CB-15")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("see @", ["@hub:", "@lib:"]),
        ("see @l", ["@lib:"]),
        ("@lib:", ["readme", '"release notes"', "issue", "note://readme", "note://release"]),
        ("@lib:RE", ["readme", '"release notes"']),
        ("@lib:issue ada 7", ["7", "70"]),
        ("@lib:issue ada 7 ", []),
        ("@lib:readme ", []),
        ("@absent:x", []),
        ("hello", []),
    ],
)
async def test_a_mention_is_completed_while_typed(typed: str, offered: list[str]) -> None:
    async with Host({"lib": library(), "hub": library("hub")}) as host:
        assert await host.mentions.completions(typed) == offered


@pytest.mark.row("CB-14")
async def test_lists_are_asked_for_when_they_are_first_wanted_and_then_kept() -> None:
    async with Host({"lib": lazily(library()), "hub": lazily(library("hub"))}) as host:
        await host.tools()
        offering = host.federation.known("lib")
        assert offering is not None
        assert (list(offering.resources), host.resource_lists.known("lib")) == ([], None)

        await host.mentions.completions("@lib:")

        kept = host.resource_lists.known("lib")
        assert kept is not None
        assert [each["name"] for each in kept.resources] == ["readme", "release notes"]
        assert await host.resource_lists.of("lib") is kept
        assert host.resource_lists.known("hub") is None


@pytest.mark.row("CB-14")
async def test_a_server_whose_lists_have_changed_is_asked_again_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    library_, hub = library(), library("hub")
    async with Host({"lib": lazily(library_), "hub": lazily(hub)}) as host:
        await host.resource_lists.of("lib")
        others = await host.resource_lists.of("hub")
        heard = asyncio.Event()
        void = host.resource_lists.changed

        def changed(server: str) -> None:
            void(server)
            heard.set()

        monkeypatch.setattr(host.resource_lists, "changed", changed)

        @library_.resource("note://new", name="news")
        def news() -> str:
            return "new"

        await heard.wait()

        assert host.resource_lists.known("lib") is None
        assert "news" in await host.mentions.completions("@lib:n")
        assert host.resource_lists.known("hub") is others


@pytest.mark.row("CB-14")
async def test_another_server_under_the_same_name_is_not_taken_for_the_one_before() -> None:
    def one(name: str) -> Server:
        server = Server(name)

        @server.resource(f"note://{name}", name=name)
        def note() -> str:
            return name

        return server

    async with Host({"lib": lazily(one("old"))}) as host:
        assert await host.mentions.completions("@lib:") == ["old", "note://old"]

        await host.replace("lib", lazily(one("new")))

        assert await host.mentions.completions("@lib:") == ["new", "note://new"]
        assert text_of(await host.mentions.read("@lib:new")) == "new"
        await host.remove("lib")
        assert host.resource_lists.known("lib") is None
        assert await host.mentions.completions("@lib:") == []
        await host.add("lib", lazily(one("last")))
        assert await host.mentions.completions("@lib:") == ["last", "note://last"]


async def test_completions_of_foreign_names_can_be_typed_or_are_left_out() -> None:
    server = Server("odd")
    for number, name in enumerate(("a 'b'", "it's", "and so on...", "both ' and \"")):
        server.resource(f"note://{number}", name=name)(lambda: "read")
    async with Host({"odd": server}) as host:
        offered = await host.mentions.completions("@odd:")
        assert offered[:3] == ["\"a 'b'\"", '"and so on..."', '"it\'s"']
        assert sorted(offered[3:]) == [f"note://{number}" for number in range(4)]
        for each in offered:
            assert text_of(await host.mentions.read(f"@odd:{each}")) == "read"
        assert await host.mentions.completions('@odd:"and so') == ['"and so on..."']


# --- the cache, with a connection that records its requests


class Line:
    """A server with one resource, whose name counts the requests for the list."""

    def __init__(self, *, announces: bool = True, **more: Any) -> None:
        self.name = "lib"
        self.status = Status(Phase.READY, generation=1)
        self.welcome = ServerWelcome("2026-07-28", {"resources": {"listChanged": announces}}, {})
        self.asked = 0
        self.more = more
        self.fails: Exception | None = None
        self.hold: asyncio.Event | None = None

    async def request(self, method: str, params: Any = None, *, timeout: float | None = None) -> dict[str, Any]:
        if method == "resources/templates/list":
            raise PeerError(-32601, "no templates")
        self.asked += 1
        answer = {"resources": [{"uri": f"x://{self.asked}"}, "nonsense"], **self.more}
        if self.hold is not None:
            await self.hold.wait()
        if self.fails is not None:
            raise self.fails
        return answer


def list_cache(line: Line) -> ResourceListCache:
    return ResourceListCache(lambda _: cast("Any", line))


async def uri(cache: ResourceListCache) -> str:
    return str((await cache.of("lib")).resources[0]["uri"])


async def test_many_who_want_a_list_at_once_ask_once() -> None:
    line = Line()
    cache = list_cache(line)

    assert await asyncio.gather(*(uri(cache) for _ in range(20))) == ["x://1"] * 20
    assert line.asked == 1


@pytest.mark.row("CB-14")
async def test_a_list_that_changes_during_the_fetch_is_fetched_again() -> None:
    line = Line()
    line.hold = asyncio.Event()
    cache = list_cache(line)
    wanted = asyncio.ensure_future(uri(cache))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cache.changed("lib")
    line.hold.set()

    assert await wanted == "x://2"


async def test_a_new_connection_makes_its_list_void() -> None:
    line = Line()
    cache = list_cache(line)
    await uri(cache)
    line.status = replace(line.status, generation=2)

    assert cache.known("lib") is None
    assert await uri(cache) == "x://2"


@pytest.mark.row("CB-14")
async def test_a_list_holds_for_as_long_as_its_server_says() -> None:
    cache = list_cache(Line(ttlMs=5000))

    assert await uri(cache) == "x://1"
    await asyncio.sleep(4.9)
    assert await uri(cache) == "x://1"
    await asyncio.sleep(0.2)
    assert await uri(cache) == "x://2"


@pytest.mark.parametrize(("announces", "then"), [(True, "x://1"), (False, "x://2")])
async def test_a_list_that_is_said_to_be_stale_is_kept_while_changes_are_announced_and_else_for_a_while(
    *, announces: bool, then: str
) -> None:
    cache = list_cache(Line(announces=announces, ttlMs=0))
    assert await uri(cache) == "x://1"
    await asyncio.sleep(59.0)
    assert await uri(cache) == "x://1"
    await asyncio.sleep(3600.0)
    assert await uri(cache) == then


async def test_a_failure_is_told_and_not_kept() -> None:
    line = Line()
    line.fails = PeerError(-32000, "busy")
    cache = list_cache(line)
    with pytest.raises(PeerError, match="busy"):
        await uri(cache)
    line.fails = None

    assert await uri(cache) == "x://2"


async def test_a_cancelled_caller_does_not_cancel_the_others() -> None:
    line = Line()
    line.hold = asyncio.Event()
    cache = list_cache(line)
    first, second = (asyncio.ensure_future(uri(cache)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait((first,))
    line.hold.set()

    assert await second == "x://1"


async def test_a_list_without_an_end_is_refused() -> None:
    with pytest.raises(BadAnswer, match="returned the same cursor twice"):
        await uri(list_cache(Line(nextCursor="again")))

    class Endless(Line):
        async def request(self, method: str, params: Any = None, *, timeout: float | None = None) -> dict[str, Any]:
            return {**await super().request(method, params, timeout=timeout), "nextCursor": f"page {self.asked}"}

    with pytest.raises(BadAnswer, match="has more than 1000 pages"):
        await uri(list_cache(Endless()))
    with pytest.raises(BadAnswer, match="has more than 100000 entries"):
        await uri(list_cache(Line(resources=[{}] * 100_001)))


async def test_slow_pages_of_a_list_share_one_timeout() -> None:
    class Slow(Line):
        async def request(self, method: str, params: Any = None, *, timeout: float | None = None) -> dict[str, Any]:
            await asyncio.sleep(20)
            return {**await super().request(method, params, timeout=timeout), "nextCursor": f"page {self.asked}"}

    began = asyncio.get_running_loop().time()
    with pytest.raises(RequestTimeout, match="resources/list: no answer within 30 s"):
        await uri(list_cache(Slow()))
    assert asyncio.get_running_loop().time() - began == pytest.approx(30)


async def test_of_a_list_that_changes_whenever_it_is_asked_for_the_last_is_taken() -> None:
    class Restless(Line):
        async def request(self, method: str, params: Any = None, *, timeout: float | None = None) -> dict[str, Any]:
            cache.changed("lib")
            return await super().request(method, params, timeout=timeout)

    line = Restless()
    cache = list_cache(line)
    assert await uri(cache) == "x://5"
    assert cache.known("lib") is None


def test_the_tools_of_a_server_are_always_kept() -> None:
    with pytest.raises(
        ConfigError, match="lists are some of tools, resources, templates, prompts, tools among them, not prompts"
    ):
        UpstreamSpec(route_of(library()), lists=("prompts",))
