"""Challenges name all scopes of an operation at once, and a broad scope is enough where a narrow one is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom import ConfigError, Extension, RegistrationError, Server
from greenroom.actors.catalogue import announced_scopes
from greenroom.auth.auth_gate import AuthGate, ProviderChain
from greenroom.auth.auth_info import AuthInfo, AuthRequest
from greenroom.auth.bearer_tokens import BearerAuth
from greenroom.auth.client.login_process import parse_challenges
from greenroom.auth.resource_server import OAuthResource
from greenroom.auth.scope_hierarchy import ScopeHierarchy
from greenroom.auth.shared_secrets import APIKeyAuth, CustomAuth
from greenroom.transports.interfaces import HttpRefusal, Peer

from .auth_test_server import AUDIENCE, HELLO, ISSUER, KEY, Reception, bearer, call, claims
from .dpop_prover import ANN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PEM = KEY.inner.as_pem(private=False)


def resource(**options: Any) -> OAuthResource:
    """A resource server that takes the issuer's tokens."""
    return OAuthResource(resource=AUDIENCE, authorization_servers=[ISSUER], key=PEM, algorithms=("ES256",), **options)


def token(*scopes: str) -> Mapping[str, str | None]:
    """The header with a token of these scopes."""
    return bearer(ANN.token(cnf=None, scope=" ".join(scopes)))


def granted(token: str, *_: object) -> dict[str, Any]:
    """An authorizer: the token is its scopes."""
    return claims(scope=token)


def announced(method: str, name: str) -> dict[str, str]:
    """The headers by which a request of revision 2026-07-28 announces its operation."""
    return {"mcp-method": method, "mcp-name": name}


def asked(headers: Any) -> list[str]:
    """The scopes that a challenge names."""
    lines = [value for name, value in headers if name == "www-authenticate"]
    (said,) = [each.params for line in lines for each in parse_challenges(line)]
    return said.get("scope", "").split()


def office(auth: Any, **options: Any) -> Server:
    """A server with scoped entries of each kind."""
    server = Server("office", auth=auth, **options)

    @server.tool(scopes=["files:read", "files:write"])
    def change() -> str:
        return "changed"

    @server.tool
    def look() -> str:
        return "seen"

    @server.resource("file://{path}", "files", scopes=["files:read"])
    def files(path: str) -> str:
        return path

    @server.resource("file://one", "one", scopes=["files:one"])
    def one() -> str:
        return "one"

    @server.prompt(scopes=["plans"])
    def plan() -> str:
        return "plan"

    return server


def pages() -> Extension:
    """An extension with a scoped method."""
    extension = Extension("example.com/pages")

    @extension.method("pages/turn", scopes=["pages"])
    def turn(params: dict[str, Any]) -> dict[str, Any]:
        return params

    return extension


# --- all at once


@pytest.mark.row("26-A9")
@pytest.mark.parametrize(
    ("method", "name", "scopes"),
    [
        ("tools/call", "change", ["files:read", "files:write"]),
        ("tools/call", "look", []),
        ("tools/call", "none", []),
        ("resources/read", "file://a", ["files:read"]),
        ("resources/read", "file://one", ["files:one"]),
        ("resources/read", "=?base64?ZmlsZTovL2E=?=", ["files:read"]),
        ("prompts/get", "plan", ["plans"]),
        ("tools/list", "change", []),
        ("tools/call", "=?base64?!?=", []),
        ("tools/call", "\x00", []),
        ("resources/read", "file://" + "a" * 2048, []),
        ("tasks/get", "change", []),
        ("pages/turn", "change", ["pages"]),
        ("no/method", "change", []),
        ("", "", []),
        ("", "change", []),
    ],
)
async def test_a_refusal_names_the_scopes_of_the_provider_the_server_and_the_announced_operation(
    method: str, name: str, scopes: list[str]
) -> None:
    server = office(resource(required_scopes=["mcp"]), required_scopes=["use"], extensions=[pages()])
    async with server.started():
        desk = Reception(server)
        cases: list[tuple[Mapping[str, str | None], int]] = [({}, 401), (token("look"), 403), (token("mcp"), 403)]
        for shown, status in cases:
            paper = await desk.ask("POST", {**shown, **announced(method, name)}, HELLO)
            assert paper.status == status
            assert asked(paper.headers.items()) == ["mcp", "use", *scopes]
        await desk.close()


