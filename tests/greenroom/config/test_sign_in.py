"""Sign-in at configured servers: their `oauth`, with and without a user at the terminal, and no server waits for another's sign-in."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.auth.client.test_login_end_to_end import theatre

from greenroom import Client
from greenroom.auth.client.interactive_flows import open_browser
from greenroom.auth.client.token_stores import MemoryStore
from greenroom.config import sign_in
from greenroom.config.sign_in import default_sign_in, oauth_of
from greenroom.host import Host

from .config_files import block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .config_files import Workspace

pytestmark = pytest.mark.greenroom(clock="real")
URL = "https://calendar.example/mcp"
PATIENCE = 60.0


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A store in memory, so that tests do not touch the user's home."""
    kept = MemoryStore()
    monkeypatch.setattr(sign_in, "best_store", lambda: kept)
    return kept


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def no_user(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """No terminal, as under cron; the list records opened browsers."""
    opened: list[str] = []

    def opens(url: str) -> bool:
        opened.append(url)
        return True

    with open(os.devnull, encoding="utf-8") as nothing:  # noqa: PTH123 - no file
        monkeypatch.setattr(sys, "stdin", nothing)
        monkeypatch.setattr("webbrowser.open", opens)
        yield opened


def web(name: str, url: str, oauth: str = "auto", more: str = "") -> str:
    return f"[server.{name}]\ntransport = 'http'\nurl = {url!r}\noauth = {oauth!r}\n{more}\n"


MANUAL = """[server.a.oauth_config]
client_id = "me"
client_secret = "${TOKEN}"
authorization_endpoint = "https://id.example/authorize"
token_endpoint = "https://id.example/token"
"""


@pytest.mark.row("CB-09", "CB-08")
@pytest.mark.parametrize(
    ("oauth", "more", "found"),
    [
        ("off", "", None),
        ("auto", "", {"client_id": None, "authorization_endpoint": None, "token_endpoint": None, "port": 7000}),
        ("auto", "oauth_config = { port = 7001 }", {"port": 7001}),
        ("auto", "oauth_config = { port = 0 }", {"port": 0}),
        ("auto", "oauth_config = { account = 'anna' }", {"account": "anna", "port": 7000}),
        ("auto", "oauth_config = { scopes = ['read', 'write'] }", {"scopes": ("read", "write")}),
        (
            "auto",
            "oauth_config = { client_id = 'me', issuer = 'https://id.example' }",
            {"issuer": "https://id.example"},
        ),
        ("auto", MANUAL, {"client_id": "me", "authorization_endpoint": None, "token_endpoint": None}),
        (
            "manual",
            MANUAL,
            {
                "client_id": "me",
                "client_secret": "s3cret",
                "authorization_endpoint": "https://id.example/authorize",
                "token_endpoint": "https://id.example/token",
                "account": "default",
                "port": 7000,
            },
        ),
        ("manual", MANUAL + "port = 7001\naccount = 'anna'\n", {"port": 7001, "account": "anna", "client_id": "me"}),
    ],
)
def test_sign_in_and_account_follow_the_file(
    workspace: Workspace, store: MemoryStore, oauth: str, more: str, found: dict[str, Any] | None
) -> None:
    assert workspace.toml(web("a", URL, oauth, more)) == []
    server = workspace.read("greenroom.toml").servers["a"]
    made = oauth_of(server, port=7000)
    if found is None:
        assert made is None
        return
    assert made is not None
    assert {name: getattr(made, name) for name in found} == found
    assert made.store is store
    assert made.browser is open_browser


@pytest.mark.row("CB-08")
def test_the_port_of_the_environment_is_for_all_servers_that_say_none(workspace: Workspace) -> None:
    workspace.environment["GREENROOM_MCP_OAUTH_PORT"] = "7000"
    workspace.write("greenroom.toml", web("a", URL) + web("b", URL, more="oauth_config = { port = 7001 }"))
    config = workspace.read("greenroom.toml")
    ports = [auth.port for one in config.servers.values() if (auth := default_sign_in(config.oauth_port)(one))]  # type: ignore[union-attr]
    assert ports == [7000, 7001]


@pytest.mark.row("CB-10")
@pytest.mark.parametrize("gone", [None, "closed"])
def test_where_no_terminal_is_there_is_no_browser(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, gone: str | None
) -> None:
    workspace.write("greenroom.toml", web("a", URL))
    server = workspace.read("greenroom.toml").servers["a"]
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert default_sign_in()(server).browser is open_browser  # type: ignore[union-attr]

    stream = Terminal()
    stream.close()
    monkeypatch.setattr(sys, "stdin", stream if gone else None)
    made: Any = default_sign_in()(server)
    assert (made.browser, made.patience) == (None, 0.0)


async def login(auth: Any, url: str) -> None:
    """Sign in as `greenroom login` does."""
    async with Client(url, auth=auth):
        pass


@pytest.mark.row("CB-10")
async def test_a_host_without_a_terminal_fails_fast_and_says_what_to_type(
    workspace: Workspace, no_user: list[str], store: MemoryStore
) -> None:
    async with theatre() as (idp, url):
        workspace.write("greenroom.toml", web("theatre", url) + block("near", "1"))
        path = workspace.folder / "greenroom.toml"
        async with Host.from_config(path, environment={}, project=workspace.folder) as host:
            reports = await host.started(PATIENCE)
            assert {name: one.state for name, one in reports.items()} == {
                "theatre": "needs_sign_in",
                "near": "connected",
            }
            assert f"no user is signed in to {url}" in reports["theatre"].reason
            assert f"run `greenroom login theatre --config {path}` in a terminal" in reports["theatre"].reason
            assert await host.call("near:which") == "1"
            assert no_user == []
            assert {each.path for each in idp.requests if "well-known" not in each.path} == set()

            await asyncio.to_thread(
                asyncio.run, login(oauth_of(host.config.servers["theatre"], browser=idp.browse), url)
            )
            host.retry("theatre")
            assert await host.call("theatre:look") == "a stage"
        assert no_user == []


@pytest.mark.row("CB-10")
def test_the_advised_command_names_the_file_only_if_it_was_named(workspace: Workspace) -> None:
    workspace.write("greenroom.toml", web("a", URL))
    server = workspace.read("greenroom.toml").servers["a"]
    assert default_sign_in()(server).advice == "run `greenroom login a` in a terminal, once"  # type: ignore[union-attr]


@pytest.mark.row("CB-05")
async def test_signing_in_at_one_server_never_blocks_another(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = asyncio.Event()

    async def never(_: str) -> None:
        waiting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(sign_in, "open_browser", never)
    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(sys, "stderr", Terminal())
    async with theatre() as (_, slow), theatre() as (idp, quick):
        workspace.write("greenroom.toml", web("slow", slow) + web("quick", quick) + block("near", "1"))

        def way(server: Any) -> Any:
            return oauth_of(server, browser=idp.browse) if server.name == "quick" else default_sign_in()(server)

        path = workspace.folder / "greenroom.toml"
        async with Host.from_config(path, environment={}, project=workspace.folder, sign_in=way) as host:
            async with asyncio.timeout(PATIENCE):
                await waiting.wait()
                assert await host.call("near:which") == "1"
                assert await host.call("quick:look") == "a stage"
                assert await host.reload() == ()
                workspace.write("greenroom.toml", web("slow", slow) + web("quick", quick) + block("near", "2"))
                await host.reload()
                assert await host.call("near:which") == "2"
            assert host.reports()["slow"].state == "connecting"
