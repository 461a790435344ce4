"""A client, a server and an authorization server, each at its own local address: signing in, expiring tokens, more scopes, and failures."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, HttpConfig, Phase, Server
from greenroom.auth import ClientCredentials, OAuth, SignInError
from greenroom.auth.resource_server import OAuthResource
from greenroom.auth.testing import AuthorizationServer, EndlessResponse, NoResponse, RedirectResponse, Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.auth.testing import ConsentRequest


@asynccontextmanager
async def theatre(**options: Any) -> AsyncGenerator[tuple[AuthorizationServer, str]]:
    """A server that admits callers with tokens of its authorization server; one of its tools needs `write`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/mcp"
    async with AuthorizationServer(**options) as idp:
        keys = None if idp.opaque else idp.key_set()

        def known(token: str, _resource: object, _asking: object) -> dict[str, Any] | None:
            return idp.issued_tokens[token][1] if token in idp.issued_tokens else None

        resource = OAuthResource(
            resource=url,
            authorization_servers=[idp.issuer],
            keys=keys,
            authorizer=None if keys else known,
            scopes_supported=["read"],
            allow_insecure_authorization_servers=True,
        )
        server = Server("theatre", auth=resource, required_scopes=["read"])

        @server.tool
        async def look() -> str:
            return "a stage"

        @server.tool(scopes=["write"])
        async def paint() -> str:
            return "painted"

        async with server.started():
            await server.listen(config=HttpConfig(port=port))
            yield idp, url


def no(idp: AuthorizationServer) -> list[ConsentRequest]:
    """From now on the user denies; returns the requests."""
    asked: list[ConsentRequest] = []

    def consent(wish: ConsentRequest) -> Refuse:
        asked.append(wish)
        return Refuse()

    idp.consent = consent
    return asked


def grants(idp: AuthorizationServer) -> list[str]:
    return [each.form["grant_type"] for each in idp.requests if each.path == "/token"]


@pytest.mark.row("CB-06")
async def test_a_user_signs_in_and_calls() -> None:
    async with theatre() as (idp, url):
        async with Client(url, auth=OAuth(browser=idp.browse)) as client:
            assert await client.call("look") == "a stage"
        assert grants(idp) == ["authorization_code"]


@pytest.mark.row("CA-03")
async def test_a_token_that_is_taken_back_in_a_session_is_renewed() -> None:
    async with theatre(opaque=True) as (idp, url), Client(url, auth=OAuth(browser=idp.browse)) as client:
        assert await client.call("look") == "a stage"
        idp.issued_tokens.clear()
        assert await client.call("look") == "a stage"
        assert grants(idp) == ["authorization_code", "refresh_token"]


async def test_more_scopes_are_asked_for_when_a_call_needs_them() -> None:
    async with theatre() as (idp, url), Client(url, auth=OAuth(browser=idp.browse)) as client:
        assert await client.call("look") == "a stage"
        assert await client.call("paint") == "painted"
        assert await client.call("look") == "a stage"
        assert grants(idp) == ["authorization_code", "authorization_code"]


@pytest.mark.row("CA-07")
async def test_a_program_signs_in_as_itself() -> None:
    async with theatre() as (idp, url):
        idp.add_client("robot", secret="s3cret")
        async with Client(url, auth=ClientCredentials(client_id="robot", client_secret="s3cret")) as client:
            assert await client.call("look") == "a stage"


@pytest.mark.parametrize(
    ("place", "plan", "step", "temporary"),
    [
        ("/token", NoResponse(), "token", True),
        ("/token", EndlessResponse(), "token", True),
        ("/register", RedirectResponse("http://169.254.169.254/latest"), "registration", False),
        ("/.well-known/oauth-authorization-server", EndlessResponse(), "discovery", True),
        ("/.well-known/oauth-authorization-server", NoResponse(), "discovery", True),
    ],
)
async def test_a_failed_login_is_raised_where_the_client_is_opened(
    place: str,
    plan: Any,
    step: str,
    temporary: bool,  # noqa: FBT001 - a column
) -> None:
    async with theatre() as (idp, url):
        idp.plan(place, plan)
        with pytest.raises(SignInError) as caught:
            await Client(url, auth=OAuth(browser=idp.browse)).open()
        assert (caught.value.step, caught.value.temporary) == (step, temporary)


async def test_a_user_who_says_no_is_not_asked_again_and_again() -> None:
    async with theatre() as (idp, url):
        asked = no(idp)
        with pytest.raises(SignInError, match="access_denied"):
            await Client(url, auth=OAuth(browser=idp.browse)).open()
        assert len(asked) == 1


async def test_a_user_who_says_no_to_more_loses_that_call_and_nothing_else() -> None:
    async with theatre() as (idp, url), Client(url, auth=OAuth(browser=idp.browse)) as client:
        assert await client.call("look") == "a stage"
        asked = no(idp)
        with pytest.raises(SignInError, match="access_denied"):
            await client.call("paint")
        assert len(asked) == 1
        assert await client.call("look") == "a stage"
        assert client.line.status.phase is Phase.READY
