"""Checks after each test that no process is left: neither a child of ours, nor a process that a child has started."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from .process_tree import MARK, child_processes, marked_processes

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(autouse=True)
def mark(monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """The mark that all processes of a test carry in their environment."""
    mark = uuid.uuid4().hex
    monkeypatch.setattr("greenroom.transports.client.server_command.INHERITED", frozenset({"PATH", "HOME", MARK}))
    monkeypatch.setenv(MARK, mark)
    before = set(child_processes())
    yield mark
    assert not marked_processes(mark)
    assert not {pid: what for pid, what in child_processes().items() if pid not in before}
