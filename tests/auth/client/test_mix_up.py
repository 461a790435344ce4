"""Mix-up attacks: issuers that pose as another, and codes, verifiers, secrets and tokens that must reach no other issuer."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from greenroom.auth import MemoryStore, OAuth, SignInError
from greenroom.auth.testing import AuthorizationServer
from greenroom.transports.client.fetch import FetchResponse

from .oauth_world import CHALLENGE, ISSUER, PRM, URL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EVIL, EVIL_URL = "https://evil.example", "https://evil.example/mcp"
EVIL_PRM = "https://evil.example/.well-known/oauth-protected-resource/mcp"


class Web:
    """An honest server with its issuer, and an attacker with both; all requests are recorded by host."""

    def __init__(self) -> None:
        self.honest = AuthorizationServer(issuer=ISSUER)
        self.documents: dict[str, Any] = {
            PRM: {"resource": URL, "authorization_servers": [ISSUER]},
            EVIL_PRM: {"resource": EVIL_URL, "authorization_servers": [EVIL]},
        }
        self.sent: dict[str, list[str]] = {}
        self.answers: dict[str, Callable[[Mapping[str, str]], Any]] = {}
        self.visits: list[str] = []
        self.back: Callable[[str], str] = lambda address: address

    async def fetch(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchResponse:
        """The `Fetch` of the client."""
        host = urlsplit(url).hostname or ""
        self.sent.setdefault(host, []).append(f"{method} {url} {dict(headers or {})} {body.decode()}")
        if url in self.documents:
            return FetchResponse(200, {}, json.dumps(self.documents[url]).encode(), url)
        if url in self.answers:
            form = {name: value for name, [value] in parse_qs(body.decode()).items()}
            return FetchResponse(200, {}, json.dumps(self.answers[url](form)).encode(), url)
        if host == urlsplit(ISSUER).hostname:
            return await self.honest.fetch(url, method=method, headers=headers, body=body)
        return FetchResponse(404, {}, b"", url)

    async def browse(self, url: str, /) -> str | None:
        """The user, who signs in at the honest issuer wherever the link comes from."""
        self.visits.append(url)
        assert url.startswith(f"{ISSUER}/"), "the user is led to the honest issuer's page only"
        address = await self.honest.browse(url)
        assert address is not None
        return self.back(address)

    def login(self, url: str = URL, **options: Any) -> Any:
        """Credentials for one of the two servers."""
        given: dict[str, Any] = {"browser": self.browse, "fetch": self.fetch, "store": MemoryStore(), **options}
        return OAuth(**given).credentials(url)

    def told(self, host: str) -> str:
        """All that was sent to a host."""
        return "\n".join(self.sent.get(host, ()))


@pytest.fixture(name="web")
def _web() -> Web:
    web = Web()
    web.documents[f"{EVIL}/.well-known/oauth-authorization-server"] = {
        "issuer": EVIL,
        "authorization_endpoint": f"{ISSUER}/authorize",  # where users trust the page
        "token_endpoint": f"{EVIL}/token",
        "registration_endpoint": f"{EVIL}/register",
        "code_challenge_methods_supported": ["S256"],
    }
    web.honest.add_client("known", redirect_uris=["http://127.0.0.1/callback"])
    web.answers[f"{EVIL}/register"] = lambda _: {"client_id": "known"}
    web.answers[f"{EVIL}/token"] = lambda _: {"access_token": "of the attacker", "token_type": "bearer"}
    return web


async def sign_in(credentials: Any) -> Mapping[str, str]:
    """Request, get a refusal, and retry, as a wire does."""
    assert await credentials.refused(401, 'Bearer scope="read"', await credentials.headers())
    found: Mapping[str, str] = await credentials.headers()
    return found


@pytest.mark.row("CB-10")
async def test_a_code_of_one_issuer_is_never_shown_to_another_that_led_the_user_there(web: Web) -> None:
    """The honest issuer names itself in the redirect (RFC 9207), and the login began at the attacker's."""
    with pytest.raises(SignInError, match=r"the authorization response is not from https://evil\.example") as caught:
        await sign_in(web.login(EVIL_URL))
    assert caught.value.step == "authorization"
    assert len(web.visits) == 1
    assert "POST https://evil.example/token" not in web.told("evil.example")
    for secret in ("code=", "code_verifier"):
        assert secret not in web.told("evil.example")


@pytest.mark.row("CB-10")
@pytest.mark.parametrize("said", [None, EVIL, f"{ISSUER}/", ISSUER.upper(), f"{ISSUER}?x", ""])
async def test_an_honest_issuers_answer_with_another_name_in_it_is_not_used(web: Web, said: str | None) -> None:
    def changed(address: str) -> str:
        parts = urlsplit(address)
        query = {name: value for name, [value] in parse_qs(parts.query).items() if name != "iss"}
        return parts._replace(query=urlencode(query if said is None else {**query, "iss": said})).geturl()

    web.back = changed
    with pytest.raises(SignInError, match=r"is not from|names no issuer") as caught:
        await sign_in(web.login())
    assert caught.value.step == "authorization"
    assert "code_verifier" not in web.told("idp.example")


