"""A host from files: it starts the valid servers, reports the state of each, and follows changes of the files."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Server
from greenroom.actors.client.errors import RequestTimeout
from greenroom.actors.consent.consent import Consent
from greenroom.actors.consent.rules import ConsentDenied
from greenroom.actors.federation.federation_errors import UnknownServer
from greenroom.config.mistakes import BadConfig
from greenroom.errors import ConfigError
from greenroom.host import Host

from .config_files import alive, block

if TYPE_CHECKING:
    from pathlib import Path

    from .config_files import Workspace

pytestmark = pytest.mark.greenroom(clock="real")


def made(workspace: Workspace, text: str, **options: Any) -> Host:
    path = workspace.write("greenroom.toml", text)
    return Host.from_config(path, environment=workspace.environment, project=workspace.folder, **options)


async def pid(host: Host, name: str) -> int:
    return int(await host.call(f"{name}:pid"))


async def under_way(host: Host, name: str) -> None:
    """Wait until a call is under way at that server."""
    upstream = host.federation.members[name]
    while upstream.limiter.idle:  # noqa: ASYNC110 - nothing tells
        await asyncio.sleep(0)


@pytest.mark.row("CB-05")
async def test_a_start_that_fails_is_one_servers(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    text = block("fine", "1") + block("off", more="disabled = true") + "[server.wrong]\ncomand = 'x'\n"
    text += "[server.gone]\ncommand = 'no-such-program-anywhere'\n[server.unset]\ncommand = '${NOPE}'\n"
    async with made(workspace, text) as host:
        reports = await host.started()
        assert {name: one.state for name, one in reports.items()} == {
            "fine": "connected",
            "off": "disabled",
            "gone": "failed",
            "wrong": "failed",
            "unset": "failed",
        }
        assert "no-such-program-anywhere" in reports["gone"].reason
        assert "did you mean command?" in reports["wrong"].reason
        assert "NOPE is not set" in str(reports["unset"])
        assert await host.call("fine:which") == "1"
        with pytest.raises(UnknownServer):
            await host.call("off:which")
    assert "did you mean command?" in caplog.text


async def test_no_file_that_can_be_read_is_an_error_and_one_that_can_is_enough(workspace: Workspace) -> None:
    bad = workspace.write("bad.toml", "[server")
    with pytest.raises(BadConfig, match=r"bad.toml:1: is not TOML"):
        Host.from_config(bad)
    with pytest.raises(BadConfig, match="No such file"):
        Host.from_config(workspace.folder / "none.toml")
    good = workspace.write("good.toml", block("a", "1"))
    async with Host.from_config(bad, good) as host:
        assert (await host.started())["a"].state == "connected"
        with pytest.raises(ConsentDenied):  # the denials of the unreadable file are unknown
            await host.call("a:which")


async def test_the_json_of_other_programs(workspace: Workspace) -> None:
    text = workspace.write("t.toml", block("a", "1"))
    config = Host.from_config(text).config.servers["a"]
    entry = {"command": config.command, "args": list(config.args), "env": dict(config.env)}
    path = workspace.write("mcp.json", json.dumps({"mcpServers": {"a": entry}}))
    async with Host.from_config(path) as host:
        assert (await host.call_tool("a:which", {})).content[0].text == "1"


async def test_only_what_changed_is_touched(workspace: Workspace) -> None:
    async with made(workspace, block("a", "1") + block("b", "2") + block("c", "3")) as host:
        before = {name: await pid(host, name) for name in "abc"}
        workspace.write("greenroom.toml", "# moved down\n\n" + block("c", "3") + block("b", "two") + block("d", "4"))
        assert [str(step) for step in await host.reload()] == ["remove a", "replace b", "add d"]
        assert await pid(host, "c") == before["c"]
        assert [await host.call(f"{name}:which") for name in "bcd"] == ["two", "3", "4"]
        assert set(host.status()) == {"b", "c", "d"}
        assert alive([before["a"]]) == set()
        assert await host.reload() == ()


async def test_calls_under_way_come_to_their_end_on_the_old_one(workspace: Workspace) -> None:
    async with made(workspace, block("a", "old")) as host:
        old = await pid(host, "a")
        call = asyncio.create_task(host.call("a:slow", seconds=0.5))
        await under_way(host, "a")
        workspace.write("greenroom.toml", block("a", "new"))
        await host.reload()
        assert await host.call("a:which") == "new"
        assert await call == f"old {old}"


async def test_a_server_that_leaves_lets_its_calls_end(workspace: Workspace) -> None:
    async with made(workspace, block("a", "old") + block("b", "b")) as host:
        old = await pid(host, "a")
        call = asyncio.create_task(host.call("a:slow", seconds=0.3))
        await under_way(host, "a")
        workspace.write("greenroom.toml", block("b", "b"))
        await host.reload()
        assert await call == f"old {old}"
        assert alive([old]) == set()


async def test_a_bad_file_changes_nothing_and_says_why(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    async with made(workspace, block("a", "1") + block("b", "2")) as host:
        before = await pid(host, "a"), await pid(host, "b")
        for text in (
            "[server.a",
            block("a", "other") + "[server.b]\ncomand = 'x'\n",
            "[permissions]\ndeny = 3\n" + block("c"),
        ):
            workspace.write("greenroom.toml", text)
            with pytest.raises(BadConfig, match=r"greenroom\.toml"):
                await host.reload()
            assert (await pid(host, "a"), await pid(host, "b")) == before
            assert set(host.config.servers) == {"a", "b"}
        assert "comand" in caplog.text


async def test_a_configuration_can_be_given(workspace: Workspace) -> None:
    async with made(workspace, block("a", "1")) as host:
        workspace.write("other.toml", block("b", "2"))
        await host.reload(workspace.read("other.toml"))
        assert await host.call("b:which") == "2"
        assert set(host.status()) == {"b"}


async def test_a_configuration_can_change_before_and_after_the_host_is_open(workspace: Workspace) -> None:
    host = made(workspace, block("a", "1") + block("b", "2"))
    workspace.write("greenroom.toml", block("b", "two") + block("c", "3"))
    await host.reload()
    async with host:
        assert [await host.call(f"{name}:which") for name in "bc"] == ["two", "3"]
        assert set(host.status()) == {"b", "c"}
    workspace.write("greenroom.toml", block("b", "zwei") + block("d", "4"))
    await host.reload()
    async with host:
        assert [await host.call(f"{name}:which") for name in "bd"] == ["zwei", "4"]
        assert set(host.status()) == {"b", "d"}


async def test_files_are_followed(workspace: Workspace) -> None:
    async with made(workspace, block("a", "1"), watch=0.02) as host:
        assert await host.call("a:which") == "1"
        changes = host.changes()
        fresh = workspace.write("fresh.toml", block("a", "1") + block("b", "2"))
        fresh.replace(workspace.folder / "greenroom.toml")
        change = await anext(changes)
        assert change.id == "b"
        assert await host.call("b:which") == "2"


async def test_a_new_configuration_that_cannot_come_up_is_that_servers_failure(workspace: Workspace) -> None:
    web = "[server.a]\ntransport = 'http'\nurl = 'http://127.0.0.1:9/mcp'\nisolation = 'process'\noauth = 'auto'\n"
    async with made(workspace, block("a", "1") + block("b", "2"), sign_in=no_way) as host:
        before = await pid(host, "a")
        workspace.write("greenroom.toml", web + block("b", "two"))
        await host.reload()
        assert await host.call("b:which") == "two"
        assert "no way" in host.reports()["a"].reason
        assert await pid(host, "a") == before
        workspace.write("greenroom.toml", block("a", "3") + block("b", "two"))
        await host.reload()
        assert await host.call("a:which") == "3"
        assert host.reports()["a"].state == "connected"


def no_way(server: Any) -> Any:
    raise ConfigError(f"no way to sign in at {server.name}")


@pytest.mark.row("CB-21")
async def test_a_tools_time_is_its_servers_whatever_the_transport(workspace: Workspace) -> None:
    web = Server("web")

    @web.tool
    async def slow(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"

    async with web.started():
        url = await web.listen(port=0)
        text = block("a", "1", "timeouts = { tool = 0.1 }") + block("b", "1")
        text += f"[server.web]\ntransport = 'http'\nurl = {url!r}\ntimeouts = {{ tool = 0.1 }}\n"
        async with made(workspace, text) as host:
            for name in ("a", "web"):
                with pytest.raises(RequestTimeout):
                    await host.call(f"{name}:slow", seconds=5)
                with pytest.raises(RequestTimeout):
                    await host.call_tool(f"{name}:slow", {"seconds": 5})
                with pytest.raises(RequestTimeout):
                    await host.router.call_tool(f"{name}:slow", {"seconds": 5})
                call = asyncio.create_task(host.call_tool(f"{name}:slow", {"seconds": 5}, timeout=30))
                await asyncio.sleep(0)
                call.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await call
                assert (await host.call_tool(f"{name}:slow", {"seconds": 0.2}, timeout=5)).content
            assert await host.call("b:slow", seconds=0.2)


# --- permissions and limits


async def test_the_rules_of_the_files_hold_and_follow_them(workspace: Workspace) -> None:
    rules = '[server.a.permissions]\nallow = ["which"]\ndeny = ["pid"]\n'
    async with made(workspace, block("a", "1")) as host:
        assert await host.call("a:pid")
        workspace.write("greenroom.toml", block("a", "1") + rules)
        assert [str(step) for step in await host.reload()] == ["adjust a"]
        assert await host.call("a:which") == "1"
        line = len(block("a", "1").splitlines()) + 3
        with pytest.raises(ConsentDenied, match=rf"greenroom.toml:{line}\)"):
            await host.call("a:pid")
        workspace.write("greenroom.toml", "# moved\n" + block("a", "1") + rules)
        assert await host.reload() == ()
        with pytest.raises(ConsentDenied, match=rf"greenroom.toml:{line + 1}\)"):
            await host.call("a:pid")
        with pytest.raises(ConsentDenied):
            await host.call("a:slow", seconds=0)


async def test_a_consent_that_is_given_asks_by_the_rules_of_the_files(workspace: Workspace) -> None:
    asked: list[str] = []

    def ask(question: Any) -> bool:
        asked.append(question.name)
        return True

    rules = '[server.a.permissions]\nallow = ["which"]\n'
    async with made(workspace, block("a", "1") + rules, consent=Consent(ask=ask)) as host:
        await host.call("a:which")
        await host.call("a:pid")
    assert asked == ["a:pid"]


async def test_limits_are_looked_up_at_each_call(workspace: Workspace) -> None:
    async with made(workspace, block("a", "x" * 3000)) as host:
        whole = await host.router.call_tool("a:which")
        workspace.write("greenroom.toml", block("a", "x" * 3000, "limits = { output_tokens = 100 }"))
        assert [str(step) for step in await host.reload()] == ["adjust a"]
        assert len(str(await host.router.call_tool("a:which"))) < len(str(whole))


def test_a_host_that_was_not_made_from_files_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="from_config"):
        _ = Host().config
