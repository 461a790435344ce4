"""The decisions of the engine, and its messages to and from the daemon and the nodes, which are played in virtual time."""

from __future__ import annotations

import asyncio
import logging
import signal
from typing import Any

import pytest

from greenroom.supervision import Crash, Down, ProcessExited, kill, monitor, spawn, stop
from greenroom.supervision.cluster.bootstrap import LEAVE, NodeImportFailed, NodeOutput
from greenroom.supervision.cluster.daemon_protocol import (
    DaemonFailed,
    DaemonPing,
    DaemonPong,
    FinishDaemon,
    LogNote,
    ProcessForked,
    ProcessGone,
    ProcessNotStarted,
    StartDaemon,
    StartProcess,
)
from greenroom.supervision.cluster.node_records import EngineFailed, NodeFailed, NodeProcessEnded, ProcessEnding
from greenroom.supervision.cluster.peers import NodeDown, NodeUp

from .played_engine import KILL, NO_SUCH_PID, Town, idle, town
from .played_processes import PlayedDaemon, settled


async def why_it_died(at: Town, watch: Any) -> str:
    down: Down = await at.me.receive(lambda each: isinstance(each, Down) and each.ref is watch, timeout=60)
    assert isinstance(down.reason, Crash)
    assert isinstance(down.reason.error, EngineFailed)
    return str(down.reason.error)


# --- the daemon


async def test_no_daemon_is_started_before_it_is_needed_and_none_has_to_be_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with town(monkeypatch) as at:
        assert await at.running() == {}
        await stop(at.engine)
        assert at.daemons == []
        assert at.peers.watchers == []


async def test_a_daemon_that_does_not_begin_is_killed_and_the_engine_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        watch = monitor(at.engine)
        asked = await at.start(start_timeout=100)
        assert [type(order) for order in at.daemon.sent] == [StartDaemon, StartProcess]
        assert await at.running() == {"daemon": at.daemon.pid}
        said = await why_it_died(at, watch)
        assert said == "the daemon had not begun after 30 s, and was killed"
        assert at.daemon.killed == 1
        with pytest.raises(ProcessExited):
            await asked


async def test_a_daemon_that_answers_is_asked_on_and_on_and_one_that_does_not_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with town(monkeypatch) as at:
        watch = monitor(at.engine)
        await at.want()
        await at.begun()
        for _ in range(20):
            at.engine.send(DaemonPong(at.daemon.of(DaemonPing)[-1].number))
            await asyncio.sleep(2)
        assert at.daemon.killed == 0
        assert len(at.daemon.of(DaemonPing)) > 15
        said = await why_it_died(at, watch)
        assert said == "the daemon did not answer for 10 s, and was killed"


async def test_the_last_message_of_the_daemon_is_the_error_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        watch = monitor(at.engine)
        await at.want()
        at.engine.send(DaemonFailed("the port is taken"))
        at.daemon.end(1)
        assert await why_it_died(at, watch) == "the port is taken"


async def test_a_daemon_that_just_ends_is_told_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        watch = monitor(at.engine)
        await at.want()
        at.daemon.end(-signal.SIGSEGV)
        assert await why_it_died(at, watch) == "the daemon was ended by signal 11 (SIGSEGV). Its last words."


async def test_no_node_is_started_by_a_daemon_that_has_just_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        await at.want("first")
        at.daemon.over = True
        with pytest.raises(ProcessExited) as failed:
            await (await at.start("second"))
        assert isinstance(failed.value.__cause__, EngineFailed)
        assert "has just ended" in str(failed.value.__cause__)


