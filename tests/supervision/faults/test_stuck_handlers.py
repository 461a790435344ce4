"""Handlers that do not return: they wait for ever, block the loop, or suppress their cancellation."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from greenroom.supervision import (
    KILLED,
    SHUTDOWN,
    ActorError,
    AlreadyRegistered,
    Caller,
    CallTimeout,
    Down,
    GenServer,
    Node,
    Options,
    ProcessExited,
    Ref,
    current_node,
    exit,
    inbox,
    kill,
    later,
    link,
    monitor,
    register,
    send,
    send_after,
    spawn,
    start,
    stop,
    wait_down,
    whereis,
)
from greenroom.supervision.behaviours.refs import ask_later, process_of, request

from .faulty_servers import Breaks, Calm, Witness, forever, turns

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine


# --- a handler that awaits for ever


class Cleans(GenServer):
    """Waits for ever, and records the order of its clean-up."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    async def wait(self) -> None:
        try:
            async with self.lock(), asyncio.timeout(1000), anyio.create_task_group() as group:
                group.start_soon(self.child)
                await forever()
        finally:
            self.notes.append("handler out")

    @asynccontextmanager
    async def lock(self) -> AsyncGenerator[None]:
        self.notes.append("locked")
        try:
            yield
        finally:
            await asyncio.sleep(0.5)
            self.notes.append("unlocked")

    async def child(self) -> None:
        try:
            await forever()
        finally:
            with anyio.CancelScope(shield=True):
                await asyncio.sleep(0.25)
            self.notes.append("child out")


def stop_by_exit(who: object) -> None:
    exit(who, SHUTDOWN)


@pytest.mark.parametrize("end", [kill, stop_by_exit], ids=["kill", "exit"])
async def test_a_handler_that_awaits_for_ever_is_cancelled_and_unwinds_before_its_death_is_reported(
    end: Callable[[object], None], node: Node
) -> None:
    notes: list[str] = []
    async with inbox() as me:
        ref = await Options(name="cleans").start(Cleans, notes)
        monitored = monitor(ref)
        link(ref)
        call = request(ref, Cleans.wait)
        await turns()
        end(ref)
        notes.append("condemned")
        assert whereis("cleans") == ref.pid, "its name is free when its code is done"
        with pytest.raises(AlreadyRegistered):
            await Options(name="cleans").start(Calm)
        with pytest.raises(ProcessExited) as caught:
            await call.wait()
        notes.append("heard")
        assert notes == ["locked", "condemned", "child out", "unlocked", "handler out", "heard"]
        assert asyncio.get_running_loop().time() == 0.75
        reason = caught.value.reason
        assert {type(await me.receive()).__name__ for _ in range(2)} == {"Exit", "Down"}
        assert reason in (KILLED, SHUTDOWN)
        assert monitored.target is None
        await Options(name="cleans").start(Calm)
    assert node.leaks == 0


async def test_a_caller_of_one_that_awaits_for_ever_has_its_deadline(node: Node) -> None:
    ref = await start(Breaks)
    with pytest.raises(CallTimeout, match=r"did not answer within 5 s"):
        await ref.call(Breaks.do_async, forever)
    with pytest.raises(CallTimeout, match=r"did not answer within 0.5 s"):
        await ref.within(0.5).call(Breaks.do, list)
    assert asyncio.get_running_loop().time() == 5.5
    kill(ref)
    assert await wait_down(ref) == KILLED


# --- a handler that swallows its cancellation


