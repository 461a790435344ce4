"""A certificate authority for all tests of TLS, and the settings of listeners and clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from .certificate_authority import CertificateAuthority

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def pair(authority: CertificateAuthority) -> tuple[Path, Path]:
    """A valid certificate and its key."""
    return authority.issue()


@pytest.fixture
def secure(pair: tuple[Path, Path]) -> dict[str, Any]:
    """The settings that make a listener speak TLS."""
    return {"certfile": pair[0], "keyfile": pair[1]}