@pytest.mark.parametrize("obeys", [True, False])
async def test_in_order_the_daemon_ends_first_and_is_killed_when_it_does_not(
    monkeypatch: pytest.MonkeyPatch,
    obeys: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(PlayedDaemon, "dies_of_finish", obeys)
    async with town(monkeypatch) as at:
        await at.want()
        await at.begun()
        await stop(at.engine, timeout=60)
        assert len(at.daemon.of(FinishDaemon)) == 1
        assert at.daemon.killed == (not obeys)


async def test_an_unexpected_message_of_the_daemon_is_logged_as_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with town(monkeypatch) as at:
        await at.want()
        at.engine.send(DaemonPing(1))
        at.engine.send(NodeUp("x"))
        at.engine.send("nonsense")
        assert "daemon" in await at.running()
    assert [each.getMessage() for each in caplog.records if each.name == "greenroom.cluster"] == [
        "unexpected message from the daemon: DaemonPing(number=1)"
    ]


async def test_lines_of_nodes_and_notes_are_logged_and_those_of_strangers_are_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with town(monkeypatch) as at:
        asked = await at.start()
        await at.ready()
        await asked
        at.engine.send(NodeOutput("node", [("a.logger", logging.WARNING, "a line", None)], 0))
        at.engine.send(NodeOutput("node", [], 3))
        at.engine.send(NodeOutput("unknown", [("a.logger", logging.WARNING, "of an unknown node", None)], 1))
        at.engine.send(LogNote(logging.WARNING, "a note of an unknown node's", "unknown"))
        at.engine.send(LogNote(logging.ERROR, "where it was", "node"))
        at.engine.send(ProcessGone("node", NO_SUCH_PID, -11))
        ended = await at.me.receive()
        assert isinstance(ended, NodeProcessEnded)
        assert ended.ending == ProcessEnding(signal=11, words="where it was"), "what it noted is its last word"
    assert [each for each in caplog.messages if "Inbox" not in each] == [
        "a line",
        "node node: 3 lines of output were dropped, since they came faster than they could be sent",
        "a note of an unknown node's",
        "where it was",
    ]


# --- a node's process


async def test_a_host_hears_of_its_process_and_of_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        asked = await at.start()
        assert not asked.done()
        await at.ready()
        started = await asked
        assert (started.os_pid, started.stopper) == (NO_SUCH_PID, at.me.pid)
        assert await at.running() == {"daemon": at.daemon.pid, "node": NO_SUCH_PID}
        at.engine.send(ProcessGone("node", NO_SUCH_PID, 3, "its words"))
        ended = await at.me.receive()
        assert ended.ending == ProcessEnding(code=3, words="its words")
        assert await at.running() == {"daemon": at.daemon.pid}
        assert at.peers.forgotten == ["node"]


async def test_two_nodes_of_one_name_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        await at.want()
        with pytest.raises(NodeFailed, match="a node of that name exists already"):
            await (await at.start())
        assert at.started() == ["node"]


async def test_a_process_that_cannot_be_made_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        asked = await at.start()
        at.engine.send(ProcessNotStarted("unknown", "of another"))
        at.engine.send(ProcessNotStarted("node", "there are too many"))
        with pytest.raises(NodeFailed, match="node node did not come up: there are too many"):
            await asked
        await at.want()
        assert at.started() == ["node", "node"], "its name is free again"


async def test_a_process_that_ends_before_its_node_is_ready_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        asked = await at.start()
        at.engine.send(ProcessGone("node", NO_SUCH_PID, 1))
        with pytest.raises(NodeFailed, match="its process exited with code 1"):
            await asked


async def test_a_node_that_is_not_fit_or_late_is_killed_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        unfit, late = await at.start("unfit"), await at.start("late", start_timeout=7)
        for name in ("unfit", "late"):
            at.engine.send(ProcessForked(name, NO_SUCH_PID))
        at.engine.send(NodeImportFailed("unknown", "of another"))
        at.engine.send(NodeImportFailed("unfit", "there is no module called x"))
        await settled()
        assert at.signals() == [("unfit", KILL)]
        at.engine.send(ProcessGone("unfit", NO_SUCH_PID, -9))
        with pytest.raises(NodeFailed, match="there is no module called x"):
            await unfit
        await asyncio.sleep(7)
        assert at.signals() == [("unfit", KILL), ("late", KILL)]
        at.engine.send(ProcessGone("late", NO_SUCH_PID, -9))
        with pytest.raises(NodeFailed, match="it was not ready within 7 s"):
            await late


async def test_a_node_is_ended_in_order_then_asked_then_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        asked = await at.start(stop_timeout=5)
        await at.ready()
        await asked
        ends = [await at.end(), await at.end()]
        assert await at.me.receive() == LEAVE
        await asyncio.sleep(4.9)
        assert at.signals() == []
        await asyncio.sleep(0.2)
        assert {each[1] for each in at.signals()} == {signal.SIGTERM}
        await asyncio.sleep(0.5)
        assert {each[1] for each in at.signals()} == {signal.SIGTERM, KILL}
        at.engine.send(ProcessGone("node", NO_SUCH_PID, -9))
        assert [await each for each in ends] == [ProcessEnding(signal=9, asked=True)] * 2
        before = at.signals()
        await asyncio.sleep(20)
        assert at.signals() == before
        assert await (await at.end("unknown")) == ProcessEnding(lost=True, asked=True)


async def test_a_node_that_is_not_ready_yet_is_killed_as_soon_as_it_has_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with town(monkeypatch) as at:
        asked = await at.start()
        ended = await at.end()
        assert at.signals() == [("node", KILL)]
        at.engine.send(ProcessForked("unknown", NO_SUCH_PID))
        at.engine.send(ProcessForked("node", NO_SUCH_PID))
        await settled()
        assert at.signals() == [("node", KILL)] * 2, "the first may have come before there was one"
        at.engine.send(ProcessGone("node", NO_SUCH_PID, -9))
        assert (await ended).asked
        with pytest.raises(NodeFailed):
            await asked


async def test_a_node_whose_host_is_gone_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        host = spawn(idle)
        await at.want("theirs", host)
        await at.want("mine")
        at.engine.send(ProcessForked("theirs", NO_SUCH_PID))
        kill(host)
        await settled()
        assert at.signals() == [("theirs", KILL)]


async def test_a_node_without_a_link_is_killed_unless_its_end_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    async with town(monkeypatch) as at:
        for name in ("told", "silent"):
            asked = await at.start(name)
            await at.ready(name)
            await asked
            at.engine.send(NodeDown(name, "it was silent"))
            at.engine.send(NodeDown(name, "once is enough"))
        at.engine.send(NodeDown("unknown", "it was silent"))
        at.engine.send(ProcessGone("told", NO_SUCH_PID, 0))
        await asyncio.sleep(1)
        assert at.signals() == [("silent", KILL)]
        assert (await at.me.receive()).ending == ProcessEnding(code=0)
