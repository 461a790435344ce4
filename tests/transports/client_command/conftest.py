"""No test here leaves a process behind: neither a child of ours, nor a process that a child has started."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from .process_tree import MARK, children, marked

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(autouse=True)
def mark(monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """What all processes of the test carry."""
    mark = uuid.uuid4().hex
    monkeypatch.setattr("greenroom.transports.client.server_command.INHERITED", frozenset({"PATH", "HOME", MARK}))
    monkeypatch.setenv(MARK, mark)
    before = set(children())
    yield mark
    assert not marked(mark)
    assert not {pid: what for pid, what in children().items() if pid not in before}
