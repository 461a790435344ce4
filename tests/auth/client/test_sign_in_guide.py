"""The documentation page about login methods names each of them, and the settings that it names exist."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from greenroom.auth import ClientCredentials, EnterpriseManaged, GivenTokens, OAuth

if TYPE_CHECKING:
    from pathlib import Path

WAYS = (OAuth, ClientCredentials, EnterpriseManaged, GivenTokens)


@pytest.mark.row("CA-11")
def test_each_way_is_in_the_table_with_settings_that_exist(root: Path) -> None:
    page = (root / "docs/how-to/sign-in.md").read_text(encoding="utf-8")
    table = page.partition("## Choose a way to sign in")[2].partition("\n## ")[0]
    for way in WAYS:
        names = {field.name for field in fields(way)}
        calls = re.findall(rf"`{way.__name__}\(([^`]*)\)`", table)
        assert calls, way
        for call in calls:
            assert set(re.findall(r"(\w+)=", call)) <= names
    for word in ("browser", "unattended", "organisation", "token"):
        assert word in table


@pytest.mark.row("CB-09", "CB-08")
def test_each_setting_of_the_page_exists(root: Path) -> None:
    page = (root / "docs/how-to/sign-in.md").read_text(encoding="utf-8")
    table = page.partition("## Options")[2].partition("\n## ")[0]
    named = {
        name
        for line in table.splitlines()
        for name in re.findall(r"`(\w+)`", line.partition("| ")[2].partition(" |")[0])
    }
    assert (
        {"port", "store", "authorization_endpoint", "token_endpoint"}
        <= named
        <= {field.name for field in fields(OAuth)}
    )
