"""Requests of a configured host to its servers: resources are listed on demand, and once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, Server
from greenroom.host import Host

from .config_files import block

if TYPE_CHECKING:
    from pathlib import Path

    from .config_files import Workspace

pytestmark = pytest.mark.greenroom(clock="real")
LATER = ["initialize", "notifications/initialized", "tools/list"]
AT_FIRST = ["server/discover", *LATER]
RESOURCES = ["resources/list", "resources/templates/list"]


def made(workspace: Workspace, **options: Any) -> Host:
    text = "".join(block(name, "1", ASKED=str(asked(workspace, name))) for name in "ab")
    path = workspace.write("greenroom.toml", text)
    return Host.from_config(path, environment=workspace.environment, project=workspace.folder, **options)


def asked(workspace: Workspace, name: str) -> Path:
    return workspace.folder / f"{name}.asked"


def heard(workspace: Workspace, name: str) -> list[str]:
    return asked(workspace, name).read_text(encoding="utf-8").split()


@pytest.mark.row("CB-14")
async def test_resources_are_listed_when_a_server_is_first_mentioned_and_no_others_are(workspace: Workspace) -> None:
    async with made(workspace) as host:
        await host.tools()
        assert heard(workspace, "a") == heard(workspace, "b") == AT_FIRST

        assert await host.mentions.completions("@a:") == ["one", "note", "note://one"]
        assert await host.mentions.completions("@a:n") == ["note", "note://one"]
        assert heard(workspace, "a") == AT_FIRST + RESOURCES
        assert heard(workspace, "b") == AT_FIRST


@pytest.mark.row("26-V10")
async def test_a_host_that_is_started_again_does_not_ask_for_the_era_again(workspace: Workspace) -> None:
    for requests in (AT_FIRST, AT_FIRST + LATER):
        async with made(workspace) as host:
            await host.tools()
            assert heard(workspace, "a") == heard(workspace, "b") == requests


@pytest.mark.row("CB-14")
async def test_a_request_for_all_resources_asks_each_server_once(workspace: Workspace) -> None:
    async with made(workspace) as host:
        await host.tools()
        for _ in range(2):
            assert [each.uri for each in await host.resources()] == ["a:note://one", "b:note://one"]
        assert heard(workspace, "a") == heard(workspace, "b") == [*AT_FIRST, "resources/list"]
        assert len(await host.resource_templates()) == 2
        assert [each.name for each in await host.prompts()] == ["a:greet", "b:greet"]
        assert heard(workspace, "a")[len(AT_FIRST) :] == [*RESOURCES, "prompts/list"]

        again = [block("a", "1", ASKED=str(asked(workspace, "a"))), block("c", "1", ASKED=str(asked(workspace, "c")))]
        workspace.write("greenroom.toml", "".join(again))
        await host.reload()
        await host.tools()
        assert [each.name for each in await host.prompts()] == ["a:greet", "c:greet"]
        assert len(heard(workspace, "a")) == len(AT_FIRST) + 3


@pytest.mark.parametrize("runs_before", [False, True])
async def test_a_gateway_lists_all_that_there_is(workspace: Workspace, *, runs_before: bool) -> None:
    host = made(workspace)
    server = Server("gateway")
    server.mount(host)
    if runs_before:
        await host.open()
        await host.tools()
        assert heard(workspace, "a") == AT_FIRST
    async with Client(server) as client:
        assert len(await client.list_tools()) == 6
        assert len(await client.list_resources()) == 2
        assert len(await client.list_resource_templates()) == 2
        assert len(await client.list_prompts()) == 2
    if runs_before:
        await host.close()
