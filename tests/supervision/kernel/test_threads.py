"""Other threads: allowed and refused operations on a node, and two nodes in two threads."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    KILLED,
    ActorError,
    Caller,
    CallTimeout,
    Down,
    GenServer,
    NoConnection,
    Node,
    NoNode,
    ProcessExited,
    Ref,
    Reject,
    exit,
    inbox,
    kill,
    later,
    link,
    monitor,
    send,
    send_after,
    spawn,
    start,
    wait_down,
)
from greenroom.supervision.behaviours.refs import process_of

from .sample_servers import Log, forever, turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# A virtual clock would jump while the other loop, which was there before, still works.
pytestmark = pytest.mark.greenroom(clock="real")


class Deep(GenServer):
    """Answers from a thread."""

    def __init__(self) -> None:
        self.answered: list[bool] = []

    def get(self) -> int:
        caller: Caller[int] = self.caller
        threading.Thread(target=lambda: self.answered.append(caller.reply(7))).start()
        answer: int = later()
        return answer

    def fail(self) -> int:
        caller: Caller[int] = self.caller
        threading.Thread(target=lambda: caller.fail(KeyError("deep"))).start()
        answer: int = later()
        return answer

    async def in_thread(self, function: Callable[[], object]) -> object:
        try:
            return await asyncio.to_thread(function)
        except ActorError as error:
            raise Reject(error) from error


async def test_an_answer_may_come_from_another_thread() -> None:
    ref = await start(Deep)
    assert await ref.call(Deep.get) == 7
    with pytest.raises(KeyError, match="deep"):
        await ref.call(Deep.fail)


async def test_casts_and_messages_from_another_thread_keep_their_order() -> None:
    ref = await start(Log)

    def work() -> None:
        for number in range(100):
            assert (ref.send if number % 2 else ref.tell)(number)
            assert ref.cast(Log.note, number)

    await asyncio.to_thread(work)
    assert await ref.call(Log.read) == [number for number in range(100) for _ in range(2)]


async def test_code_of_a_process_that_runs_in_a_thread_may_send_exit_and_kill() -> None:
    async with inbox() as me:
        deep, log, one, two = await start(Deep), await start(Log), spawn(forever), spawn(forever)
        refs = monitor(one), monitor(two)

        def work() -> None:
            send(log, "a")
            log.send("b")
            exit(one, KeyError("x"))
            kill(two)

        await deep.call(Deep.in_thread, work)
        downs: list[Down] = [await me.receive(), await me.receive()]
        assert tuple(down.ref for down in downs) == refs
        assert [str(down.reason) for down in downs] == ["crash: KeyError: 'x'", "killed"]
        assert await log.call(Log.read) == ["a", "b"]


def spawn_another(_: object) -> None:
    spawn(forever)


def remind(who: object) -> None:
    send_after(1, who, "x")


@pytest.mark.parametrize(
    ("verb", "act"),
    [("link", link), ("monitor", monitor), ("start a process", spawn_another), ("start a timer", remind)],
)
async def test_operations_that_change_the_nodes_tables_are_refused_in_other_threads(
    verb: str, act: Callable[[object], object]
) -> None:
    deep, log = await start(Deep), await start(Log)
    with pytest.raises(ActorError, match=f"cannot {verb} from another thread"):
        await deep.call(Deep.in_thread, partial(act, log))
    process = process_of(log)
    assert process is not None
    assert process.links is None
    assert process.monitors is None


async def test_a_thread_that_is_no_process_has_no_node() -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            send("missing", "x")
        except NoNode as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(errors) == 1


class Elsewhere:
    """A node in a thread of its own."""

    def __init__(self) -> None:
        self.node = Node("elsewhere", watchdog=None)
        self._ready = threading.Event()
        self._end: asyncio.Event
        self.ref: Ref[Log]
        self.sleeper: Ref[Log]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()
        self._ready.wait()

    async def _main(self) -> None:
        self._end = asyncio.Event()
        async with self.node:
            self.ref, self.sleeper = await start(Log), await start(Log)
            self._ready.set()
            await self._end.wait()

    def close(self) -> None:
        if self._thread.is_alive():
            self.node.loop.call_soon_threadsafe(self._end.set)
            self._thread.join()


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    other = Elsewhere()
    yield other
    other.close()


async def test_a_call_reaches_a_process_of_another_threads_node(elsewhere: Elsewhere) -> None:
    ref = elsewhere.ref
    assert ref.cast(Log.note, 1)
    assert ref.send(2)
    assert ref.tell(3)
    assert await ref.call(Log.read) == [1, 2, 3]
    with pytest.raises(TypeError):
        await ref.call(Log.note)  # type: ignore[call-overload]
    with pytest.raises(CallTimeout):
        await ref.within(0.01).call(Log.do_async, forever)


async def test_an_actor_calls_an_actor_of_another_threads_node(elsewhere: Elsewhere) -> None:
    mine = await start(Log)
    theirs = elsewhere.ref.within(None)

    async def cross() -> list[Any]:
        await theirs.call(Log.note, "hello")
        return await theirs.call(Log.read)

    assert await mine.call(Log.do_async, cross) == ["hello"]
    process = process_of(mine)
    assert process is not None
    assert process.tasks is None, "the call's task is the other loop's"


async def test_killing_an_actor_cancels_its_call_in_the_other_thread(elsewhere: Elsewhere) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def hang() -> None:
        begun.set()
        try:
            await forever()
        finally:
            ended.set()

    mine = await start(Log)
    mine.cast(Log.do_async, lambda: elsewhere.sleeper.within(None).call(Log.do_async, hang))
    await asyncio.to_thread(begun.wait)
    kill(mine)
    assert await wait_down(mine) == KILLED
    assert await elsewhere.ref.call(Log.read) == []
    assert not ended.is_set(), "the callee goes on: only the wait for it is over"


async def test_a_death_over_there_ends_the_call_over_here(elsewhere: Elsewhere) -> None:
    def die() -> None:
        raise KeyError("over there")

    with pytest.raises(ProcessExited, match="crash: KeyError: 'over there'"):
        await elsewhere.ref.call(Log.do, die)
    with pytest.raises(ProcessExited, match="no such process"):
        await elsewhere.ref.call(Log.read)


async def test_a_node_that_closes_over_there_ends_the_calls_over_here(elsewhere: Elsewhere) -> None:
    call = asyncio.ensure_future(elsewhere.ref.within(None).call(Log.do_async, forever))
    await turns()
    await asyncio.to_thread(elsewhere.close)
    with pytest.raises(ProcessExited, match=r"shutdown|no connection"):
        await call
    with pytest.raises(ProcessExited, match="no such process"):
        await elsewhere.ref.call(Log.read)
    with pytest.raises(ProcessExited, match="no such process"):
        await elsewhere.ref.ask("x")
    assert not elsewhere.ref.cast(Log.note, 1)
    assert not elsewhere.ref.send(1)


async def test_a_pid_of_another_node_is_out_of_reach(elsewhere: Elsewhere) -> None:
    pid = elsewhere.ref.pid
    by_pid: Ref[Log] = Ref(pid)
    with pytest.raises(ProcessExited) as caught:
        await by_pid.call(Log.read)
    assert caught.value.reason == NoConnection()
    with pytest.raises(ProcessExited) as caught:
        await by_pid.ask(1)
    assert caught.value.reason == NoConnection()
    assert not by_pid.cast(Log.note, 1)
    assert await wait_down(pid) == NoConnection()
    async with inbox() as me:
        ref = monitor(pid)
        assert await me.receive() == Down(ref, pid, NoConnection(), None)
        link(pid)
        assert (await me.receive()).reason == NoConnection()
        exit(pid, KILLED)
        kill(pid)
    assert await elsewhere.ref.call(Log.read) == []


async def test_two_nodes_do_not_share_names_nor_reports(elsewhere: Elsewhere, node: Node) -> None:
    assert elsewhere.ref.pid.incarnation != node.incarnation
    assert node.process(elsewhere.ref.pid) is None
    assert elsewhere.node.names is not node.names
