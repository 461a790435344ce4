"""Every test here leaves no process behind."""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING

import pytest
from tests.transports.client_command.process_tree import MARK, child_processes, wait_until_gone

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@pytest.fixture
def mark(monkeypatch: pytest.MonkeyPatch, root: Path) -> Generator[str]:
    """An environment variable that all processes of the test carry."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    monkeypatch.setattr(sys, "path", [str(root), *sys.path])  # other processes find what the tests bring, too
    before = set(child_processes())
    yield mark
    assert not wait_until_gone(mark, 5.0)
    assert not {pid: what for pid, what in child_processes().items() if pid not in before}
