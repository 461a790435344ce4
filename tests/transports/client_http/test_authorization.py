"""By what the requests of a route are authorized, as caches compare it: equal for equal logins alone, and without secrets."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.auth.client.oauth_world import CHALLENGE, URL, World
from tests.auth.client.test_login_flows import oauth, signed_in

from greenroom.auth.client.auth_option import CallerCredentials, CallerIdentity, credentials_for
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.http_settings import Trust
from greenroom.transports.client.interfaces import authorization_of
from greenroom.transports.client.memory_route import MemoryRoute
from greenroom.transports.client.remote_wire import RemoteRoute
from greenroom.transports.client.server_command import Command

if TYPE_CHECKING:
    from collections.abc import Mapping

SECRET = "a-very-secret-token"


def route(token: str | None = None, **options: Any) -> HttpRoute:
    return HttpRoute(URL, credentials=None if token is None else credentials_for(token, URL), **options)


class OwnLogin:
    """Credentials of a program, which say nothing of the user that they are for."""

    async def headers(self) -> Mapping[str, str]:
        return {}

    async def refused(self, status: int, challenge: str, sent: Mapping[str, str]) -> bool:
        return False


@pytest.mark.row("26-C3")
def test_equal_logins_are_equal_and_others_are_not() -> None:
    context = ssl.create_default_context()
    different = [
        route(),
        route("one"),
        route("two"),
        route(headers={"X-Api-Key": "one"}),
        route(headers={"X-Api-Key": "two"}),
        route("one", headers={"X-Api-Key": "one"}),
        route(headers={"a": "b", "c": "d"}),
        route(headers={"a": "bc", "d": ""}),
        route(trust=context),
    ]
    found = [authorization_of(each) for each in different]
    assert None not in found
    assert len(set(found)) == len(different)
    again = [authorization_of(each) for each in (route(), route("one"), route("two"))]
    assert again == found[:3]


@pytest.mark.row("26-C3")
@pytest.mark.parametrize(
    "unknown",
    [
        HttpRoute(URL, credentials=OwnLogin()),
        HttpRoute(URL, credentials=CallerCredentials(lambda _: SECRET, CallerIdentity("ada", None, None), URL)),
        HttpRoute(URL, transport=httpx.MockTransport(lambda _: httpx.Response(200))),
        Command("uvx", "mcp-server-git"),
        MemoryRoute(object()),  # type: ignore[arg-type]  # it is not opened
    ],
    ids=repr,
)
def test_a_login_that_a_program_may_change_at_any_time_is_unknown(unknown: Any) -> None:
    assert authorization_of(unknown) is None


def test_a_route_through_another_process_has_the_login_of_its_own() -> None:
    assert authorization_of(RemoteRoute(route(SECRET), None)) == authorization_of(route(SECRET))  # type: ignore[arg-type]


def test_what_is_compared_has_no_secret() -> None:
    one = route(SECRET, headers={"X-Api-Key": SECRET}, trust=Trust(keyfile_password=SECRET))
    assert SECRET not in repr(authorization_of(one))
    assert SECRET.encode() not in repr(authorization_of(one)).encode()


@pytest.mark.row("26-C3")
async def test_another_token_is_another_authorization() -> None:
    world = World()
    credentials = oauth(world).credentials(URL)
    here = HttpRoute(URL, credentials=credentials)
    assert authorization_of(here) is None  # the login is not loaded yet: its user is unknown
    assert await credentials.headers() == {}
    anonymous = authorization_of(here)
    sent = await signed_in(credentials)
    first = authorization_of(here)
    assert len({None, anonymous, first}) == 3
    assert authorization_of(HttpRoute(URL, credentials=credentials)) == first

    assert await credentials.refused(401, CHALLENGE, sent)
    assert authorization_of(here) not in (None, anonymous, first)
