"""Programs with a page of their own to which users return, instead of a loopback page; and how each is registered."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom import ConfigError
from greenroom.auth import MemoryStore, OAuth, SignInError

from .oauth_world import CHALLENGE, URL, World

PAGE = "https://app.example/back"


def oauth(world: World, **options: Any) -> OAuth:
    given: dict[str, Any] = {"browser": world.browse, "fetch": world.fetch, **options}
    return OAuth(**given)


@pytest.mark.row("26-A5")
@pytest.mark.parametrize(
    ("redirect_uri", "kind"),
    [
        (None, "native"),
        (PAGE, "web"),
        ("https://app.example:8443/back", "web"),
        ("https://localhost/back", "native"),
        ("https://127.0.0.1:8443/back", "native"),
        ("http://127.0.0.1:7777/back", "native"),
        ("com.example.app:/back", "native"),
    ],
)
async def test_a_program_is_registered_as_native_or_of_the_web(redirect_uri: str | None, kind: str) -> None:
    world = World()
    credentials = oauth(world, redirect_uri=redirect_uri).credentials(URL)
    assert await credentials.refused(401, CHALLENGE, {})
    [client] = world.idp.clients.values()
    assert client.metadata["application_type"] == kind
    if redirect_uri is not None:
        assert client.redirect_uris == (redirect_uri,)
        assert world.tokens()[0]["redirect_uri"] == redirect_uri


async def test_the_address_that_comes_back_is_checked_like_any_other() -> None:
    world = World()

    async def forged(url: str, /) -> str | None:
        address = await world.browse(url)
        assert address is not None
        return address.replace("state=", "state=x")

    with pytest.raises(SignInError, match="another state"):
        await oauth(world, redirect_uri=PAGE, browser=forged).credentials(URL).refused(401, CHALLENGE, {})
    assert world.tokens() == []


async def test_a_browser_that_returns_no_address_is_told_of() -> None:
    world = World()

    async def goes(url: str, /) -> str | None:
        await world.browse(url)
        return None

    with pytest.raises(SignInError, match="has to return the address"):
        await oauth(world, redirect_uri=PAGE, browser=goes).credentials(URL).refused(401, CHALLENGE, {})


async def test_a_page_that_replaces_the_loopback_page_is_registered_anew() -> None:
    world, first, second = World(), MemoryStore(), MemoryStore()
    await oauth(world, store=first).credentials(URL).refused(401, CHALLENGE, {})
    for name, entry in first._entries.items():
        if name.startswith("client "):
            await second.put(name, entry)
    await oauth(world, store=second, redirect_uri=PAGE).credentials(URL).refused(401, CHALLENGE, {})
    assert [each.metadata["application_type"] for each in world.idp.clients.values()] == ["native", "web"]


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "app.example/back",
        "http://app.example/back",
        "https:///back",
        f"{PAGE}#part",
        f"{PAGE}#",
        "javascript:alert(1)",
        "app:/back",
        "file:///back",
    ],
)
def test_a_redirect_that_is_not_safe_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="redirect_uri must be an https URL"):
        OAuth(redirect_uri=wrong)


def test_a_page_of_its_own_has_no_port() -> None:
    with pytest.raises(ConfigError, match="either port or redirect_uri"):
        OAuth(redirect_uri=PAGE, port=8080)
