"""A desk for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .files import Desk

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)
