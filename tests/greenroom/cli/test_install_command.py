"""install: configured servers with variables in each program's form, and backups. new: the server.json for registries."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]

FILES = {
    "claude-code": (".mcp.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "vscode": (".vscode/mcp.json", "servers"),
}


@pytest.fixture
def configured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a program and a URL, both with a secret from the environment."""
    monkeypatch.setenv("SKY_TOKEN", "very-secret")
    monkeypatch.setenv("SKY_PLACE", "north")
    monkeypatch.delenv("SKY_FOLDER", raising=False)
    (folder / "greenroom.toml").write_text(
        """
[server.sky]
command = "uvx"
args = ["mcp-server-sky", "--key=${SKY_TOKEN}", "--in=${SKY_FOLDER:-/tmp}", "--here=${CLAUDE_PROJECT_DIR}"]
env = { TOKEN = "${SKY_TOKEN}", PLAIN = "1" }
inherit = ["SKY_PLACE", "SKY_FOLDER"]

[server.sky.timeouts]
tool = 5

[server.sea]
transport = "http"
url = "http://127.0.0.1:1/mcp?key=${env:SKY_TOKEN}"
headers = { Authorization = "Bearer ${SKY_TOKEN}" }
oauth = "auto"

[server.deep]
command = "uvx"
cwd = "below"
"""
    )
    return folder


@pytest.mark.parametrize(
    ("to", "token", "place"),
    [
        ("claude-code", "${SKY_TOKEN}", "${SKY_PLACE}"),
        ("cursor", "${env:SKY_TOKEN}", "${env:SKY_PLACE}"),
        ("vscode", "${env:SKY_TOKEN}", "${env:SKY_PLACE}"),
    ],
)
def test_a_configured_server_is_installed_with_its_variables_as_the_program_writes_them(
    typed: Type, configured: Path, to: str, token: str, place: str
) -> None:
    for name in ("sky", "sea"):
        assert typed("install", name, "--to", to, "--project", "--yes").code == 0

    file, key = FILES[to]
    text = (configured / file).read_text()
    servers = json.loads(text)[key]
    assert servers["sky"]["args"] == ["mcp-server-sky", f"--key={token}", "--in=/tmp", f"--here={configured}"]
    assert servers["sky"]["env"] == {"SKY_PLACE": place, "TOKEN": token, "PLAIN": "1"}
    assert servers["sea"]["url"] == f"http://127.0.0.1:1/mcp?key={token}"
    assert servers["sea"]["headers"] == {"Authorization": f"Bearer {token}"}
    assert servers["sea"].get("type") == (None if to == "cursor" else "http")
    assert "very-secret" not in text