class Stubborn(GenServer):
    """Ignores cancellation, and continues with what it was told to do."""

    def __init__(self) -> None:
        self.caught = 0
        self.kept: Caller[str]

    async def wait(self, released: asyncio.Event, after: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                self.caught += 1
        await after()

    def keep(self) -> str:
        self.kept = self.caller
        answer: str = later()
        return answer


async def test_a_handler_that_swallows_its_cancellation_is_abandoned_after_the_grace(node: Node) -> None:
    witness = Witness(node)
    released = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with inbox() as me:
        ref = await Options(name="stubborn", label="mule").start(Stubborn)
        monitored = monitor(ref)
        call = request(ref, Stubborn.wait, released, forever)
        await turns()
        kill(ref)
        with pytest.raises(ProcessExited, match="killed"):
            await call.wait()
        assert loop.time() == node.kill_grace
        assert await me.receive() == Down(monitored, ref.pid, KILLED, None)
        assert whereis("stubborn") is None
        assert me.pending() == ()
    (leaked,) = witness.leaks()
    assert (leaked.pid, leaked.label, leaked.reason) == (ref.pid, "mule", KILLED)
    assert "await released.wait()" in leaked.stack
    assert node.leaks == 1
    released.set()
    await turns()


@pytest.mark.parametrize("seconds", [0.0, 3.0])
async def test_each_process_may_have_its_own_grace(seconds: float, node: Node) -> None:
    witness = Witness(node)
    released = asyncio.Event()
    ref = await Options(kill_grace=seconds).start(Stubborn)
    ref.cast(Stubborn.wait, released, forever)
    await turns()
    down = asyncio.ensure_future(wait_down(ref))
    await turns()
    kill(ref)
    assert await down == KILLED
    assert asyncio.get_running_loop().time() == seconds
    assert len(witness.leaks()) == 1
    released.set()
    await turns()


async def abandoned(after: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `after` in code of a process that is gone."""
    released, done = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def then() -> None:
        try:
            await after()
        except BaseException as error:  # noqa: BLE001 - the test awaits it
            done.set_exception(error)
        else:
            done.set_result(None)

    ref = await start(Stubborn)
    ref.cast(Stubborn.wait, released, then)
    await turns()
    kill(ref)
    assert await wait_down(ref) == KILLED
    released.set()
    await done


async def test_messages_sent_by_abandoned_code_are_discarded(node: Node) -> None:
    async with inbox() as me:
        calm, victim = await start(Calm), await start(Calm)
        by_name: Ref[Calm] = Ref(calm.pid)

        async def after() -> None:
            assert current_node() is node
            assert not send(me.pid, "void")
            assert not await asyncio.to_thread(send, me.pid, "void")
            assert not any((calm.send("void"), calm.tell("void"), calm.cast(Calm.add), by_name.cast(Calm.add)))
            exit(victim, SHUTDOWN)
            kill(victim)
            link(victim)
            monitor(victim)
            send_after(0.1, me.pid, "void")

        assert calm.cast(Calm.add)
        await abandoned(after)
        assert calm.cast(Calm.add), "other processes are served as before"
        await asyncio.sleep(1.0)
        assert me.pending() == ()
        assert await calm.call(Calm.add) == 3
        watched = process_of(victim)
        assert watched is not None
        assert (watched.life, watched.links, watched.monitors) == (0, None, None)


async def test_replies_of_abandoned_code_are_discarded() -> None:
    keeper = await start(Stubborn)
    kept = request(keeper, Stubborn.keep)
    await turns()
    process = process_of(keeper)
    assert process is not None
    assert isinstance(process.behaviour, Stubborn)
    caller = process.behaviour.kept

    async def after() -> None:
        assert not caller.reply("void")
        assert not caller.fail(ValueError("void"))

    await abandoned(after)
    assert not kept.done
    assert caller.reply("at last")
    assert await kept.wait() == "at last"


ACTS: dict[str, Callable[[Ref[Calm]], Any]] = {
    "call": lambda calm: calm.call(Calm.add),
    "call by pid": lambda calm: Ref[Calm](calm.pid).call(Calm.add),
    "ask": lambda calm: calm.ask("void"),
    "request": lambda calm: request(calm, Calm.add).wait(),
    "ask_later": lambda calm: ask_later(calm, "void").wait(),
    "start": lambda _: start(Calm),
    "spawn": lambda _: spawn(forever),
    "register": lambda _: register("void"),
    "stop": stop,
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
async def test_calls_by_abandoned_code_are_refused(act: Callable[[Ref[Calm]], Any], node: Node) -> None:
    calm = await start(Calm)

    async def attempt() -> None:
        result = act(calm)
        if asyncio.iscoroutine(result):
            await result

    async def after() -> None:
        with pytest.raises(ActorError, match=r"gone|exited before it answered: killed|no process is registered"):
            await attempt()

    await abandoned(after)
    assert await calm.call(Calm.add) == 1
    assert len(node.processes) == 1


async def test_a_task_that_will_not_end_is_abandoned_too(node: Node) -> None:
    witness = Witness(node)
    released = asyncio.Event()

    async def stubborn_task() -> None:
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    tasks: list[asyncio.Task[None]] = []
    ref = await start(Breaks)
    await ref.call(Breaks.do, lambda: tasks.append(asyncio.create_task(stubborn_task())))
    await turns()
    down = asyncio.ensure_future(wait_down(ref))
    await turns()
    kill(ref)
    with pytest.raises(ProcessExited, match="killed"):
        await ref.call(Breaks.do, list)
    assert await down == KILLED
    assert asyncio.get_running_loop().time() == node.kill_grace
    (leaked,) = witness.leaks()
    assert "stubborn_task" in leaked.stack
    released.set()
    await tasks[0]


async def test_the_end_waits_for_tasks_that_unwind(node: Node) -> None:
    ends: list[str] = []

    async def slow_to_end() -> None:
        try:
            await forever()
        finally:
            await asyncio.gather(asyncio.sleep(0.25), asyncio.sleep(0.5))
            ends.append("task")

    ref = await start(Breaks)
    tasks: list[asyncio.Task[None]] = []
    await ref.call(Breaks.do, lambda: tasks.append(asyncio.create_task(slow_to_end())))
    await turns()
    down = asyncio.ensure_future(wait_down(ref))
    await turns()
    exit(ref, SHUTDOWN)
    assert await down == SHUTDOWN
    assert ends == ["task"]
    assert asyncio.get_running_loop().time() == 0.5
    assert node.leaks == 0


async def test_a_handler_that_has_not_begun_leaks_nothing_even_without_grace(node: Node) -> None:
    witness = Witness(node)
    refs = [await Options(kill_grace=0).start(Breaks) for _ in range(300)]
    for ref in refs:
        ref.cast(Breaks.do_async, forever)
    await asyncio.sleep(0)
    for ref in refs:
        kill(ref)
    await asyncio.gather(*(wait_down(ref) for ref in refs))
    await asyncio.sleep(1.0)
    assert [report for report in witness.leaks() if "forever" not in report.stack] == []
    assert node.processes == {}
