"""Closing a node: in order, with unbounded stops, and when cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from greenroom.supervision import (
    SHUTDOWN,
    ActorError,
    ExitReason,
    GenServer,
    Leaked,
    NoNode,
    ProcessExited,
    Ref,
    current_node,
    spawn,
    start,
    start_link,
    trap_exit,
    wait_down,
)
from greenroom.supervision.behaviours.refs import process_of, request

from .sample_servers import Log, Trapping, alone, forever, quiet, reports_of, turns


class Ends(GenServer):
    """Records its exit reason."""

    traps_exit = True

    def __init__(self, ended: list[Any], name: str = "", seconds: float = 0.0) -> None:
        self.ended = ended
        self.name = name
        self.seconds = seconds

    async def terminate(self, reason: ExitReason) -> None:
        await asyncio.sleep(self.seconds)
        self.ended.append((self.name, reason) if self.name else reason)


def test_closing_stops_in_reverse_order_of_start_and_waits_for_each() -> None:
    ended: list[Any] = []

    async def main() -> None:
        async with quiet():
            for number in range(5):
                await start(Ends, ended, str(number), 1.0)

    alone(main)
    assert ended == [(str(number), SHUTDOWN) for number in (4, 3, 2, 1, 0)]


def test_closing_waits_no_longer_than_its_grace_for_one_that_is_no_supervisor() -> None:
    ended: list[Any] = []

    async def main() -> float:
        loop = asyncio.get_running_loop()
        async with quiet(stop_grace=3.0, kill_grace=1.0):
            await start(Ends, ended, "slow", 100.0)
            await start(Ends, ended, "quick", 2.0)
        return loop.time()

    assert alone(main) == 5.0
    assert ended == [("quick", SHUTDOWN)]


def test_closing_waits_without_limit_for_a_process_with_unbounded_stop() -> None:
    class Patient(Ends):
        has_unbounded_stop = True

    ended: list[Any] = []

    async def main() -> None:
        async with quiet(stop_grace=1.0):
            await start(Patient, ended, "", 100.0)

    alone(main)
    assert ended == [SHUTDOWN]


def test_closing_ends_what_traps_refuses_is_unlinked_or_has_not_begun() -> None:
    class Refuses(GenServer):
        traps_exit = True

        def __init__(self) -> None:
            self.unlinked: Ref[Log]

        async def init(self) -> None:
            self.unlinked = await start_link(Log)
            process = process_of(self.unlinked)
            assert process is not None
            process.links = self._otp_process.links = None

        async def handle_info(self, message: Any) -> None:
            await forever()

    class Starts(GenServer):
        async def init(self) -> None:
            trap_exit()
            await forever()

    async def main() -> None:
        async with quiet(stop_grace=1.0) as node:
            refuses = await start(Refuses)
            refuses.send("be busy")
            starting = asyncio.ensure_future(start(Starts))
            spawn(forever)
            await turns()
            spawn(forever)
        assert node.processes == {}
        assert node.names == {}
        with pytest.raises(ActorError, match=r"did not start: (killed|shutdown)"):
            await starting

    alone(main)


def test_a_call_while_the_node_closes_is_answered() -> None:
    async def main() -> None:
        async with quiet() as node:
            ref = await start(Log)
            gate = asyncio.Event()
            ref.cast(Log.wait, gate)
            calls = [asyncio.ensure_future(ref.within(None).call(Log.read)) for _ in range(3)]
            await turns()
        assert not node.deadlines
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert [str(answer) for answer in answers] == ["Log <node.1> exited before it answered: shutdown"] * 3

    alone(main)


def test_a_closing_node_is_not_kept_open_by_new_processes() -> None:
    refused: list[BaseException] = []

    async def hydra() -> None:
        try:
            trap_exit()
            await forever()
        finally:
            try:
                spawn(hydra)
            except ActorError as error:
                refused.append(error)

    async def main() -> None:
        async with quiet(stop_grace=1.0):
            spawn(hydra)
            await turns()

    alone(main)
    assert [str(error) for error in refused] == ["<Node node running, 1 processes> is closing"]


def test_cancelling_the_close_kills_the_remaining_processes_and_still_closes() -> None:
    ended: list[Any] = []

    async def main() -> None:
        node = quiet(stop_grace=100.0)
        await node.open()
        await start(Ends, ended, "slow", 50.0)
        waiting = asyncio.ensure_future((await start(Trapping)).within(None).call(Log.do_async, forever))
        calls = [request(await start(Log), Log.do_async, forever) for _ in range(3)]
        await turns()
        closing = asyncio.ensure_future(node.close())
        await asyncio.sleep(1.0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not node.running
        assert node.processes == {}
        assert asyncio.get_running_loop().get_task_factory() is None
        for call in calls:
            with pytest.raises(ProcessExited):
                await call.wait()
        with pytest.raises(ProcessExited):
            await waiting
        async with quiet("next"):
            assert await (await start(Log)).call(Log.read) == []

    alone(main)
    assert ended == []


def test_leaving_the_block_can_be_cancelled_as_well() -> None:
    ended: list[Any] = []

    async def inside() -> None:
        async with quiet(stop_grace=100.0):
            await start(Ends, ended, "slow", 50.0)

    async def main() -> None:
        task = asyncio.ensure_future(inside())
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(NoNode):
            current_node()

    alone(main)
    assert ended == []


def test_a_close_that_is_cancelled_twice_abandons_what_does_not_unwind() -> None:
    async def stubborn(released: asyncio.Event) -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    async def main() -> None:
        released = asyncio.Event()
        node = quiet(kill_grace=100.0)
        leaked = reports_of(node, Leaked)
        await node.open()
        pid = spawn(stubborn, released)
        down = asyncio.ensure_future(wait_down(pid, None))
        await turns()
        closing = asyncio.ensure_future(node.close())
        for _ in range(2):
            await asyncio.sleep(1.0)
            closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert asyncio.get_running_loop().time() == 2.0
        assert node.processes == {}
        assert await down == SHUTDOWN
        assert [report.pid for report in leaked] == [pid]
        released.set()
        await turns()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    alone(main)