def test_expanded_variables_are_written_for_a_program_without_variables_and_not_shown(
    typed: Type, configured: Path
) -> None:
    seen = typed("install", "sky", "--to", "claude", "--name", "other", "--yes")

    assert (seen.code, "very-secret" in seen.out + seen.err) == (0, False)
    (file,) = (configured.parent / "home").rglob("claude_desktop_config.json")
    entry = json.loads(file.read_text())["mcpServers"]["other"]
    assert entry["args"][1] == "--key=very-secret"
    assert entry["env"] == {"SKY_PLACE": "north", "TOKEN": "very-secret", "PLAIN": "1"}
    assert "Claude Desktop does not support timeouts: these settings are left out" in seen.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("skye", "--to", "cursor"), 3, "did you mean sky?"),
        (("deep", "--to", "cursor"), 2, "deep has a cwd"),
        (("sky", "--to", "cursor", "-e", "A=b"), 2, "sky has its own"),
        (("sky", "--to", "cursor", "--", "uvx"), 2, "not both"),
        (("--to", "cursor"), 2, "name a server"),
    ],
)
def test_unsupported_settings_of_a_configured_server_are_reported(
    typed: Type, configured: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    seen = typed("install", *words, "--project", "--yes")

    assert (seen.code, says in seen.err) == (code, True)
    assert not (configured / ".cursor").exists()


def test_programs_are_told_what_was_done(typed: Type, configured: Path) -> None:
    words = ("install", "sky", "--to", "cursor", "--project", "--json")
    assert typed(*words).code == 6

    tried, done, again = (json.loads(typed(*words, more).out) for more in ("--dry-run", "--yes", "--yes"))

    told = {"program": "Cursor", "file": ".cursor/mcp.json", "server": "sky", "left_out": ["timeouts"], "before": None}
    assert tried == {**told, "changed": True, "written": False}
    assert done == {**told, "changed": True, "written": True}
    assert again == {**told, "changed": False, "written": False}
    assert configured.exists()


def test_the_first_backup_is_never_overwritten(typed: Type, folder: Path) -> None:
    file = folder / ".mcp.json"
    file.write_text('{"mine": true}')
    for number in range(12):
        seen = typed(
            "install", "http://127.0.0.1:1/mcp", "--to", "claude-code", "--project", "--name", f"n{number}", "-y"
        )
        assert seen.code == 0

    kept = sorted(folder.glob(".mcp.json.before-greenroom*"), key=lambda path: (len(path.name), path.name))
    assert [path.name.removeprefix(".mcp.json.before-greenroom") for path in kept] == [
        "",
        *(f"-{n}" for n in range(2, 10)),
    ]
    servers = [list(json.loads(path.read_text()).get("mcpServers", {})) for path in kept]
    assert servers[0] == []
    assert servers[1] == ["n0"]
    assert servers[-1] == [f"n{number}" for number in range(11)]


@pytest.mark.parametrize("target", ["weather.py", "weather:server", "whole:server", "whole.part:server"])
def test_code_is_served_from_wherever_it_is_started(
    typed: Type, folder: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    (folder / "whole").mkdir()
    (folder / "whole" / "__init__.py").write_text((folder / "weather.py").read_text())
    (folder / "whole" / "part.py").write_text("from . import server\n")
    assert typed("install", target, "--to", "cursor", "--name", "it", "--yes").code == 0
    entry = json.loads((folder.parent / "home" / ".cursor" / "mcp.json").read_text())["mcpServers"]["it"]

    monkeypatch.chdir(folder.parent)
    env = [word for name, value in entry.get("env", {}).items() for word in ("--env", f"{name}={value}")]
    assert typed("call", "dot", *env, "--", entry["command"], *entry["args"]).code == 0


def test_a_secret_that_was_written_out_before_is_not_shown(
    typed: Type, configured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("install", "sky", "--to", "claude", "--yes")
    assert typed(*words).code == 0
    (file,) = (configured.parent / "home").rglob("claude_desktop_config.json")
    assert "--key=very-secret" in json.loads(file.read_text())["mcpServers"]["sky"]["args"]

    monkeypatch.setenv("SKY_TOKEN", "another-secret")
    changed = typed(*words)
    assert (changed.code, "differs only in values that are not shown" in changed.out) == (0, True)
    assert "--key=another-secret" in json.loads(file.read_text())["mcpServers"]["sky"]["args"]
    beside = typed("install", "weather.py", "--to", "claude", "--name", "after", "--yes")
    renewed = typed("install", "weather.py", "--to", "claude", "--name", "sky", "--yes")
    assert '-        "…",' in renewed.out
    assert typed(*words).code == 0
    gone = typed("install", "sky", "--to", "claude", "--remove", "--yes")
    assert (gone.code, '-    "sky": {' in gone.out) == (0, True)
    for seen in (changed, beside, renewed, gone):
        assert "very-secret" not in seen.out + seen.err
        assert "another-secret" not in seen.out + seen.err


# --- programs, each in its own form


URL = "https://x.example/mcp"
HEADER = ("-H", "X-Team: red")


@pytest.mark.parametrize(
    ("to", "file", "key", "entry"),
    [
        ("claude-code", ".claude.json", "mcpServers", {"type": "http", "url": URL, "headers": {"X-Team": "red"}}),
        ("cursor", ".cursor/mcp.json", "mcpServers", {"url": URL, "headers": {"X-Team": "red"}}),
        ("vscode", ".config/Code/User/mcp.json", "servers", {"type": "http", "url": URL, "headers": {"X-Team": "red"}}),
        ("codex", ".codex/config.toml", "mcp_servers", {"url": URL, "http_headers": {"X-Team": "red"}}),
        ("gemini", ".gemini/settings.json", "mcpServers", {"httpUrl": URL, "headers": {"X-Team": "red"}}),
        (
            "windsurf",
            ".codeium/windsurf/mcp_config.json",
            "mcpServers",
            {"serverUrl": URL, "headers": {"X-Team": "red"}},
        ),
        ("zed", ".config/zed/settings.json", "context_servers", {"url": URL, "headers": {"X-Team": "red"}}),
    ],
)
def test_a_url_is_written_as_the_program_takes_it(
    typed: Type, folder: Path, to: str, file: str, key: str, entry: dict[str, Any]
) -> None:
    path = folder.parent / "home" / file
    assert typed("install", URL, "--to", to, "--yes", *HEADER).code == 0
    read: Any = tomllib.loads if path.suffix == ".toml" else json.loads
    assert read(path.read_text()) == {key: {"x": entry}}
    assert typed("install", "x", "--to", to, "--remove", "--yes").code == 0
    assert read(path.read_text()).get(key, {}) == {}


def test_a_url_for_a_program_that_starts_commands_only_is_refused_with_what_to_write(typed: Type, folder: Path) -> None:
    seen = typed("install", URL, "--to", "claude", "--yes", "-H", "Authorization: Bearer very-secret")
    assert (seen.code, seen.out) == (2, "")
    assert "supports only commands in its file, no URLs" in seen.err
    assert f'url = "{URL}"' in seen.err
    assert "greenroom install --config greenroom.toml --to claude" in seen.err
    assert "very-secret" not in seen.err
    assert not list((folder.parent / "home").rglob("claude_desktop_config.json"))


def test_a_configured_url_goes_through_a_bridge_and_a_whole_file_is_one_entry(typed: Type, configured: Path) -> None:
    assert typed("install", "sea", "--to", "claude", "--yes").code == 0
    assert typed("install", "--config", "greenroom.toml", "--to", "claude", "--yes").code == 0
    (file,) = (configured.parent / "home").rglob("claude_desktop_config.json")
    servers = json.loads(file.read_text())["mcpServers"]
    words = ["-P", "-m", "greenroom.cli", "serve", "--config", str(configured / "greenroom.toml")]
    assert servers["greenroom"]["args"] == words
    assert servers["sea"]["args"] == [*words, "--only", "sea"]
    assert "very-secret" not in file.read_text()
    assert typed("install", "--config", "none.toml", "--to", "claude", "--yes").code == 3


def test_variables_in_headers_stay_variables_where_the_program_names_them_in_its_own_way(
    typed: Type, configured: Path
) -> None:
    (configured / "greenroom.toml").write_text(
        '[server.sea]\ntransport = "http"\nurl = "https://x.example/mcp"\n'
        'headers = { Authorization = "Bearer ${SKY_TOKEN}", X-Place = "${SKY_PLACE}", X-Mix = "in ${SKY_PLACE}" }\n'
    )
    seen = typed("install", "sea", "--to", "codex", "--project", "--yes")
    assert seen.code == 0
    assert tomllib.loads((configured / ".codex" / "config.toml").read_text()) == {
        "mcp_servers": {
            "sea": {
                "url": "https://x.example/mcp",
                "bearer_token_env_var": "SKY_TOKEN",
                "http_headers": {"X-Mix": "in north"},
                "env_http_headers": {"X-Place": "SKY_PLACE"},
            }
        }
    }
    assert "north" not in seen.out


TOML = """# mine
model = "o9"  # a comment that stays

[mcp_servers.old]
command = "old"

[mcp_servers.old.env]
A = "1"

[profiles.p]
x = 1979-05-27
"""


def test_other_tables_of_a_toml_file_stay_with_their_comments(typed: Type, folder: Path) -> None:
    file = folder / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text(TOML)
    assert typed("install", URL, "--to", "codex", "--project", "--name", "old", "--yes").code == 0
    text = file.read_text()
    assert "# a comment that stays" in text
    assert tomllib.loads(text)["mcp_servers"] == {"old": {"url": URL}}
    assert typed("install", "old", "--to", "codex", "--project", "--remove", "--yes").code == 0
    before = tomllib.loads(TOML)
    del before["mcp_servers"]
    assert tomllib.loads(file.read_text()) == before


@pytest.mark.parametrize(
    "text",
    [
        'mcp_servers = { old = { command = "old" } }\n',
        'x = """\n[mcp_servers.old]\n"""\n[mcp_servers]\nold.command = "old"\n',
        "mcp_servers = 1\n",
        "no toml",
    ],
)
def test_a_toml_file_that_lines_cannot_edit_is_left_alone_and_the_table_is_shown(
    typed: Type, folder: Path, text: str
) -> None:
    file = folder / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text(text)
    seen = typed("install", URL, "--to", "codex", "--project", "--name", "old", "--yes")
    assert seen.code == 3
    assert file.read_text() == text
    assert "by hand" in seen.err or "correct the file first" in seen.err


def test_plain_json_is_shown_and_written_into_this_folder_where_that_is_wanted(typed: Type, folder: Path) -> None:
    assert json.loads(typed("install", URL, "--to", "json").out) == {"mcpServers": {"x": {"url": URL}}}
    assert typed("install", URL, "--to", "json", "--project", "--yes").code == 0
    assert json.loads((folder / "mcp.json").read_text()) == {"mcpServers": {"x": {"url": URL}}}
    assert typed("install", "x", "--to", "json", "--remove").code == 2


# --- new


def wrong(entry: Mapping[str, Any]) -> list[str]:
    """The mistakes of a server.json by the registry's schema of 2025-12-11, for the fields that `new` uses."""
    rules: dict[str, tuple[str, int]] = {
        "name": (r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", 200),
        "description": (r".+", 100),
        "version": (r"\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", 255),
    }
    known = {"$schema", "title", "repository", "websiteUrl", "icons", "packages", "remotes", "_meta", *rules}
    found = [f"{name} is not known" for name in entry if name not in known]
    for name, (pattern, most) in rules.items():
        value = entry.get(name)
        if not isinstance(value, str) or len(value) > most or not re.fullmatch(pattern, value):
            found.append(f"{name} is {value!r}")
    if not re.fullmatch(
        r"https://static\.modelcontextprotocol\.io/schemas/\d{4}-\d\d-\d\d/server\.schema\.json", entry["$schema"]
    ):
        found.append("$schema names no schema of the registry")
    for package in entry["packages"]:
        missing = {"registryType", "identifier", "transport"} - set(package)
        found += [f"a package has no {name}" for name in sorted(missing)]
        if package["registryType"] not in ("npm", "pypi", "oci", "nuget", "mcpb"):
            found.append("its registryType is none")
        if package["version"] == "latest" or not re.fullmatch(rules["version"][0], package["version"]):
            found.append("a package has one version, and no range")
        if package["transport"] != {"type": "stdio"} and "url" not in package["transport"]:
            found.append("its transport has no url")
    return found


@pytest.mark.parametrize("name", ["sky", "My-Sky_2", "s" * 64])
def test_a_registry_has_nothing_against_a_new_server(typed: Type, folder: Path, name: str) -> None:
    seen = json.loads(typed("new", name, "--json").out)

    made = folder / seen["folder"]
    assert set(seen["files"]) == {path.name for path in made.iterdir()}
    entry = json.loads((made / "server.json").read_text())
    assert wrong(entry) == []
    project = tomllib.loads((made / "pyproject.toml").read_text())["project"]
    assert {entry["packages"][0]["identifier"]} == {project["name"]} == set(project["scripts"])
    assert {entry["version"], entry["packages"][0]["version"]} == {project["version"]}
    # The README has to contain the name, as a proof that the publisher owns the package.
    assert f"mcp-name: {entry['name']} " in (made / "README.md").read_text()


@pytest.mark.parametrize(
    "fault",
    [
        {"name": "no-namespace"},
        {"description": "x" * 101},
        {"version": "^1.0"},
        {"tools": []},
        {
            "packages": [
                {"registryType": "pypi", "identifier": "x", "version": "latest", "transport": {"type": "stdio"}}
            ]
        },
        {"packages": [{"registryType": "pypi", "version": "1.0.0", "transport": {"type": "stdio"}}]},
    ],
)
def test_a_server_json_that_a_registry_would_refuse_is_found(typed: Type, folder: Path, fault: dict[str, Any]) -> None:
    typed("new", "sky")

    assert wrong({**json.loads((folder / "sky" / "server.json").read_text()), **fault})


@pytest.mark.parametrize("name", ["sky-", "sky_", "-sky"])
def test_a_name_that_no_package_can_have_is_refused(typed: Type, folder: Path, name: str) -> None:
    assert typed("new", f"./{name}").code == 2
    assert not (folder / name).exists()


def test_a_repository_is_made_where_there_is_git(typed: Type, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert typed("new", "sky", "--git").code == 0
    assert (folder / "sky" / ".git").is_dir()
    monkeypatch.setenv("PATH", str(folder))
    seen = typed("new", "sea", "--git")
    assert (seen.code, "git is not installed" in seen.err, (folder / "sea" / "sea.py").exists()) == (4, True, True)
