"""A services and a runner for every test of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .job_runner import FakeServices, JobRunner, start_job_runner

if TYPE_CHECKING:
    from greenroom.supervision.testing import Probe


@pytest.fixture
def services() -> FakeServices:
    """Without anything in it."""
    return FakeServices()


@pytest.fixture
async def runner(services: FakeServices, probe: Probe) -> JobRunner:
    """Where jobs are handed out."""
    return await start_job_runner(services, probe)
