"""The device grant with servers that return no code, change their mind, or send the user to an unsafe address."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.auth import SignInError
from greenroom.auth.testing import AuthServerResponse
from greenroom.transports.client.fetch import FetchResponse

from .oauth_world import ISSUER, URL, World
from .test_login_flows import oauth, signed_in, token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.auth import DeviceCode

CODE = {
    "device_code": "d",
    "user_code": "ABCD-EFGH",
    "verification_uri": f"{ISSUER}/device",
    "expires_in": 600,
    "interval": 5,
}


class Deviant(World):
    """A world with the device response of the test, and these token responses before the token."""

    def __init__(self, code: Mapping[str, Any], *first: str | int) -> None:
        super().__init__()
        self.code = code
        self.first = list(first)
        self.times: list[float] = []

    async def fetch(
        self, url: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchResponse:
        if url == f"{ISSUER}/device_authorization":
            return FetchResponse(200, {}, json.dumps(self.code).encode(), url)
        if url == f"{ISSUER}/token":
            self.times.append(asyncio.get_running_loop().time())
            if self.first:
                said = self.first.pop(0)
                if isinstance(said, int):
                    return FetchResponse(said, {}, b"", url)
                return FetchResponse(400, {}, json.dumps({"error": said}).encode(), url)
            return FetchResponse(200, {}, b'{"access_token": "t", "token_type": "bearer"}', url)
        return await super().fetch(url, method=method, headers=headers, body=body)


async def wanted(world: World, **options: Any) -> tuple[str, list[DeviceCode]]:
    """The final token, and the codes that were shown."""
    shown: list[DeviceCode] = []

    async def show(code: DeviceCode, /) -> None:
        shown.append(code)

    headers = await signed_in(oauth(world, browser=None, device=show, **options).credentials(URL))
    return token(headers), shown


async def test_a_server_that_is_slow_or_busy_is_asked_less_often() -> None:
    world = Deviant(CODE, "authorization_pending", "slow_down", 503, "authorization_pending")
    found, [shown] = await wanted(world)
    assert found == "t"
    assert (shown.user_code, shown.verification_uri, shown.complete) == (
        "ABCD-EFGH",
        f"{ISSUER}/device",
        None,
    )
    gaps = [later - earlier for earlier, later in pairwise(world.times)]
    assert gaps == [pytest.approx(seconds) for seconds in (5, 10, 15, 15)]


async def test_a_server_that_does_not_say_how_often_is_not_asked_in_a_hurry() -> None:
    world = Deviant({name: CODE[name] for name in ("device_code", "user_code", "verification_uri")}, "slow_down")
    assert (await wanted(world))[0] == "t"
    assert world.times[1] - world.times[0] >= 5


@pytest.mark.parametrize(
    ("says", "message"),
    [("expired_token", "the code was not entered in time"), ("access_denied", "access_denied")],
)
async def test_a_code_that_is_over_or_refused_is_not_asked_for_again(says: str, message: str) -> None:
    world = Deviant(CODE, "authorization_pending", says)
    with pytest.raises(SignInError, match=message):
        await wanted(world)
    assert len(world.times) == 2


@pytest.mark.parametrize("name", ["device_code", "user_code", "verification_uri"])
async def test_an_answer_without_a_code_to_show_is_told_as_that(name: str) -> None:
    world = Deviant({key: value for key, value in CODE.items() if key != name})
    with pytest.raises(SignInError, match="returned no user code") as caught:
        await wanted(world)
    assert caught.value.step == "device authorization"


@pytest.mark.parametrize("name", ["verification_uri", "verification_uri_complete"])
@pytest.mark.parametrize("url", ["file:///etc/passwd", "javascript:alert(1)", "calc.exe"])
async def test_a_user_is_not_sent_to_what_is_no_page(name: str, url: str) -> None:
    shown: list[DeviceCode] = []

    async def show(code: DeviceCode, /) -> None:
        shown.append(code)

    with pytest.raises(SignInError):
        await signed_in(oauth(Deviant({**CODE, name: url}), browser=None, device=show).credentials(URL))
    assert shown == []


async def test_a_code_that_is_in_the_address_already_is_shown_with_it() -> None:
    complete = f"{ISSUER}/device?user_code=ABCD-EFGH"
    _, [shown] = await wanted(Deviant({**CODE, "verification_uri_complete": complete}))
    assert shown.complete == complete


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("device_authorization_endpoint", "no user is present to sign in"),
        ("token_endpoint", "does not support the device grant"),
    ],
)
async def test_a_server_that_knows_no_devices_is_told_as_that(missing: str, message: str) -> None:
    world = World()
    metadata: dict[str, Any] = {
        "issuer": ISSUER,
        "authorization_endpoint": f"{ISSUER}/authorize",
        "token_endpoint": f"{ISSUER}/token",
        "device_authorization_endpoint": f"{ISSUER}/device_authorization",
        "code_challenge_methods_supported": ["S256"],
    }
    del metadata[missing]
    world.idp.plan("/.well-known/oauth-authorization-server", AuthServerResponse(200, json.dumps(metadata).encode()))
    with pytest.raises(SignInError, match=message):
        await wanted(world)
