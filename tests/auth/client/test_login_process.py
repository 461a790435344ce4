"""The login process: started twice at once, killed in the middle, with a failing store, and with other programs that change the stored login."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.auth import ClientCredentials, MemoryStore, OAuth, SignInError
from greenroom.auth.client.login_process import IDLE_SECONDS, RENEW_PAUSE
from greenroom.auth.testing import AuthServerResponse
from greenroom.supervision import current_node, kill, send, whereis

from .oauth_world import CHALLENGE, ISSUER, URL, World
from .test_login_flows import end, oauth, signed_in, token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.transports.client.fetch import FetchResponse


async def _ends_with_the_login_process(credentials: Any, asking: asyncio.Task[Any]) -> None:
    """Kill the login process while it serves the call."""
    await asyncio.sleep(1)
    pid = whereis(credentials._name)
    assert pid is not None
    kill(pid)
    with pytest.raises(SignInError, match="the login process ended") as caught:
        await asking
    assert caught.value.temporary


class Full(MemoryStore):
    """A store that refuses writes."""

    async def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        raise SignInError("store", "the disk is full")


class Mounted(MemoryStore):
    """A store that refuses writes from some moment on."""

    def __init__(self, failure: Exception) -> None:
        super().__init__()
        self.failure = failure
        self.frozen = False

    async def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        if self.frozen:
            raise self.failure
        await super().put(key, entry)


class Broken(MemoryStore):
    """A program's own store, which raises any exception."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name_of_failure = name

    def _fail(self, name: str) -> None:
        if name == self.name_of_failure:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def get(self, key: str) -> Mapping[str, Any] | None:
        self._fail("get")
        return await super().get(key)

    def lock(self, key: str) -> Any:
        self._fail("lock")
        return super().lock(key)


async def test_simultaneous_first_requests_share_one_login_process() -> None:
    world, store = World(), MemoryStore()
    many = [oauth(world, store=store).credentials(URL) for _ in range(20)]
    assert await asyncio.gather(*(each.headers() for each in many)) == [{}] * 20
    assert len({each._pid for each in many}) == 1
    await asyncio.gather(*(each.refused(401, CHALLENGE, {}) for each in many))
    assert len(world.visits) == 1


async def test_a_killed_login_process_is_reported_and_the_next_one_continues() -> None:
    world = World()
    waits = asyncio.Event()

    async def slow(url: str, /) -> str | None:
        await waits.wait()
        return await world.browse(url)

    credentials = oauth(world, browser=slow).credentials(URL)
    asking = asyncio.create_task(credentials.refused(401, CHALLENGE, {}))
    await _ends_with_the_login_process(credentials, asking)
    waits.set()
    assert await credentials.refused(401, CHALLENGE, {})


async def test_a_login_that_cannot_be_stored_is_used_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    key = "client_id"
    world.idp.add_client("me", redirect_uris=["http://127.0.0.1/callback"])
    credentials = oauth(world, store=Full(), **{key: "me"}).credentials(URL)
    assert token(await signed_in(credentials)) in world.idp.issued_tokens
    assert "could not be stored: store: the disk is full" in caplog.text


