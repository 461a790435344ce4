"""Mistakes name the file, line, server, field and the correction; servers without mistakes are kept."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.config.config_reader import read, server_named
from greenroom.config.mistakes import BadConfig
from greenroom.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from .config_files import Workspace

FINE = '[server.fine]\ncommand = "uvx"\n'


def test_every_mistake_is_told_at_once_and_the_others_go_on(workspace: Workspace) -> None:
    told = workspace.toml(
        """
        [server.fine]
        command = "uvx"

        [server.git]
        comand = "uvx"
        args = ["a", 3]

        [server.web]
        transport = "htp"
        url = "https://a.example/mcp"

        [server.Wide]
        command = "x"
        [server.Wide.timeouts]
        tool = "60"
        """
    )
    assert told == [
        'greenroom.toml:4: server git: command: is missing: a server on stdio is a program; add command = "…"',
        "greenroom.toml:5: server git: comand: there is no such field; did you mean command?",
        "greenroom.toml:6: server git: args.1: has to be a text, not a number",
        "greenroom.toml:9: server web: transport: has to be stdio, http or sse, not 'htp'; did you mean http?",
        "greenroom.toml:12: server Wide: the name has to be 1 to 32 of the characters a-z, 0-9, _ and -",
        "greenroom.toml:15: server Wide: timeouts.tool: has to be a number of seconds, more than 0, not a text; write 60 without quotes",
    ]
    config = workspace.read("greenroom.toml")
    assert list(config.servers) == ["fine"]
    assert set(config.failed) == {"git", "web", "Wide"}
    assert not config.good


@pytest.mark.row("CB-03")
@pytest.mark.parametrize(
    ("lines", "field", "hint"),
    [
        ('command = "x"\nurl = "https://a"', "url", 'transport = "http"'),
        ('command = "x"\nheaders = { A = "b" }', "headers", "leave it out"),
        ('command = "x"\noauth = "auto"', "oauth", "leave it out"),
        ('transport = "stdio"', "command", 'command = "…"'),
        ('transport = "http"', "url", 'url = "https://…"'),
        ('transport = "http"\nurl = "https://a"\ncommand = "x"', "command", "leave it out"),
        ('transport = "http"\nurl = "https://a"\nargs = []', "args", "leave it out"),
        ('transport = "sse"\nurl = "https://a"\nenv = {}', "env", "leave it out"),
        ('transport = "sse"\nurl = "https://a"\ncwd = "."', "cwd", "leave it out"),
        ('transport = "http"\nurl = "a.example/mcp"', "url", ""),
        ('transport = "http"\nurl = "ftp://a"', "url", ""),
        ('transport = "http"\nurl = "https://a"\noauth = "manual"', "oauth", "token_endpoint"),
        (
            'transport = "http"\nurl = "https://a"\n[server.x.oauth_config]\nclient_id = "a"',
            "oauth_config",
            'oauth = "auto"',
        ),
        ('type = "http"\nurl = "https://a"', "type", "write transport"),
        ('command = "x"\ntimeout = 3', "timeout", "[server.x.timeouts]"),
        ('command = ""', "command", ""),
        ('command = "x"\nisolation = "proces"', "isolation", "process"),
        ('command = "x"\nmode = "modern"', "mode", ""),
        ('command = "x"\nmode = "legcy"', "mode", "legacy"),
        ('command = "x"\nprotocol_version = "2025-11-25"', "protocol_version", "write mode"),
        ('transport = "sse"\nurl = "https://a"\nmode = "2026-07-28"', "mode", 'transport = "http"'),
        ('command = "x"\n[server.x.restart]\nfirst = 40', "restart", ""),
        ('command = "x"\n[server.x.headers]\nHost = "a"', "headers", ""),
    ],
)
def test_fields_that_do_not_go_together(workspace: Workspace, lines: str, field: str, hint: str) -> None:
    workspace.write("greenroom.toml", f"{FINE}[server.x]\n{lines}\n")
    config = workspace.read("greenroom.toml")
    assert list(config.servers) == ["fine"]
    assert any(
        one.field is not None and one.field.split(".")[0] == field and hint in one.hint for one in config.failed["x"]
    )


@pytest.mark.parametrize("name", ["Git", "a b", "a:b", "", "x" * 33, "ä", "a.b"])
def test_bad_names(workspace: Workspace, name: str) -> None:
    workspace.write("greenroom.toml", f'{FINE}[server."{name}"]\ncommand = "x"\n')
    config = workspace.read("greenroom.toml")
    assert list(config.servers) == ["fine"]
    assert [one.source.line for one in config.failed[name]] == [3]


@pytest.mark.parametrize(
    ("text", "line", "what", "hint"),
    [
        ('[server.fine]\ncommand = "uvx"\n[server.x]\ncomm', 4, "is not TOML", ""),
        ('[server.fine]\ncommand = "uvx"\n[server.x]\nargs = ["a",', 4, "is not TOML", "only in part"),
        ("[server.x]\n= 3", 2, "is not TOML", ""),
        (
            '[server.x]\ncommand = "a"\n[server.y]\n[server.x]\ncommand = "b"',
            4,
            "is defined twice: first in line 1",
            "keep one",
        ),
        ('[server.x]\ncommand = "a"\ncommand = "b"', 3, "is defined twice", "keep one"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_its_line_and_other_files_go_on(
    workspace: Workspace, text: str, line: int, what: str, hint: str
) -> None:
    workspace.write("bad.toml", text)
    workspace.write("good.toml", FINE)
    config = workspace.read("bad.toml", "good.toml")
    first = config.mistakes[0]
    assert (first.source.line, first.server) == (line, "x")
    assert what in first.what
    assert hint in first.hint
    assert list(config.servers) == ["fine"]


def test_a_file_that_is_not_there_is_no_file_or_is_too_large(workspace: Workspace) -> None:
    (workspace.folder / "folder.toml").mkdir()
    workspace.write("large.toml", "# " + "x" * 1024 * 1024)
    (workspace.folder / "bytes.toml").write_bytes(b"a = 1\nb = '\xff'\n")
    os.mkfifo(workspace.folder / "pipe.toml")
    told = workspace.messages("none.toml", "folder.toml", "large.toml", "bytes.toml", "pipe.toml")
    assert [one.split(";")[0] for one in told if "without asking" not in one] == [
        "none.toml: cannot be read: No such file or directory",
        "folder.toml: is not a regular file",
        "large.toml: is larger than 1048576 bytes",
        "bytes.toml:2: is not UTF-8 text",
        "pipe.toml: is not a regular file",
    ]


@pytest.mark.parametrize(
    "values", [("server = 3", "server"), ("import = 'x.json'", "import"), ("[servers.x]", "servers")]
)
def test_a_mistake_outside_of_servers_names_no_server(workspace: Workspace, values: tuple[str, str]) -> None:
    text, field = values
    workspace.write("greenroom.toml", f"{text}\n{FINE if field != 'server' else ''}")
    config = workspace.read("greenroom.toml")
    assert [(one.server, one.field, one.source.line) for one in config.mistakes] == [(None, field, 1)]
    assert list(config.servers) == ([] if field == "server" else ["fine"])


def test_a_rule_that_can_never_match_is_said_with_its_line_and_does_no_harm(workspace: Workspace) -> None:
    told = workspace.toml(
        """
        [permissions]
        deny = ["rm_*"]
        allow = ["gone:*", "Elicit(absent)"]

        [server.git]
        command = "uvx"
        [server.git.permissions]
        allow = [
            "log",
            "rm_branch",
        ]
        """
    )
    assert [one.split(" can never")[0] for one in told] == [
        "greenroom.toml:3: permissions.allow: 'gone:*'",
        "greenroom.toml:3: permissions.allow: 'Elicit(absent)'",
        "greenroom.toml:10: server git: permissions.allow: 'rm_branch'",
    ]
    config = workspace.read("greenroom.toml")
    assert config.good
    assert list(config.servers) == ["git"]


@pytest.mark.parametrize("pattern", ["Elicit(", "Elicit(other)"])
def test_a_rule_that_says_nothing_is_its_servers_mistake(workspace: Workspace, pattern: str) -> None:
    workspace.write(
        "greenroom.toml", f'{FINE}[server.x]\ncommand = "a"\n[server.x.permissions]\ndeny = ["{pattern}"]\n'
    )
    config = workspace.read("greenroom.toml")
    assert [one.source.line for one in config.failed["x"]] == [6]
    assert list(config.servers) == ["fine"]


@pytest.mark.parametrize("bad", ['deny = "rm_*"', 'deny = ["Elicit"]', "deny = [3]", 'denied = ["a"]', "[permissions"])
def test_where_what_denies_cannot_be_read_nothing_is_allowed(workspace: Workspace, bad: str) -> None:
    workspace.write("bad.toml", f'[permissions]\nallow = ["log"]\n{bad}\n')
    workspace.write("good.toml", f'{FINE}[server.fine.permissions]\nallow = ["*"]\ndeny = ["x"]\n')
    config = workspace.read("bad.toml", "good.toml")
    assert config.doubtful
    assert [(one.verdict, one.pattern) for one in config.permissions.rules] == [("deny", "x")]
    assert config.permissions.of_tool("fine", "log").verdict == "ask"


def test_no_value_that_may_be_a_secret_is_ever_said(workspace: Workspace) -> None:
    secret = "hunter2-hunter2"
    workspace.environment["URL"] = f"https://anna:{secret}@[bad"
    told = workspace.toml(
        f"""
        [server.a]
        command = "x"
        env = {{ A = ["{secret}"], "B=C" = "{secret}" }}
        args = "{secret}"
        [server.b]
        transport = "http"
        url = "https://anna:{secret}@"
        headers = {{ Authorization = "{secret}\\n" }}
        [server.c]
        transport = "http"
        url = "${{URL}}"
        [server.d]
        transport = "http"
        url = "https://d"
        oauth = "auto"
        oauth_config = {{ client_secret = ["{secret}"], port = "{secret}" }}
        """
    )
    config = workspace.read("greenroom.toml")
    assert set(config.failed) == {"a", "b", "c", "d"}
    assert secret not in "\n".join(told) + repr(config)


def test_a_server_is_printed_without_its_secrets(workspace: Workspace) -> None:
    workspace.toml('[server.a]\ncommand = "x"\nargs = ["${TOKEN}"]\nenv = { A = "${TOKEN}" }\n')
    server = workspace.read("greenroom.toml").servers["a"]
    assert server.args == ("s3cret",)
    assert "s3cret" not in repr(server)
    assert server.written["args"] == ["${TOKEN}"]


@pytest.mark.row("CB-02")
def test_a_later_file_replaces_a_server_all_of_it_also_when_it_is_wrong(workspace: Workspace) -> None:
    workspace.write(
        "user.toml",
        '[server.a]\ncommand = "user"\nargs = ["x"]\n[server.b]\ncommand = "user"\n[server.c]\ncommand = "user"\n',
    )
    workspace.write("project.toml", '[server.a]\ncommand = "project"\n[server.b]\ncomand = "project"\n')
    config = workspace.read("user.toml", "project.toml")
    assert config.servers["a"].command == "project"
    assert config.servers["a"].args == ()
    assert set(config.failed) == {"b"}
    assert config.servers["c"].command == "user"


@pytest.mark.row("CB-02", "CB-04")
def test_a_server_that_is_disabled_is_skipped_whatever_it_lacks(workspace: Workspace) -> None:
    assert workspace.toml('[server.a]\ncommand = "${NOPE}"\ndisabled = true\n') == []
    config = workspace.read("greenroom.toml")
    assert config.servers["a"].disabled
    assert config.enabled == {}


def test_server_named_finds_a_server_or_says_why_not(workspace: Workspace, tmp_path: Path) -> None:
    path = workspace.write("greenroom.toml", f"{FINE}[server.bad]\n[server.off]\ncommand = 'x'\ndisabled = true\n")
    assert server_named("fine", path).command == "uvx"
    with pytest.raises(BadConfig, match="command: is missing"):
        server_named("bad", path)
    with pytest.raises(ConfigError, match="disabled"):
        server_named("off", path)
    with pytest.raises(ConfigError, match="did you mean fine"):
        server_named("fines", path)
    with pytest.raises(BadConfig, match="cannot be read"):
        server_named("fine", tmp_path / "none.toml")


def test_an_error_shows_some_mistakes_and_has_all(workspace: Workspace) -> None:
    workspace.toml("".join(f"[server.s{number}]\n" for number in range(30)))
    error = BadConfig(workspace.read("greenroom.toml").mistakes)
    assert len(error.mistakes) == 30
    assert str(error).endswith("and 10 more")


@given(
    st.text(max_size=80) | st.from_regex(r"\A(\[server\.[a-z]\]\n([a-z]+ = [\[\]{}\"a-z0-9,=\$ ]{0,9}\n){0,3}){0,3}\Z")
)
def test_no_text_is_too_much(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    for name in ("any.toml", "any.json"):
        path = tmp_path_factory.getbasetemp() / name
        path.write_text(text, encoding="utf-8", errors="replace", newline="")
        config = read(path, environment={}, project=path.parent)
        assert config.good or all(str(one) for one in config.mistakes)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.toml", "a = " + "[" * 5000 + "]" * 5000),
        ("a.toml", ".".join("a" * 100_000) + " = 1"),
        ("a.toml", "[" + ".".join("a" * 100_000) + "]"),
        ("a.toml", "[server.a]\n" + "".join(f"k{number} = 1\n" for number in range(60_000))),
        ("a.toml", 'a = "' + '\\"' * 300_000 + "." * 600),
        ("a.toml", "[server.a]\n" * 80_000 + "="),
        ("a.toml", "[permissions]\ndeny = [" + "'*'," * 100_000 + "]"),
        ("a.json", '{"mcpServers": {' + '"a": {},' * 60_000 + "}}"),
        ("a.json", '{"mcpServers": {' + "".join(f'"a{n}": {{}}, "a{n}": {{}},' for n in range(15_000)) + "}}"),
        ("a.json", '{"mcpServers": {"a": {' + "".join(f'"k{number}": 1,' for number in range(60_000)) + "}}}"),
        ("a.json", "[" * 500_000),
    ],
)
def test_a_file_that_is_made_to_hurt_takes_no_long_time(workspace: Workspace, name: str, text: str) -> None:
    workspace.write(name, text)
    before = time.process_time()
    config = workspace.read(name)
    assert time.process_time() - before < 10
    assert not config.good
    assert not config.servers