@pytest.mark.row("CB-10")
async def test_an_answer_to_one_login_is_no_answer_to_another(web: Web) -> None:
    """Two logins of one program at a time whose responses an attacker swaps: each has its own state."""
    waiting: list[asyncio.Future[str]] = []
    both = asyncio.Event()

    async def swapped(url: str, /) -> str:
        address = await web.honest.browse(url)
        assert address is not None
        mine: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting.append(mine)
        if len(waiting) == 2:
            both.set()
        await both.wait()
        waiting[1 - waiting.index(mine)].set_result(address)
        return await mine

    web.documents["https://mcp.example/.well-known/oauth-protected-resource/other"] = {
        "resource": "https://mcp.example/other",
        "authorization_servers": [ISSUER],
    }
    logins = [web.login(each, browser=swapped) for each in (URL, "https://mcp.example/other")]
    results = await asyncio.gather(*(sign_in(each) for each in logins), return_exceptions=True)
    assert all(isinstance(each, SignInError) and "another state" in str(each) for each in results)
    assert "code_verifier" not in web.told("idp.example")


@pytest.mark.row("CB-10")
@pytest.mark.parametrize("field", ["issuer", "resource"])
async def test_an_attackers_server_that_passes_for_the_honest_one_is_refused_before_the_user_is_asked(
    web: Web, field: str
) -> None:
    if field == "issuer":  # under the attacker's own well-known URL, in the honest issuer's name
        web.documents[f"{EVIL}/.well-known/oauth-authorization-server"]["issuer"] = ISSUER
    else:  # so that the token would be for the honest server
        web.documents[EVIL_PRM] |= {"resource": URL, "authorization_servers": [ISSUER]}
    with pytest.raises(SignInError, match=r"names another issuer|not the requested server"):
        await sign_in(web.login(EVIL_URL))
    assert web.visits == []


@pytest.mark.row("CB-10")
async def test_a_server_that_names_an_honest_issuer_gets_a_token_for_itself_alone(web: Web) -> None:
    """Confused deputy: the token request names the resource, so that the token is valid nowhere else."""
    web.documents[EVIL_PRM]["authorization_servers"] = [ISSUER]
    shown = await sign_in(web.login(EVIL_URL))
    [asked] = web.visits
    assert parse_qs(urlsplit(asked).query)["resource"] == [EVIL_URL]
    _, claims = web.honest.issued_tokens[shown["authorization"].removeprefix("Bearer ")]
    assert claims["aud"] in (EVIL_URL, [EVIL_URL])


@pytest.mark.row("26-A3")
@pytest.mark.row("CB-10")
async def test_credentials_of_one_issuer_are_sent_to_no_other(web: Web) -> None:
    """With one store for both, no token, refresh token, client secret or client id is shared."""
    store = MemoryStore()
    honest = web.login(store=store)
    tokens = [(await sign_in(honest))["authorization"].removeprefix("Bearer ")]
    assert await honest.refused(401, CHALLENGE, await honest.headers())
    tokens.append((await honest.headers())["authorization"].removeprefix("Bearer "))
    kept = json.dumps([dict(each) for each in store._entries.values()])
    secrets = {
        value for entry in json.loads(kept) for name, value in entry.items() if "token" in name or "secret" in name
    }
    secrets = {each for each in secrets if isinstance(each, str) and len(each) > 20 and "//" not in each} | set(tokens)
    web.documents[f"{EVIL}/.well-known/oauth-authorization-server"]["authorization_endpoint"] = f"{ISSUER}/authorize"
    evil = web.login(EVIL_URL, store=store)
    with pytest.raises(SignInError):
        await sign_in(evil)
    assert secrets >= set(tokens)
    for each in secrets:
        assert each not in web.told("evil.example")
        assert each not in web.told("mcp.example")
    for host in web.sent:
        assert "Bearer" not in web.told(host), "no access token goes to where metadata, codes and tokens are had"


@pytest.mark.row("CB-10")
async def test_an_issuer_that_is_exchanged_is_not_sent_what_the_one_before_has_given(web: Web) -> None:
    credentials = web.login()
    first = await sign_in(credentials)
    web.documents[PRM]["authorization_servers"] = [EVIL]
    with pytest.raises(SignInError, match="the authorization response is not from"):
        await credentials.refused(401, CHALLENGE, first)
    sent = web.told("evil.example")
    assert "grant_type=refresh_token" not in sent
    assert first["authorization"].removeprefix("Bearer ") not in sent
