"""All mistakes of a server are reported at once, including lost headers, rules without effect, and mistakes behind others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from greenroom.config.mistakes import RULES_UNREADABLE, BadConfig
from greenroom.host import Host

if TYPE_CHECKING:
    from .config_files import Workspace

AT = 'transport = "http"\nurl = "https://a.example/mcp"\n'


def test_a_header_that_stands_there_twice_in_other_letters_is_a_mistake(workspace: Workspace) -> None:
    told = workspace.toml(f'[server.a]\n{AT}[server.a.headers]\nAuthorization = "1"\nX-A = "2"\nauthorization = "3"\n')
    assert told == [
        "greenroom.toml:7: server a: headers.authorization: is defined twice, first as Authorization in line 5; keep one of them"
    ]
    assert "a" in workspace.read("greenroom.toml").failed


def test_so_it_is_in_the_json_of_other_programs(workspace: Workspace) -> None:
    headers = '{"Authorization": "1",\n"AUTHORIZATION": "2"}'
    workspace.write("mcp.json", f'{{"mcpServers": {{"a": {{"url": "https://a.example/mcp",\n"headers": {headers}}}}}}}')
    assert workspace.messages("mcp.json") == [
        "mcp.json:3: server a: headers.AUTHORIZATION: is defined twice, first as Authorization in line 2; keep one of them"
    ]


@pytest.mark.parametrize(
    ("verdict", "hint"),
    [("allow", "remove it"), ("deny", "so it denies nothing: correct the name, or remove the rule")],
)
@pytest.mark.parametrize(("whose", "pattern"), [("a", "a:nap"), ("b", "b:nap"), ("b", "mcp__b__nap"), ("b", "mcp__b")])
def test_a_rule_in_a_servers_block_that_names_a_server_is_told(
    workspace: Workspace, verdict: str, hint: str, whose: str, pattern: str
) -> None:
    servers = '[server.a]\ncommand = "x"\n[server.b]\ncommand = "x"\n'
    told = workspace.toml(f'{servers}[server.a.permissions]\n{verdict} = ["{pattern}"]\n')
    why = f"in the block of 'a' it is a tool's name alone, and {whose!r} is a server"
    assert told == [
        f"greenroom.toml:6: server a: permissions.{verdict}: '{pattern}' can never match: {why}; {hint}",
    ]
    assert workspace.read("greenroom.toml").good


def test_a_tool_with_a_colon_in_its_name_is_nobodys_mistake(workspace: Workspace) -> None:
    assert workspace.toml('[server.a]\ncommand = "x"\n[server.a.permissions]\nallow = ["git:nap", "nap"]\n') == []


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('comand = "x"\nargs = ["${NOPE}"]', ["command", "comand", "args.0"]),
        ('command = 5\nenv = { X = "${NOPE}" }', ["command", "env.X"]),
        ('command = "x"\nenv = { X = "${NOPE}", Y = 3 }', ["env.Y", "env.X"]),
        ('command = "x"\nargs = "${NOPE}"', ["args", "args"]),
        ('comand = "x"\nrestart = { first = 40 }', ["command", "comand", "restart.longest"]),
        ('comand = "x"\npermissions = { deny = ["Elicit("] }', ["command", "comand", "permissions.deny.0"]),
        (f'{AT}headers = {{ A = "1", a = "2" }}\nabsent = 1', ["absent", "headers.a"]),
        ('command = "x"\nurl = "${NOPE}"', ["url", "url"]),
        ('command = "x"\nargs = [[[["${NOPE}"]]]]', ["args.0"]),
        ('comand = "x"\nargs = ["${NOPE}"]\ndisabled = true', ["command", "comand"]),
    ],
)
def test_no_mistake_of_a_server_hides_another(workspace: Workspace, lines: str, told: list[str]) -> None:
    workspace.write("greenroom.toml", f'[server.fine]\ncommand = "x"\n[server.a]\n{lines}\n')
    config = workspace.read("greenroom.toml")
    assert sorted(str(one.field) for one in config.failed["a"]) == sorted(told)
    assert list(config.servers) == ["fine"]


def test_also_where_a_server_is_imported(workspace: Workspace) -> None:
    entry = {"comand": "x", "args": ["${NOPE}"], "envFile": "none"}
    workspace.write("mcp.json", json.dumps({"mcpServers": {"a": entry}}))
    fields = [one.field for one in workspace.read("mcp.json").failed["a"]]
    assert sorted(map(str, fields)) == ["args.0", "comand", "command", "envFile"]


def test_after_a_thousand_mistakes_the_others_are_judged_all_the_same(workspace: Workspace) -> None:
    many = f"[server.many]\ncommand = 'x'\nargs = [{'3, ' * 1500}]\n"
    workspace.write("greenroom.toml", f"{many}[server.b]\ncommand = 'x'\nenv = 5\n[server.c]\ncommand = 'x'\n")
    config = workspace.read("greenroom.toml")
    assert [one.field for one in config.failed["b"]] == ["env"]
    assert list(config.servers) == ["c"]
    assert config.doubtful


@pytest.mark.parametrize(("written", "name"), [("Ünï", "n"), ("a b", "a-b"), ("x" * 40, "x" * 32)])
def test_a_name_that_had_to_be_changed_is_told(workspace: Workspace, written: str, name: str) -> None:
    workspace.write("mcp.json", json.dumps({"mcpServers": {written: {"command": "x"}, "Fine": {"command": "x"}}}))
    config = workspace.read("mcp.json")
    assert workspace.shown(config) == [
        f"mcp.json:1: server {name}: is the name for {written!r}; names have 1 to 32 letters, digits, _ and -"
    ]
    assert (list(config.servers), config.good) == ([name, "Fine"], True)


@pytest.mark.greenroom(clock="real")
async def test_the_warning_about_unreadable_rules_is_not_logged_while_the_old_rules_hold(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    text = '[permissions]\nallow = ["which"]\n'
    path = workspace.write("greenroom.toml", text)
    async with Host.from_config(path, environment=workspace.environment, project=workspace.folder) as host:
        workspace.write("greenroom.toml", f"{text}[server.a")
        with pytest.raises(BadConfig, match="is not TOML"):
            await host.reload()
        assert host.config.permissions.of_tool("a", "which").verdict == "allow"
    assert "is not TOML" in caplog.text
    assert RULES_UNREADABLE.what not in caplog.text