@pytest.mark.row("26-A9")
async def test_a_call_that_lacks_a_scope_is_told_those_of_the_provider_the_server_and_the_tool() -> None:
    server = office(resource(required_scopes=["mcp"]), required_scopes=["use"])
    async with server.started():
        desk = Reception(server)
        session = await desk.enter(token("mcp", "use"))
        paper = await desk.ask("POST", token("mcp", "use", "files:read"), call("change"), mcp_session_id=session)
        assert paper.status == 403
        assert asked(paper.headers.items()) == ["mcp", "use", "files:read", "files:write"]
        assert "resource_metadata" in paper.headers["www-authenticate"]
        assert 'error="insufficient_scope"' in paper.headers["www-authenticate"]
        paper = await desk.ask(
            "POST", token("mcp", "use", "files:read", "files:write"), call("change"), mcp_session_id=session
        )
        assert paper.status == 200
        await desk.close()


@pytest.mark.row("26-A9")
async def test_a_request_that_reaches_several_entries_is_told_the_scopes_of_all_of_them() -> None:
    server = Server("twins", auth=resource())

    @server.resource("a://{x}", "first", scopes=["one", "both"])
    def first(x: str) -> str:
        return x

    @server.resource("a://{x}", "second", scopes=["both", "two"])
    def second(x: str) -> str:
        return x

    asks = {"ref": {"type": "ref/resource", "uri": "a://{x}"}, "argument": {"name": "x", "value": ""}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "completion/complete", "params": asks}
    async with server.started():
        desk = Reception(server)
        for scopes in ((), ("one",), ("one", "both"), ("both", "two")):
            session = await desk.enter(token(*scopes))
            paper = await desk.ask("POST", token(*scopes), message, mcp_session_id=session)
            assert paper.status == 403
            assert asked(paper.headers.items()) == ["one", "both", "two"]
        session = await desk.enter(token("one", "both", "two"))
        assert (await desk.ask("POST", token("one", "both", "two"), message, mcp_session_id=session)).status == 200
        await desk.close()


@pytest.mark.row("26-A9")
async def test_headers_announce_scopes_and_grant_nothing() -> None:
    server = office(resource())
    async with server.started():
        desk = Reception(server)
        session = await desk.enter(token("look"))
        shown = {**token("look"), **announced("tools/call", "look")}
        paper = await desk.ask("POST", shown, call("change"), mcp_session_id=session)
        assert paper.status == 403
        assert {"files:read", "files:write"} <= set(asked(paper.headers.items()))
        await desk.close()


@pytest.mark.row("26-A9")
async def test_a_client_that_announces_nothing_is_told_what_it_was_told_before() -> None:
    server = office(resource(required_scopes=["mcp"]), required_scopes=["use"])
    async with server.started():
        desk = Reception(server)
        cases: list[tuple[Mapping[str, str | None], list[str]]] = [
            ({}, ["mcp"]),
            (token("look"), ["mcp"]),
            (token("mcp"), ["mcp", "use"]),
        ]
        for shown, scopes in cases:
            paper = await desk.ask("POST", shown, HELLO)
            assert asked(paper.headers.items()) == scopes
        await desk.close()


@given(st.dictionaries(st.sampled_from(["mcp-method", "mcp-name"]), st.text(max_size=40)))
def test_any_announcement_is_no_error(headers: dict[str, str]) -> None:
    catalogue = office(None)._catalogue.current
    assert announced_scopes(headers, catalogue) == (() if "mcp-method" in headers else None)
    assert isinstance(announced_scopes({**headers, "mcp-method": "resources/read"}, catalogue), tuple)


# --- no offline_access


@pytest.mark.row("26-A9")
@pytest.mark.row("26-A10")
async def test_neither_challenges_nor_metadata_name_offline_access() -> None:
    def required(_: AuthRequest) -> list[str]:
        return ["offline_access", "read"]

    peer = Peer("http", "203.0.113.7:5")
    providers: list[Any] = [
        resource(required_scopes=required),
        OAuthResource(resource=AUDIENCE, authorization_servers=[ISSUER], required_scopes=required, authorizer=granted),
    ]
    for provider in providers:
        gate = AuthGate(provider)
        answers = [
            await gate.authenticate("POST", "/mcp", {}, peer),
            await gate.challenge_for_scopes(["offline_access", "write"], "POST", "/mcp", {}, peer),
        ]
        for answer, scopes in zip(answers, (["read"], ["read", "write"]), strict=True):
            assert isinstance(answer, HttpRefusal)
            assert asked(answer.headers) == scopes
    others: list[Any] = [BearerAuth(secret="s" * 40, audience=None), CustomAuth(lambda _: None)]
    for provider in others:
        answer = await AuthGate(provider).challenge_for_scopes(["offline_access"], "POST", "/mcp", {}, peer)
        assert asked(answer.headers) == []
        assert "offline_access" not in str(answer.headers)


