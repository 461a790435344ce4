"""Elixir's tests of its DynamicSupervisor: how children that each bring a spec are restarted, and how they stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    IGNORE,
    KILLED,
    NORMAL,
    SHUTDOWN,
    ChildSpec,
    Crash,
    DynamicSupervisor,
    GenServer,
    MaxChildren,
    Pid,
    Ref,
    Shutdown,
    child,
    exit,
    kill,
    link,
    start_child,
    start_link,
    terminate_child,
    which_children,
)
from greenroom.supervision.supervisors.supervisor_base import GAVE_UP

from .supervised_children import Bad, Dead, Died, Failing, Slow, among, counts, end, gone, once, shut_down

if TYPE_CHECKING:
    from greenroom.supervision import ExitReason, Inbox
    from greenroom.supervision.supervisors.child_spec import Patience, Restart

MANY = 100_000


class Idle(GenServer):
    """Waits, and does not trap exits."""


def idle(**changes: Any) -> ChildSpec[Ref[Idle]]:
    """One that ends as it is told."""
    return child(Idle).but(**changes)


async def crowd(intensity: int = MANY, **options: Any) -> Ref[DynamicSupervisor]:
    """A supervisor without children yet, linked to the test."""
    return await start_link(DynamicSupervisor, intensity=intensity, **options)


async def settled(sup: Ref[Any]) -> None:
    """Wait until the supervisor has tried its restarts several times."""
    for _ in range(5):
        await which_children(sup)


# --- restarts


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 temporary child is not restarted regardless of reason")
@pytest.mark.otp(
    "dynamic_supervisor_test", "start_child/2 transient child is restarted unless normal/shutdown/{shutdown, _}"
)
@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 permanent child is restarted regardless of reason")
@pytest.mark.parametrize(
    ("restart", "again"),
    [
        ("temporary", [False, False, False, False]),
        ("transient", [False, False, True, True]),
        ("permanent", [True, True, True, True]),
    ],
)
@among
async def test_the_reason_of_its_end_says_whether_a_child_is_restarted(
    me: Inbox, restart: Restart, again: list[bool]
) -> None:
    sup = await crowd()
    reasons: list[ExitReason] = [SHUTDOWN, Shutdown("signal"), Crash(Died()), KILLED]
    running = 0
    for reason, returns in zip(reasons, again, strict=True):
        ref = await start_child(sup, idle(restart=restart))
        link(ref)
        exit(ref, reason)
        assert await gone(me, ref.pid) == reason
        running += returns
        assert await counts(sup) == [running, running, 0, running]
    await shut_down(me, sup)


class Second(GenServer):
    """Starts at first; the test decides the outcome of its restarts."""

    def __init__(self, answer: str, tries: list[str]) -> None:
        tries.append(answer)
        self.answer = answer if len(tries) > 1 else "ok"
        if self.answer == "error":
            raise Died("found")

    def init(self) -> Any:
        return IGNORE if self.answer == "ignore" else None


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 child is restarted with different values")
@pytest.mark.parametrize(("answer", "left"), [("ok", [1, 1]), ("ignore", [0, 0]), ("error", [1, 0])])
@among
async def test_the_outcome_of_a_restart_decides_whether_the_child_is_kept(
    me: Inbox, answer: str, left: list[int]
) -> None:
    sup = await crowd()
    ref = await start_child(sup, child(Second, answer, []))
    assert [one.state for one in await which_children(sup)] == ["running"]
    kill(ref)
    await settled(sup)
    specs, active = left
    assert await counts(sup) == [specs, active, 0, specs]
    states = [one.state for one in await which_children(sup)]
    assert states == (["running"] if active else ["restarting"]) * specs
    await shut_down(me, sup)


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 child is restarted with different values")
@among
async def test_a_restart_that_returns_something_else_is_tried_again(me: Inbox) -> None:
    sup = await crowd()
    answers = ["a handle", "unknown", "a handle"]

    async def begin() -> Any:
        answer = answers.pop(0)
        return answer if answer == "unknown" else await start_link(Idle)

    ref = await start_child(sup, ChildSpec(id="given", start=begin, shutdown=1.0))
    kill(ref)
    await settled(sup)
    assert answers == []
    (info,) = await which_children(sup)
    assert info.state == "running"
    await shut_down(me, sup)


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 restarting on exit children counted in max_children")
@among
async def test_a_child_that_was_restarted_counts_as_one(me: Inbox) -> None:
    sup = await crowd(max_children=1)
    ref = await start_child(sup, idle())
    kill(ref)
    await settled(sup)
    assert await counts(sup) == [1, 1, 0, 1]
    with pytest.raises(MaxChildren):
        await start_child(sup, idle())
    await shut_down(me, sup)


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 child is restarted when trying again")
@among
async def test_a_restart_that_fails_once_is_tried_again(me: Inbox) -> None:
    sup = await crowd(2)
    tries: list[str] = []
    ref = await start_child(sup, child(Failing, tries, lambda number: "error" if number == 1 else "ok"))
    await end(me, ref, "shutdown")
    await settled(sup)
    assert tries == ["ok", "error", "ok"]
    assert await counts(sup) == [1, 1, 0, 1]
    await shut_down(me, sup)


@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 child triggers maximum restarts")
@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 child triggers maximum intensity when trying again")
@pytest.mark.parametrize("intensity", [1, 10])
@among
async def test_a_child_that_never_comes_up_again_ends_its_supervisor(me: Inbox, intensity: int) -> None:
    sup = await crowd(intensity)
    tries: list[str] = []
    ref = await start_child(sup, child(Failing, tries, once))
    exit(ref, SHUTDOWN)
    assert await gone(me, sup.pid) == GAVE_UP
    assert len(tries) == 1 + intensity


# --- the end of all


async def ended(me: Inbox, specs: list[ChildSpec[Any]]) -> list[ExitReason]:
    """The exit reasons of children when their supervisor is shut down."""
    sup = await crowd()
    pids: list[Pid] = [(await start_child(sup, spec)).pid for spec in specs]
    for pid in pids:
        link(pid)
    exit(sup, SHUTDOWN)
    reasons = [await gone(me, pid) for pid in pids]
    assert await gone(me, sup.pid) == SHUTDOWN
    return reasons


@pytest.mark.otp("dynamic_supervisor_test", "terminate/2 terminates children with brutal kill")
@pytest.mark.otp("dynamic_supervisor_test", "terminate/2 terminates children with infinity shutdown")
@pytest.mark.otp("dynamic_supervisor_test", "terminate/2 terminates children with integer shutdown")
@pytest.mark.otp("dynamic_supervisor_test", "start_child/2 with valid shutdown")
@pytest.mark.parametrize(
    ("patience", "reason"),
    [("brutal_kill", KILLED), ("infinity", SHUTDOWN), (1000, SHUTDOWN), (1.5, SHUTDOWN), (0, SHUTDOWN)],
)
@among
async def test_children_end_as_their_specs_say(me: Inbox, patience: Patience, reason: ExitReason) -> None:
    assert await ended(me, [idle(shutdown=patience)] * 3) == [reason] * 3


@pytest.mark.otp(
    "dynamic_supervisor_test", "terminate/2 terminates children with infinity shutdown and abnormal reason"
)
@pytest.mark.otp("dynamic_supervisor_test", "terminate/2 terminates children with integer shutdown and abnormal reason")
@pytest.mark.parametrize("patience", ["infinity", 1000])
@among
async def test_children_may_end_of_a_reason_of_their_own(me: Inbox, patience: Patience) -> None:
    assert await ended(me, [child(Bad, Shutdown("oops")).but(shutdown=patience)] * 3) == [Shutdown("oops")] * 3


@pytest.mark.otp("dynamic_supervisor_test", "terminate/2 terminates children with permanent restart and normal reason")
@among
async def test_permanent_children_may_end_as_if_they_were_through(me: Inbox) -> None:
    assert await ended(me, [child(Bad, NORMAL).but(shutdown="infinity", restart="permanent")] * 3) == [NORMAL] * 3


@pytest.mark.otp("dynamic_supervisor_test", "terminate/2 terminates children with expired integer shutdown")
@pytest.mark.otp("dynamic_supervisor_test", "terminate/2 terminates with mixed children")
@among
async def test_only_those_that_are_too_slow_are_killed(me: Inbox) -> None:
    assert await ended(
        me,
        [
            idle(shutdown=1.0),
            child(Slow, 1000).but(shutdown=1.0),
            idle(shutdown=1.0),
            idle(shutdown="infinity"),
            idle(shutdown="brutal_kill"),
        ],
    ) == [SHUTDOWN, KILLED, SHUTDOWN, SHUTDOWN, KILLED]


# --- the end of one


@pytest.mark.otp("dynamic_supervisor_test", "terminate_child/2 terminates child with brutal kill")
@pytest.mark.otp("dynamic_supervisor_test", "terminate_child/2 terminates child with integer shutdown")
@pytest.mark.parametrize(("patience", "reason"), [("brutal_kill", KILLED), (1000, SHUTDOWN)])
@among
async def test_a_terminated_child_is_stopped_and_forgotten(me: Inbox, patience: Patience, reason: ExitReason) -> None:
    sup = await crowd()
    ref = await start_child(sup, idle(shutdown=patience))
    link(ref)
    await terminate_child(sup, ref)
    assert await gone(me, ref.pid) == reason
    assert await counts(sup) == [0, 0, 0, 0]
    await terminate_child(sup, ref)  # it is gone, as was wished
    await shut_down(me, sup)


@pytest.mark.otp("dynamic_supervisor_test", "terminate_child/2 terminates restarting child")
@among
async def test_a_restarting_child_is_stopped_by_its_last_pid(me: Inbox) -> None:
    switch = {"fail": False}
    sup = await crowd()
    ref = await start_child(sup, child(Dead, switch))
    switch["fail"] = True
    await end(me, ref, "shutdown")
    assert [one.state for one in await which_children(sup)] == ["restarting"]
    await terminate_child(sup, ref)
    assert await counts(sup) == [0, 0, 0, 0]
    await terminate_child(sup, ref)
    await shut_down(me, sup)
