"""A workspace for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .config_files import Workspace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)
