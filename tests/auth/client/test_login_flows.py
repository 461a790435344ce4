"""Logins from beginning to end: a wire's credentials, the login process behind them, and the fake authorization server."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from greenroom import Client, ConfigError, Unauthorized
from greenroom.actors.client.handshake import is_final
from greenroom.auth import ClientCredentials, EnterpriseManaged, GivenTokens, MemoryStore, OAuth, SignInError
from greenroom.auth.client.auth_option import credentials_for, fetcher_for
from greenroom.auth.client.interactive_flows import check_code_grant
from greenroom.auth.client.login_process import (
    _MOST_SCOPE_SETS,  # pyright: ignore[reportPrivateUsage]
    LoginCredentials,
)
from greenroom.auth.client.metadata_discovery import AuthorizationServerMetadata
from greenroom.auth.client.token_requests import ID_TOKEN, SAML2
from greenroom.auth.client.token_stores import LoginRecord
from greenroom.auth.jose import make_key
from greenroom.auth.testing import Approve, AuthorizationServer, AuthServerResponse, Refuse
from greenroom.supervision import kill, whereis
from greenroom.transports.client.fetch import FetchResponse
from greenroom.transports.client.http_address import Guard

from .oauth_world import CHALLENGE, ISSUER, PRM, URL, World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.auth import DeviceCode
    from greenroom.transports.client.interfaces import Credentials

LESS = f'Bearer error="insufficient_scope", scope="write", resource_metadata="{PRM}"'


def oauth(world: World, **options: Any) -> OAuth:
    given: dict[str, Any] = {"browser": world.browse, "fetch": world.fetch, **options}
    return OAuth(**given)


def token(headers: Mapping[str, str]) -> str:
    assert headers["authorization"].startswith("Bearer ")
    return headers["authorization"].removeprefix("Bearer ")


async def signed_in(credentials: Credentials) -> Mapping[str, str]:
    """Request, get a refusal, and retry, as a wire does."""
    sent = await credentials.headers()
    assert await credentials.refused(401, CHALLENGE, sent)
    return await credentials.headers()


def end(store: MemoryStore, **changes: Any) -> None:
    """Let the stored token expire, or change the entry otherwise."""
    for key, entry in store._entries.items():
        if not key.startswith("client "):
            store._entries[key] = {**entry, **changes}


# --- what a credential is


@pytest.mark.row("CA-01")
@pytest.mark.row("CA-02")
async def test_a_token_goes_with_each_request_and_nothing_else_is_tried() -> None:
    credentials = credentials_for("t0k-en.~+/==", URL)
    assert token(await credentials.headers()) == "t0k-en.~+/=="
    assert not await credentials.refused(401, CHALLENGE, await credentials.headers())
    assert "t0k" not in repr(credentials)


@pytest.mark.row("CA-02")
@pytest.mark.parametrize("bad", ["", "Bearer x", "a b", "a\r\nx: y", "ü", 7, b"x"])
def test_an_invalid_auth_option_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigError):
        Client(URL, auth=bad)


def test_a_token_travels_within_tls_or_not_at_all() -> None:
    for auth in ("token", OAuth(), ClientCredentials(client_id="a", client_secret="b")):
        with pytest.raises(ConfigError, match="not https"):
            Client("http://mcp.example/mcp", auth=auth)
        Client("http://127.0.0.1:9/mcp", auth=auth)
    with pytest.raises(ConfigError, match="at a URL"):
        Client(["true"], auth="token")


def test_a_server_cannot_send_a_client_into_a_private_network_unless_that_was_allowed() -> None:
    assert fetcher_for(URL).guard == Guard(loopback=False, private=False)
    assert fetcher_for("http://127.0.0.1:9/mcp").guard == Guard(loopback=True, private=False)
    assert fetcher_for(URL, private=True).guard == Guard(loopback=False, private=True)
    for way in (
        OAuth(),
        ClientCredentials(client_id="a", client_secret="b"),
        EnterpriseManaged(client_id="a", idp_token_endpoint="https://sso.example/token", subject_token="t"),
        GivenTokens(access_token="t"),
    ):
        assert not way.private


@pytest.mark.row("CA-01")
async def test_no_request_for_a_login_is_sent_before_the_server_requires_one() -> None:
    world = World()
    credentials = oauth(world).credentials(URL)
    assert await credentials.headers() == {}
    assert world.asked == []


# --- a user


@pytest.mark.row("CB-06")
@pytest.mark.row("CA-10")
async def test_a_user_signs_in() -> None:
    world = World()
    headers = await signed_in(oauth(world).credentials(URL))
    assert world.idp.issued_tokens.keys() == {token(headers)}
    [url] = world.visits
    asked = {name: value for name, [value] in parse_qs(urlsplit(url).query).items()}
    assert (asked["resource"], asked["scope"], asked["code_challenge_method"]) == (URL, "read offline_access", "S256")
    assert urlsplit(asked["redirect_uri"]).hostname == "127.0.0.1"
    [form] = world.tokens()
    assert (form["grant_type"], form["resource"]) == ("authorization_code", URL)


async def test_a_stored_login_is_used_without_any_request() -> None:
    world, store = World(), MemoryStore()
    first = await signed_in(oauth(world, store=store).credentials(URL))
    world.down = True
    again = oauth(world, store=store, browser=None).credentials(URL)
    assert await again.headers() == first


@pytest.mark.row("CB-10")
async def test_a_login_without_a_user_fails_at_once_and_says_what_to_do() -> None:
    credentials = oauth(World(), browser=None).credentials(URL)
    with pytest.raises(SignInError, match="sign in once with a browser") as caught:
        await signed_in(credentials)
    assert is_final(caught.value)
    assert caught.value.step == "authorization"


@pytest.mark.row("CB-10")
async def test_a_token_is_renewed_a_minute_before_it_ends() -> None:
    world, store = World(lifetime=50.0), MemoryStore()
    credentials = oauth(world, store=store).credentials(URL)
    old = await signed_in(credentials)
    assert await credentials.headers() == old
    end(store, expires_at=1.0, obtained_at=0.0)
    again = oauth(world, store=MemoryStore(), browser=None)
    again.store._entries.update(store._entries)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    world.asked.clear()
    new = await again.credentials(URL).headers()
    assert token(new) != token(old)
    assert world.asked == [f"{ISSUER}/token"]
    assert len(world.visits) == 1


def test_when_a_token_is_old() -> None:
    record = LoginRecord(ISSUER, URL, "", "", "t", expires_at=1000.0, obtained_at=0.0)
    assert not record.is_expiring(939.0)
    assert record.is_expiring(941.0)
    short = replace(record, expires_at=30.0)
    assert not short.is_expiring(14.0)
    assert short.is_expiring(16.0)
    assert not replace(record, expires_at=None).is_expiring()


@pytest.mark.row("CA-03")
async def test_a_token_that_is_refused_is_refreshed_with_its_resource() -> None:
    world = World()
    credentials = oauth(world).credentials(URL)
    old = await signed_in(credentials)
    assert await credentials.refused(401, CHALLENGE, old)
    [form] = world.tokens("refresh_token")
    assert form["resource"] == URL
    assert await credentials.headers() != old
    assert len(world.visits) == 1


@pytest.mark.row("CA-03")
async def test_given_tokens_are_refreshed_once_for_each_refused_one() -> None:
    world, other = World(), MemoryStore()
    await signed_in(oauth(world, store=other).credentials(URL))
    [kept] = [each for key, each in other._entries.items() if key.startswith("user")]
    given = GivenTokens(
        access_token="old",
        refresh_token=kept["refresh_token"],
        token_endpoint=f"{ISSUER}/token",
        client_id=kept["client_id"],
        fetch=world.fetch,
    )
    credentials = given.credentials(URL)
    sent = await credentials.headers()
    assert token(sent) == "old"
    assert await credentials.refused(401, "", sent)
    assert token(await credentials.headers()) in world.idp.issued_tokens
    assert "old" not in repr(given)


@pytest.mark.row("CA-03")
async def test_a_refreshed_token_of_those_that_were_brought_is_found_again_by_the_next_program() -> None:
    world, store = World(), MemoryStore()
    world.idp.add_client("me", redirect_uris=["http://127.0.0.1/callback"])
    signing_in = MemoryStore()
    first = oauth(world, client_id="me", store=signing_in)
    old = token(await signed_in(first.credentials(URL)))
    [refresh] = [entry["refresh_token"] for key, entry in signing_in._entries.items() if not key.startswith("client ")]

    def brought(store: MemoryStore) -> Credentials:
        way = GivenTokens(
            access_token=old,
            refresh_token=refresh,
            token_endpoint=f"{ISSUER}/token",
            client_id="me",
            store=store,
            fetch=world.fetch,
        )
        return way.credentials(URL)

    credentials = brought(store)
    assert await credentials.refused(401, CHALLENGE, await credentials.headers())
    new = token(await credentials.headers())
    assert new != old
    later = MemoryStore()
    later._entries.update(store._entries)
    assert token(await brought(later).headers()) == new


async def test_tokens_that_cannot_be_refreshed_are_over_when_they_are_refused() -> None:
    credentials = GivenTokens(access_token="only", fetch=World().fetch).credentials(URL)
    with pytest.raises(SignInError, match="configure a new one"):
        await credentials.refused(401, CHALLENGE, await credentials.headers())
    with pytest.raises(ConfigError):
        GivenTokens(access_token="a", refresh_token="b")


@pytest.mark.row("CA-03")
async def test_an_unreachable_authorization_server_invalidates_no_token() -> None:
    world, store = World(), MemoryStore()
    credentials = oauth(world, store=store).credentials(URL)
    old = await signed_in(credentials)
    world.down = True
    for _ in range(2):
        with pytest.raises(SignInError) as caught:
            await credentials.refused(401, CHALLENGE, old)
        assert caught.value.temporary
        assert not is_final(caught.value)
        assert await credentials.headers() == old
    world.down = False
    world.idp.plan("/token", AuthServerResponse(503, b"{}"), times=1)
    with pytest.raises(SignInError):
        await credentials.refused(401, CHALLENGE, old)
    assert await credentials.headers() == old
    assert await credentials.refused(401, CHALLENGE, old)
    assert len(world.visits) == 1
    assert len(world.tokens("refresh_token")) == 2


async def test_an_expiring_token_is_used_while_it_cannot_be_renewed() -> None:
    world, store = World(), MemoryStore()
    old = await signed_in(oauth(world, store=store).credentials(URL))
    end(store, expires_at=1.0, obtained_at=0.0)
    other = MemoryStore()
    other._entries.update(store._entries)
    credentials = oauth(world, store=other).credentials(URL)
    world.down = True
    assert await credentials.headers() == old
    tried = len(world.asked)
    assert await credentials.headers() == old
    assert len(world.asked) == tried
    world.down = False
    await asyncio.sleep(11.0)
    assert await credentials.headers() != old


async def test_a_refresh_token_that_is_dead_is_not_tried_twice_and_the_user_signs_in() -> None:
    world = World()
    credentials = oauth(world).credentials(URL)
    old = await signed_in(credentials)
    world.idp.revoke_all()
    assert await credentials.refused(401, CHALLENGE, old)
    assert len(world.tokens("refresh_token")) == 1
    assert len(world.visits) == 2
    assert token(await credentials.headers()) in world.idp.issued_tokens


async def test_a_request_refused_with_an_older_token_is_just_retried() -> None:
    world = World()
    credentials = oauth(world).credentials(URL)
    old = await signed_in(credentials)
    await credentials.refused(401, CHALLENGE, old)
    asked = len(world.asked)
    assert await credentials.refused(401, CHALLENGE, old)
    assert len(world.asked) == asked


async def test_a_hundred_at_once_are_one_login_and_one_refresh() -> None:
    world = World()
    credentials = oauth(world).credentials(URL)
    assert await asyncio.gather(*(credentials.refused(401, CHALLENGE, {}) for _ in range(100))) == [True] * 100
    assert len(world.visits) == 1
    old = await credentials.headers()
    await asyncio.gather(*(credentials.refused(401, CHALLENGE, old) for _ in range(100)))
    assert len(world.tokens("refresh_token")) == 1


async def test_a_hundred_at_once_share_one_failure() -> None:
    world = World()
    world.idp.consent = lambda _: Refuse("access_denied", "no")
    credentials = oauth(world).credentials(URL)
    found = await asyncio.gather(*(credentials.refused(401, CHALLENGE, {}) for _ in range(100)), return_exceptions=True)
    assert {str(each) for each in found} == {"authorization: the authorization server refuses: access_denied (no)"}
    assert len(world.visits) == 1
    world.idp.consent = lambda _: Approve("ann")
    assert await credentials.refused(401, CHALLENGE, {})


async def test_two_clients_of_one_store_share_one_login_process_and_survive_its_end() -> None:
    world, store = World(), MemoryStore()
    one, two = (oauth(world, store=store).credentials(URL) for _ in range(2))
    headers = await signed_in(one)
    assert await two.headers() == headers
    assert one._pid == two._pid
    pid = whereis(one._name)
    assert pid is not None
    kill(pid)
    await asyncio.sleep(0.1)
    assert await one.headers() == await two.headers() == headers
    assert one._pid == two._pid != pid


async def test_an_unused_login_process_stops_and_is_started_again() -> None:
    world = World()
    credentials = oauth(world).credentials(URL)
    headers = await signed_in(credentials)
    await asyncio.sleep(3600)
    assert whereis(credentials._name) is None
    assert await credentials.headers() == headers


# --- scopes


@pytest.mark.row("26-A11")
async def test_scopes_are_those_of_the_challenge_else_of_the_resource_else_none() -> None:
    world = World()
    world.documents[PRM]["scopes_supported"] = ["read", "write"]
    bare = f'Bearer resource_metadata="{PRM}"'
    await oauth(world).credentials(URL).refused(401, bare, {})
    await oauth(world).credentials(URL).refused(401, CHALLENGE, {})
    del world.documents[PRM]["scopes_supported"]
    await oauth(world).credentials(URL).refused(401, bare, {})
    world.idp.faults.metadata = {"scopes_supported": ["read"]}
    await oauth(world).credentials(URL).refused(401, CHALLENGE, {})
    queries = [parse_qs(urlsplit(url).query).get("scope") for url in world.visits]
    assert queries == [["read write offline_access"], ["read offline_access"], None, ["read"]]


@pytest.mark.row("26-A8")
async def test_more_scopes_are_asked_for_with_those_that_were_there() -> None:
    world = World()
    credentials = oauth(world).credentials(URL)
    first = await signed_in(credentials)
    assert await credentials.refused(403, LESS, first)
    assert set(parse_qs(urlsplit(world.visits[-1]).query)["scope"][0].split()) == {"read", "write", "offline_access"}
    assert await credentials.headers() != first


@pytest.mark.row("26-A8")
async def test_a_server_that_is_never_content_is_not_asked_for_ever() -> None:
    world = World()
    credentials = oauth(world).credentials(URL)
    await signed_in(credentials)

    async def step_up() -> None:
        await credentials.refused(403, LESS, await credentials.headers())

    for _ in range(2):
        await step_up()
    with pytest.raises(SignInError) as caught:
        await step_up()
    assert is_final(caught.value)
    assert len(world.visits) == 3


async def test_a_server_that_always_wants_another_scope_is_not_asked_for_ever() -> None:
    world = World()
    credentials = oauth(world).credentials(URL)
    await signed_in(credentials)

    async def step_up(number: int) -> bool:
        await asyncio.sleep(61)  # so that these are not too many logins within a minute
        another = LESS.replace('"write"', f'"write:{number}"')
        return await credentials.refused(403, another, await credentials.headers())

    for number in range(_MOST_SCOPE_SETS):
        assert await step_up(number)
    with pytest.raises(SignInError, match=f"requires write:{_MOST_SCOPE_SETS}") as caught:
        await step_up(_MOST_SCOPE_SETS)
    assert caught.value.code == "insufficient_scope"
    assert len(world.visits) == 1 + _MOST_SCOPE_SETS


async def test_a_server_that_refuses_what_its_own_authorization_server_gives() -> None:
    world = World()
    world.idp.faults.answer = {"refresh_token": None}
    credentials = oauth(world).credentials(URL)
    for _ in range(3):
        await signed_in(credentials)
    with pytest.raises(SignInError, match="it does not accept the tokens of its own authorization server"):
        await signed_in(credentials)
    assert len(world.visits) == 3


# --- another authorization server


@pytest.mark.row("26-A3")
async def test_another_authorization_server_is_shown_nothing_of_the_first() -> None:
    world = World()
    credentials = oauth(world).credentials(URL)
    old = await signed_in(credentials)
    other = AuthorizationServer(issuer="https://other.example")
    world.others.append(other)
    world.documents[PRM]["authorization_servers"] = [other.issuer]
    known = set(world.idp.clients)
    assert await credentials.refused(401, CHALLENGE, old)
    assert token(await credentials.headers()) in other.issued_tokens
    assert not known & set(other.clients)
    assert not [form for form in other.requests if form.form.get("grant_type") == "refresh_token"]


@pytest.mark.row("26-A3")
async def test_a_client_registered_at_one_issuer_is_used_at_no_other() -> None:
    world = World()
    credentials = oauth(world, client_id="me", client_secret="s", issuer="https://elsewhere.example").credentials(URL)
    with pytest.raises(SignInError, match="register it"):
        await signed_in(credentials)
    assert world.visits == []


async def test_without_a_word_about_it_the_first_issuer_is_the_one() -> None:
    world = World()
    world.idp.add_client("robot", secret="s3cret")
    credentials = ClientCredentials(client_id="robot", client_secret="s3cret", fetch=world.fetch).credentials(URL)
    old = await signed_in(credentials)
    other = AuthorizationServer(issuer="https://other.example")
    world.others.append(other)
    world.documents[PRM]["authorization_servers"] = [other.issuer]
    with pytest.raises(SignInError, match=f"is registered at {ISSUER}: register it"):
        await credentials.refused(401, CHALLENGE, old)
    assert not [each for each in other.requests if each.path == "/token"]


# --- what comes back


@pytest.mark.row("26-A1")
@pytest.mark.row("CB-10")
@pytest.mark.parametrize(
    ("redirect", "says"),
    [
        ({"state": "another"}, "another state"),
        ({"state": None}, "another state"),
        ({"iss": None}, "names no issuer"),
        ({"iss": "https://evil.example"}, "is not from"),
        ({"iss": f"{ISSUER}/"}, "is not from"),
        ({"code": None}, "no code"),
    ],
)
async def test_an_authorization_response_is_checked_against_the_request(
    redirect: dict[str, str | None], says: str
) -> None:
    world = World()
    world.idp.faults.redirect = redirect
    with pytest.raises(SignInError, match=says) as caught:
        await signed_in(oauth(world).credentials(URL))
    assert caught.value.step == "authorization"
    assert world.tokens() == []


@pytest.mark.row("26-A1")
async def test_nothing_of_another_issuers_error_is_repeated() -> None:
    world = World()
    world.idp.consent = lambda _: Refuse("access_denied", "call 555-EVIL")
    world.idp.faults.redirect = {"iss": "https://evil.example"}
    with pytest.raises(SignInError) as caught:
        await signed_in(oauth(world).credentials(URL))
    assert "EVIL" not in str(caught.value)


@pytest.mark.row("26-A7")
@pytest.mark.parametrize("methods", [None, ["plain"], []])
async def test_codes_that_cannot_be_proven_are_not_asked_for(methods: list[str] | None) -> None:
    world = World()
    world.idp.faults.metadata = {"code_challenge_methods_supported": methods}
    with pytest.raises(SignInError, match="PKCE"):
        await signed_in(oauth(world).credentials(URL))
    assert world.visits == []


@pytest.mark.parametrize(
    "where", ["javascript:alert(1)", "file:///etc/passwd", "https://a.example/$(id);`id`", "http://idp.example/a"]
)
async def test_no_browser_is_sent_to_an_unsafe_address(where: str) -> None:
    world = World()
    world.idp.faults.metadata = {"authorization_endpoint": where}
    with pytest.raises(SignInError) as caught:
        await signed_in(oauth(world).credentials(URL))
    assert caught.value.step == "authorization"
    assert world.visits == []


@pytest.mark.parametrize("missing", ["authorization_endpoint", "token_endpoint"])
def test_a_server_that_lacks_an_endpoint_for_signing_in_is_refused_by_name(missing: str) -> None:
    whole = AuthorizationServerMetadata(
        ISSUER,
        authorization_endpoint=f"{ISSUER}/authorize",
        token_endpoint=f"{ISSUER}/token",
        challenge_methods=("S256",),
    )
    without: dict[str, Any] = {missing: None}
    check_code_grant(whole)
    with pytest.raises(SignInError, match=f"{ISSUER} names no authorization endpoint for signing in with a browser"):
        check_code_grant(replace(whole, **without))


async def test_the_port_that_was_registered_is_used_again_while_it_is_free() -> None:
    world, store = World(), MemoryStore()
    ports: list[int | None] = []

    async def sign_in() -> None:
        known = {key: entry for key, entry in store._entries.items() if key.startswith("client ")}
        store._entries.clear()
        store._entries.update(known)
        other = MemoryStore()
        other._entries.update(known)
        await signed_in(oauth(world, store=other).credentials(URL))
        store._entries.update(other._entries)
        [back] = parse_qs(urlsplit(world.visits[-1]).query)["redirect_uri"]
        ports.append(urlsplit(back).port)

    def registered() -> int:
        return sum(asked.path == "/register" for asked in world.idp.requests)

    await sign_in()
    await sign_in()
    assert ports[0] == ports[1]
    assert registered() == 1
    assert ports[0] is not None
    with socket.create_server(("127.0.0.1", ports[0])):
        await sign_in()
    assert ports[2] not in (None, ports[0])
    assert registered() == 2


@pytest.mark.row("CB-09")
async def test_endpoints_that_are_given_are_not_looked_for() -> None:
    world = World()
    world.idp.add_client("me", redirect_uris=["http://127.0.0.1/callback"])
    settings = oauth(
        world,
        client_id="me",
        authorization_endpoint=f"{ISSUER}/authorize",
        token_endpoint=f"{ISSUER}/token",
        issuer=ISSUER,
    )
    headers = await signed_in(settings.credentials(URL))
    assert token(headers) in world.idp.issued_tokens
    assert world.asked == [f"{ISSUER}/token"]
    with pytest.raises(ConfigError):
        OAuth(token_endpoint=f"{ISSUER}/token")


@pytest.mark.parametrize(
    "bad", [{"client_secret": "s"}, {"port": 70000}, {"timeout": 0}, {"client_metadata_url": "http://a/b"}]
)
def test_settings_that_make_no_sense(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        OAuth(**bad)


def test_no_secret_shows() -> None:
    shown = repr(OAuth(client_id="me", client_secret="hush")) + repr(
        ClientCredentials(client_id="a", client_secret="hush")
    )
    shown += repr(
        EnterpriseManaged(
            client_id="me",
            client_secret="hush",
            idp_client_id="us",
            idp_client_secret="hush",
            idp_token_endpoint="https://sso.example/token",
            subject_token="hush",
        )
    )
    shown += repr(
        GivenTokens(
            access_token="hush",
            refresh_token="hush",
            client_id="me",
            client_secret="hush",
            token_endpoint=f"{ISSUER}/token",
        )
    )
    assert "hush" not in shown
    assert "hush" not in repr(LoginRecord(ISSUER, URL, "", "", "hush", "hush"))


# --- without a user


@pytest.mark.row("CA-07")
async def test_a_program_logs_in_as_itself_before_the_first_request() -> None:
    world = World()
    world.idp.add_client("robot", secret="s3cret")
    way = ClientCredentials(
        client_id="robot", client_secret="s3cret", token_endpoint=f"{ISSUER}/token", fetch=world.fetch, scopes=["read"]
    )
    credentials = way.credentials(URL)
    first = await credentials.headers()
    assert token(first) in world.idp.issued_tokens
    assert world.asked == [f"{ISSUER}/token"]
    asked = {"grant_type": "client_credentials", "client_id": "robot", "resource": URL, "scope": "read"}
    assert world.tokens()[0] == asked
    assert await credentials.refused(401, CHALLENGE, first)
    assert await credentials.headers() != first
    wrong = replace(way, client_secret="wrong", store=MemoryStore()).credentials(URL)
    with pytest.raises(SignInError, match="invalid_client"):
        await wrong.headers()


@pytest.mark.row("CA-07")
async def test_a_program_signs_who_it_is() -> None:
    world, key = World(), make_key("EC")
    world.idp.add_client("robot", keys=[key])
    headers = await signed_in(ClientCredentials(client_id="robot", key=key, fetch=world.fetch).credentials(URL))
    assert token(headers) in world.idp.issued_tokens
    with pytest.raises(ConfigError):
        ClientCredentials(client_id="robot")


@pytest.mark.row("CA-08")
async def test_an_organisation_vouches_for_its_user() -> None:
    sent: list[dict[str, str]] = []
    said: dict[str, Any] = {"access_token": "jag", "token_type": "N_A", "issued_token_type": "id-jag"}
    world = World()
    world.idp.add_client("me", secret="s")

    async def fetch(url: str, **request: Any) -> Any:
        if url == "https://sso.example/token":
            sent.append({name: value for name, [value] in parse_qs(request["body"].decode()).items()})
            from greenroom.protocol.jsonrpc import encode  # noqa: PLC0415

            return FetchResponse(400 if "error" in said else 200, {}, encode(said), url)
        return await world.fetch(url, **request)

    tokens = iter(["first", "second", "third"])
    way = EnterpriseManaged(
        client_id="me",
        client_secret="s",
        idp_client_id="us",
        idp_token_endpoint="https://sso.example/token",
        subject_token=lambda: next(tokens),
        fetch=fetch,
    )
    world.idp.plan("/token", AuthServerResponse(200, b'{"access_token": "yes", "token_type": "bearer"}'))
    credentials = way.credentials(URL)
    headers = await signed_in(credentials)
    assert token(headers) == "yes"
    assert (sent[0]["subject_token"], sent[0]["audience"], sent[0]["resource"], sent[0]["client_id"]) == (
        "first",
        ISSUER,
        URL,
        "us",
    )
    [form] = world.tokens()
    assert (form["grant_type"], form["assertion"], form["resource"]) == (
        "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "jag",
        URL,
    )
    assert await credentials.refused(401, CHALLENGE, headers)
    assert sent[1]["subject_token"] == "second"
    said.clear()
    said.update(error="invalid_grant", error_description="the token has expired")
    with pytest.raises(SignInError, match="sign in there again") as caught:
        await credentials.refused(401, CHALLENGE, headers)
    assert caught.value.code == "subject_token_expired"
    with pytest.raises(ConfigError):
        replace(way, subject_token_type="passport")


def at_the_organisation(answer: bytes, status: int = 200, **settings: Any) -> tuple[Credentials, list[dict[str, str]]]:
    """A registered program, and the requests that it sends to the token endpoint."""
    sent: list[dict[str, str]] = []
    world = World()
    world.idp.add_client("me", secret="s")
    world.idp.plan("/token", AuthServerResponse(200, b'{"access_token": "yes", "token_type": "bearer"}'))

    async def fetch(url: str, **request: Any) -> Any:
        if url != "https://sso.example/token":
            return await world.fetch(url, **request)
        sent.append({name: value for name, [value] in parse_qs(request["body"].decode()).items()} | request["headers"])
        return FetchResponse(status, {}, answer, url)

    way = EnterpriseManaged(
        client_id="me",
        idp_token_endpoint="https://sso.example/token",
        subject_token="of the user",
        fetch=fetch,
        **settings,
    )
    return way.credentials(URL), sent


JAG = b'{"access_token": "jag", "token_type": "N_A", "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"}'


async def test_a_program_is_known_to_the_organisation_by_its_own_key_unless_it_has_another_name_there() -> None:
    credentials, sent = at_the_organisation(JAG, key=make_key("EC"))
    assert token(await signed_in(credentials)) == "yes"
    assert sent[0]["client_id"] == "me"
    assert sent[0]["client_assertion"].count(".") == 2
    credentials, sent = at_the_organisation(JAG, key=make_key("EC"), idp_client_id="us", idp_client_secret="theirs")
    assert token(await signed_in(credentials)) == "yes"
    assert sent[0]["client_id"] == "us"
    assert "client_assertion" not in sent[0]  # that key is for the other name, and nothing is signed with it here
    assert sent[0]["authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("error", "detail", "over"),
    [
        ("invalid_grant", "no", True),
        ("invalid_token", "no", True),
        ("expired_token", "no", True),
        ("invalid_request", "the assertion has expired", True),
        ("invalid_request", "no audience", False),
        ("invalid_client", "expired", False),
        ("access_denied", "no", False),
        ("invalid_scope", "no", False),
    ],
)
async def test_only_an_identity_token_that_has_ended_is_told_as_ended(
    error: str,
    detail: str,
    over: bool,  # noqa: FBT001 - a column
) -> None:
    answer = f'{{"error": "{error}", "error_description": "{detail}"}}'.encode()
    credentials, _ = at_the_organisation(answer, 400, client_secret="s")
    with pytest.raises(SignInError) as caught:
        await signed_in(credentials)
    assert caught.value.code == ("subject_token_expired" if over else error)
    assert ("sign in there again" in str(caught.value)) is over
    assert detail in str(caught.value)


@pytest.mark.parametrize("kind", [ID_TOKEN, SAML2])
async def test_an_organisation_vouches_by_an_identity_token_or_an_assertion_of_saml(kind: str) -> None:
    sent: list[dict[str, str]] = []
    world = World()
    world.idp.add_client("me", secret="s")
    world.idp.plan("/token", AuthServerResponse(200, b'{"access_token": "yes", "token_type": "bearer"}'))

    async def fetch(url: str, **request: Any) -> Any:
        if url != "https://sso.example/token":
            return await world.fetch(url, **request)
        sent.append({name: value for name, [value] in parse_qs(request["body"].decode()).items()})
        body = b'{"access_token": "jag", "token_type": "N_A", "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag"}'
        return FetchResponse(200, {}, body, url)

    way = EnterpriseManaged(
        client_id="me",
        client_secret="s",
        idp_token_endpoint="https://sso.example/token",
        subject_token="of the user",
        subject_token_type=kind,
        fetch=fetch,
    )
    assert token(await signed_in(way.credentials(URL))) == "yes"
    assert [(each["subject_token"], each["subject_token_type"]) for each in sent] == [("of the user", kind)]
    assert sent[0]["requested_token_type"] == "urn:ietf:params:oauth:token-type:id-jag"


@pytest.mark.row("CB-22")
async def test_a_code_for_another_machine() -> None:
    world = World()
    codes: list[DeviceCode] = []

    async def show(code: DeviceCode, /) -> None:
        codes.append(code)

    async def later() -> None:
        await asyncio.sleep(12)
        world.idp.decide(codes[0].user_code)

    typing = asyncio.create_task(later())
    headers = await signed_in(oauth(world, browser=None, device=show).credentials(URL))
    await typing
    assert token(headers) in world.idp.issued_tokens
    assert len(world.tokens()) > 2
    assert {form["resource"] for form in world.tokens()} == {URL}


async def test_a_device_code_that_is_never_entered_expires() -> None:
    async def show(code: DeviceCode, /) -> None:
        pass

    with pytest.raises(SignInError, match="the code was not entered") as caught:
        await signed_in(oauth(World(), browser=None, device=show, timeout=30).credentials(URL))
    assert caught.value.step == "device authorization"


def test_a_way_is_told_apart_from_what_is_none() -> None:
    assert isinstance(credentials_for(OAuth(), URL), LoginCredentials)
    with pytest.raises(ConfigError, match="auth must be a token, OAuth"):
        credentials_for(object(), URL)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert not isinstance(SignInError("a", "b"), Unauthorized)
