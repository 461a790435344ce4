"""config, servers by their configured name, whoami and logout."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.auth.client.auth_option import fetcher_for
from greenroom.auth.client.oauth_login import OAuth, login_key
from greenroom.auth.client.token_stores import FileStore
from greenroom.transports.client.errors import ConnectFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from greenroom.transports.client.fetch import FetchResponse

    from .conftest import Typed

    Type = Callable[..., Typed]


@pytest.fixture
def configured(folder: Path) -> Path:
    """A project with two servers, one of which has a mistake."""
    path = folder / "greenroom.toml"
    path.write_text(
        f"""
[permissions]
deny = ["*:delete*", "gone:*"]

[server.sky]
command = {sys.executable!r}
args = ["-c", "import weather; weather.server.run()"]
env = {{ TOKEN = "secret" }}

[server.sky.permissions]
allow = ["forecast"]
ask = ["f*"]

[server.wrong]
comand = "x"
"""
    )
    return path


@pytest.mark.row("CB-02")
def test_a_configured_name_is_a_target(typed: Type, configured: Path) -> None:
    assert configured.exists()
    assert typed("call", "sky", "forecast", "city=Oslo", "days=1").out == '["Oslo 0"]\n'
    seen = typed("call", "skye", "forecast")
    assert (seen.code, "did you mean sky?" in seen.err) == (3, True)
    assert typed("list", "wrong").code == 3


def test_all_that_is_wrong_is_said_with_its_line(typed: Type, configured: Path) -> None:
    seen = typed("config", "check")

    assert seen.code == 3
    assert (
        f"{configured}:15: server wrong: comand: there is no such field; did you mean command?" in seen.out.splitlines()
    )
    assert f"{configured}:3: permissions.deny: 'gone:*' can never match" in seen.out
    told = json.loads(typed("config", "check", "--json").out)
    assert [each["server"] for each in told["mistakes"] if not each["harmless"]] == ["wrong", "wrong"]
    assert typed("config", "check", str(configured.with_name("none.toml"))).code == 3


def test_where_there_is_none_it_is_said_where_it_would_be(typed: Type) -> None:
    seen = typed("config", "check")

    assert (seen.code, "no configuration found" in seen.out) == (0, True)


@pytest.mark.parametrize("name", ["loop.toml", "none.toml"])
def test_of_a_file_that_is_not_there_only_that_is_said(typed: Type, folder: Path, name: str) -> None:
    (folder / "loop.toml").symlink_to("loop.toml")
    seen = typed("config", "check", name)

    assert (seen.code, len(seen.out.splitlines()), "cannot be read" in seen.out) == (3, 1, True)
    assert len(json.loads(typed("config", "check", name, "--json").out)["mistakes"]) == 1


def test_a_server_that_does_not_answer_in_its_time_is_said_to_be_away(typed: Type, folder: Path) -> None:
    command = f'command = {sys.executable!r}\nargs = ["-c", "import sys; sys.stdin.read()"]\n'
    (folder / "greenroom.toml").write_text(f"[server.slow]\n{command}timeouts = {{ connect = 0.2 }}\n")
    seen = typed("config", "effective")

    assert (seen.code, "slow does not answer" in seen.out, "0.2" in seen.out) == (0, True, True)


def test_config_check_counts_valid_servers(typed: Type, folder: Path) -> None:
    assert typed("config", "show").out == typed("config", "effective").out == "no server is configured\n"
    path = folder / "greenroom.toml"
    path.write_text('[server.sky]\ncommand = "sh"\n')
    assert typed("config", "check").out == f"1 server in {path}: no mistakes\n"
    path.write_text('[server.sky]\ncommand = "sh"\n[server.sea]\ncommand = "sh"\n')
    assert typed("config", "check").out == f"2 servers in {path}: no mistakes\n"


def test_config_show_prints_no_secret(typed: Type, configured: Path) -> None:
    assert configured.exists()
    seen = typed("config", "show")

    assert "with TOKEN in its environment" in seen.out
    assert "secret" not in seen.out + typed("config", "show", "--json").out


def test_a_variables_value_is_never_shown(
    typed: Type, folder: Path, signed_in: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert signed_in.path.exists()
    monkeypatch.setenv("SKY_KEY", "very-hidden")
    (folder / "greenroom.toml").write_text(
        """
[server.sky]
command = "/nowhere/${SKY_KEY}/run"
args = ["--place", "${SKY_KEY}"]