@pytest.mark.row("26-A9")
@pytest.mark.parametrize("word", ["required_scopes", "scopes_supported"])
def test_offline_access_is_refused_as_a_setting(word: str) -> None:
    with pytest.raises(ConfigError, match=f"{word} must not have offline_access"):
        resource(**{word: ["read", "offline_access"]})
    with pytest.raises(ConfigError, match="required_scopes must not have offline_access"):
        Server("s", auth=resource(), required_scopes=["offline_access"])
    with pytest.raises(RegistrationError, match="offline_access asks for a refresh token"):
        Server("s").tool("t", scopes=["read", "offline_access"])(lambda: "x")


# --- broader scopes


@pytest.mark.row("26-A9")
@pytest.mark.parametrize("make", ["resource", "bearer", "authorizer"])
async def test_a_broad_scope_is_enough_for_the_provider_the_server_lists_and_calls(make: str) -> None:
    implies = {"admin": ["files", "use"], "files": ["files:read", "files:write"]}
    made: dict[str, Callable[[], Any]] = {
        "resource": lambda: resource(required_scopes=["use"], scope_implies=implies),
        "bearer": lambda: BearerAuth(key=PEM, algorithms=("ES256",), audience=AUDIENCE, scope_implies=implies),
        "authorizer": lambda: OAuthResource(
            resource=AUDIENCE,
            authorization_servers=[ISSUER],
            authorizer=granted,
            scope_implies=implies,
        ),
    }
    auth = made[make]()
    show: Any = bearer if make == "authorizer" else token
    server = office(ProviderChain([APIKeyAuth(["k" * 30]), auth]), required_scopes=["use"])
    lists: dict[str, Any] = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {}}
    async with server.started():
        desk = Reception(server)
        session = await desk.enter(show("admin"))
        paper = await desk.ask("POST", show("admin"), lists, mcp_session_id=session)
        assert [each["name"] for each in paper.json["result"]["tools"]] == ["change", "look"]
        assert (await desk.ask("POST", show("admin"), call("change"), mcp_session_id=session)).status == 200
        assert (await desk.ask("POST", show("files"), HELLO)).status == 403  # not the other way round
        await desk.close()


@pytest.mark.row("26-A9")
async def test_no_scope_implies_another_by_its_name() -> None:
    gate = AuthGate(resource(required_scopes=["files:read"]))
    for near in ("files", "files:*", "*", "files:", "FILES:READ", "files:read:more", "admin"):
        answer = await gate.authenticate(
            "POST", "/mcp", {"authorization": str(token(near)["authorization"])}, Peer("http", "203.0.113.7:5")
        )
        assert isinstance(answer, HttpRefusal)
        assert answer.status == 403


@pytest.mark.row("26-A9")
def test_what_a_scope_implies_is_followed_through_others_and_in_circles() -> None:
    hierarchy = ScopeHierarchy({"a": ["b"], "b": ("c", "a"), "d": set[str](), "e": ["x"]})

    def widened(*scopes: str) -> Any:
        return hierarchy.widen(AuthInfo("ann", scopes=frozenset(scopes), claims={"scope": "a"})).scopes

    assert widened("a") == widened("b") == {"a", "b", "c"}
    assert widened("c") == {"c"}
    assert widened("a", "e", "z") == {"a", "b", "c", "e", "x", "z"}
    assert widened("d") == {"d"}
    assert widened() == frozenset()
    unknown = AuthInfo("ann", scopes=None)
    assert hierarchy.widen(unknown) is unknown  # unknown scopes stay unknown
    known = AuthInfo("ann", scopes=frozenset({"a"}), claims={"scope": "a"})
    assert hierarchy.widen(known).claims == {"scope": "a"}


@settings(max_examples=examples(200))
@given(
    st.dictionaries(st.sampled_from("abcdef"), st.lists(st.sampled_from("abcdefg"), max_size=4), max_size=6),
    st.frozensets(st.sampled_from("abcdefg")),
)
def test_widening_adds_what_is_reached_and_twice_is_as_good_as_once(
    implies: dict[str, list[str]], scopes: frozenset[str]
) -> None:
    hierarchy = ScopeHierarchy(implies)
    found = hierarchy.widen(AuthInfo("ann", scopes=scopes)).scopes
    assert found is not None
    assert scopes <= found
    assert all(set(implies.get(each, ())) <= found for each in found)
    assert hierarchy.widen(AuthInfo("ann", scopes=found)).scopes == found
    assert all(each in scopes or any(each in implies.get(other, ()) for other in found) for each in found)


@pytest.mark.parametrize(
    "wrong",
    ["admin", ["admin"], {"admin": "read"}, {"admin": [5]}, {"admin": ["a b"]}, {"": ["a"]}, {5: ["a"]}, {"a": None}],
)
def test_a_hierarchy_that_is_none_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="scope_implies must"):
        BearerAuth(secret="s" * 40, audience=None, scope_implies=wrong)
