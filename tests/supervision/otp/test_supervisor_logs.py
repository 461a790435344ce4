"""Log records of reports about children."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import SHUTDOWN, Crash, DynamicSupervisor, exit, start_child, start_link, template
from greenroom.supervision.supervisors.supervisor import Supervisor

from .supervised_children import Bad, Died, Worker, among, end, gone, pid_of, which, worker

if TYPE_CHECKING:
    from greenroom.supervision import Inbox

LOGGER = "greenroom.supervision"
LIMIT = 2000  # characters that one line may have at the most, whatever was in the child's arguments


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged, without tracebacks."""
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


@pytest.mark.otp("supervisor_SUITE", "format_log_1")
@pytest.mark.otp("supervisor_SUITE", "format_log_2")
@among
async def test_a_report_reads_from_the_supervisor_to_the_offender(me: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    sup = await start_link(Supervisor, [worker("child1")])
    first = await pid_of(sup, "child1")
    await end(me, first, "abnormal")
    await which(sup)
    started, crashed, terminated, again = lines(caplog)
    assert started == f"Supervisor {sup.pid} started child 'child1' {first}"
    assert crashed.startswith(f"Worker {first} crashed in its handler: Died; last message: cast die()")
    assert terminated.startswith(f"Supervisor {sup.pid}: child 'child1' {first} terminated: crash: Died")
    assert "(under test" in terminated
    assert again.startswith(f"Supervisor {sup.pid} started child 'child1'")
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "ERROR", "ERROR", "INFO"]
    data: Any = caplog.records[2]
    assert data.greenroom["event"] == "ChildTerminated"
    assert data.greenroom["child"]["id"] == "child1"
    assert data.greenroom["reason"] == "crash: Died"


@pytest.mark.otp("supervisor_SUITE", "format_log_1")
@pytest.mark.otp("supervisor_SUITE", "format_log_2")
@among
async def test_long_arguments_are_cut_and_secret_ones_hidden(me: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "greenroom.supervision")  # the end of a temporary child is told by the child itself
    long = {"list": list(range(1000)), "text": "x" * 100_000, "nested": [[[[[[["deep"]]]]]]], "token": "s3cr3t"}
    sup = await start_link(Supervisor, [worker("child1")])
    spec = worker("child2").but(restart="temporary")
    await start_child(sup, spec.but(start=template(Worker, long).start))
    await end(me, await pid_of(sup, "child2"), "abnormal")
    await which(sup)
    told = [line for line in lines(caplog) if "Died" in line]
    assert len(told) == 2
    for line in told:
        assert len(line) < LIMIT
        assert "s3cr3t" not in line
        assert "deep" not in line
    assert "999" not in "".join(told)


@pytest.mark.otp("supervisor_SUITE", "format_log_2")
@among
async def test_many_that_fail_alike_are_one_line(me: Inbox, caplog: pytest.LogCaptureFixture) -> None:
    sup = await start_link(DynamicSupervisor, template(Bad, Crash(Died("alike"))).but(restart="temporary"))
    for _ in range(7):
        await start_child(sup)
    exit(sup, SHUTDOWN)
    assert await gone(me, sup.pid) == SHUTDOWN
    (told,) = [line for line in lines(caplog) if "told to stop" in line]
    assert "7 children like 'Bad'" in told
    assert "Died: alike" in told
