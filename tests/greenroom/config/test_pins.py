"""A configured host with pinned tools: changed and new tools need consent, whatever the files allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.consent.consent import Consent
from greenroom.actors.consent.rules import ConsentDenied
from greenroom.host import Host
from greenroom.protocol.tool_pins import Pins

from .config_files import block

if TYPE_CHECKING:
    from pathlib import Path

    from .config_files import Workspace

pytestmark = pytest.mark.greenroom(clock="real")


def made(workspace: Workspace, text: str, **options: Any) -> Host:
    path = workspace.write("greenroom.toml", text)
    return Host.from_config(path, environment=workspace.environment, project=workspace.folder, **options)


@pytest.fixture
async def pins(workspace: Workspace) -> Path:
    """A file in which the user has pinned all tools except one."""
    path = workspace.folder / "pins.json"
    async with made(workspace, block("a", "old"), pins=path) as host:
        await host.tools()
        kept = (await host.pin()).to_json()
        assert await host.call("a:which") == "old"
    Pins({name: seal for name, seal in kept.items() if name != "a:pid"}).save(path)
    return path


async def test_where_no_rule_stands_a_tool_that_is_not_as_it_was_pinned_is_asked_about(
    workspace: Workspace, pins: Path
) -> None:
    async with made(workspace, block("a", "new"), pins=pins) as host:
        assert str(await host.call("a:slow", seconds=0)).startswith("new ")
        with pytest.raises(
            ConsentDenied, match=r"a:which is not allowed: .*changed.*no user can be asked.*pin it again"
        ):
            await host.call("a:which")
        with pytest.raises(ConsentDenied, match=r"a:pid is not allowed: .*was never pinned.*pin it again"):
            await host.router.call_tool("a:pid")


async def test_a_changed_tool_needs_consent_although_the_files_allow_it(workspace: Workspace, pins: Path) -> None:
    asked: list[tuple[str, str]] = []

    def ask(question: Any) -> bool:
        asked.append((question.name, question.finding.kind))
        return bool(question.name == "a:which")

    rules = '[server.a.permissions]\nallow = ["*"]\n'
    async with made(workspace, block("a", "new") + rules, pins=pins, consent=Consent(ask=ask)) as host:
        assert str(await host.call("a:slow", seconds=0)).startswith("new ")
        assert await host.call("a:which") == "new"
        with pytest.raises(ConsentDenied, match="the answer was no"):
            await host.call("a:pid")
        assert asked == [("a:which", "changed"), ("a:pid", "new")]

        await host.pin()
        assert await host.call("a:pid")
        assert len(asked) == 2


async def test_a_tool_that_changes_at_runtime_needs_consent_before_the_next_call(
    workspace: Workspace, pins: Path
) -> None:
    async with made(workspace, block("a", "old"), pins=pins) as host:
        assert await host.call("a:which") == "old"
        workspace.write("greenroom.toml", block("a", "new"))
        await host.reload()
        with pytest.raises(ConsentDenied, match="changed"):
            await host.call("a:which")
