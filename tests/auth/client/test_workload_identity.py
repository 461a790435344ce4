"""Programs that sign in with the token of their workload (RFC 7523, SEP-1933)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom import ConfigError
from greenroom.auth import ClientCredentials, FileStore, SignInError
from greenroom.auth.client.token_requests import JWT_BEARER
from greenroom.auth.testing import AuthorizationServer, AuthServerResponse

from .oauth_world import CHALLENGE, ISSUER, URL, World

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from greenroom.auth.client.login_process import LoginCredentials

CLUSTER = "https://cluster.example"


class Cluster(World):
    """An authorization server that trusts the platform on which programs run."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.platform = AuthorizationServer(issuer=CLUSTER)
        self.idp.trust(self.platform)

    def token(self, **claims: Any) -> str:
        """The token that the platform gives to a program."""
        given: dict[str, Any] = {"aud": ISSUER, "client_id": None, **claims}
        return self.platform.token(user="system:serviceaccount:night:job", **given)

    def auth(self, **options: Any) -> ClientCredentials:
        return ClientCredentials(fetch=self.fetch, **options)


async def sign_in(credentials: LoginCredentials) -> Mapping[str, str]:
    assert await credentials.refused(401, CHALLENGE, await credentials.headers())
    return await credentials.headers()


@pytest.mark.row("26-A13")
async def test_a_workload_redeems_its_token_for_one_of_the_server() -> None:
    world = Cluster()
    given = world.token()
    shown = await sign_in(world.auth(workload_token=given).credentials(URL))
    [form] = world.tokens()
    assert form == {"grant_type": JWT_BEARER, "assertion": given, "resource": URL, "scope": "read"}
    claims = world.idp.issued_tokens[shown["authorization"].removeprefix("Bearer ")][1]
    assert (claims["sub"], claims["aud"]) == ("system:serviceaccount:night:job", URL)
    assert not [each for each in world.idp.requests if each.path == "/register"]


@pytest.mark.row("26-A13")
async def test_a_workload_with_a_client_id_names_it() -> None:
    world = Cluster()
    world.idp.add_client("night")
    await sign_in(world.auth(client_id="night", workload_token=world.token()).credentials(URL))
    [form] = world.tokens()
    assert form["client_id"] == "night"
    assert "client_assertion" not in form


async def test_the_token_is_read_anew_for_each_login(tmp_path: Path) -> None:
    """Platforms replace the file within its life."""
    world, file = Cluster(), tmp_path / "token"
    file.write_text(f"{world.token()}\n")
    credentials = world.auth(workload_token=file.read_text).credentials(URL)
    first = await sign_in(credentials)
    file.write_text(world.token())
    assert await credentials.refused(401, CHALLENGE, first)
    assert (await credentials.headers())["authorization"] != first["authorization"]
    used = [form["assertion"] for form in world.tokens()]
    assert len(set(used)) == 2
    assert used[1] == file.read_text()


async def test_a_workload_is_renewed_without_a_user_before_its_token_expires() -> None:
    world = Cluster(lifetime=0.0)

    async def current() -> str:
        return world.token()

    credentials = world.auth(workload_token=current).credentials(URL)
    first = await sign_in(credentials)
    assert (await credentials.headers())["authorization"] != first["authorization"]
    assert {form["grant_type"] for form in world.tokens()} == {JWT_BEARER}


async def test_a_stored_login_of_a_workload_is_used(tmp_path: Path) -> None:
    world = Cluster()
    first = await sign_in(world.auth(workload_token=world.token(), store=FileStore(tmp_path)).credentials(URL))
    world.down = True
    again = world.auth(workload_token="another", store=FileStore(tmp_path)).credentials(URL)
    assert await again.headers() == first


@pytest.mark.row("26-A13")
@pytest.mark.parametrize("error", ["invalid_grant", "invalid_scope", "unauthorized_client", "invalid_client"])
async def test_a_refused_workload_is_not_tried_again_and_no_other_grant_is_either(error: str) -> None:
    world = Cluster()
    world.idp.plan("/token", AuthServerResponse(400, f'{{"error":"{error}"}}'.encode()))
    with pytest.raises(SignInError, match=error) as caught:
        await sign_in(world.auth(workload_token=world.token()).credentials(URL))
    assert (caught.value.code, caught.value.temporary) == (error, False)
    assert len(world.tokens()) == 1


@pytest.mark.parametrize("claims", [{"exp": 1}, {"aud": "https://other.example"}, {"iss": "https://evil.example"}])
async def test_a_token_that_the_server_does_not_accept_is_reported(claims: dict[str, Any]) -> None:
    world = Cluster()
    given = world.token(**claims)
    with pytest.raises(SignInError, match="invalid_grant") as caught:
        await sign_in(world.auth(workload_token=given).credentials(URL))
    assert given not in str(caught.value)


async def test_an_authorization_server_without_the_grant_is_not_shown_the_token() -> None:
    world = Cluster()
    world.idp.faults.metadata = {"grant_types_supported": ["authorization_code"]}
    with pytest.raises(SignInError, match="accepts no tokens of workloads"):
        await sign_in(world.auth(workload_token=world.token()).credentials(URL))
    assert world.tokens() == []
    world.idp.faults.metadata = {"grant_types_supported": None}
    await sign_in(world.auth(workload_token=world.token()).credentials(URL))


async def test_a_function_that_fails_shows_nothing_of_what_it_knows(tmp_path: Path) -> None:
    world = Cluster()

    def fails() -> str:
        raise RuntimeError("the secret is s3cret")

    for given, told in (
        (fails, "RuntimeError"),
        ((tmp_path / "missing").read_text, "No such file"),
        (lambda: " \n", "is empty"),
    ):
        with pytest.raises(SignInError, match=told) as caught:
            await sign_in(world.auth(workload_token=given).credentials(URL))
        assert "s3cret" not in str(caught.value)
    assert world.tokens() == []


def test_a_workload_is_signed_in_by_its_token_alone() -> None:
    secrets: list[dict[str, Any]] = [{"client_secret": "s"}, {"assertion": "a"}]
    for more in secrets:
        with pytest.raises(ConfigError, match="give it alone"):
            ClientCredentials(client_id="night", workload_token="t", **more)
    with pytest.raises(ConfigError, match="a client needs a client_id"):
        ClientCredentials(client_secret="s")
    with pytest.raises(ConfigError, match="or a workload_token"):
        ClientCredentials(client_id="night")
    assert "t0k3n" not in repr(ClientCredentials(workload_token="t0k3n"))
