"""The cache of a client as a value: what it keeps, for whom, how long, and what it drops. No connection, and the time is a number."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from greenroom.actors.client.errors import (
    CircuitOpen,
    ClientClosed,
    InitTimeout,
    RequestLost,
    RequestTimeout,
    StreamLost,
    Unavailable,
)
from greenroom.actors.client.response_cache import CacheFetch, CacheKey, ResponseCache, cache_key, is_unreachable
from greenroom.actors.settings import BadSetting
from greenroom.auth.errors import SignInError
from greenroom.protocol.errors import BadAnswer, PeerError, RequestCancelled
from greenroom.transports.client.errors import (
    ConnectFailed,
    ConnectionLost,
    HttpError,
    NotMcp,
    SessionGone,
    Unauthorized,
)

URL = "https://books.example/mcp"
TOOLS_CHANGED = "notifications/tools/list_changed"
RESOURCES_CHANGED = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
LOST = RequestLost("tools/list", ConnectionLost("the server is away"))


def key(method: str = "tools/list", param: str | None = None, endpoint: str = URL, declared: bytes = b"") -> CacheKey:
    return CacheKey(endpoint, declared, method, param)


def result(ttl: Any = 60_000, scope: Any = "private", **members: Any) -> dict[str, Any]:
    return {"resultType": "complete", "ttlMs": ttl, "cacheScope": scope, **members}


def fill(cache: ResponseCache, where: CacheKey, authorization: Any, found: dict[str, Any], now: float = 0.0) -> None:
    """Request it, and get this answer at that time."""
    fetch = cache.fetch(where, authorization)
    assert fetch.settle(found, None, authorization, now) == (found, None)


# --- keys


@pytest.mark.row("26-C3")
@pytest.mark.parametrize(
    ("method", "params", "param"),
    [
        ("tools/list", None, None),
        ("tools/list", {}, None),
        ("tools/list", {"cursor": ""}, ""),
        ("prompts/list", {"cursor": "2", "_meta": {"progressToken": 1}}, "2"),
        ("resources/list", {"_meta": {}}, None),
        ("resources/templates/list", {"cursor": "2"}, "2"),
        ("resources/read", {"uri": "book://a", "_meta": {}}, "book://a"),
    ],
)
def test_a_key_is_the_method_and_the_param_that_matters(method: str, params: Any, param: str | None) -> None:
    assert cache_key(URL, b"", method, params) == CacheKey(URL, b"", method, param)


@pytest.mark.row("26-C3")
@pytest.mark.row("26-R13")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "lend"}),
        ("prompts/get", {"name": "p"}),
        ("server/discover", None),
        ("completion/complete", {}),
        ("resources/read", None),
        ("resources/read", {"uri": 3}),
        ("resources/read", {"uri": "x" * 4097}),
        ("resources/read", {"uri": "book://a", "inputResponses": {}}),
        ("resources/read", {"uri": "book://a", "requestState": "s"}),
        ("tools/list", {"cursor": None}),
        ("tools/list", {"cursor": 3}),
        ("tools/list", {"filter": "new"}),
        ("tools/list", {"uri": "book://a"}),
        ("x" * 70_000, None),
    ],
)
def test_a_request_with_other_params_is_not_kept(method: str, params: Any) -> None:
    assert cache_key(URL, b"", method, params) is None


@pytest.mark.row("26-C3")
@pytest.mark.parametrize(
    "other",
    [
        key(param=""),
        key(param="2"),
        key("prompts/list"),
        key(endpoint="https://other.example/mcp"),
        key(declared=b'{"elicitation":{}}'),
    ],
)
def test_a_result_is_given_to_no_other_request(other: CacheKey) -> None:
    cache = ResponseCache()
    fill(cache, key(), "ada", result(scope="public"))
    assert cache.find(other, "ada", 1.0) is None
    assert cache.find(key(), "ada", 1.0) is not None


# --- time


@pytest.mark.row("26-C4")
@pytest.mark.parametrize("ttl", [0, -1, -1e9, None, "60000", True, [60_000], {}, 0.0, ...])
def test_a_result_without_time_to_live_is_not_kept(ttl: Any) -> None:
    cache = ResponseCache()
    found = result(ttl) if ttl is not ... else {"resultType": "complete", "cacheScope": "public"}
    fill(cache, key(), "ada", found)
    assert cache.find(key(), "ada", 0.0) is None
    assert cache.count == 0


@pytest.mark.row("26-C4")
def test_a_result_is_fresh_from_its_arrival_until_its_time_is_over() -> None:
    cache = ResponseCache()
    fetch = cache.fetch(key(), "ada")
    fetch.settle(result(1500, tools=[1]), None, "ada", 10.0)
    assert cache.find(key(), "ada", 10.0) == result(1500, tools=[1])
    assert cache.find(key(), "ada", 11.25) == result(250, tools=[1])
    assert cache.find(key(), "ada", 11.5) is None


@pytest.mark.row("26-C4")
def test_each_page_has_its_own_clock() -> None:
    cache = ResponseCache()
    fill(cache, key(), "ada", result(5000, page=1), 0.0)
    fill(cache, key(param="2"), "ada", result(1000, page=2), 2.0)
    assert cache.find(key(param="2"), "ada", 2.9) is not None
    assert cache.find(key(param="2"), "ada", 3.0) is None
    assert cache.find(key(), "ada", 4.9) is not None
    assert cache.find(key(), "ada", 5.0) is None


def test_a_time_to_live_of_years_is_cut() -> None:
    cache = ResponseCache(max_seconds=3600)
    fill(cache, key(), "ada", result(10**400))
    assert cache.find(key(), "ada", 3599.9) is not None
    assert cache.find(key(), "ada", 3600.0) is None


@pytest.mark.row("26-C4")
@pytest.mark.parametrize("error", [PeerError(-32602, "no such cursor"), BadAnswer("no page")])
def test_a_cursor_that_fails_drops_all_pages_of_its_list(error: Exception) -> None:
    cache = ResponseCache()
    for param in (None, "2", "3"):
        fill(cache, key(param=param), "ada", result(scope="public" if param == "3" else "private"))
    fill(cache, key(param="2"), "bob", result())
    fill(cache, key("resources/list"), "ada", result())
    failing = cache.fetch(key(param="4"), "ada")
    assert failing.settle(None, error, "ada", 1.0) == (None, error)
    assert [cache.find(key(param=param), "ada", 1.0) for param in (None, "2", "3")] == [None] * 3
    assert cache.find(key("resources/list"), "ada", 1.0) is not None
    assert cache.find(key(param="2"), "bob", 1.0) is not None  # what another authorization has is not affected


@pytest.mark.row("26-C4")
def test_pages_of_the_templates_outlive_a_cursor_of_the_resources() -> None:
    cache = ResponseCache()
    fill(cache, key("resources/templates/list"), "ada", result())
    cache.fetch(key("resources/list", "x"), "ada").settle(None, PeerError(-32602, "no such cursor"), "ada", 1.0)
    assert cache.find(key("resources/templates/list"), "ada", 1.0) is not None


# --- authorization


@pytest.mark.row("26-C3")
def test_a_private_result_is_given_to_its_own_authorization_alone() -> None:
    cache = ResponseCache()
    fill(cache, key(), "ada", result(tools=["ada's"]))
    assert cache.find(key(), "ada", 1.0) is not None
    assert cache.find(key(), "bob", 1.0) is None
    assert cache.find(key(), None, 1.0) is None


@pytest.mark.row("26-C3")
@pytest.mark.parametrize("scope", [None, "Public", "shared", 1, ["public"]])
def test_any_scope_but_public_is_private(scope: Any) -> None:
    cache = ResponseCache()
    fill(cache, key(), "ada", result(scope=scope))
    assert cache.find(key(), "ada", 1.0) is not None
    assert cache.find(key(), "bob", 1.0) is None


@pytest.mark.row("26-C3")
def test_a_public_result_is_given_to_every_authorization_also_an_unknown_one() -> None:
    cache = ResponseCache()
    fill(cache, key(), None, result(scope="public"))
    assert all(cache.find(key(), authorization, 1.0) is not None for authorization in ("ada", "bob", None))


@pytest.mark.row("26-C3")
def test_nothing_private_is_kept_where_the_authorization_is_unknown() -> None:
    cache = ResponseCache()
    fill(cache, key(), None, result())
    assert cache.count == 0


@pytest.mark.row("26-C3")
def test_a_result_is_not_kept_when_the_login_changed_before_its_arrival() -> None:
    cache = ResponseCache()
    found = result(scope="public")
    assert cache.fetch(key(), "ada").settle(found, None, "bob", 0.0) == (found, None)
    assert cache.count == 0


@pytest.mark.row("26-C3")
def test_a_list_that_becomes_private_is_no_longer_given_to_others() -> None:
    cache = ResponseCache()
    fill(cache, key(), "ada", result(scope="public", tools=["all"]))
    fill(cache, key(), "bob", result(tools=["bob's"]))
    assert cache.find(key(), "ada", 1.0) is None
    assert cache.find(key(), "bob", 1.0) == result(59_000, tools=["bob's"])


def test_a_request_gets_the_private_result_of_its_own_before_that_for_all() -> None:
    cache = ResponseCache()
    fill(cache, key(), "ada", result(tools=["ada's"]))
    fill(cache, key(), "bob", result(scope="public", tools=["all"]))
    assert cache.find(key(), "ada", 0.0) == result(tools=["ada's"])
    assert cache.find(key(), "bob", 0.0) == result(scope="public", tools=["all"])


# --- news


@pytest.mark.row("26-C5")
@pytest.mark.parametrize(
    ("news", "dropped"),
    [
        (TOOLS_CHANGED, {"tools/list"}),
        ("notifications/prompts/list_changed", {"prompts/list"}),
        (RESOURCES_CHANGED, {"resources/list", "resources/templates/list"}),
        ("notifications/message", set[str]()),
    ],
)
def test_a_list_is_stale_as_soon_as_it_has_changed(news: str, dropped: set[str]) -> None:
    cache = ResponseCache()
    lists = [f"{each}/list" for each in ("tools", "prompts", "resources", "resources/templates")]
    for method in lists:
        for param in (None, "2"):
            fill(cache, key(method, param), "ada", result())
    fill(cache, key("resources/read", "book://a"), "ada", result())
    fill(cache, key(endpoint="other"), "ada", result())
    cache.on_notification(URL, news, {})
    assert {method for method in lists if cache.find(key(method), "ada", 1.0) is None} == dropped
    assert {method for method in lists if cache.find(key(method, "2"), "ada", 1.0) is None} == dropped
    assert cache.find(key("resources/read", "book://a"), "ada", 1.0) is not None
    assert cache.find(key(endpoint="other"), "ada", 1.0) is not None


@pytest.mark.row("26-C5")
def test_a_resource_is_stale_as_soon_as_it_or_a_part_of_it_was_updated() -> None:
    cache = ResponseCache()
    uris = (
        "book://shelf",
        "book://shelf/",
        "book://shelf/1",
        "book://shelf/1?page=2",
        "book://shelf/10",
        "book://other",
    )
    for uri in uris:
        fill(cache, key("resources/read", uri), "ada", result())
    cache.on_notification(URL, UPDATED, {"uri": "book://shelf/1"})
    left = [uri for uri in uris if cache.find(key("resources/read", uri), "ada", 1.0) is not None]
    assert left == ["book://shelf/1?page=2", "book://shelf/10", "book://other"]


@pytest.mark.row("26-C5")
@pytest.mark.parametrize("params", [{}, {"uri": None}, {"uri": 3}, {"uri": ["book://a"]}])
def test_an_update_without_a_uri_changes_nothing(params: dict[str, Any]) -> None:
    cache = ResponseCache()
    fill(cache, key("resources/read", "book://a"), "ada", result())
    cache.on_notification(URL, UPDATED, params)
    assert cache.count == 1


@pytest.mark.row("26-C5")
def test_a_result_that_was_requested_before_the_news_is_not_kept() -> None:
    cache = ResponseCache()
    before = cache.fetch(key(), "ada")
    cache.on_notification(URL, TOOLS_CHANGED, {})
    after = cache.fetch(key(), "ada")
    before.settle(result(tools=["old"]), None, "ada", 1.0)
    assert cache.count == 0
    after.settle(result(tools=["new"]), None, "ada", 1.0)
    assert cache.find(key(), "ada", 1.0) == result(tools=["new"])


def test_the_answer_to_an_earlier_request_does_not_replace_that_to_a_later_one() -> None:
    cache = ResponseCache()
    first, second = cache.fetch(key(), "ada"), cache.fetch(key(), "ada")
    second.settle(result(tools=["new"]), None, "ada", 1.0)
    first.settle(result(tools=["old"]), None, "ada", 2.0)
    first.settle(None, PeerError(-32603, "failed"), "ada", 2.0)
    assert cache.find(key(), "ada", 1.0) == result(tools=["new"])


@pytest.mark.row("26-C5")
def test_all_results_of_an_endpoint_are_dropped_where_news_may_have_been_missed() -> None:
    cache = ResponseCache()
    under_way = cache.fetch(key("prompts/list"), "ada")
    fill(cache, key(), "ada", result())
    fill(cache, key("resources/read", "book://a"), "bob", result(scope="public"))
    fill(cache, key(endpoint="other"), "ada", result())
    cache.forget(URL)
    under_way.settle(result(), None, "ada", 1.0)
    assert [cache.results(URL, authorization, 1.0) for authorization in ("ada", "bob")] == [[], []]
    assert len(cache.results("other", "ada", 1.0)) == 1
    cache.clear()
    assert (cache.count, cache.size) == (0, 0)


@pytest.mark.row("26-R13")
def test_an_interim_result_is_never_kept() -> None:
    cache = ResponseCache()
    fill(cache, key("resources/read", "book://a"), "ada", result() | {"resultType": "input_required"})
    assert cache.count == 0


# --- stale results


@pytest.mark.row("26-C5")
@pytest.mark.parametrize(
    "error",
    [
        LOST,
        StreamLost("tools/list", ConnectionLost("gone")),
        RequestLost("tools/list", HttpError(503)),
        RequestTimeout("tools/list", 5.0),
        Unavailable("books", ConnectFailed("refused")),
        Unavailable("books"),
        CircuitOpen("books", RequestTimeout("tools/list", 5.0)),
        Unavailable("books", InitTimeout("slow")),
    ],
)
def test_a_stale_result_is_given_where_the_server_cannot_be_reached_if_that_is_set(error: Exception) -> None:
    cache = ResponseCache(stale_seconds=30)
    fill(cache, key(), "ada", result(1000, tools=["kept"]), 0.0)
    assert cache.find(key(), "ada", 1.0) is None
    assert cache.fetch(key(), "ada").settle(None, error, "ada", 30.9) == (result(0, tools=["kept"]), None)
    assert cache.fetch(key(), "bob").settle(None, error, "bob", 30.9) == (None, error)
    assert cache.fetch(key(), "ada").settle(None, error, "bob", 30.9) == (None, error)
    assert cache.fetch(key(), "ada").settle(None, error, "ada", 31.0) == (None, error)


@pytest.mark.row("26-C5")
def test_no_stale_result_is_given_unless_that_is_set() -> None:
    cache = ResponseCache()
    fill(cache, key(), "ada", result(1000))
    assert cache.fetch(key(), "ada").settle(None, LOST, "ada", 1.0) == (None, LOST)


@pytest.mark.row("26-C5")
def test_no_stale_result_is_given_after_news_or_after_an_error_of_the_server() -> None:
    cache = ResponseCache(stale_seconds=30)
    for spoil in (
        lambda: cache.on_notification(URL, TOOLS_CHANGED, {}),
        lambda: cache.fetch(key(), "ada").settle(None, PeerError(-32603, "failed"), "ada", 2.0),
        lambda: cache.fetch(key(), "ada").settle(None, BadAnswer("no list"), "ada", 2.0),
        lambda: cache.fetch(key(), "ada").settle(result(0), None, "ada", 2.0),
        lambda: cache.forget(URL),
    ):
        fill(cache, key(), "ada", result(1000), 0.0)
        spoil()
        assert cache.fetch(key(), "ada").settle(None, LOST, "ada", 3.0) == (None, LOST)


@pytest.mark.row("26-C5")
@pytest.mark.parametrize(
    "error",
    [
        RequestCancelled("by its caller"),
        ClientClosed("the client is closed"),
        SignInError("token", "refused"),
        RequestLost("tools/list", Unauthorized()),
        RequestLost("tools/list", HttpError(403)),
        RequestLost("tools/list", HttpError(404)),
        RequestLost("tools/list", SessionGone(404)),
        Unavailable("books", Unauthorized(renewed=True)),
        Unavailable("books", NotMcp("a page")),
        Unavailable("books", SignInError("token", "refused")),
        PeerError(-32603, "failed"),
        ValueError("a bug"),
        None,
    ],
)
def test_other_failures_say_something_about_the_content_or_the_login(error: BaseException | None) -> None:
    assert not is_unreachable(error)


# --- readers


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda more: st.lists(more) | st.dictionaries(st.text(), more),
    )
)
def test_a_reader_gets_what_was_sent(value: Any) -> None:
    cache = ResponseCache()
    sent = json.loads(json.dumps(result(contents=value)))
    fill(cache, key(), "ada", sent)
    assert cache.find(key(), "ada", 0.0) == sent


def test_a_reader_that_changes_its_result_harms_no_other() -> None:
    cache = ResponseCache()
    sent = result(tools=[{"name": "lend"}])
    fill(cache, key(), "ada", sent)
    sent["tools"].clear()
    mine = cache.find(key(), "ada", 0.0)
    assert mine is not None
    mine["tools"][0]["name"] = "steal"
    assert cache.find(key(), "ada", 0.0) == result(tools=[{"name": "lend"}])


def test_what_is_kept_is_listed_without_its_content() -> None:
    cache = ResponseCache()
    fill(cache, key(), "ada", result(2000, tools=["secret"]))
    fill(cache, key("resources/read", "book://a"), "ada", result(scope="public"))
    fill(cache, key(), "bob", result())
    shown = cache.results(URL, "ada", 1.0)
    assert [(each.method, each.param, each.public, each.seconds_left) for each in shown] == [
        ("tools/list", None, False, 1.0),
        ("resources/read", "book://a", True, 59.0),
    ]
    assert "secret" not in f"{shown!r}{cache!r}"
    assert len(cache.results(URL, "ada", 2.0)) == len(cache.results(URL, None, 1.0)) == 1


# --- bounds


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_entries": 0},
        {"max_entries": True},
        {"max_bytes": 1.5},
        {"max_seconds": -1},
        {"stale_seconds": float("inf")},
        {"stale_seconds": float("nan")},
        {"max_seconds": "1"},
    ],
)
def test_a_wrong_setting_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match=next(iter(wrong))):
        ResponseCache(**wrong)


def test_the_owner_that_has_the_most_gives_its_oldest_result() -> None:
    cache = ResponseCache(max_entries=10)
    for number in range(3):
        fill(cache, key("resources/read", f"ada://{number}"), "ada", result())
    for number in range(100):
        fill(cache, key("resources/read", f"bob://{number}"), "bob", result(scope="public"))
    assert cache.count == 10
    assert all(cache.find(key("resources/read", f"ada://{number}"), "ada", 0.0) for number in range(3))
    kept = [number for number in range(100) if cache.find(key("resources/read", f"bob://{number}"), "bob", 0.0)]
    assert kept == list(range(93, 100))


def test_the_owner_with_the_most_bytes_gives_when_there_are_too_many_bytes() -> None:
    cache = ResponseCache(max_bytes=100_000)
    for number in range(20):
        fill(cache, key("resources/read", f"ada://{number}"), "ada", result())
    for number in range(20):
        fill(cache, key("resources/read", f"bob://{number}"), "bob", result(text="x" * 20_000))
    assert cache.size <= 100_000
    assert all(cache.find(key("resources/read", f"ada://{number}"), "ada", 0.0) for number in range(20))
    assert cache.find(key("resources/read", "bob://19"), "bob", 0.0) is not None


def test_a_result_larger_than_a_quarter_of_the_cache_is_not_kept() -> None:
    cache = ResponseCache(max_bytes=100_000)
    fill(cache, key("resources/read", "book://a"), "ada", result(text="x" * 25_000))
    assert cache.count == 0


def test_nothing_remains_of_requests_that_end_without_an_answer() -> None:
    cache = ResponseCache()
    for number in range(1000):
        cache.fetch(key("resources/read", f"book://{number}"), "ada")
        cache.on_notification(URL, UPDATED, {"uri": f"book://{number}"})
    assert (cache.count, len(cache._subjects), cache._shares) == (0, 0, {})


# --- any order of events, beside a model that keeps everything and searches

AUTHORIZATIONS = st.sampled_from(["ada", "bob", None])
KEYS = st.builds(
    CacheKey,
    st.sampled_from(["x", "y"]),
    st.just(b""),
    st.sampled_from(["tools/list", "resources/list", "resources/templates/list", "resources/read"]),
    st.sampled_from([None, "", "a://1", "a://1/2"]),
).filter(lambda each: each.method != "resources/read" or each.param is not None)
NEWS = {TOOLS_CHANGED: {"tools/list"}, RESOURCES_CHANGED: {"resources/list", "resources/templates/list"}}


@dataclass
class Kept:
    """An answer that the model keeps."""

    where: CacheKey
    authorization: str | None
    public: bool
    serial: int
    until: float
    content: int
    dropped: bool = False

    def seen_by(self, authorization: str | None) -> bool:
        """Whether a request with this authorization may get it."""
        return not self.dropped and (self.public or (authorization is not None and authorization == self.authorization))


class AnyOrder(RuleBasedStateMachine):
    """Requests, answers, failures and news in any order."""

    bounds: dict[str, Any] = {}  # noqa: RUF012 - a constant

    def __init__(self) -> None:
        super().__init__()
        self.cache = ResponseCache(stale_seconds=5.0, **self.bounds)
        self.now = 0.0
        self.answers: list[Kept] = []
        self.under_way: list[tuple[int, CacheFetch]] = []
        self.news: list[tuple[int, str, str, str]] = []
        self.serial = 0

    @property
    def exact(self) -> bool:
        """Whether nothing is pushed out, so that all that may be given is given."""
        return not self.bounds

    def visible(self, where: CacheKey, authorization: str | None) -> list[Kept]:
        found = [each for each in self.answers if each.where == where and each.seen_by(authorization)]
        return sorted(found, key=lambda each: each.public)  # one's own before that of all

    @rule(seconds=st.sampled_from([0.25, 1.0, 4.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(where=KEYS, authorization=AUTHORIZATIONS)
    def request(self, where: CacheKey, authorization: str | None) -> None:
        fresh = [each for each in self.visible(where, authorization) if self.now < each.until]
        found = self.cache.find(where, authorization, self.now)
        if found is None:
            assert not (fresh and self.exact)
        else:
            assert (found["n"], found["ttlMs"]) in [(each.content, (each.until - self.now) * 1000) for each in fresh]
            assert found["n"] == fresh[0].content or not self.exact
        self.serial += 1
        self.under_way.append((self.serial, self.cache.fetch(where, authorization)))

    def is_old(self, serial: int, where: CacheKey) -> bool:
        for when, endpoint, method, uri in self.news:
            if when < serial or endpoint != where.endpoint:
                continue
            if method == "everything" or where.method in NEWS.get(method, ()):
                return True
            if method == UPDATED and where.method == "resources/read" and _is_within(uri, where.param or ""):
                return True
        return False

    @precondition(lambda self: self.under_way)
    @rule(
        which=st.randoms(use_true_random=False),
        ttl=st.sampled_from([0, -5, 500, 3000, None]),
        public=st.booleans(),
        relogin=st.sampled_from([False, False, False, True]),
    )
    def answer(self, which: Any, ttl: int | None, public: bool, relogin: bool) -> None:  # noqa: FBT001 - a rule
        serial, fetch = self.under_way.pop(which.randrange(len(self.under_way)))
        authorization: Any = fetch.authorization
        present = "carol" if relogin else authorization
        fetch.settle(result(ttl, "public" if public else "private", n=serial), None, present, self.now)
        before = self.visible(fetch.key, authorization)
        if relogin or (self.exact and any(each.serial > serial for each in before)):
            return
        for each in before:
            each.dropped = each.serial < serial
        if ttl is not None and ttl > 0 and (public or authorization is not None) and not self.is_old(serial, fetch.key):
            until = self.now + ttl / 1000
            self.answers.append(Kept(fetch.key, authorization, public, serial, until, serial))

    @precondition(lambda self: self.under_way)
    @rule(which=st.randoms(use_true_random=False))
    def refuse(self, which: Any) -> None:
        serial, fetch = self.under_way.pop(which.randrange(len(self.under_way)))
        fetch.settle(None, PeerError(-32602, "no"), fetch.authorization, self.now)
        pages = fetch.key.param is not None and fetch.key.method.endswith("/list")
        for each in self.answers:
            same_list = each.where._replace(param=None) == fetch.key._replace(param=None)
            if (each.where == fetch.key or (pages and same_list)) and each.seen_by(fetch.authorization):  # type: ignore[arg-type]
                each.dropped = each.serial < serial

    @precondition(lambda self: self.under_way)
    @rule(which=st.randoms(use_true_random=False))
    def lose(self, which: Any) -> None:
        _, fetch = self.under_way.pop(which.randrange(len(self.under_way)))
        found, error = fetch.settle(None, LOST, fetch.authorization, self.now)
        known = [each for each in self.visible(fetch.key, fetch.authorization) if self.now < each.until + 5.0]  # type: ignore[arg-type]
        if found is None:
            assert error is LOST
            assert not (known and self.exact)
        else:
            assert error is None
            assert found["n"] in [each.content for each in known]

    @rule(endpoint=st.sampled_from("xy"), method=st.sampled_from(sorted(NEWS)))
    def change_list(self, endpoint: str, method: str) -> None:
        self.cache.on_notification(endpoint, method, {})
        self.announce(endpoint, method, "")

    @rule(endpoint=st.sampled_from("xy"), uri=st.sampled_from(["", "a://1", "a://1/2", "a://1/2/3", "a://9"]))
    def update(self, endpoint: str, uri: str) -> None:
        self.cache.on_notification(endpoint, UPDATED, {"uri": uri})
        self.announce(endpoint, UPDATED, uri)

    @rule(endpoint=st.sampled_from("xy"))
    def miss_news(self, endpoint: str) -> None:
        self.cache.forget(endpoint)
        self.announce(endpoint, "everything", "")

    def announce(self, endpoint: str, method: str, uri: str) -> None:
        self.news.append((self.serial, endpoint, method, uri))
        for each in self.answers:
            each.dropped = each.dropped or self.is_old(each.serial, each.where)

    @invariant()
    def counts_are_right(self) -> None:
        cache = self.cache
        entries = cache._entries
        assert cache.size == sum(each.size for each in entries.values()) <= cache.max_bytes
        assert cache.count <= cache.max_entries
        assert {slot: None for share in cache._shares.values() for slot in share.slots} == dict.fromkeys(entries)
        assert sum(share.size for share in cache._shares.values()) == cache.size
        assert all(share.slots for share in cache._shares.values())
        assert {slot for about in cache._subjects.values() for slot in about.slots} == set(entries)


class AnyOrderInLittleRoom(AnyOrder):
    """The same where most is pushed out: what is given is still what may be given."""

    bounds: dict[str, Any] = {"max_entries": 3, "max_bytes": 8000}  # noqa: RUF012 - a constant


def _is_within(part: str, whole: str) -> bool:
    """Whether the resource `part` may be a part of the resource `whole`."""
    return part == whole or (
        whole != "" and part.startswith(whole) and (whole[-1] in "/?#" or part[len(whole)] in "/?#")
    )


TestAnyOrder = pytest.mark.row("26-C3")(AnyOrder.TestCase)
TestAnyOrderInLittleRoom = pytest.mark.row("26-C5")(AnyOrderInLittleRoom.TestCase)
