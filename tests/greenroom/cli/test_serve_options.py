"""Each setting of a server and of its HTTP listener has an option of `greenroom serve`, which reaches it."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import HttpConfig, Server, Settings
from greenroom.actors.settings import BadSetting
from greenroom.cli import serve_command as renewing
from greenroom.cli.exit_codes import CommandFailed, UsageError
from greenroom.cli.serve_command import http_config, typed_settings
from greenroom.cli.serve_options import SERVE_OPTIONS
from greenroom.errors import ConfigError
from greenroom.protocol.sealing import KeyRing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from greenroom.cli.click_app import CommandOption

    from .conftest import Typed

    Type = Callable[..., Typed]

OF_THE_ADDRESS = {"http.host", "http.port"}
"""Which `--http HOST:PORT` says."""
SETTINGS = {f"http.{each.name}" for each in fields(HttpConfig)} | {f"server.{each.name}" for each in fields(Settings)}
SIZES = {"KiB": 1024, "MiB": 1024 * 1024}


def test_each_setting_has_one_option() -> None:
    named = [setting for option in SERVE_OPTIONS for setting in option.setting.split()]

    assert sorted(named) == sorted(SETTINGS - OF_THE_ADDRESS)


def test_each_option_has_a_name_of_its_own_and_says_what_it_does() -> None:
    assert len({option.name for option in SERVE_OPTIONS}) == len(SERVE_OPTIONS)
    assert [option.name for option in SERVE_OPTIONS if not option.about] == []


@pytest.mark.parametrize(
    "option", [each for each in SERVE_OPTIONS if each.setting], ids=lambda option: str(option.name)
)
def test_the_default_that_the_help_names_is_the_true_one(option: CommandOption) -> None:
    for setting in option.setting.split():
        kind, name = setting.split(".")
        default: Any = next(
            each for each in fields(HttpConfig if kind == "http" else Settings) if each.name == name
        ).default
        said = re.search(r"\(([^() ]+)(?: ([KM]iB))?\)", option.about)
        if option.kind == "switch":
            assert ("(on by default)" in option.about) is default
        elif said is None:
            assert default in (None, (), "tool", "both", "greenroom", "0", MISSING)
        elif option.kind in ("whole", "seconds"):
            number = float(said[1]) * SIZES.get(said[2], 1)
            assert number == (HttpConfig().bodies if name == "max_bodies" else default)
        else:
            assert said[1] == default


@pytest.mark.parametrize(
    ("words", "kind", "name", "value"),
    [
        (("--allowed-host", "mcp.example", "--allowed-host", "a:1"), "http", "allowed_hosts", ("mcp.example", "a:1")),
        (("--allowed-host", "any"), "http", "allowed_hosts", "any"),
        (("--trusted-proxy", "none"), "http", "trusted_proxies", ()),
        (("--no-allow-missing-origin",), "http", "allow_missing_origin", False),
        (("--no-sessions",), "http", "session_enabled", False),
        (("--no-sessions",), "server", "sessions", False),
        (("--max-body", "1000"), "http", "max_body", 1000),
        (("--max-connections-per-address", "none"), "http", "max_connections_per_address", None),
        (("--drain-grace", "0"), "http", "drain_grace", 0.0),
        (("--call-timeout", "2.5"), "server", "call_timeout", 2.5),
        (("--call-timeout", "none"), "server", "call_timeout", None),
        (("--capabilities", '{"logging": null}'), "server", "capabilities", {"logging": None}),
        (("--server-version", "3"), "server", "version", "3"),
    ],
    ids=str,
)
def test_a_typed_option_reaches_its_setting(
    typed: Type, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], kind: str, name: str, value: object
) -> None:
    seen: list[tuple[HttpConfig, Settings]] = []

    def run(self: Server, _transport: str, *, config: HttpConfig, **_: Any) -> None:
        seen.append((config, self.settings))

    monkeypatch.setattr(Server, "run", run)

    done = typed("serve", "weather.py", "--http", "0", *words)

    assert done.code == 0, done.err
    assert getattr(seen[0][0 if kind == "http" else 1], name) == value


def test_the_file_of_a_password_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("open sesame\n")

    assert typed_settings({"keyfile_password_file": tmp_path / "secret"}).http == {"keyfile_password": "open sesame"}
    with pytest.raises(CommandFailed, match="cannot be read"):
        typed_settings({"keyfile_password_file": tmp_path / "gone"})


def test_the_file_of_seal_keys_is_read_line_by_line(tmp_path: Path) -> None:
    new, old = KeyRing.new_key(), KeyRing.new_key()
    (tmp_path / "keys").write_text(f"{new}\n\n{old}\n")

    assert typed_settings({"seal_keys_file": tmp_path / "keys"}).server == {"seal_keys": (new, old)}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--http", "0", "--max-body", "0"), "--max-body"),
        (("--http", "0", "--max-body", "none"), "none"),
        (("--http", "0", "--call-timeout", "0"), "more than 0, or none for no limit"),
        (("--http", "0", "--path", "mcp"), "--path must begin with a slash"),
        (("--http", "0", "--keyfile", "key.pem"), "--keyfile needs a certfile"),
        (("--http", "0", "--allowed-host", "http://a"), "--allowed-host must have names"),
        (("--http", "0", "--allowed-host", "any", "--allowed-host", "a"), "cannot be combined"),
        (("--http", "0", "--log-level", "loud"), "--log-level must be one of debug"),
        (("--http", "0", "--icons", "[1"), "is not JSON"),
        (("--max-body", "1"), "--max-body is only for --http"),
        (("--http", "0", "--grace", "2", "--drain-grace", "9"), "type --grace 9 alone"),
        (("--grace", "-1"), "0 or more"),
    ],
    ids=str,
)
def test_a_wrong_value_is_reported_with_the_options_name(typed: Type, words: tuple[str, ...], says: str) -> None:
    seen = typed("serve", "weather.py", *words)

    assert (seen.code, seen.out) == (2, "")
    assert says in seen.err


def test_a_restarted_server_gets_the_same_options() -> None:
    given: dict[str, Any] = {
        "allowed_host": ("a.example", "b.example"),
        "allow_missing_origin": False,
        "http2": True,
        "call_timeout": "none",
        "capabilities": {"logging": None},
        "max_body": None,
        "trusted_proxy": (),
    }

    words = typed_settings(given).words

    assert list(words) == [
        *("--allowed-host", "a.example", "--allowed-host", "b.example"),
        *("--no-allow-missing-origin", "--http2"),
        *("--capabilities", json.dumps({"logging": None})),
        *("--call-timeout", "none"),
    ]


@pytest.mark.parametrize("where", [("weather.py", "--http", "0"), ("weather.py",), ("--config", "greenroom.toml"), ("--config", "greenroom.toml", "--http", "0")], ids=" ".join)  # fmt: skip
@pytest.mark.parametrize(("words", "grace"), [(("--grace", "8"), 8.0), (("--grace", "0"), 0.0), ((), None)], ids=str)
def test_the_grace_that_is_typed_is_that_of_the_program(
    typed: Type,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: tuple[str, ...],
    words: tuple[str, ...],
    grace: float | None,
) -> None:
    (folder / "greenroom.toml").write_text(f'[server.one]\ncommand = "{sys.executable}"\n')
    seen: list[float | None] = []

    def run(_self: Server, _transport: str, *, grace: float | None, **_: Any) -> None:
        seen.append(grace)

    monkeypatch.setattr(Server, "run", run)

    done = typed("serve", *where, *words)

    assert (done.code, seen) == (0, [grace]), done.err


@pytest.mark.parametrize(
    ("words", "patience", "passed"),
    [
        ((), 0.0, []),
        (("--grace", "30"), 30.0, ["--grace", "30.0"]),
        (("--drain-grace", "20"), 20.0, ["--drain-grace", "20.0"]),
        (("--drain-grace", "20", "--grace", "30"), 30.0, ["--grace", "30.0", "--drain-grace", "20.0"]),
    ],
    ids=str,
)
def test_a_server_that_is_watched_has_its_whole_grace(
    typed: Type, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], patience: float, passed: list[str]
) -> None:
    seen: list[tuple[Sequence[str], float]] = []

    def again(words: Sequence[str], _folder: Path, grace: float) -> int:
        seen.append((words, grace))
        return 0

    monkeypatch.setattr(renewing, "serve_and_watch", again)

    assert typed("serve", "weather.py", "--http", "0", "--watch", *words).code == 0
    assert seen == [(["weather.py", "--http", "0", *passed], patience)]


@pytest.mark.parametrize(
    ("run", "words", "names"),
    [
        ('config=HttpConfig(path="/x", allowed_hosts=["a.example"], port=1)', (), "path, allowed_hosts"),
        ('config=HttpConfig(path="/x", allowed_hosts=["a.example"])', ("--path", "/y"), "allowed_hosts"),
        ('config=HttpConfig(path="/x")', ("--path", "/y"), ""),
        ("config=config, workers=2, grace=8", (), "max_body, workers, grace"),
        ("config=config, workers=2, grace=8", ("--grace", "9", "--max-body", "9", "--workers", "1"), ""),
        ('host="127.0.0.1", port=1', (), ""),
        ("access_log=True, log_json=True", ("--log-json",), ""),
        ("access_log=True, log_json=True", (), "log_json"),
        ("**options", (), ""),
    ],
)
def test_settings_of_the_files_own_run_are_named_where_they_are_not_used(
    typed: Type, folder: Path, monkeypatch: pytest.MonkeyPatch, run: str, words: tuple[str, ...], names: str
) -> None:
    (folder / "served.py").write_text(
        "import subprocess\nfrom greenroom import HttpConfig, Server\nserver = Server('served')\n"
        f'if __name__ == "__main__":\n    subprocess.run("ls", shell=True)\n    config = HttpConfig(max_body=7)\n    server.run("http", {run})\n'
    )

    def run_nothing(*_: Any, **__: Any) -> None: ...

    monkeypatch.setattr(Server, "run", run_nothing)

    for name in ("served.py", "served:server"):
        said = f"greenroom: greenroom serve does not call the run() of {name} and ignores its settings: {names}; set them with options\n"

        done = typed("serve", name, "--http", "0", *words)

        assert (done.code, done.err) == (0, said if names else "")


def test_a_public_address_with_its_names_is_typed_in_one_line() -> None:
    typed = typed_settings({"allowed_host": ("mcp.example",), "trusted_proxy": ("10.0.0.0/24",)})
    config = http_config("0.0.0.0:8000", ["none"], typed)

    assert (config.allowed_hosts, config.trusted_proxies, config.allow_missing_origin) == (
        ("mcp.example",),
        ("10.0.0.0/24",),
        True,
    )


def test_a_server_is_set_up_before_it_runs_and_by_names_that_there_are() -> None:
    server = Server("one", settings=Settings(page_size=7))
    server.set_up(tool_threads=3, call_timeout=None)

    assert (server.settings.page_size, server.settings.tool_threads, server.company.settings.call_timeout) == (
        7,
        3,
        None,
    )
    assert server.changes == {"tool_threads": 3, "call_timeout": None}
    with pytest.raises(ConfigError, match="no setting 'pages'"):
        server.set_up(pages=1)
    with pytest.raises(BadSetting, match="page_size"):
        server.set_up(page_size=0)


async def test_a_server_that_runs_is_not_set_up() -> None:
    server = Server("one")
    async with server.started():
        with pytest.raises(ConfigError, match="before the server runs"):
            server.set_up(page_size=1)


def test_the_help_lists_the_options_under_their_headings(typed: Type) -> None:
    seen = typed("serve", "--help")

    headings = list(dict.fromkeys(option.section for option in SERVE_OPTIONS if option.section))
    places = [seen.out.index(f"{heading}:") for heading in ["Options", *headings]]
    assert places == sorted(places)
    assert "none for no limit" in seen.out


def test_options_of_settings_are_misused_in_words() -> None:
    with pytest.raises(UsageError, match="cannot be combined"):
        typed_settings({"trusted_proxy": ("none", "10.0.0.1")})
