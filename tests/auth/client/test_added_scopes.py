"""Scopes that are added to a login, logins that lack one, and the two interactive flows beside each other."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from greenroom.auth import DeviceCode, MemoryStore, SignInError
from greenroom.auth.client.login_process import LoginCredentials
from greenroom.auth.client.oauth_login import login_key, parse_login_key
from greenroom.auth.client.token_stores import LoginRecord
from greenroom.auth.jwks_and_introspection import KeySet
from greenroom.auth.testing import AuthorizationServer
from greenroom.transports.client.fetch import Fetcher
from greenroom.transports.client.http_address import Guard

from .oauth_world import CHALLENGE, URL, World
from .test_login_flows import LESS, end, oauth, signed_in, token


def asked(world: World) -> list[str]:
    return [parse_qs(urlsplit(url).query)["scope"][0] for url in world.visits]


def another(store: MemoryStore) -> MemoryStore:
    """The same logins for another program: stores with one name share the process that keeps a login."""
    copied = MemoryStore()
    copied._entries.update(store._entries)
    return copied


async def kept(store: MemoryStore, auth: Any) -> LoginRecord:
    record = LoginRecord.read(await store.get(login_key(auth, URL)))
    assert record is not None
    return record


async def test_scopes_beside_the_servers_own_do_not_replace_them() -> None:
    world = World()
    await signed_in(oauth(world, also=("write",)).credentials(URL))
    assert set(asked(world)[0].split()) == {"read", "write", "offline_access"}


async def test_a_login_that_is_kept_is_widened_and_loses_nothing() -> None:
    world, store = World(), MemoryStore()
    auth = oauth(world, store=store)
    before = token(await signed_in(auth.credentials(URL)))
    credentials = oauth(world, store=store).credentials(URL)
    assert isinstance(credentials, LoginCredentials)
    record = await credentials.add_scopes(("write",))
    assert set(record.scopes) == {"read", "write", "offline_access"}
    assert record.access_token != before
    assert await kept(store, auth) == record
    assert token(await credentials.headers()) == record.access_token
    visits = len(world.visits)
    assert await credentials.add_scopes(("read", "write")) == record
    assert len(world.visits) == visits


async def test_a_login_that_lacks_a_scope_is_not_called_absent_and_the_error_says_what_to_run() -> None:
    world, store = World(), MemoryStore()
    await signed_in(oauth(world, store=store).credentials(URL))
    quiet = oauth(world, store=another(store), browser=None, command="greenroom login diary").credentials(URL)
    with pytest.raises(SignInError) as caught:
        await quiet.refused(403, LESS, await quiet.headers())
    assert "lacks the scope write: run `greenroom login diary --scope write` in a terminal" in str(caught.value)
    assert (caught.value.code, caught.value.url) == ("insufficient_scope", URL)
    with pytest.raises(SignInError, match="was not granted read, which the server requires: ask its operator"):
        await quiet.refused(403, LESS.replace("write", "read"), await quiet.headers())


async def test_a_hostile_scope_is_one_word_in_what_to_run() -> None:
    world, store = World(), MemoryStore()
    await signed_in(oauth(world, store=store).credentials(URL))
    quiet = oauth(world, store=another(store), browser=None, command="greenroom login diary").credentials(URL)
    with pytest.raises(SignInError, match=r"--scope '`id`'` in a terminal"):
        await quiet.refused(403, LESS.replace("write", "`id`"), await quiet.headers())


async def test_an_expired_login_is_called_expired_and_names_the_server() -> None:
    world, store = World(), MemoryStore()
    sent = await signed_in(oauth(world, store=store).credentials(URL))
    world.idp.revoke_all()
    end(store, refresh_token=None)
    quiet = oauth(world, store=MemoryStore(), browser=None).credentials(URL)
    with pytest.raises(SignInError, match="no user is signed in to"):
        await quiet.refused(401, CHALLENGE, {})
    quiet = oauth(world, store=another(store), browser=None).credentials(URL)
    with pytest.raises(SignInError, match=r"the login at .* has expired") as caught:
        await quiet.refused(401, CHALLENGE, sent)
    assert caught.value.url == URL


@pytest.mark.parametrize("first", ["browser", "device"])
async def test_each_way_to_sign_in_works_after_the_other(first: str) -> None:
    world, store = World(), MemoryStore()

    async def show(code: DeviceCode, /) -> None:
        world.idp.decide(code.user_code)

    ways: dict[str, dict[str, Any]] = {"browser": {}, "device": {"device": show}}
    second = "device" if first == "browser" else "browser"
    for way in (first, second, first):
        auth = oauth(world, store=store, account=f"of {way}", **ways[way])
        assert token(await signed_in(auth.credentials(URL)))
        end(store, access_token="old")
    auth = oauth(world, store=store, **ways[first])
    assert token(await signed_in(auth.credentials(URL)))
    auth = oauth(world, store=store, **ways[second])
    await store.put(login_key(auth, URL), None)
    fresh = oauth(world, store=store, issuer=world.idp.issuer, **ways[second])
    assert token(await signed_in(fresh.credentials(URL)))


@pytest.mark.parametrize("account", ["default", "ann of sales"])
@pytest.mark.parametrize("client_id", [None, "mine"])
def test_the_name_of_a_login_says_whose_it_is(account: str, client_id: str | None) -> None:
    name = login_key(oauth(World(), account=account, client_id=client_id), URL)
    assert parse_login_key(name) == (account, client_id, URL)
    assert parse_login_key(f"client https://idp.example {account}") is None


async def test_keys_of_an_issuer_on_this_machine_are_fetched_and_no_others_there() -> None:
    async with AuthorizationServer() as idp:
        keys = KeySet(idp.url("jwks"))
        assert (await keys.fetch(idp.url("jwks"))).status == 200
        elsewhere = KeySet("https://id.example/jwks")
        assert isinstance(elsewhere.fetch, Fetcher)
        assert elsewhere.fetch.guard == Guard()


async def test_the_form_for_a_code_takes_it_in_any_case_and_refuses_another() -> None:
    world = World()
    idp = world.idp
    shown: list[DeviceCode] = []

    async def show(code: DeviceCode, /) -> None:
        shown.append(code)
        page = await idp.fetch(str(code.complete))
        assert (page.status, code.user_code.encode() in page.body) == (200, True)
        wrong = await idp.fetch(idp.url("device"), method="POST", body=b"user_code=%3Cb%3E")
        assert (wrong.status, b"&lt;b&gt;" in wrong.body, b"<b>" in wrong.body) == (400, True, False)
        typed = code.user_code.replace("-", "").lower().encode()
        done = await idp.fetch(idp.url("device"), method="POST", body=b"user_code=" + typed)
        assert (done.status, b"signed in as ann" in done.body) == (200, True)

    assert token(await signed_in(oauth(world, device=show).credentials(URL)))
    assert len(shown) == 1
