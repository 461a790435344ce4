"""An upstream that needs a user's login: it is shown in status, in reports of changes and at calls, with the address."""

from __future__ import annotations

import asyncio

import pytest

from greenroom import Host
from greenroom.actors.federation.upstream_spec import UpstreamState
from greenroom.auth import MemoryStore, OAuth, SignInError
from greenroom.transports.client.http_route import HttpRoute

from .test_added_scopes import another
from .test_login_end_to_end import theatre


@pytest.mark.greenroom(clock="real")
async def test_an_upstream_without_a_login_needs_a_sign_in_and_says_where() -> None:
    async with theatre() as (_, url):
        quiet = OAuth(browser=None, store=MemoryStore(), command="greenroom login theatre")
        async with Host({"theatre": HttpRoute(url, credentials=quiet.credentials(url))}, patience=30.0) as host:
            async with asyncio.timeout(30):
                async for standing in host.watch():
                    if standing.state is UpstreamState.NEEDS_SIGN_IN:
                        break
            standing = host.status()["theatre"]
            assert (standing.state, standing.sign_in_url) == (UpstreamState.NEEDS_SIGN_IN, url)
            assert "no user is signed in" in standing.reason
            with pytest.raises(SignInError) as caught:
                await host.call("theatre:look")
            assert caught.value.url == url


@pytest.mark.greenroom(clock="real")
async def test_a_login_that_expires_while_an_upstream_is_up_is_a_state_until_a_call_succeeds() -> None:
    async with theatre(opaque=True) as (idp, url):
        store = MemoryStore()
        seen = OAuth(browser=idp.browse, store=store)
        async with Host({"theatre": HttpRoute(url, credentials=seen.credentials(url))}, patience=30.0) as host:
            assert await host.call("theatre:look") == "a stage"
        copied = another(store)
        for key, entry in copied._entries.items():
            if key.startswith("user "):
                copied._entries[key] = {**entry, "refresh_token": None}
        quiet = OAuth(browser=None, store=copied)
        async with Host({"theatre": HttpRoute(url, credentials=quiet.credentials(url))}, patience=30.0) as host:
            assert await host.call("theatre:look") == "a stage"
            idp.revoke_all()
            with pytest.raises(SignInError, match="expired"):
                await host.call("theatre:look")
            standing = host.status()["theatre"]
            assert (standing.state, standing.sign_in_url) == (UpstreamState.NEEDS_SIGN_IN, url)
