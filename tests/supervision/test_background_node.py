"""A synchronous program runs a node in a thread, and calls into it from any thread."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from greenroom.supervision import (
    ActorError,
    AlreadyRegistered,
    BackgroundNode,
    CallTimeout,
    GenServer,
    Options,
    ProcessExited,
    StartFailed,
    current_node,
    run,
    self_pid,
    start,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine


class Counter(GenServer):
    """Counts."""

    def __init__(self, total: int = 0) -> None:
        self.total = total

    def add(self, amount: int) -> int:
        self.total += amount
        return self.total

    async def add_later(self, amount: int) -> int:
        return self.add(amount)

    def fail(self) -> NoReturn:
        raise SystemExit("on purpose")

    def block(self, until: threading.Event, begun: threading.Event) -> None:
        begun.set()
        until.wait()

    def handle_call(self, request: object, caller: object) -> NoReturn:
        raise ValueError(request)


def test_a_program_without_a_loop_starts_calls_and_stops_servers() -> None:
    with BackgroundNode(log=False) as node:
        counter = node.start(Counter, 2)
        assert node.call(counter, Counter.add, 3) == 5
        assert node.call(counter, Counter.add_later, 3) == 8
        node.stop(counter)
        with pytest.raises(ProcessExited):
            node.call(counter, Counter.add, 1)
    assert "greenroom-node" not in [thread.name for thread in threading.enumerate()]


def test_any_thread_may_call_cast_and_send() -> None:
    with BackgroundNode(log=False) as node, ThreadPoolExecutor(8) as pool:
        counter = node.start_with(Options(name="hits"), Counter)

        def hit(_: int) -> int:
            return node.call(counter, Counter.add, 1)

        def tell(_: int) -> bool:
            return counter.cast(Counter.add, 1)

        assert sorted(pool.map(hit, range(200))) == list(range(1, 201))
        assert all(pool.map(tell, range(200)))
        assert node.call(counter, Counter.add, 0) == 400
        with pytest.raises(AlreadyRegistered):
            node.start_with(Options(name="hits"), Counter)


def test_a_crash_in_the_node_is_an_error_of_the_call_alone() -> None:
    with BackgroundNode(log=False) as node:
        counter, other = node.start(Counter), node.start(Counter)
        with pytest.raises(ProcessExited, match="SystemExit: on purpose"):
            node.call(counter, Counter.fail)
        with pytest.raises(ProcessExited, match="ValueError: why"):
            node.ask(other, "why")
        with pytest.raises(StartFailed):
            node.start(Counter, 1, 2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_a_loop_that_hangs_cannot_keep_the_program() -> None:
    release, begun = threading.Event(), threading.Event()
    node = BackgroundNode(stop_timeout=0.05, watchdog=None, log=False)
    node.__enter__()
    thread = node._thread
    node.start(Counter).cast(Counter.block, release, begun)
    assert begun.wait(5)
    with pytest.raises(CallTimeout) as late:
        node.__exit__()
    assert any("until.wait()" in note or "wait" in note for note in late.value.__notes__)
    release.set()
    assert thread is not None
    thread.join(5)
    assert not thread.is_alive()


def test_outside_its_block_it_says_so() -> None:
    node = BackgroundNode(log=False)
    with pytest.raises(ActorError, match="not open"):
        node.start(Counter)
    with node, pytest.raises(ActorError, match="open already"):
        node.__enter__()


def test_a_node_that_hangs_cannot_be_opened_again_before_it_is_over() -> None:
    release, begun = threading.Event(), threading.Event()
    node = BackgroundNode(stop_timeout=0.05, watchdog=None, log=False)
    node.__enter__()
    thread = node._thread
    assert thread is not None
    node.start(Counter).cast(Counter.block, release, begun)
    assert begun.wait(50)
    with pytest.raises(CallTimeout):
        node.__exit__()
    for _ in range(2):
        with pytest.raises(ActorError, match="open"):
            node.__enter__()
        with pytest.raises(ActorError, match="not open"):
            node.start(Counter)
        node.__exit__()  # nothing is to be closed
    release.set()
    thread.join(50)
    with node:
        assert node.call(node.start(Counter, 2), Counter.add, 3) == 5


def test_code_of_the_node_itself_must_await() -> None:
    with BackgroundNode(log=False) as node:

        async def ask() -> None:
            node.start(Counter)

        with pytest.raises(ActorError, match=r"must await; run\(\) is for other threads"):
            node.run(ask)


class Front(GenServer):
    """A server whose handlers use, in a thread, libraries that have nodes of their own."""

    async def behind_a_thread(self) -> int:
        def library() -> int:
            with BackgroundNode(name="library", log=False) as node:
                return node.call(node.start(Counter, 2), Counter.add, 3)

        return await asyncio.to_thread(library)

    async def in_the_thread(self) -> tuple[str, int]:
        async def library() -> tuple[str, int]:
            counter = await start(Counter, 2)
            return current_node().name, await counter.call(Counter.add, 3)

        return await asyncio.to_thread(run, library, name="library", log=False)

    async def call_itself_in_a_thread(self, node: BackgroundNode) -> object:
        return await asyncio.to_thread(node.run, self.who_asks)

    async def who_asks(self) -> object:
        return self_pid()


def test_a_handlers_thread_may_have_a_node_of_its_own() -> None:
    with BackgroundNode(name="front", log=False) as node:
        front = node.start(Front)
        assert node.call(front, Front.behind_a_thread) == 5
        assert node.call(front, Front.in_the_thread) == ("library", 5)
        assert node.call(front, Front.call_itself_in_a_thread, node) == front.pid


def test_a_call_after_the_loop_has_stopped_is_an_error() -> None:
    begun, closing, sent = threading.Event(), threading.Event(), threading.Event()
    node = BackgroundNode(log=False)

    async def answer() -> int:
        return 1

    def late() -> Coroutine[Any, Any, int]:
        begun.set()  # the node was open when it was asked
        closing.wait()
        return answer()

    with ThreadPoolExecutor(1) as pool:
        with node:
            loop: Any = node._ready.result()
            close, soon = loop.close, loop.call_soon_threadsafe

            def close_late() -> None:
                closing.set()
                sent.wait()
                close()

            def tell(*args: Any, **options: Any) -> Any:
                handle = soon(*args, **options)
                if closing.is_set():
                    sent.set()
                return handle

            loop.close, loop.call_soon_threadsafe = close_late, tell
            asked = pool.submit(node.run, late)
            begun.wait()
        with pytest.raises(ActorError, match="closed before it could answer"):
            asked.result()


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (
            "child = os.fork()\nif child:\n    os.waitpid(child, 0)\n    os._exit(0)\nask()\nos._exit(0)",
            "before a fork",
        ),
        ("left = leaving()\nnext(left)", ""),
    ],
    ids=["in a forked child", "by the collector, when the program ends"],
)
def test_a_call_without_a_running_thread_does_not_wait_for_ever(ending: str, said: str) -> None:
    program = f"{ASKING}\n{ending}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert said in done.stdout
    assert not said or "asked" not in done.stdout


ASKING = """
import asyncio, os
from greenroom.supervision import ActorError, BackgroundNode

node = BackgroundNode(log=False).__enter__()

def ask():
    try:
        node.run(asyncio.sleep, 0)
        print("asked", flush=True)
    except ActorError as error:
        print(error, flush=True)

def leaving():
    try:
        yield
    finally:
        ask()
"""
