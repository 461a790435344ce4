"""The cost of a child does not grow with the number of others."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import DynamicSupervisor, child, start_child, start_link, template, terminate_child
from greenroom.supervision.supervisors.supervisor import Supervisor

from .supervised_children import Worker, among

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from greenroom.supervision import Inbox

pytestmark = [pytest.mark.deep, pytest.mark.processor_time]

FEW, MANY = 300, 3000
ALLOWED = 5 * MANY / FEW  # as much as linear would be and five times that; quadratic would be ten times


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    """Garbage of other tests is not these children's cost."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def cost(steps: AsyncIterator[Any]) -> float:
    begun = time.process_time()
    async for _ in steps:
        pass
    return time.process_time() - begun


@pytest.mark.otp("supervisor_SUITE", "simple_one_for_one_scale_many_temporary_children")
@among
async def test_dynamic_children_are_terminated_one_by_one_in_linear_time(me: Inbox) -> None:
    async def terminate(number: int) -> AsyncIterator[None]:
        for each in children[number]:
            await terminate_child(sup, each)
            yield

    assert len(me) == 0
    sup = await start_link(DynamicSupervisor, template(Worker).but(restart="temporary"))
    children = {number: [await start_child(sup) for _ in range(number)] for number in (FEW, MANY)}
    assert await cost(terminate(FEW)) * ALLOWED > await cost(terminate(MANY))


@pytest.mark.otp("supervisor_SUITE", "scale_start_stop_many_children")
@among
async def test_children_are_started_and_stopped_one_by_one_in_linear_time(me: Inbox) -> None:
    async def start(number: int) -> AsyncIterator[Any]:
        for id in range(number):
            yield await start_child(sup, child(Worker).but(id=(number, id)))

    async def stop(number: int) -> AsyncIterator[None]:
        for id in range(number):
            await terminate_child(sup, (number, id))
            yield

    assert len(me) == 0
    sup = await start_link(Supervisor)
    started = [await cost(start(number)) for number in (FEW, MANY)]
    stopped = [await cost(stop(number)) for number in (FEW, MANY)]
    for few, many in (started, stopped):
        assert few * ALLOWED > many
