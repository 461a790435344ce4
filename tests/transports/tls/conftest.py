"""An authority for all tests of TLS, and what a listener and a client need of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .certificate_authority import Authority

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def pair(authority: Authority) -> tuple[Path, Path]:
    """A certificate that is good, and its key."""
    return authority.issue()


@pytest.fixture
def secure(pair: tuple[Path, Path]) -> dict[str, Any]:
    """What makes a listener speak TLS."""
    return {"certfile": pair[0], "keyfile": pair[1]}
