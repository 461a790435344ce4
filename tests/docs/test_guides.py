"""What the guides promise is there: a checklist that names a setting names one that exists."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from greenroom import HttpConfig, Server, Settings

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {field.name for kind in (HttpConfig, Settings) for field in fields(kind)} | {
    *inspect.signature(Server).parameters
}
TOPICS = (
    *("reach", "pages", "no browser", "TLS", "Authentication", "peers", "at once", "one request", "leaks"),
    *("how often", "Tokens", "in a process of its own"),
)
_SETTING = re.compile(r"`([a-z_]{2,})(?:=[^`]*)?`")
_OTHERS = {"atexit", "grace"}  # a module, and an argument of `run`


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


def test_a_service_manager_is_told_whom_to_stop(guide: str) -> None:
    assert "KillMode=mixed" in guide.partition("## Stopping")[2].partition("\n## ")[0]


def test_the_page_of_commands_has_whatever_can_be_made(root: Path) -> None:
    made = re.findall(r"^([a-z]+):.*## ", (root / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    page = (root / "docs/reference/commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `make ([a-z]+)`", page, re.MULTILINE)) == set(made) - {"help"}


@pytest.mark.row("SX-11")
def test_what_is_not_included_is_said(guide: str) -> None:
    said = guide.partition("## What is not included")[2]
    assert [word for word in ("authorization server", "rate limits") if word not in said] == []
