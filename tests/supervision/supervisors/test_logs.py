"""Reports as records of `logging`: readable, with a traceback where there is one, and as data."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    ChildSpec,
    DynamicSupervisor,
    Node,
    Pid,
    ProcessExited,
    Report,
    StartFailed,
    Supervisor,
    child,
    current_node,
    inbox,
    kill,
    logs,
    start,
    start_child,
    start_link,
    stop,
    template,
    wait_down,
)

from .sample_children import Broken, Counter, Dependent, Polite, World, ref_of, settled

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "greenroom.supervision"


class Listening(logging.Handler):
    """Keeps its messages."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    """The log records of all levels."""
    handler = Listening()
    logs.log.addHandler(handler)
    with caplog.at_level(logging.DEBUG, NAME):
        yield handler.records
    logs.log.removeHandler(handler)


def events(records: list[Any]) -> list[str]:
    return [record.greenroom["event"] for record in records if record.name == NAME]


async def test_a_crash_says_who_why_over_what_in_which_state_and_where(records: list[Any]) -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Counter, 3)])
        ref = await ref_of(sup)
        with pytest.raises(ProcessExited):
            await ref.call(Counter.crash)
        (record,) = [each for each in records if each.greenroom["event"] == "CrashReport"]
        text = record.getMessage()
        assert record.levelno == logging.ERROR
        assert text.startswith(f"Counter {ref.pid} crashed in its handler: Broken; last message: call crash()")
        assert "state: total=3" in text
        assert f"(under Supervisor {sup.pid} < inbox " in text
        assert record.exc_info[0] is Broken
        assert record.exc_info[2] is not None


async def test_each_kind_has_its_level_and_its_words(records: list[Any]) -> None:
    async with inbox():
        world = World()
        sup = await start_link(Supervisor, [child(Dependent, world)], intensity=2)
        world.there = False
        kill(await ref_of(sup))
        await wait_down(sup)
        told = [(record.levelname, record.greenroom["event"], record.getMessage()) for record in records]
        name = f"Supervisor {sup.pid}"
        assert [each[:2] for each in told] == [
            ("INFO", "ProgressReport"),
            ("ERROR", "ChildTerminated"),
            ("ERROR", "CrashReport"),
            ("ERROR", "StartError"),
            ("ERROR", "CrashReport"),
            ("ERROR", "StartError"),
            ("ERROR", "ReachedMaxRestartIntensity"),
        ]
        assert told[0][2].startswith(f"{name} started child 'Dependent' <")
        assert f"{name}: child 'Dependent' <" in told[1][2]
        assert "terminated: killed (under inbox" in told[1][2]
        assert "did not start: crash: Broken; it is Dependent(" in told[3][2]
        assert "gives up on child 'Dependent': more than 2 restarts within 5 s" in told[6][2]


@pytest.mark.otp("proc_lib_SUITE", "stacktrace")
async def test_a_traceback_comes_once_and_from_where_it_is(records: list[Any]) -> None:
    async def broken() -> Pid:
        raise Broken

    async with inbox():
        with pytest.raises(StartFailed):
            await start_link(Supervisor, [ChildSpec(id="broken", start=broken)])
        with pytest.raises(StartFailed):
            await start_link(Supervisor, [child(Dependent, World(there=False))])
        traces = [(record.greenroom["event"], record.exc_info is not None) for record in records]
        assert traces == [("StartError", True), ("CrashReport", True), ("StartError", False)]


async def test_a_requested_start_is_logged_at_debug(records: list[Any]) -> None:
    async with inbox():
        sup = await start_link(Supervisor)
        await start_child(sup, child(Counter))
        assert [(record.levelname, record.greenroom["asked_for"]) for record in records] == [("DEBUG", True)]


async def test_a_report_below_the_log_level_is_not_formatted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    worded: list[Report] = []
    tell = logs.describe_report

    def telling(report: Report) -> Any:
        worded.append(report)
        return tell(report)

    monkeypatch.setattr(logs, "describe_report", telling)
    async with inbox():
        with caplog.at_level(logging.WARNING, NAME):
            await start_link(Supervisor, [child(Counter)])
    assert not worded
    assert not caplog.records


async def test_several_that_failed_alike_are_one_record(records: list[Any]) -> None:
    async with inbox():
        sup = await start_link(DynamicSupervisor, template(Polite).but(shutdown=0.5))
        for _ in range(3):
            await start_child(sup, 10.0)
        await stop(sup)
        (record,) = records
        assert "3 children like 'Polite' was told to stop, and ended otherwise: killed" in record.getMessage()
        assert record.greenroom["child"]["count"] == 3


async def test_the_data_of_a_record_fits_json(records: list[Any]) -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Counter)])
        kill(await ref_of(sup))
        sup.send("junk")
        await settled(sup)
        data = [json.loads(json.dumps(record.greenroom)) for record in records]
        assert [each["event"] for each in data] == ["ProgressReport", "ChildTerminated", "ProgressReport", "Unexpected"]
        assert data[1]["reason"] == "killed"
        assert data[1]["child"]["id"] == "Counter"
        assert data[1]["ancestors"][0].startswith("inbox ")
        assert data[3]["message"] == "'junk'"
        assert "unexpected message: 'junk'" in records[3].getMessage()


async def test_a_leak_says_where_it_hangs(records: list[Any]) -> None:
    class Stubborn(Counter):
        async def hang(self) -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                await asyncio.sleep(2)

    async with inbox():
        ref = await start(Stubborn)
        ref.cast(Stubborn.hang)
        await asyncio.sleep(1)
        kill(ref)
        await wait_down(ref)
        (record,) = records
        assert record.greenroom["event"] == "Leaked"
        assert "did not unwind in time after its end (killed), and was abandoned at" in record.getMessage()
        assert "asyncio.sleep(2)" in record.getMessage()
        await asyncio.sleep(5)


async def test_a_report_of_an_unknown_kind_is_logged_too(records: list[Any]) -> None:
    async with inbox() as me:
        current_node().reports.emit(Report(pid=me.pid, label="other"))
        (record,) = records
        assert record.levelno == logging.WARNING
        assert "other" in record.getMessage()


@pytest.mark.greenroom(log=False)
async def test_logging_can_be_turned_off_and_attached_again(records: list[Any]) -> None:
    async with inbox():
        await start_link(Supervisor, [child(Counter)])
        assert not records
        end = logs.attach(current_node())
        await start_link(Supervisor, [child(Counter)])
        assert events(records) == ["ProgressReport"]
        end()
        await start_link(Supervisor, [child(Counter)])
        assert events(records) == ["ProgressReport"]


def test_a_node_logs_unless_told_otherwise() -> None:
    assert Node().reports != Node(log=False).reports