@pytest.mark.parametrize("failure", [SignInError("store", "read-only"), OSError(errno.EROFS, "read-only")], ids=type)
async def test_a_login_in_a_store_that_cannot_be_written_is_used_and_renewed_from_then_on(
    caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    world, store = World(), Mounted(failure)
    credentials = oauth(world, store=store).credentials(URL)
    tokens = [token(await signed_in(credentials))]
    store.frozen = True
    for _ in range(3):
        assert await credentials.refused(401, CHALLENGE, await credentials.headers())
        tokens.append(token(await credentials.headers()))
    assert len(set(tokens)) == 4  # each renewed with the refresh token that came with the one before
    assert len(world.visits) == 1
    assert caplog.text.count("the new token is used, and could not be stored") == 3
    assert not any(each in caplog.text for each in tokens)


@pytest.mark.parametrize("failure", [SignInError("store", "read-only"), OSError(errno.EROFS, "read-only")], ids=type)
async def test_a_registration_that_cannot_be_stored_is_used_all_the_same(
    caplog: pytest.LogCaptureFixture, failure: Exception
) -> None:
    world, store = World(), Mounted(failure)
    store.frozen = True
    credentials = oauth(world, store=store).credentials(URL)
    first = token(await signed_in(credentials))
    assert await credentials.refused(401, CHALLENGE, await credentials.headers())
    assert token(await credentials.headers()) != first
    assert len(world.visits) == 1
    assert "the new registration at https://idp.example is used, and could not be stored" in caplog.text
    assert not store._entries


async def test_a_login_process_with_an_unsaved_login_does_not_stop() -> None:
    world, store = World(), Mounted(SignInError("store", "read-only"))
    credentials = oauth(world, store=store).credentials(URL)
    await signed_in(credentials)
    store.frozen = True
    assert await credentials.refused(401, CHALLENGE, await credentials.headers())
    held = await credentials.headers()
    await asyncio.sleep(3 * IDLE_SECONDS)
    assert (await credentials.headers(), len(world.visits)) == (held, 1)


async def test_a_newer_login_of_another_program_is_taken_once_the_store_can_be_written_again() -> None:
    world, store = World(), Mounted(SignInError("store", "read-only"))
    credentials = oauth(world, store=store).credentials(URL)
    await signed_in(credentials)
    store.frozen = True
    assert await credentials.refused(401, CHALLENGE, await credentials.headers())
    end(store, access_token="theirs", obtained_at=time.time() + 60)
    assert await credentials.refused(401, CHALLENGE, await credentials.headers())
    assert token(await credentials.headers()) == "theirs"


@pytest.mark.parametrize("name", ["lock", "get"])
async def test_a_store_of_a_programs_own_that_fails_is_a_failure_of_the_login(name: str) -> None:
    world, store = World(), Broken(name)
    credentials = oauth(world, store=store).credentials(URL)
    with pytest.raises(SignInError, match="the token store failed: Input/output error") as caught:
        await signed_in(credentials)
    assert (caught.value.step, caught.value.temporary) == ("store", True)
    store.name_of_failure = ""
    await signed_in(credentials)


async def test_a_store_that_fails_without_a_text_is_told_by_the_errors_name() -> None:
    class Slow(MemoryStore):
        async def get(self, key: str) -> Mapping[str, Any] | None:
            raise TimeoutError

    with pytest.raises(SignInError, match="the token store failed: TimeoutError"):
        await signed_in(oauth(World(), store=Slow()).credentials(URL))


async def test_a_store_that_cannot_say_what_is_registered_is_told_as_the_store() -> None:
    class Half(MemoryStore):
        async def get(self, key: str) -> Mapping[str, Any] | None:
            if key.startswith("client "):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return await super().get(key)

    with pytest.raises(SignInError, match="the token store failed: Input/output error"):
        await signed_in(oauth(World(), store=Half()).credentials(URL))


async def test_a_browser_that_cannot_be_started_is_not_told_as_a_failure_of_the_store() -> None:
    async def browser(_: str, /) -> str | None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "firefox")

    world = World()
    with pytest.raises(SignInError, match="FileNotFoundError: No such file or directory") as caught:
        await signed_in(oauth(world, browser=browser).credentials(URL))
    assert caught.value.step == "authorization"
    assert "store" not in str(caught.value)


@pytest.mark.parametrize("name", ["lock", "get"])
async def test_a_token_that_is_about_to_end_is_used_while_its_store_fails(name: str) -> None:
    """An expiring token is valid until it is refused, as while its issuer is unreachable."""
    world, store = World(), Broken("")
    credentials = oauth(world, store=store).credentials(URL)
    held = await signed_in(credentials)
    record = credentials._view.record
    assert record is not None
    credentials._view.record = replace(record, expires_at=time.time() + 1, obtained_at=time.time() - 3600)
    store.name_of_failure = name
    assert await credentials.headers() == held
    store.name_of_failure = ""
    await asyncio.sleep(RENEW_PAUSE)
    assert await credentials.headers() != held
    assert len(world.visits) == 1


async def test_a_token_renewed_by_another_program_is_taken() -> None:
    world, store = World(), MemoryStore()
    first = oauth(world, store=store).credentials(URL)
    old = await signed_in(first)
    end(store, access_token="theirs")
    assert await first.refused(401, CHALLENGE, old)
    assert token(await first.headers()) == "theirs"
    assert world.tokens("refresh_token") == []


async def test_an_expiring_token_of_another_program_is_renewed() -> None:
    world, store = World(lifetime=1e-9), MemoryStore()
    credentials = oauth(world, store=store).credentials(URL)
    await signed_in(credentials)
    end(store, access_token="theirs", expires_at=1.0, obtained_at=0.0)
    assert token(await credentials.headers()) in world.idp.issued_tokens


async def test_an_expired_token_of_another_program_is_not_tried() -> None:
    world, store = World(), MemoryStore()
    credentials = oauth(world, store=store).credentials(URL)
    old = await signed_in(credentials)
    end(store, access_token="theirs", expires_at=1.0, obtained_at=0.0, refresh_token=None)
    assert await credentials.refused(401, CHALLENGE, old)
    assert token(await credentials.headers()) in world.idp.issued_tokens
    assert len(world.visits) == 2


async def test_a_token_that_ends_is_renewed_alone_by_who_can() -> None:
    world, store = World(), MemoryStore()
    world.idp.add_client("robot", secret="s")
    way = ClientCredentials(
        client_id="robot", client_secret="s", token_endpoint=f"{ISSUER}/token", fetch=world.fetch, store=store
    )
    old = await way.credentials(URL).headers()
    end(store, expires_at=1.0, obtained_at=0.0)
    other = MemoryStore()
    other._entries.update(store._entries)
    again = ClientCredentials(
        client_id="robot", client_secret="s", token_endpoint=f"{ISSUER}/token", fetch=world.fetch, store=other
    )
    new = await again.credentials(URL).headers()
    assert token(new) != token(old)
    assert len(world.tokens()) == 2