[server.sea]
transport = "http"
url = "http://127.0.0.1:9/mcp/${SKY_KEY}?key=${SKY_KEY}"
oauth = "auto"
"""
    )
    shown, told = typed("config", "show"), typed("config", "show", "--json")
    assert "/nowhere/${SKY_KEY}/run --place ${SKY_KEY}" in shown.out
    assert "http://127.0.0.1:9/mcp/${SKY_KEY}?key=${SKY_KEY}" in shown.out
    found = json.loads(told.out)
    assert (found["sky"]["command"], found["sky"]["args"]) == ("/nowhere/${SKY_KEY}/run", ["--place", "${SKY_KEY}"])
    assert found["sea"]["url"] == "http://127.0.0.1:9/mcp/${SKY_KEY}?key=${SKY_KEY}"
    who, lost, away = typed("whoami"), typed("list", "sky"), typed("config", "effective", "sky")
    assert "key=${SKY_KEY}" in who.out
    assert (lost.code, "there is no program /nowhere/${SKY_KEY}/run" in lost.err) == (4, True)
    assert "there is no program /nowhere/${SKY_KEY}/run" in away.out
    for seen in (shown, told, who, lost, away):
        assert "very-hidden" not in seen.out + seen.err


@pytest.mark.row("CB-17")
def test_the_rule_that_decides_is_shown_with_its_line(typed: Type, configured: Path) -> None:
    seen = typed("config", "effective")

    lines = [" ".join(line.split()) for line in seen.out.splitlines()]
    assert f"ask sky:fail ask 'f*' of server sky ({configured}:12)" in lines
    assert f"ask sky:forecast ask 'f*' of server sky ({configured}:12)" in lines
    assert "ask sky:echo no rule matches" in lines
    assert "ask Elicit(sky) no rule matches" in lines
    one = json.loads(typed("config", "effective", "sky:delete_all", "--json").out)
    assert one["tools"]["sky:delete_all"]["verdict"] == "deny"
    assert not any("Skill(" in line for line in lines)  # the server has none
    others = json.loads(typed("config", "effective", "Skill(sky)", "Elicit(sky)", "--json").out)
    assert {name: one["verdict"] for name, one in others["tools"].items()} == {
        "Skill(sky)": "ask",
        "Elicit(sky)": "ask",
    }
    assert "no server is called 'absent'" in typed("config", "effective", "Skill(absent)").err
    assert typed("config", "effective", "absent").code == 2


def test_an_editor_gets_a_schema(typed: Type) -> None:
    assert "properties" in json.loads(typed("config", "schema").out)


# --- whoami


URL = "http://127.0.0.1:9/mcp"
RECORD = {
    "issuer": "https://id.example",
    "resource": URL,
    "token_endpoint": "https://id.example/token",
    "client_id": "me",
    "access_token": "very-secret",
    "refresh_token": "secret-too",
    "expires_at": None,
    "obtained_at": 0.0,
    "scopes": ["read", "write"],
}


@pytest.fixture
def signed_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FileStore:
    """A stored login at one server."""
    store = FileStore(folder.parent / "logins")
    monkeypatch.setattr("greenroom.auth.client.token_stores.best_store", lambda: store)
    monkeypatch.setattr("greenroom.config.sign_in.best_store", lambda: store)

    def fetcher(url: str, **options: Any) -> Any:
        fetch = fetcher_for(url, **options)

        async def fetched(asked: str, **more: Any) -> FetchResponse:
            if asked.startswith("https://id.example"):
                raise ConnectFailed(asked)
            return await fetch(asked, **more)

        return fetched

    monkeypatch.setattr("greenroom.auth.client.login_process.fetcher_for", fetcher)
    asyncio.run(store.put(login_key(OAuth(), URL), RECORD))
    return store


def test_whoami_shows_the_login_and_no_token(typed: Type, signed_in: FileStore, folder: Path) -> None:
    assert signed_in.path.exists()
    (folder / "greenroom.toml").write_text(
        f'[server.one]\ntransport = "http"\nurl = "{URL}"\noauth = "auto"\n[server.two]\ntransport = "http"\nurl = "http://127.0.0.1:8/mcp"\noauth = "auto"\n'
    )

    seen = typed("whoami")

    assert seen.code == 0
    assert [" ".join(line.split()) for line in seen.out.splitlines()] == [
        "one signed in",
        "as me, known to https://id.example",
        "may read write",
        "two not signed in",
        "http://127.0.0.1:8/mcp",
    ]
    told = typed("whoami", "--json").out
    assert json.loads(told)["two"] is None
    assert "secret" not in told
    assert typed("whoami", "two").code == 5


def test_after_logout_no_login_is_stored(typed: Type, signed_in: FileStore) -> None:
    assert signed_in.path.exists()
    assert "signed out" in typed("logout", URL).out
    assert "you were not signed in" in typed("logout", URL).out
    assert typed("whoami", URL).code == 5


@pytest.mark.row("CB-10")
def test_without_a_terminal_login_fails_at_once_with_advice(typed: Type, folder: Path) -> None:
    seen = typed("login", URL)
    assert (seen.code, "run the command where a browser is, or pass --device" in seen.err) == (5, True)
    (folder / "greenroom.toml").write_text(f'[server.one]\ntransport = "http"\nurl = "{URL}"\n')
    seen = typed("login", "one")
    assert "signing in needs a terminal" in seen.err


class _Guarded(BaseHTTPRequestHandler):
    """A server that refuses every client."""

    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(401)
        self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - so it is called there
        """Nothing."""


@pytest.fixture
def guarded() -> Iterator[str]:
    """Where it is."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Guarded)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/mcp"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.row("CB-10")
def test_effective_opens_no_browser_for_a_server_without_a_login(
    typed: Type, signed_in: FileStore, folder: Path, guarded: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert signed_in.path.exists()
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setenv("GREENROOM_MCP_OAUTH_PORT", "no port")
    text = f'[server.one]\ntransport = "http"\nurl = "{guarded}"\noauth = "manual"\n[server.one.oauth_config]\n'
    text += (
        'client_id = "me"\nauthorization_endpoint = "https://id.example/a"\ntoken_endpoint = "https://id.example/t"\n'
    )
    (folder / "greenroom.toml").write_text(text)

    seen = typed("config", "effective")
    assert "one does not answer" in seen.out
    assert "run `greenroom login one` in a terminal, once" in seen.out
    assert (seen.code, opened) == (0, [])
    seen = typed("call", "one", "echo", "--config", str(folder / "greenroom.toml"))
    assert (seen.code, "run `greenroom login one" in seen.err) == (5, True)
    seen = typed("list", guarded)
    assert (seen.code, "greenroom login" in seen.err, opened) == (5, True, [])
