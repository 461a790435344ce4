"""A failing plan is shrunk deterministically, in a bounded number of tries."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from tests.example_counts import examples

from greenroom.testing import Fault, FaultPlan, fault_plans, shrink, shrink_async

BIG = FaultPlan(
    tuple(
        Fault(0.37 * number, ("kill", "hang", "raise")[number % 3], f"#{number}", seconds=1.0) for number in range(20)
    )
)


def names(plan: FaultPlan) -> list[str]:
    return [fault.target for fault in plan]


def test_only_what_is_needed_is_left() -> None:
    assert names(shrink(BIG, lambda plan: {"#3", "#11", "#12"} <= set(names(plan)))) == ["#3", "#11", "#12"]
    assert shrink(BIG, lambda _: True) == FaultPlan()


def test_times_are_rounded_extras_left_out_and_kinds_simplified() -> None:
    plan = FaultPlan.of(Fault(3.14159, "swallow", "Box", seconds=2.5, reason="no reason", which=-1))

    def late(plan: FaultPlan) -> bool:
        return any(fault.at > 3.1 for fault in plan)

    assert shrink(plan, late) == FaultPlan.of(Fault(3.14, "kill", "Box"))

    def hangs(plan: FaultPlan) -> bool:
        return any(fault.what == "hang" and fault.seconds for fault in plan)

    hanging = FaultPlan.of(Fault(3.14159, "hang", "Box", seconds=2.51))
    assert shrink(hanging, hangs) == FaultPlan.of(Fault(0, "hang", "Box", seconds=3))


def test_the_search_is_the_same_each_time_and_bounded() -> None:
    tried: list[list[FaultPlan]] = []
    for _ in range(2):
        tried.append([])

        def fails(plan: FaultPlan, seen: list[FaultPlan] = tried[-1]) -> bool:
            seen.append(plan)
            return len(plan) > 12

        shrink(BIG, fails, tries=30)
    assert tried[0] == tried[1]
    assert len(tried[0]) == 31
    assert len(set(tried[0])) == len(tried[0])


def test_a_plan_that_does_not_fail_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(BIG, lambda _: False)


async def test_failing_may_take_its_time() -> None:
    async def fails(plan: FaultPlan) -> bool:
        await asyncio.sleep(1)
        return "#7" in names(plan)

    assert names(await shrink_async(BIG, fails)) == ["#7"]
    assert names(await shrink_async(BIG, lambda plan: "#8" in names(plan))) == ["#8"]


@given(fault_plans(["Box", "@till"], ["kill", "hang"], most=3, within=2))
@settings(max_examples=examples(50))
def test_plans_can_be_drawn(plan: FaultPlan) -> None:
    assert len(plan) <= 3
    assert all(fault.at <= 2 and fault.target in ("Box", "@till") for fault in plan)
    assert FaultPlan.load(plan.dump()) == plan


def test_kinds_to_draw_from_must_be_known() -> None:
    with pytest.raises(LookupError, match="explode"):
        fault_plans(["Box"], ["explode"])
