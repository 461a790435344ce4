"""When a node handles SIGINT, when it leaves it alone, and that it always restores the handler."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import Node, start
from greenroom.supervision.kernel.loop_hooks import SigintHandler

from .sample_servers import Log

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def loop_run(main: Any) -> Any:
    """Run without `asyncio.run`, which handles SIGINT itself."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(main())
    finally:
        loop.close()


async def handler_inside(**options: Any) -> Any:
    async with Node(watchdog=None, **options):
        return signal.getsignal(signal.SIGINT)


def test_sigint_is_taken_over_and_given_back() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    inside = loop_run(handler_inside)
    assert isinstance(inside.__self__, SigintHandler)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL])
def test_an_ignored_sigint_or_one_with_its_default_action_is_left_alone(before: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, before)
    assert loop_run(handler_inside) is before
    assert signal.getsignal(signal.SIGINT) is before


def test_a_node_can_be_told_to_leave_it_alone() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert loop_run(lambda: handler_inside(handle_sigint=False)) is signal.default_int_handler


def test_a_node_in_another_thread_leaves_it_alone() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(handler_inside())))
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]


def test_a_handler_that_was_put_there_meanwhile_stays() -> None:
    def other(number: int, frame: object) -> None: ...

    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def main() -> None:
        async with Node(watchdog=None):
            signal.signal(signal.SIGINT, other)

    loop_run(main)
    assert signal.getsignal(signal.SIGINT) is other


def test_a_programs_own_handler_is_called_by_the_loop_and_never_inside_an_actor() -> None:
    called: list[Any] = []

    async def main() -> None:
        came = asyncio.Event()

        def own(number: int, frame: object) -> None:
            called.append((number, frame))
            came.set()

        signal.signal(signal.SIGINT, own)
        async with Node(watchdog=None):
            ref = await start(Log)

            def interrupt() -> list[Any]:
                os.kill(os.getpid(), signal.SIGINT)
                return list(called)

            assert await ref.call(Log.do, interrupt) == [], "the actor's handler went on undisturbed"
            await came.wait()
        assert signal.getsignal(signal.SIGINT) is own

    loop_run(main)
    assert called == [(signal.SIGINT, None)]


def test_a_sigint_at_the_last_moment_raises_after_the_close() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    went_on: list[str] = []

    async def main() -> None:
        async with Node(watchdog=None):
            os.kill(os.getpid(), signal.SIGINT)
        went_on.append("after the node")

    with pytest.raises(KeyboardInterrupt):
        loop_run(main)
    assert went_on == []


def test_closing_by_hand_owes_it_as_well() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def main() -> None:
        node = Node(watchdog=None)
        await node.open()
        os.kill(os.getpid(), signal.SIGINT)
        await node.close()

    with pytest.raises(KeyboardInterrupt):
        loop_run(main)


def test_an_error_of_the_program_is_not_hidden_by_it() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)

    async def main() -> None:
        async with Node(watchdog=None):
            os.kill(os.getpid(), signal.SIGINT)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop_run(main)


def test_a_handled_sigint_is_forgotten_when_the_node_is_opened_again() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    node = Node(watchdog=None)

    async def interrupted() -> None:
        async with node:
            os.kill(os.getpid(), signal.SIGINT)

    async def not_interrupted() -> str:
        async with node:
            await asyncio.sleep(0)
        return "well"

    with pytest.raises(KeyboardInterrupt):
        loop_run(interrupted)
    assert loop_run(not_interrupted) == "well"
