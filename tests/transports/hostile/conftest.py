"""What the tests of hostile peers share."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture(autouse=True)
def _no_access_log(caplog: pytest.LogCaptureFixture) -> None:
    """A line for each request would be kept by pytest, and counted as memory that the product keeps."""
    caplog.set_level(logging.WARNING, "greenroom.access")
