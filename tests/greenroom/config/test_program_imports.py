"""The files of Claude Desktop, Claude Code, Cursor and VS Code, as their own documentation shows them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .config_files import Workspace

CLAUDE_DESKTOP = """{
  "globalShortcut": "",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/users/anna/Desktop"],
      "env": {"DEBUG": "1"}
    }
  }
}"""
CLAUDE_CODE = """{
  "mcpServers": {
    "api": {
      "type": "http",
      "url": "${API_BASE_URL:-https://api.example.com}/mcp",
      "headers": {"Authorization": "Bearer ${TOKEN}"},
      "oauth": {"clientId": "abc", "callbackPort": 8080},
      "timeout": 600000
    },
    "old": {"type": "sse", "url": "https://old.example.com/sse"},
    "local": {"type": "stdio", "command": "${CLAUDE_PROJECT_DIR}/server", "args": [], "env": {"HERE": "${HOME}"}}
  }
}"""
CURSOR = """{
  // what Cursor takes
  "mcpServers": {
    "local-server": {
      "command": "python",
      "args": ["${workspaceFolder}/tools/mcp_server.py"],
      "env": {"API_KEY": "${env:TOKEN}", "PORT": 3000},
      "envFile": "${workspaceFolder}/.env",
    },
    "remote": {
      "url": "https://api.example.com/mcp",
      "headers": {"Authorization": "Bearer ${env:TOKEN}"},
      "auth": {"CLIENT_ID": "${env:TOKEN}", "scopes": ["read", "write"]},
    },
  },
}"""
VSCODE = """{
  "inputs": [
    {"type": "promptString", "id": "perplexity-key", "description": "Perplexity API Key", "password": true},
    {"type": "pickString", "id": "region", "description": "Where", "options": ["eu", "us"], "default": "eu"}
  ],
  "servers": {
    "perplexity": {
      "type": "stdio",
      "command": "npx",
      "args": ["-y", "server-perplexity-ask", "${input:region}"],
      "env": {"PERPLEXITY_API_KEY": "${input:perplexity-key}"},
      "dev": {"watch": "src/**"}
    },
    "uiTesting": {"type": "http", "url": "https://mcp.example.com/mcp"}
  }
}"""


def one(workspace: Workspace, entry: dict[str, Any], name: str = "x") -> tuple[Any, list[str]]:
    workspace.write("mcp.json", json.dumps({"mcpServers": {"fine": {"command": "uvx"}, name: entry}}))
    config = workspace.read("mcp.json")
    assert "fine" in config.servers
    return config.servers.get(name), [str(each).split(": ", 1)[1] for each in config.mistakes]


@pytest.mark.row("CB-01")
def test_claude_desktop(workspace: Workspace) -> None:
    workspace.write("claude_desktop_config.json", CLAUDE_DESKTOP)
    config = workspace.read("claude_desktop_config.json")
    assert config.mistakes == ()
    server = config.servers["filesystem"]
    assert (server.transport, server.command, server.env) == ("stdio", "npx", {"DEBUG": "1"})
    assert server.args[-1] == "/users/anna/Desktop"
    assert server.source.line == 4


@pytest.mark.row("CB-01", "CB-04")
def test_claude_code(workspace: Workspace) -> None:
    workspace.write(".mcp.json", CLAUDE_CODE)
    config = workspace.read(".mcp.json")
    assert config.mistakes == ()
    api, old, local = (config.servers[name] for name in ("api", "old", "local"))
    assert (api.transport, api.url) == ("http", "https://api.example.com/mcp")
    assert api.headers == {"Authorization": "Bearer s3cret"}
    assert (api.oauth, api.timeouts.tool) == ("auto", 600)
    assert api.oauth_config is not None
    assert (api.oauth_config.client_id, api.oauth_config.port) == ("abc", 8080)
    assert (old.transport, old.oauth) == ("sse", "off")
    assert (local.command, local.env) == (f"{workspace.folder}/server", {"HERE": "/users/anna"})


@pytest.mark.row("CB-01", "CB-04")
def test_cursor(workspace: Workspace) -> None:
    workspace.write(".cursor/mcp.json", CURSOR)
    workspace.write(".env", "# keys\nexport A = 'one two'\nB=three # four\nAPI_KEY=other\n\n")
    config = workspace.read(".cursor/mcp.json")
    assert config.mistakes == ()
    local, remote = config.servers["local-server"], config.servers["remote"]
    assert local.args == (f"{workspace.folder}/tools/mcp_server.py",)
    assert local.env == {"A": "one two", "B": "three", "API_KEY": "s3cret", "PORT": "3000"}
    assert (remote.transport, remote.oauth) == ("http", "auto")
    assert remote.oauth_config is not None
    assert (remote.oauth_config.client_id, remote.oauth_config.scopes) == ("s3cret", ("read", "write"))


@pytest.mark.row("CB-01", "CB-04")
def test_vs_code(workspace: Workspace) -> None:
    workspace.write(".vscode/mcp.json", VSCODE)
    config = workspace.read(".vscode/mcp.json")
    assert [(each.server, each.hint) for each in config.mistakes] == [
        ("perplexity", "set GREENROOM_INPUT_PERPLEXITY_KEY (Perplexity API Key)")
    ]
    assert config.servers["uiTesting"].url == "https://mcp.example.com/mcp"
    workspace.inputs["perplexity-key"] = "k"
    perplexity = workspace.read(".vscode/mcp.json").servers["perplexity"]
    assert perplexity.env == {"PERPLEXITY_API_KEY": "k"}
    assert perplexity.args[-1] == "eu"


def test_claude_codes_own_file_has_servers_for_a_project(workspace: Workspace) -> None:
    mine = {"mcpServers": {"a": {"command": "project"}}}
    workspace.write(
        "claude.json",
        json.dumps(
            {
                "mcpServers": {"a": {"command": "user"}, "b": {"command": "user"}},
                "projects": {str(workspace.folder): mine, "/other": {}},
            }
        ),
    )
    servers = workspace.read("claude.json").servers
    assert {name: server.command for name, server in servers.items()} == {"a": "project", "b": "user"}


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"type": "streamable-http", "url": "https://a"}, []),
        ({"serverUrl": "https://a"}, []),
        ({"command": "x", "env": None}, []),
        ({"command": "x", "alwaysLoad": True, "description": "d"}, []),
        ({"command": "x", "sandboxEnabled": False}, []),
        ({"command": "x", "timeouts": {"tool": 5}, "permissions": {"deny": ["rm"]}}, []),
        ({"command": "x", "future": 1}, ["server x: future: there is no such field; it is ignored"]),
        (
            {"command": "x", "timeout": 30},
            ["server x: timeout: is in milliseconds, and a value below 1000 is ignored; write 1000 or more"],
        ),
    ],
)
def test_supported_fields_of_other_programs_are_imported(
    workspace: Workspace, entry: dict[str, Any], told: list[str]
) -> None:
    server, mistakes = one(workspace, entry)
    assert server is not None
    assert mistakes == told


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"comand": "x"}, "comand: there is no such field; did you mean command?"),
        ({"command": "x", "url": "https://a"}, "url: is for servers at a URL"),
        ({"type": "ws", "url": "wss://a"}, "type: has to be stdio, http or sse, not 'ws'"),
        ({"type": "http"}, "url: is missing"),
        ({"command": ["x"]}, "command: has to be"),
        ({"command": "x", "args": "y"}, "args: has to be a list, not a text"),
        ({"command": "x", "env": {"A": True}}, "env.A: has to be a text"),
        (
            {"command": "x", "sandboxEnabled": True},
            "sandboxEnabled: is not supported; greenroom has no sandbox",
        ),
        ({"url": "https://a", "headersHelper": "x"}, "headersHelper: is not supported"),
        ({"command": "x", "timeout": "1"}, "timeout: has to be a number of milliseconds"),
        ({"command": "x", "envFile": ".none"}, "envFile: cannot be read: No such file or directory (.none)"),
        ({"command": "x", "envFile": 3}, "envFile: has to be a text"),
    ],
)
def test_an_unsupported_field_is_a_mistake_of_one_server(
    workspace: Workspace, entry: dict[str, Any], told: str
) -> None:
    server, mistakes = one(workspace, entry)
    assert server is None
    assert any(each.startswith(f"server x: {told}") for each in mistakes), mistakes


def test_an_entry_that_is_no_object(workspace: Workspace) -> None:
    workspace.write("mcp.json", '{"mcpServers": {"a": "uvx",\n "b": {"command": "x"}}}')
    assert workspace.messages("mcp.json") == [
        'mcp.json:1: server a: has to be an object; as in {"command": "uvx", "args": ["mcp-server-git"]}'
    ]


def test_names_are_kept_where_they_can_be_and_fitted_else(workspace: Workspace) -> None:
    names = ["uiTesting", "My Server", "github.com/x/y", "ok_1", "x" * 40]
    workspace.write("mcp.json", json.dumps({"mcpServers": {name: {"command": "x"} for name in names}}))
    assert list(workspace.read("mcp.json").servers) == ["uiTesting", "My-Server", "github-com-x-y", "ok_1", "x" * 32]


def test_duplicate_servers(workspace: Workspace) -> None:
    workspace.write(
        "mcp.json",
        '{"mcpServers": {\n"fine": {"command": "x"},\n"a": {"command": "1"},\n"a": {"command": "2"},\n"b c": {"command": "x"},\n"b.c": {"command": "x"}, "!": {}}}',
    )
    assert workspace.messages("mcp.json") == [
        "mcp.json:3: server a: is defined twice, first in line 3; rename one of them",
        "mcp.json:6: server !: has a name without any letter, digit, _ or -; rename it",
        "mcp.json:6: server b-c: would be called b-c, like the server in line 5; rename it",
    ]
    assert list(workspace.read("mcp.json").servers) == ["fine"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "mcp.json:1: has to be an object"),
        ("{}", "mcp.json:1: has neither mcpServers nor servers"),
        ('{"mcpServers": []}', "mcp.json:1: mcpServers has to be an object"),
        (
            '{"mcpServers": {\n"a": {"command": "x"',
            "mcp.json:2: is not JSON: the file ends before it is complete; was it written only in part?",
        ),
        ('{"mcpServers": {\n"a" {}}}', "mcp.json:2: is not JSON: a colon is missing after the name"),
    ],
)
def test_a_file_that_is_none(workspace: Workspace, text: str, told: str) -> None:
    workspace.write("mcp.json", text)
    workspace.write("greenroom.toml", '[server.fine]\ncommand = "x"\n')
    config = workspace.read("mcp.json", "greenroom.toml")
    assert workspace.shown(config)[0].startswith(told)
    assert list(config.servers) == ["fine"]


@pytest.mark.row("CB-01")
def test_a_toml_file_takes_others_over(workspace: Workspace) -> None:
    workspace.write(
        "greenroom.toml",
        'import = [".mcp.json", ".cursor/mcp.json", "more.toml", "none.json"]\n[server.api]\ncommand = "own"\n',
    )
    workspace.write(".mcp.json", CLAUDE_CODE)
    workspace.write(".cursor/mcp.json", '{"mcpServers": {"old": {"command": "x"}, "new": {"command": "x"}}}')
    config = workspace.read("greenroom.toml")
    assert config.servers["api"].command == "own"
    assert set(config.servers) == {"api", "local", "new"}
    assert [told.split(";")[0] for told in workspace.shown(config)] == [
        "greenroom.toml:1: import.2: is not a JSON file",
        "greenroom.toml:1: import.3: cannot be read: No such file or directory (none.json)",
        ".cursor/mcp.json:1: server old: is imported twice, also from .mcp.json:10",
    ]
    assert [path.name for path in config.files] == ["greenroom.toml", ".mcp.json", "mcp.json", "none.json"]
