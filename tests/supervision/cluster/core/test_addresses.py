"""Addresses of nodes: invalid ones are refused before anything is tried, and a socket file that is gone already does no harm."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision.cluster import addresses
from greenroom.supervision.cluster.addresses import NodeListener, dial, parse_port
from greenroom.supervision.cluster.framing import LinkRefused
from greenroom.supervision.cluster.polling_link import PollingLink

if TYPE_CHECKING:
    from pathlib import Path

    from greenroom.supervision.cluster.link import Link

pytestmark = pytest.mark.greenroom(clock="real")
NONE = ("", "-1", "+1", " 1", "²", "٣", "65536", "99999", "1_0", "1" * 5000)


def no_link() -> Link:
    raise AssertionError("nothing is connected to")


@pytest.mark.parametrize("text", [*NONE, "0"])
async def test_a_port_that_is_none_is_no_address(text: str) -> None:
    assert parse_port(text) is None
    with pytest.raises(LinkRefused, match="not an address"):
        await dial(asyncio.get_running_loop(), no_link, f"tcp:127.0.0.1:{text}")
    with pytest.raises(LinkRefused, match="no address"):
        PollingLink(f"tcp:127.0.0.1:{text}", b"k" * 32, "x", kind="guest", largest=1)


def test_ports_are_from_one_on_or_any_where_one_is_given() -> None:
    assert [parse_port("1"), parse_port("65535"), parse_port("00080")] == [1, 65535, 80]
    assert parse_port("0", least=0) == 0
    assert [parse_port(text, least=0) for text in NONE] == [None] * len(NONE)


@pytest.mark.parametrize("host", ["ü" * 70, "a\0b"])
async def test_a_name_that_no_host_can_have_is_refused(host: str) -> None:
    with pytest.raises(LinkRefused, match="not an address"):
        await dial(asyncio.get_running_loop(), no_link, f"tcp:{host}:80")
    link = PollingLink(f"tcp:{host}:80", b"k" * 32, "x", kind="guest", largest=1)
    assert isinstance(link.over, LinkRefused)
    assert "no address" in str(link.over)


async def test_a_file_that_is_gone_is_not_taken_away_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_socket_path", lambda: str(tmp_path / "node"))
    for gone in (False, True):
        listening = NodeListener()
        await listening.open(no_link, None)
        assert listening.addresses == (f"unix:{tmp_path / 'node'}",)
        if gone:  # as of Python 3.13
            (tmp_path / "node").unlink()
        listening.close()
        assert not (tmp_path / "node").exists()
        listening.close()


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_name_in_no_folder_where_there_are_such(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert addresses._socket_path().startswith("\0") == (platform == "linux")
