"""The guides' promises: settings that a checklist names exist."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from greenroom import Client, ClientSettings, Context, HttpConfig, LogMessage, Server, Settings
from greenroom.actors.client.errors import RequestTimeout

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {field.name for kind in (HttpConfig, Settings) for field in fields(kind)} | {
    *inspect.signature(Server.__init__).parameters
}
TOPICS = (
    *("reach", "pages", "no browser", "TLS", "Authentication", "peers", "at once", "one request", "leaks"),
    *("how often", "Tokens", "in a process of its own"),
)
_SETTING = re.compile(r"`([a-z_]{2,})(?:=[^`]*)?`")
_OTHERS = {
    *("atexit", "logging", "greenroom"),  # modules
    *("grace", "admin", "access_log"),  # arguments of `run`, and what `greenroom.access_log` is
    *("ok", "cancelled", "timeout", "crashed"),  # outcomes in the log
}


@pytest.fixture
def guide(root: Path) -> str:
    return (root / "docs/how-to/deploy-a-server.md").read_text(encoding="utf-8")


@pytest.mark.row("OP-02", "SX-10")
def test_the_checklist_for_deployment_names_settings_that_exist(guide: str) -> None:
    named = set(_SETTING.findall(guide)) - _OTHERS
    assert named - SETTINGS == set()
    assert {"allowed_origins", "allowed_hosts", "max_sessions", "max_body", "call_timeout"} <= named
    table = guide.partition("## The checklist")[2].partition("```")[0]
    assert [topic for topic in TOPICS if topic.lower() not in table.lower()] == []


@pytest.mark.row("OP-02")
def test_the_guide_for_clients_in_production_names_settings_that_exist(root: Path) -> None:
    guide = (root / "docs/how-to/call-a-server.md").read_text(encoding="utf-8").partition("## In production")[2]
    section = guide.partition("\n## ")[0]
    topics = (
        "Supervise",
        "Bound each wait",
        "dead connection",
        "what the server logs",
        "Check what goes in",
        "Keep logins",
    )
    assert [topic for topic in topics if topic not in section.partition("| What |")[2]] == []
    settings = {field.name for field in fields(ClientSettings)}
    used = set(re.findall(r"`([a-z_]+)`", section)) | set(
        re.findall(r"(\w+)=", section.partition("ClientSettings(")[2].partition(")")[0])
    )
    others = {"into", "on_log"}
    assert used - settings == others
    assert others <= {*inspect.signature(Client).parameters, *inspect.signature(Client.call).parameters}
    assert {"request_timeout", "ping_interval"} <= used


@pytest.mark.row("OP-02")
@pytest.mark.greenroom(clock="real")
async def test_the_guides_settings_ping_log_and_set_a_deadline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Server("weather")

    @server.tool
    async def tells(ctx: Context) -> None:
        _ = ctx.log("warning", "storm", logger="sky")

    @server.tool
    async def hangs() -> None:
        await asyncio.Event().wait()

    logged = asyncio.Event()

    def log(message: LogMessage) -> None:
        logging.getLogger(f"mcp.{message.logger}").warning("%s", message)
        logged.set()

    async with server.started():
        url = await server.listen(port=0)
        settings = ClientSettings(request_timeout=0.5, ping_interval=0.05)
        async with Client(url, settings=settings, on_log=log) as client:
            await client.call_tool("tells")
            await logged.wait()
            with pytest.raises(RequestTimeout):
                await client.call("hangs")
    assert ("mcp.sky", logging.WARNING, "storm") in caplog.record_tuples


def test_the_service_file_stops_the_right_process(guide: str) -> None:
    assert "KillMode=mixed" in guide.partition("## Stopping")[2].partition("\n## ")[0]


def test_the_page_of_commands_lists_every_make_target(root: Path) -> None:
    made = re.findall(r"^([a-z-]+):.*## ", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    page = (root / "docs/reference/commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `make ([a-z-]+)`", page, re.MULTILINE)) == set(made) - {"help"}


@pytest.mark.row("SX-11")
def test_missing_features_are_listed(guide: str) -> None:
    said = guide.partition("## What is not included")[2]
    assert [word for word in ("authorization server", "rate limits") if word not in said] == []
