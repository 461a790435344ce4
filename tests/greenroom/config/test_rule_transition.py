"""Rule transition: stricter rules apply at once, looser ones when their server is ready; and which rules count as allowing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.consent.consent import Consent
from greenroom.actors.consent.rules import ConsentDenied, Rule
from greenroom.config.host_config import HostConfig, ServerConfig
from greenroom.host import Host
from greenroom.transports.client.errors import ConnectFailed

from .test_reconciler import HERE, started_sync

if TYPE_CHECKING:
    from greenroom.config.config_sync import ConfigSync

    from .config_files import Workspace


def server(command: str, *said: str, name: str = "a") -> ServerConfig:
    """A server with rules such as `deny rm` in its block."""
    return ServerConfig(name=name, source=HERE, command=command, rules=rules(*said, of=name))


def rules(*said: str, of: str | None = None) -> tuple[Rule, ...]:
    return tuple(Rule(verdict, pattern, of) for each in said for verdict, _, pattern in [each.partition(" ")])  # type: ignore[arg-type]


def config(*servers: ServerConfig, said: tuple[str, ...] = ()) -> HostConfig:
    return HostConfig(servers={one.name: one for one in servers}, rules=rules(*said))


async def outcome(made: ConfigSync, tool: str = "rm", of: str = "a") -> str:
    """The outcome of a call if no user can be asked."""
    try:
        await Consent(made.rules).tool(of, tool, {}, {})
    except ConsentDenied:
        return "no"
    return "yes"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (config(server("old", "deny rm")), config(server("new", "allow rm"))),
        (config(server("old", "deny rm")), config(server("new"))),
        (config(server("old", "ask rm")), config(server("new", "allow rm"))),
        (config(server("old"), said=("deny rm",)), config(server("new"), said=("allow *",))),
    ],
    ids=["allowed", "no rules any more", "not asked", "for all"],
)
async def test_a_program_is_not_called_under_the_rules_of_the_one_after_it(
    first: HostConfig, second: HostConfig
) -> None:
    async with started_sync(first, allows_by_default=True) as (made, rooms):
        change = asyncio.create_task(made.reload(second))
        await asyncio.sleep(0.1)
        assert (rooms.here, await outcome(made)) == ({"a": "old"}, "no")
        await change
        assert (rooms.here, await outcome(made)) == ({"a": "new"}, "yes")


@pytest.mark.parametrize(
    "second", [config(server("new", "deny rm")), config(server("new", "allow other"))], ids=["denied", "not allowed"]
)
async def test_stricter_rules_apply_at_once(second: HostConfig) -> None:
    async with started_sync(config(server("old", "allow rm")), allows_by_default=True) as (made, rooms):
        change = asyncio.create_task(made.reload(second))
        await asyncio.sleep(0.1)
        assert (rooms.here, await outcome(made)) == ({"a": "old"}, "no")
        await change
        assert await outcome(made) == "no"


async def test_where_there_were_no_rules_what_the_new_ones_allow_goes_on() -> None:
    async with started_sync(config(server("old")), allows_by_default=True) as (made, _):
        change = asyncio.create_task(made.reload(config(server("new", "allow rm"))))
        await asyncio.sleep(0.1)
        assert [await outcome(made), await outcome(made, "other")] == ["yes", "no"]
        await change


async def test_with_an_ask_function_and_no_rules_nothing_is_allowed_early() -> None:
    async with started_sync(config(server("old"))) as (made, _):
        change = asyncio.create_task(made.reload(config(server("new", "allow rm"))))
        await asyncio.sleep(0.1)
        assert made.rules.of_tool("a", "rm").verdict == "ask"
        await change
        assert made.rules.of_tool("a", "rm").verdict == "allow"


@pytest.mark.parametrize(
    "other", [server("x", name="b"), ServerConfig(name="a", source=HERE, disabled=True)], ids=["removed", "disabled"]
)
async def test_a_leaving_server_keeps_its_rules_until_it_is_gone(other: ServerConfig) -> None:
    first = config(server("old", "deny rm"), server("old", name="c"))
    async with started_sync(first, allows_by_default=True) as (made, _):
        change = asyncio.create_task(made.reload(config(other)))
        await asyncio.sleep(0.1)
        assert await outcome(made) == "no"
        await change
        assert made._rules_of_running.keys() == made.running.keys()


async def test_a_rule_alone_holds_at_once_whatever_else_changes() -> None:
    async with started_sync(config(server("old", "deny rm"), server("1", name="b")), allows_by_default=True) as (
        made,
        _,
    ):
        change = asyncio.create_task(made.reload(config(server("old", "allow rm"), server("2", name="b"))))
        await asyncio.sleep(0.1)
        assert await outcome(made) == "yes"
        await change


async def test_a_server_whose_change_fails_keeps_its_rules() -> None:
    async with started_sync(config(server("old", "deny rm")), allows_by_default=True) as (made, rooms):
        rooms.failures = [ConnectFailed("no")]
        await made.reload(config(server("new", "allow rm")))
        assert (rooms.here, await outcome(made)) == ({"a": "old"}, "no")
        await asyncio.sleep(5)
        assert (rooms.here, await outcome(made)) == ({"a": "new"}, "yes")


async def test_of_two_changes_in_a_row_the_rules_of_the_first_hold_while_its_program_may_be_there() -> None:
    async with started_sync(config(server("1", "allow rm")), allows_by_default=True) as (made, rooms):
        first = asyncio.create_task(made.reload(config(server("2", "deny rm"))))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(made.reload(config(server("1", "allow rm"))))
        await asyncio.sleep(0.1)
        assert await outcome(made) == "no"
        await asyncio.gather(first, second)
        assert (rooms.here, await outcome(made)) == ({"a": "1"}, "yes")


async def test_a_change_that_failed_and_is_not_wanted_any_more_leaves_no_rules() -> None:
    async with started_sync(config(server("1"), said=("deny rm",)), allows_by_default=True) as (made, rooms):
        rooms.failures = [ConnectFailed("no")]
        first = asyncio.create_task(made.reload(config(server("2"), said=("deny rm",))))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(made.reload(config(server("1"), said=("allow rm",))))
        await asyncio.sleep(0.1)
        assert await outcome(made) == "no"
        await asyncio.gather(first, second)
        assert (rooms.here, await outcome(made)) == ({"a": "1"}, "yes")


# --- failures of the user's functions


async def test_an_exception_of_a_sign_in_function_is_one_servers_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked: list[str] = []

    def sign_in(one: ServerConfig) -> Any:
        asked.append(one.name)
        raise RuntimeError("no keyring")

    def web(name: str) -> ServerConfig:
        return ServerConfig(name=name, source=HERE, transport="http", url="http://127.0.0.1:9/mcp", oauth="auto")

    async with started_sync(config(web("w"), server("x")), sign_in=sign_in) as (made, rooms):
        assert rooms.here == {"a": "x"}
        assert made.failure_text("w") == "RuntimeError: no keyring"
        await made.reload(config(web("v"), server("x")))
        assert (made.failure_text("v"), set(made.failures), rooms.here) == (
            "RuntimeError: no keyring",
            {"v"},
            {"a": "x"},
        )
        await asyncio.sleep(60)
        assert asked.count("v") == 1
    assert "Traceback" in caplog.text


async def test_while_nothing_runs_it_is_one_servers_trouble_as_well(workspace: Workspace) -> None:
    def sign_in(_: ServerConfig) -> Any:
        raise RuntimeError("no keyring")

    path = workspace.write("greenroom.toml", "")
    host = Host.from_config(path, environment=workspace.environment, project=workspace.folder, sign_in=sign_in)
    web = "[server.w]\ntransport = 'http'\nurl = 'http://127.0.0.1:9/mcp'\noauth = 'auto'\n"
    workspace.write("greenroom.toml", web + "[server.x]\ncommand = 'x'\n")
    await host.reload()
    assert host.reports()["w"].reason == "RuntimeError: no keyring"
    assert host.has("x")


# --- which rules count as allowing


@pytest.mark.parametrize("more", ["disabled = true", "args = ['${NOPE}']"])
async def test_the_rules_of_a_server_that_does_not_run_are_rules(workspace: Workspace, more: str) -> None:
    text = f"[server.a]\ncommand = 'x'\n{more}\n[server.a.permissions]\nallow = ['x']\n[server.b]\ncommand = 'y'\n"
    path = workspace.write("greenroom.toml", text)
    host = Host.from_config(path, environment=workspace.environment, project=workspace.folder)
    assert host.consent is not None
    with pytest.raises(ConsentDenied, match="no rule matches"):
        await host.consent.tool("b", "rm", {}, {})
    workspace.write("greenroom.toml", text.replace("allow = ['x']", ""))
    assert not workspace.read("greenroom.toml").ruled


@pytest.mark.parametrize("more", ["", "disabled = true", "args = ['${NOPE}']"])
async def test_rules_that_only_deny_or_ask_leave_all_other_tools_allowed(workspace: Workspace, more: str) -> None:
    rules = "[permissions]\nask = ['*:move']\n[server.a.permissions]\ndeny = ['rm']\n"
    path = workspace.write("greenroom.toml", f"[server.a]\ncommand = 'x'\n{more}\n[server.b]\ncommand = 'y'\n{rules}")
    host = Host.from_config(path, environment=workspace.environment, project=workspace.folder)
    assert host.consent is not None
    assert host.consent.verdict("b", "rm", {}) == ("allow", "allow: no rule matches")
    await host.consent.tool("b", "list", {}, {})
    await host.consent.elicitation("b")
    with pytest.raises(ConsentDenied, match="move"):
        await host.consent.tool("b", "move", {}, {})
    if not more:
        assert host.consent.denies("a", "rm")
        assert not host.consent.denies("a", "list")


async def test_with_an_allow_rule_other_tools_need_consent(workspace: Workspace) -> None:
    path = workspace.write(
        "greenroom.toml", "[server.a]\ncommand = 'x'\n[permissions]\nallow = ['a:list']\ndeny = ['rm']\n"
    )
    host = Host.from_config(path, environment=workspace.environment, project=workspace.folder)
    assert host.consent is not None
    await host.consent.tool("a", "list", {}, {})
    with pytest.raises(ConsentDenied, match="no rule matches"):
        await host.consent.tool("a", "move", {}, {})
