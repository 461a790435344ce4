"""login and logout: the messages, the stored login, and the revocation of tokens."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.auth.client.oauth_world import CHALLENGE, URL, World

from greenroom.auth import DeviceCode, FileStore, OAuth
from greenroom.auth.client import token_stores
from greenroom.auth.client.oauth_login import login_key
from greenroom.auth.client.token_stores import LoginRecord
from greenroom.cli import login_command
from greenroom.supervision import Node

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]


@pytest.fixture
def world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A server, the issuer of its tokens, and a stored login."""
    made = World()
    store = FileStore(folder.parent / "logins")
    monkeypatch.setattr("greenroom.auth.client.token_stores.best_store", lambda: store)

    def fetcher(_url: str, **_: object) -> object:
        return made.fetch

    monkeypatch.setattr("greenroom.auth.client.login_process.fetcher_for", fetcher)

    async def login() -> None:
        async with Node():
            credentials = OAuth(browser=made.browse, fetch=made.fetch, store=store).credentials(URL)
            assert await credentials.refused(401, CHALLENGE, await credentials.headers())

    asyncio.run(login())
    return made


def test_logout_revokes_the_tokens(typed: Type, world: World) -> None:
    assert world.idp.issued_tokens
    assert world.idp.refresh_tokens
    seen = typed("logout", URL)

    assert (seen.code, seen.out, seen.err) == (0, f"signed out of {URL}\n", "")
    assert not world.idp.issued_tokens
    assert not world.idp.refresh_tokens
    assert typed("whoami", URL).code == 5
    assert typed("logout", URL).out == f"you were not signed in to {URL}\n"


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_logout_deletes_the_login_even_if_revocation_fails(typed: Type, world: World, more: tuple[str, ...]) -> None:
    world.down = True
    seen = typed("logout", URL, *more)

    assert seen.code == 0
    if more:
        told = json.loads(seen.out)
        assert (told["signed_out"], told["revoked"]) == (True, False)
        assert "cannot be reached" in told["why_not"]
    else:
        assert "were not revoked and stay valid until they expire: discovery: " in seen.err
    assert typed("whoami", URL).code == 5


def test_all_logins_are_listed_also_of_servers_that_are_not_configured(typed: Type, world: World) -> None:
    async def also_as(account: str) -> None:
        async with Node():
            store = signing_in_store()
            auth = OAuth(browser=world.browse, fetch=world.fetch, store=store, account=account)
            assert await auth.credentials(URL).refused(401, CHALLENGE, {})

    asyncio.run(also_as("ben"))
    seen = typed("whoami")
    assert seen.code == 0
    assert [line.strip().partition("  ")[0] for line in seen.out.splitlines() if "signed in" in line] == [
        f"{URL} (ben)",
        URL,
    ]
    assert list(json.loads(typed("whoami", "--json", "--account", "ben").out)) == [f"{URL} (ben)"]
    assert "no login is stored" in typed("whoami", "--account", "eve").out


def signing_in_store() -> FileStore:
    store = token_stores.best_store()
    assert isinstance(store, FileStore)
    return store


def test_a_scope_is_added_to_a_login_that_is_kept(typed: Type, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Reached(Node):
        def __init__(self, *_: object, **__: object) -> None:
            super().__init__()

        async def ping(self) -> None: ...

    monkeypatch.setattr("greenroom.client.Client", Reached)

    def fetcher(_url: str, **_: object) -> object:
        return world.fetch

    monkeypatch.setattr("greenroom.auth.client.login_process.fetcher_for", fetcher)

    async def show(code: DeviceCode, /) -> None:
        world.idp.decide(code.user_code)

    monkeypatch.setattr("greenroom.auth.client.interactive_flows.show_code", show)
    seen = typed("login", URL, "--device", "--scope", "write")
    assert (seen.code, "with write read offline_access" in seen.out) == (0, True)
    assert "may write read offline_access" in typed("whoami", URL).out
    begun = len(world.tokens())
    assert typed("login", URL, "--device", "--scope", "write").code == 0
    assert len(world.tokens()) == begun


def test_programs_are_told_of_a_login(typed: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    record = LoginRecord("https://id.example", URL, "https://id.example/token", "me", "very-secret", scopes=("read",))

    async def signed_in(_: object) -> LoginRecord | None:
        return record

    monkeypatch.setattr(login_command, "_sign_in", signed_in)
    seen = typed("login", URL, "--device", "--json")

    assert "very-secret" not in seen.out
    told = json.loads(seen.out)
    assert told["server"] == URL
    assert (told["login"]["client_id"], told["login"]["scopes"]) == ("me", ["read"])
    assert login_key(OAuth(), URL) not in seen.out


@pytest.mark.greenroom(clock="real")
def test_a_login_that_cannot_be_is_one_line(folder: Path) -> None:
    words = [sys.executable, "-m", "greenroom.cli", "login", "http://127.0.0.1:9/mcp", "--device"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == "greenroom: http://127.0.0.1:9: no server listens there\n"
