"""Variables in files, and environment variables for all servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.config.config_reader import read
from greenroom.config.configured_upstreams import route_of
from greenroom.config.variables import EditorInput, Environment, Variables

if TYPE_CHECKING:
    from .config_files import Workspace

SET = {"A": "1", "EMPTY": "", "NESTED": "${A}", "HOME": "/users/anna"}


def put(text: str, *, editor: bool = False, given: dict[str, str] | None = None) -> tuple[str, list[str]]:
    inputs = {"api-key": EditorInput("the key"), "region": EditorInput("", default="eu")}
    value, problems = Variables(SET, Path("/project"), inputs, given or {}, editor).expand(text)
    return value, [one.what for one in problems]


@pytest.mark.row("CB-04")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain $A {A} $$", "plain $A {A} $$"),
        ("${A}", "1"),
        ("x${A}y${A}", "x1y1"),
        ("${EMPTY}", ""),
        ("${EMPTY:-else}", "else"),
        ("${B:-}", ""),
        ("${B:-else}", "else"),
        ("${B:-a b:-c}", "a b:-c"),
        ("${B:-${A}}", "1"),
        ("${B:-${C:-${A}x}y}z", "1xyz"),
        ("${NESTED}", "${A}"),
        ("$${A}", "${A}"),
        ("$${A} ${A}", "${A} 1"),
        ("${CLAUDE_PROJECT_DIR}/x", "/project/x"),
        ("${GREENROOM_PROJECT_DIR}", "/project"),
        ("${env:A}", "1"),
    ],
)
def test_variables_expand_to_their_values(text: str, value: str) -> None:
    assert put(text) == (value, [])


@pytest.mark.row("CB-04")
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("${B}", "the variable B is not set"),
        ("${env:B}", "the variable B is not set"),
        ("${workspaceFolder}", "the variable workspaceFolder is not set"),
        ("${A", "has a ${ without a closing brace"),
        ("${B:-${A}", "has a ${ without a closing brace"),
        ("${}", "has a variable that cannot be read: '${}'"),
        ("${A-B}", "has a variable that cannot be read: '${A-B}'"),
        ("${input:api-key}", "needs ${input:api-key}, for which greenroom does not ask"),
        ("${B:-" * 20 + "}" * 20, "has variables nested too deeply"),
    ],
)
def test_a_missing_variable_is_reported(text: str, what: str) -> None:
    assert put(text)[1] == [what]


def test_all_that_are_missing_are_told() -> None:
    assert put("${B} ${C} ${A}")[1] == ["the variable B is not set", "the variable C is not set"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${workspaceFolder}${/}x", "/project/x"),
        ("${workspaceFolderBasename}", "project"),
        ("${userHome}", str(Path.home())),
        ("${input:region}", "eu"),
        ("${input:api-key}", "k"),
        ("${A}", "1"),
    ],
)
def test_editors_words(text: str, value: str) -> None:
    assert put(text, editor=True, given={"api-key": "k"}) == (value, [])


def test_an_input_is_also_a_variable() -> None:
    variables = Variables({"GREENROOM_INPUT_API_KEY": "k"}, Path("/"), {}, {}, editor=True)
    assert variables.expand("${input:api-key}") == ("k", [])


@given(st.text("${}:-AB", max_size=30))
def test_any_text_has_a_value_or_a_problem(text: str) -> None:
    value, problems = put(text)
    assert problems or "${" not in text.replace("$${", "") or value != text


@pytest.mark.row("CB-04")
def test_they_stand_in_all_that_a_server_is_started_with(workspace: Workspace) -> None:
    workspace.environment |= {"X": "x", "URL": "https://a.example/mcp", "DIR": "work"}
    told = workspace.toml(
        """
        [server.program]
        command = "/bin/${X}"
        args = ["--${X}", "${NO:-none}"]
        env = { KEY = "${TOKEN}", HERE = "${CLAUDE_PROJECT_DIR}" }
        cwd = "${DIR}"
        [server.web]
        transport = "http"
        url = "${URL}"
        headers = { Authorization = "Bearer ${TOKEN}" }
        oauth = "auto"
        oauth_config = { client_id = "${X}", client_secret = "${TOKEN}" }
        """
    )
    assert told == []
    servers = workspace.read("greenroom.toml").servers
    program, web = servers["program"], servers["web"]
    assert (program.command, program.args) == ("/bin/x", ("--x", "none"))
    assert program.env == {"KEY": "s3cret", "HERE": str(workspace.folder)}
    assert program.cwd == str(workspace.folder / "work")
    assert (web.url, web.headers) == ("https://a.example/mcp", {"Authorization": "Bearer s3cret"})
    assert web.oauth_config is not None
    assert (web.oauth_config.client_id, web.oauth_config.client_secret) == ("x", "s3cret")


@pytest.mark.row("CB-04")
def test_a_missing_variable_is_one_servers_failure_with_its_line(workspace: Workspace) -> None:
    told = workspace.toml(
        """
        [server.fine]
        command = "uvx"
        [server.a]
        command = "uvx"
        args = [
            "x",
            "${TOKN}",
        ]
        """
    )
    assert told == [
        "greenroom.toml:7: server a: args.1: the variable TOKN is not set; did you mean TOKEN? Else set it, or write ${TOKN:-default}"
    ]
    assert list(workspace.read("greenroom.toml").servers) == ["fine"]


@pytest.mark.parametrize(
    ("transport", "field", "line"),
    [
        ("http", "url", 'url = "${BAD}"'),
        ("http", "headers.X", 'url = "https://a"\nheaders = { X = "${BAD}" }'),
        ("stdio", "command", 'command = "${EMPTY}"'),
    ],
)
def test_a_mistake_after_expansion_does_not_quote_the_value(
    workspace: Workspace, transport: str, field: str, line: str
) -> None:
    workspace.environment["BAD"] = "no url\nat all"
    workspace.write("greenroom.toml", f'[server.a]\ntransport = "{transport}"\n{line}\n')
    mistakes = workspace.read("greenroom.toml").failed["a"]
    assert [one.field for one in mistakes] == [field]
    assert "no url" not in str(mistakes)


# --- for all servers


@pytest.mark.row("CB-18")
@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, Environment(30.0, 60.0, 25_000, 0)),
        ({"GREENROOM_MCP_TIMEOUT": "7"}, Environment(connect=7.0)),
        ({"GREENROOM_MCP_TIMEOUT": "7", "MCP_TIMEOUT": "9000"}, Environment(connect=7.0)),
        ({"GREENROOM_MCP_TIMEOUT": "5000"}, Environment(connect=5000.0)),
        ({"MCP_TIMEOUT": "9000"}, Environment(connect=9.0)),
        ({"MCP_TIMEOUT": "9"}, Environment(connect=9.0)),
        ({"GREENROOM_MCP_TOOL_TIMEOUT": "2.5"}, Environment(tool=2.5)),
        ({"MCP_TOOL_TIMEOUT": "120000"}, Environment(tool=120.0)),
        ({"GREENROOM_MAX_MCP_OUTPUT_TOKENS": "1000"}, Environment(output_tokens=1000)),
        ({"MAX_MCP_OUTPUT_TOKENS": "1000"}, Environment()),
        ({"GREENROOM_MCP_OAUTH_PORT": "8123"}, Environment(oauth_port=8123)),
        ({"GREENROOM_MCP_TIMEOUT": " "}, Environment()),
    ],
)
def test_ours_come_first_and_claude_codes_where_ours_are_not_set(variables: dict[str, str], found: Environment) -> None:
    assert Environment.of(variables) == (found, [])


@pytest.mark.row("CB-18")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[
            (name, value)
            for name in ("GREENROOM_MCP_TIMEOUT", "MCP_TOOL_TIMEOUT")
            for value in ("x", "0", "-1", "inf", "nan")
        ],
        *[("GREENROOM_MAX_MCP_OUTPUT_TOKENS", value) for value in ("x", "0", "1.5", "-3", "9" * 30)],
        ("GREENROOM_MCP_OAUTH_PORT", "70000"),
    ],
)
def test_an_invalid_number_in_the_environment_is_reported_and_ignored(name: str, value: str) -> None:
    found, mistakes = Environment.of({name: value})
    assert found == Environment()
    assert [(one.field, one.harmless) for one in mistakes] == [(name, True)]


@pytest.mark.row("CB-18")
def test_a_servers_own_word_comes_before_the_environments(workspace: Workspace) -> None:
    workspace.environment |= {
        "GREENROOM_MCP_TIMEOUT": "7",
        "MCP_TOOL_TIMEOUT": "8000",
        "GREENROOM_MAX_MCP_OUTPUT_TOKENS": "900",
    }
    workspace.toml(
        """
        [server.a]
        command = "x"
        [server.b]
        command = "x"
        timeouts = { connect = 1, tool = 2 }
        limits = { output_tokens = 300, tools = { big = { output_tokens = 400, output_bytes = 500 } } }
        """
    )
    config = workspace.read("greenroom.toml")
    a, b = config.servers["a"], config.servers["b"]
    assert (a.timeouts.connect, a.timeouts.tool, a.limits.output_tokens) == (7, 8, 900)
    assert (b.timeouts.connect, b.timeouts.tool, b.limits.output_tokens) == (1, 2, 300)
    assert (config.limits.of("a", "x").tokens, config.limits.of("b", "x").tokens) == (900, 300)
    assert (config.limits.of("b", "big").tokens, config.limits.of("b", "big").bytes) == (400, 500)
    assert config.limits.of("of a program", "x").tokens == 900


class Home:
    """The callbacks of the home process, unused here."""

    credentials: Any = None

    def line(self, text: str) -> None:
        raise AssertionError(text)


def test_a_variables_value_is_in_no_description_of_a_route_even_after_pickling(tmp_path: Path) -> None:
    path = tmp_path / "greenroom.toml"
    path.write_text(
        """
[server.program]
command = "/nowhere/${KEY}"
args = ["--place", "${KEY}"]

[server.address]
transport = "http"
url = "http://127.0.0.1:9/${KEY}/mcp?key=${KEY}"

[server.open]
transport = "http"
url = "http://127.0.0.1:9/mcp"
"""
    )
    servers = read(path, environment={"KEY": "very-secret"}).servers

    here: dict[str, Any] = {name: route_of(server) for name, server in servers.items()}
    away = {name: route.portable().route(Home()) for name, route in here.items()}
    for routes in (here, away):
        assert {name: route.description for name, route in routes.items()} == {
            "program": "'/nowhere/${KEY}' --place '${KEY}'",
            "address": "http://127.0.0.1:9/…",
            "open": "http://127.0.0.1:9/mcp",
        }
    for route in (*here.values(), *away.values()):
        assert "very-secret" not in repr(route) + repr(route.portable()) + repr(getattr(route, "address", ""))
    assert here["address"].address.target == "/very-secret/mcp?key=very-secret"
    assert here["address"].address.resolve_reference("/other").description == "http://127.0.0.1:9/…"
