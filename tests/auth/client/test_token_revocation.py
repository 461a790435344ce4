"""Tokens are revoked at the server that issued them, by the client to which they were issued; a failed revocation is reported."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.auth import MemoryStore, OAuth, SignInError
from greenroom.auth.client.oauth_login import login_key, revoke
from greenroom.auth.client.token_stores import LoginRecord
from greenroom.auth.testing import AuthServerResponse

from .oauth_world import CHALLENGE, URL, World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.transports.client.fetch import FetchResponse


async def login(world: World, **options: Any) -> tuple[OAuth, LoginRecord]:
    """A user signs in; returns the settings and the stored record."""
    settings = OAuth(browser=world.browse, fetch=world.fetch, store=MemoryStore(), **options)
    credentials = settings.credentials(URL)
    assert await credentials.refused(401, CHALLENGE, await credentials.headers())
    record = LoginRecord.read(await settings.store.get(login_key(settings, URL)))
    assert record is not None
    return settings, record


def forms(world: World) -> list[Mapping[str, str]]:
    """The forms that were sent to the revocation endpoint."""
    return [asked.form for asked in world.idp.requests if asked.path == "/revoke"]


async def test_both_tokens_are_taken_back() -> None:
    world = World()
    settings, record = await login(world)
    assert record.access_token in world.idp.issued_tokens
    assert record.refresh_token in world.idp.refresh_tokens

    await revoke(settings, URL, record)

    assert [form["token_type_hint"] for form in forms(world)] == ["refresh_token", "access_token"]
    assert record.access_token not in world.idp.issued_tokens
    assert record.refresh_token not in world.idp.refresh_tokens


async def test_a_client_with_a_secret_authenticates_its_revocation() -> None:
    world = World()
    world.idp.add_client("me", secret="hush", redirect_uris=["http://127.0.0.1/callback"])
    settings, record = await login(world, client_id="me", client_secret="hush")

    await revoke(settings, URL, record)

    assert record.access_token not in world.idp.issued_tokens


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"revocation_endpoint": None}, "revocation: https://idp.example does not support revocation"),
        ({"issuer": "https://other.example"}, "discovery: "),
        ({"revocation_endpoint": "http://idp.example/revoke"}, "is not https"),
    ],
    ids=["none", "another", "open"],
)
async def test_a_revocation_that_was_not_possible_is_reported(fault: dict[str, Any], says: str) -> None:
    world = World()
    settings, record = await login(world)
    world.idp.faults.metadata = fault

    with pytest.raises(SignInError) as raised:
        await revoke(settings, URL, record)

    assert says in str(raised.value)
    assert record.access_token not in str(raised.value)
    assert forms(world) == []


async def test_a_refusal_is_said() -> None:
    world = World()
    settings, record = await login(world)
    world.idp.plan("/revoke", AuthServerResponse(503, b'{"error": "temporarily_unavailable"}'))

    with pytest.raises(SignInError, match=r"revocation: .*temporarily_unavailable"):
        await revoke(settings, URL, record)


async def test_a_revocation_does_not_wait_for_ever() -> None:
    world = World()
    settings, record = await login(world)

    async def never(url: str, **_: Any) -> FetchResponse:
        del url
        await asyncio.Event().wait()
        raise AssertionError

    silent = OAuth(browser=None, fetch=never, store=settings.store)

    with pytest.raises(SignInError, match="did not answer within 3 seconds"):
        await revoke(silent, URL, record, patience=3.0)


async def test_an_unregistered_client_cannot_revoke() -> None:
    world = World()
    settings, record = await login(world)
    forgetful = OAuth(browser=None, fetch=world.fetch, store=MemoryStore())

    with pytest.raises(SignInError, match="no longer known"):
        await revoke(forgetful, URL, record)
    assert settings.store is not forgetful.store
