"""Single requests as they are sent: PKCE, the grants of the token endpoint, and client registration."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest

from greenroom import ConfigError
from greenroom.auth import ClientCredentials, EnterpriseManaged, MemoryStore, OAuth, SignInError
from greenroom.auth.client.client_registration import ClientIdentity, ClientRegistrar, check_metadata_url
from greenroom.auth.client.metadata_discovery import (
    AuthorizationServerMetadata,
    build_authorization_url,
    code_challenge,
    gen_code_verifier,
)
from greenroom.auth.client.token_requests import ID_JAG, ID_TOKEN, OAuthEndpoint, TokenRequest, request_token
from greenroom.auth.jose import make_key, verified_claims
from greenroom.transports.client.errors import ConnectFailed
from greenroom.transports.client.fetch import FetchResponse

from .oauth_world import CHALLENGE, URL, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.auth.client.token_requests import TokenResponse
    from greenroom.transports.client.fetch import FetchFunction

END = OAuthEndpoint("https://idp.example/token", "https://idp.example")
GOOD = {"access_token": "t0k", "token_type": "Bearer", "expires_in": 60, "refresh_token": "r", "scope": "a b"}


class Post:
    """A `Fetch` that records the request and returns a fixed response."""

    def __init__(self, answer: Any = None, status: int = 200) -> None:
        self.answer = GOOD if answer is None else answer
        self.status = status
        self.headers: dict[str, str] = {}
        self.body = b""

    async def __call__(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchResponse:
        assert method == "POST"
        self.headers, self.body = dict(headers or {}), body
        raw = self.answer if isinstance(self.answer, bytes) else json.dumps(self.answer).encode()
        return FetchResponse(self.status, {}, raw, url)

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), strict_parsing=True))


@pytest.mark.row("26-A7")
@pytest.mark.row("CA-05")
def test_proofs_of_codes() -> None:
    assert (
        code_challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    )
    verifier = gen_code_verifier()
    assert len(base64.urlsafe_b64decode(verifier + "==")) == 64
    assert verifier != gen_code_verifier()
    for bad in ("short", "a" * 129, "ü" * 50, "a" * 50 + "\n"):
        with pytest.raises(SignInError):
            code_challenge(bad)


@pytest.mark.row("26-A6")
@pytest.mark.row("CA-05")
def test_the_address_that_a_user_is_sent_to() -> None:
    found = build_authorization_url(
        "https://idp.example/a?tenant=1&state=theirs", {"client_id": "me", "scope": None, "resource": "https://x/"}
    )
    query = parse_qs(urlsplit(found.url).query)
    assert query == {
        "tenant": ["1"],
        "client_id": ["me"],
        "resource": ["https://x/"],
        "response_type": ["code"],
        "code_challenge": [code_challenge(found.verifier)],
        "code_challenge_method": ["S256"],
        "state": [found.state],
    }
    assert found.state != build_authorization_url("https://idp.example/a", {}).state
    for bad in ("javascript:alert(1)", "file:///x", "https://a/`id`", "https://a/#x"):
        with pytest.raises(SignInError, match="the user is not sent there"):
            build_authorization_url(bad, {})


@pytest.mark.row("26-A6")
@pytest.mark.row("CA-06")
async def test_each_grant_as_it_travels() -> None:
    world = World()
    credentials = OAuth(browser=world.browse, fetch=world.fetch).credentials(URL)
    assert await credentials.refused(401, CHALLENGE, await credentials.headers())
    [form] = world.tokens()
    [sent] = [asked for asked in world.idp.requests if asked.path == "/token"]
    assert sent.headers["content-type"] == "application/x-www-form-urlencoded"
    going = parse_qs(urlsplit(world.visits[0]).query)
    [code] = world.idp.codes
    assert code_challenge(form.pop("code_verifier")) == going["code_challenge"][0]
    assert form == {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": going["redirect_uri"][0],
        "resource": URL,
        "client_id": going["client_id"][0],
    }
    [refresh] = world.idp.refresh_tokens
    assert await credentials.refused(401, CHALLENGE, await credentials.headers())
    assert world.tokens("refresh_token") == [
        {
            "grant_type": "refresh_token",
            "refresh_token": refresh,
            "resource": URL,
            "client_id": going["client_id"][0],
        }
    ]
    post = Post()
    found = await request_token(
        END, ClientIdentity("me"), post, {"grant_type": "x"}, resource="https://r/", scopes=["b", "a"]
    )
    assert post.form == {"grant_type": "x", "resource": "https://r/", "scope": "a b", "client_id": "me"}
    assert (found.access_token, found.refresh_token, found.scopes) == ("t0k", "r", frozenset("ab"))
    assert "t0k" not in repr(found)
    robot = ClientCredentials(client_id="me", client_secret="s", token_endpoint=END.url)
    way = robot.login_method("https://r/mcp", post)
    assert way.source is not None
    await way.obtain(way.source, TokenRequest())
    assert post.form == {"grant_type": "client_credentials", "client_id": "me", "resource": "https://r/mcp"}
    forms: list[dict[str, str]] = []

    async def both(url: str, **request: Any) -> FetchResponse:
        answered = await post(url, **request)
        forms.append(post.form)
        return answered

    ours = EnterpriseManaged(
        client_id="me",
        idp_token_endpoint="https://org.example/token",
        subject_token="id",
        as_token_endpoint=END.url,
        audience="https://as/",
        resource="https://r/",
    )
    way = ours.login_method("https://r/mcp", both)
    assert way.source is not None
    await way.obtain(way.source, TokenRequest())
    assert forms == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": "id",
            "subject_token_type": ID_TOKEN,
            "requested_token_type": ID_JAG,
            "audience": "https://as/",
            "resource": "https://r/",
            "client_id": "me",
        },
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion": "t0k",
            "resource": "https://r/",
            "client_id": "me",
        },
    ]


async def credentials_of(client: ClientIdentity, post: FetchFunction, endpoint: OAuthEndpoint = END) -> TokenResponse:
    return await request_token(endpoint, client, post, {"grant_type": "client_credentials"}, resource="https://r/")


@pytest.mark.row("CA-06")
async def test_client_authentication_by_each_method() -> None:
    post = Post()
    secret = ClientIdentity("a b", secret="s:&")
    await credentials_of(secret, post)
    assert base64.b64decode(post.headers["authorization"].removeprefix("Basic ")) == b"a+b:s%3A%26"
    assert post.form["client_id"] == "a b"  # some servers look for it there first
    await credentials_of(secret, post, OAuthEndpoint(END.url, methods=["client_secret_post"]))
    assert (post.form["client_id"], post.form["client_secret"]) == ("a b", "s:&")
    assert "authorization" not in post.headers
    key = make_key("EC")
    signing = ClientIdentity("me", key=key)
    await credentials_of(signing, post, OAuthEndpoint(END.url, END.issuer, ["client_secret_basic"]))
    assert "authorization" not in post.headers
    claims = verified_claims(post.form["client_assertion"], [key], ["ES256"])
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("me", "me", END.issuer)
    assert 0 < claims["exp"] - claims["iat"] <= 300
    first = claims["jti"]
    await credentials_of(signing, post)
    assert verified_claims(post.form["client_assertion"], [key], ["ES256"])["jti"] != first
    await credentials_of(ClientIdentity("me", assertion="ready.made.one"), post)
    assert post.form["client_assertion"] == "ready.made.one"
    for each in (secret, signing):
        assert "s:&" not in repr(each)


def test_an_invalid_client_identity_is_refused() -> None:
    wrong: list[Callable[[], object]] = [
        lambda: ClientIdentity(""),
        lambda: ClientIdentity("a", method="magic"),
        lambda: ClientIdentity("a", secret="s", assertion="a.b.c"),
    ]
    for make in wrong:
        with pytest.raises(ConfigError):
            make()


async def test_an_identity_that_cannot_show_what_is_wanted_says_so() -> None:
    with pytest.raises(SignInError, match="give client_secret"):
        await credentials_of(ClientIdentity("a", method="client_secret_post"), Post())
    with pytest.raises(SignInError, match="give key"):
        await credentials_of(ClientIdentity("a", method="private_key_jwt"), Post())
    with pytest.raises(SignInError, match="cannot be used for RS256"):
        await credentials_of(ClientIdentity("a", key=make_key("EC"), algorithm="RS256"), Post())


@pytest.mark.row("CA-06")
@pytest.mark.parametrize(
    ("answer", "status", "says", "temporary"),
    [
        (
            {"error": "invalid_grant", "error_description": "used\x1b[31m before"},
            400,
            r"invalid_grant \(used \[31m before\)",
            False,
        ),
        ({"error": "temporarily_unavailable"}, 503, "temporarily_unavailable", True),
        ({"error": "slow"}, 429, "slow", True),
        (b"<html>", 502, "status 502 and no JSON", True),
        (b"<html>", 200, "status 200 and no JSON", False),
        ({}, 302, "status 302", False),
        ({}, 200, "returned no valid access token", False),
        ({"access_token": "a\r\nx-evil: 1"}, 200, "returned no valid access token", False),
        ({"access_token": "a" * 20_000}, 200, "returned no valid access token", False),
        ({"access_token": 7}, 200, "returned no valid access token", False),
        ({"access_token": "a", "token_type": "mac"}, 200, "'mac'", False),
    ],
)
async def test_an_invalid_token_response_is_refused(answer: Any, status: int, says: str, temporary: bool) -> None:  # noqa: FBT001 - a column
    with pytest.raises(SignInError, match=says) as caught:
        await credentials_of(ClientIdentity("me"), Post(answer, status))
    assert (caught.value.step, caught.value.temporary) == ("token", temporary)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("lives", ["3600", 3600, 3600.5])
async def test_times_are_read_leniently(lives: Any) -> None:
    found = await credentials_of(ClientIdentity("me"), Post({"access_token": "a", "expires_in": lives}))
    assert found.expires_at is not None


@pytest.mark.parametrize("lives", [None, "soon", True, [], "1e999"])
async def test_times_that_are_none_are_none(lives: Any) -> None:
    found = await credentials_of(ClientIdentity("me"), Post({"access_token": "a", "expires_in": lives}))
    assert found.expires_at is None


async def test_an_unreachable_token_endpoint_is_temporary() -> None:
    async def unreachable(url: str, **_: Any) -> FetchResponse:
        raise ConnectFailed("no server listens there")

    with pytest.raises(SignInError, match=r"https://idp\.example/token cannot be reached: no server") as caught:
        await credentials_of(ClientIdentity("me"), unreachable)
    assert caught.value.temporary


@pytest.mark.row("CA-09")
async def test_registration_returns_what_the_server_says() -> None:
    said = {"client_id": "new", "anything": [1, {"more": None}]}
    post = Post(said, 201)
    server = AuthorizationServerMetadata("https://idp.example", registration_endpoint="https://idp.example/register")
    store = MemoryStore()
    assert (await registrar(post, store, client_name="x").identity(server, None, None)).client_id == "new"
    [kept] = store._entries.values()
    assert said.items() <= kept.items()
    assert json.loads(post.body)["client_name"] == "x"
    assert post.headers == {"content-type": "application/json"}
    with pytest.raises(SignInError, match="invalid_redirect_uri") as caught:
        await registrar(Post({"error": "invalid_redirect_uri"}, 400)).identity(server, None, None)
    assert caught.value.step == "registration"


def registrar(post: Post, store: MemoryStore | None = None, **options: Any) -> ClientRegistrar:
    given: dict[str, Any] = {"configured": None, "metadata_url": None, "client_name": "us", "account": "me", **options}
    return ClientRegistrar(store or MemoryStore(), post, **given)


@pytest.mark.row("26-A4")
@pytest.mark.row("CA-09")
async def test_a_configured_client_is_not_registered_and_a_metadata_document_goes_before_registration() -> None:
    post = Post({"client_id": "new"})
    full = AuthorizationServerMetadata(
        "https://idp.example", registration_endpoint="https://idp.example/register", accepts_client_documents=True
    )
    assert (await registrar(post, configured=ClientIdentity("old")).identity(full, None, None)).client_id == "old"
    document = "https://us.example/client.json"
    assert (await registrar(post, metadata_url=document).identity(full, None, None)).client_id == document
    assert post.body == b""
    without = AuthorizationServerMetadata("https://idp.example", registration_endpoint="https://idp.example/register")
    assert (
        await registrar(post, metadata_url=document).identity(without, "http://127.0.0.1:1/callback", "a")
    ).client_id == "new"
    sent = json.loads(post.body)
    assert (sent["application_type"], sent["redirect_uris"], sent["scope"]) == (
        "native",
        ["http://127.0.0.1:1/callback"],
        "a",
    )
    assert "refresh_token" in sent["grant_types"]
    with pytest.raises(SignInError, match="register this program there, and give its client_id"):
        await registrar(post).identity(AuthorizationServerMetadata("https://idp.example"), None, None)


@pytest.mark.row("CA-09")
async def test_a_registration_is_its_issuers_and_is_kept_while_it_fits() -> None:
    store, post = MemoryStore(), Post({"client_id": "one", "client_secret": "s"})
    ours = registrar(post, store)

    def at(name: str) -> AuthorizationServerMetadata:
        return AuthorizationServerMetadata(
            f"https://{name}.example", registration_endpoint=f"https://{name}.example/register"
        )

    first = await ours.identity(at("a"), "http://127.0.0.1:1/callback", None)
    assert first.secret == "s"
    post.answer = {"client_id": "two"}
    assert await ours.identity(at("a"), "http://127.0.0.1:1/callback", None) == first
    assert (await ours.identity(at("b"), "http://127.0.0.1:1/callback", None)).client_id == "two"
    assert await ours.registered_identity("https://b.example", "one") is None
    assert await ours.registered_identity("https://a.example", "one") == first
    assert (await ours.identity(at("a"), "http://127.0.0.1:2/callback", None)).client_id == "two"
    await ours.forget("https://a.example", "two")
    assert await ours.registered_identity("https://a.example", "two") is None


async def test_a_registration_that_is_of_no_use_is_forgotten_also_where_the_store_cannot_be_written() -> None:
    class Mounted(MemoryStore):
        frozen = False

        async def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
            if self.frozen:
                raise SignInError("store", "read-only")
            await super().put(key, entry)

    store, post = Mounted(), Post({"client_id": "one"})
    server = AuthorizationServerMetadata("https://a.example", registration_endpoint="https://a.example/register")
    ours = registrar(post, store)
    assert (await ours.identity(server, None, None)).client_id == "one"
    store.frozen = True
    await ours.forget(server.issuer, "one")
    assert await ours.registered_identity(server.issuer, "one") is None
    post.answer = {"client_id": "two"}
    assert (await ours.identity(server, None, None)).client_id == "two"
    assert await ours.registered_identity(server.issuer, "two") is not None


async def test_a_secret_that_is_over_is_no_registration() -> None:
    store, post = MemoryStore(), Post({"client_id": "one", "client_secret": "s", "client_secret_expires_at": 1})
    server = AuthorizationServerMetadata("https://a.example", registration_endpoint="https://a.example/register")
    with pytest.raises(SignInError, match="returned no client_id"):
        await registrar(post, store).identity(server, None, None)


@pytest.mark.parametrize(
    "url", ["http://a.example/x", "https://a.example", "https://a.example/", "https://a.example/x#y", "x"]
)
def test_an_invalid_client_metadata_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        check_metadata_url(url)


def test_a_document_is_where_it_is() -> None:
    assert check_metadata_url("https://us.example/client.json") == "https://us.example/client.json"


async def test_a_client_identity_is_found_only_by_its_exact_client_id() -> None:
    store, document = MemoryStore(), "https://us.example/client.json"
    known = registrar(Post({}), store, configured=ClientIdentity("old"))
    assert await known.registered_identity("https://a.example", "old") == ClientIdentity("old")
    for other in ("new", "older", "ol", "OLD", ""):
        assert await known.registered_identity("https://a.example", other) is None
    ours = registrar(Post({}), store, metadata_url=document)
    found = await ours.registered_identity("https://a.example", document)
    assert found is not None
    assert (found.client_id, found.method) == (document, "none")
    assert await ours.registered_identity("https://a.example", "one") is None


@pytest.mark.parametrize(
    ("said", "secret", "method"),
    [
        ({"client_secret": "s", "token_endpoint_auth_method": "client_secret_post"}, "s", "client_secret_post"),
        ({"token_endpoint_auth_method": "client_secret_basic"}, None, None),
        ({"client_secret": "s", "token_endpoint_auth_method": "none"}, None, "none"),
        ({"client_secret": "s", "token_endpoint_auth_method": "private_key_jwt"}, "s", None),
        ({"client_secret": "s", "client_secret_expires_at": 0}, "s", None),
        ({}, None, "none"),
    ],
)
async def test_the_registered_authentication_method_is_used_where_it_is_possible(
    said: dict[str, Any], secret: str | None, method: str | None
) -> None:
    server = AuthorizationServerMetadata("https://a.example", registration_endpoint="https://a.example/register")
    found = await registrar(Post({"client_id": "one", **said})).identity(server, None, None)
    assert (found.secret, found.method) == (secret, method)


async def test_a_registration_that_has_ended_meanwhile_is_made_anew_and_only_ones_own_is_forgotten() -> None:
    store, post = MemoryStore(), Post({"client_id": "one", "client_secret": "s"})
    server = AuthorizationServerMetadata("https://a.example", registration_endpoint="https://a.example/register")
    ours = registrar(post, store)
    assert (await ours.identity(server, None, None)).client_id == "one"
    await ours.forget("https://a.example", "another")
    assert await ours.registered_identity("https://a.example", "one") is not None
    [key] = store._entries
    store._entries[key] = {**store._entries[key], "client_secret_expires_at": 1}
    assert await ours.registered_identity("https://a.example", "one") is None
    post.answer = {"client_id": "two"}
    assert (await ours.identity(server, None, None)).client_id == "two"
