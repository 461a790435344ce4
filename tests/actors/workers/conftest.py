"""The `services` and `runner` fixtures of the worker tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .job_runner import FakeServices, JobRunner, start_job_runner

if TYPE_CHECKING:
    from greenroom.supervision.testing import Probe


@pytest.fixture
def services() -> FakeServices:
    """Worker services without entries."""
    return FakeServices()


@pytest.fixture
async def runner(services: FakeServices, probe: Probe) -> JobRunner:
    """A job runner."""
    return await start_job_runner(services, probe)