async def test_each_token_that_is_about_to_end_is_renewed_early_and_not_only_the_first() -> None:
    world = World(lifetime=1e-9)
    credentials = oauth(world).credentials(URL)
    tokens = [token(await signed_in(credentials))]
    for _ in range(3):
        tokens.append(token(await credentials.headers()))  # noqa: PERF401 - one after the other
    assert len(set(tokens)) == 4
    assert len(world.visits) == 1


class Counted(MemoryStore):
    """A store that counts how often its lock is held."""

    held = 0

    def lock(self, key: str) -> Any:
        self.held += 1
        return super().lock(key)


async def test_a_refresh_token_that_was_refused_is_not_looked_for_again_with_each_request() -> None:
    world, store = World(), MemoryStore()
    old = await signed_in(oauth(world, store=store).credentials(URL))
    end(store, expires_at=1.0, obtained_at=0.0, refresh_token="made up")
    other = Counted()
    other._entries.update(store._entries)
    credentials = OAuth(browser=None, fetch=world.fetch, store=other).credentials(URL)
    for _ in range(5):
        assert await credentials.headers() == old
    assert other.held == 1
    assert len(world.tokens("refresh_token")) == 1


async def test_a_token_that_ends_and_cannot_be_renewed_is_used_until_it_is_refused() -> None:
    world, store = World(), MemoryStore()
    old = await signed_in(oauth(world, store=store).credentials(URL))
    end(store, expires_at=1.0, obtained_at=0.0, refresh_token=None)
    other = MemoryStore()
    other._entries.update(store._entries)
    credentials = OAuth(browser=None, fetch=world.fetch, store=other).credentials(URL)
    asked = len(world.asked)
    for _ in range(3):
        assert await credentials.headers() == old
    assert len(world.asked) == asked


async def test_a_client_that_its_issuer_has_forgotten_is_registered_anew() -> None:
    world = World()
    credentials = oauth(world).credentials(URL)
    old = await signed_in(credentials)
    [first] = world.idp.clients
    world.idp.clients.clear()
    world.idp.plan("/token", AuthServerResponse(401, b'{"error": "invalid_client"}'), times=1)
    assert await credentials.refused(401, CHALLENGE, old)
    [second] = world.idp.clients
    assert first != second


async def test_a_login_process_in_use_stays_and_ignores_unknown_messages() -> None:
    world = World()
    credentials = oauth(world).credentials(URL)
    await signed_in(credentials)
    pid = whereis(credentials._name)
    assert pid is not None
    send(pid, "what is this?")
    for _ in range(5):
        await asyncio.sleep(400)
        await credentials.headers()
    assert whereis(credentials._name) == pid


async def test_a_login_process_killed_during_a_login_is_reported_without_a_secret() -> None:
    world = World()
    world.idp.add_client("robot", secret="hush")
    waits = asyncio.Event()

    async def slow(url: str, **options: Any) -> FetchResponse:
        await waits.wait()
        return await world.fetch(url, **options)

    way = ClientCredentials(client_id="robot", client_secret="hush", token_endpoint=f"{ISSUER}/token", fetch=slow)
    credentials = way.credentials(f"{URL}?key=hidden")
    assert not any(secret in repr(credentials) for secret in ("hush", "hidden"))
    asking = asyncio.create_task(credentials.headers())
    await _ends_with_the_login_process(credentials, asking)
    waits.set()
    assert token(await credentials.headers()) in world.idp.issued_tokens


async def test_a_caller_of_a_killed_login_process_starts_another() -> None:
    world, store = World(), MemoryStore()
    waits = asyncio.Event()

    async def slow(url: str, /) -> str | None:
        await waits.wait()
        return await world.browse(url)

    first, other = (oauth(world, store=store, browser=slow).credentials(URL) for _ in range(2))
    asking = asyncio.create_task(first.refused(401, CHALLENGE, {}))
    await asyncio.sleep(1)
    looking = asyncio.create_task(other.headers())
    await asyncio.sleep(1)
    pid = whereis(first._name)
    assert pid is not None
    kill(pid)
    assert await looking == {}
    assert whereis(first._name) not in (None, pid)
    with pytest.raises(SignInError):
        await asking


async def test_a_login_process_killed_at_its_start_is_reported() -> None:
    credentials = oauth(World()).credentials(URL)
    asking = asyncio.create_task(credentials.headers())
    while (pid := whereis(credentials._name)) is None:  # noqa: ASYNC110 - nothing tells that it has begun
        await asyncio.sleep(0)
    kill(pid)
    with pytest.raises(SignInError, match="the login process ended") as caught:
        await asking
    assert caught.value.temporary
    assert await credentials.headers() == {}


async def test_two_callers_that_start_the_login_process_at_once_share_one() -> None:
    world, store = World(), MemoryStore()
    both = [oauth(world, store=store).credentials(URL) for _ in range(2)]
    node = current_node()
    assert node.inline_budget
    node.inline_left = (
        0  # the first one is preempted before its process is registered, and the other one's is registered before
    )
    assert await asyncio.gather(*(each.headers() for each in both)) == [{}] * 2
    assert len({each._pid for each in both}) == 1
    assert both[0]._view is both[1]._view
