"""Fixtures of the tests of hostile peers."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def _no_access_log(caplog: pytest.LogCaptureFixture) -> None:
    """Disable request logs: pytest keeps each record, which would count as memory that the product keeps."""
    caplog.set_level(logging.WARNING, "greenroom.access")
