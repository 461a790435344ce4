"""The flag of a call, from loops and from threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from greenroom.actors.worker_interfaces import Cancellation
from greenroom.protocol.errors import RequestCancelled


def test_the_cancellation_flag_is_set_once_with_a_reason() -> None:
    flag = Cancellation()
    assert not flag
    assert not flag.is_set()
    flag.raise_if_set()
    flag.set("enough")
    flag.set("later")
    assert flag
    assert flag.reason == "enough"
    assert repr(flag) == "<Cancellation enough>"
    with pytest.raises(RequestCancelled, match="the call was cancelled: enough"):
        flag.raise_if_set()


async def test_loops_wait_for_it() -> None:
    flag = Cancellation()
    waiting = asyncio.create_task(flag.wait())
    await asyncio.sleep(0)
    flag.set("now")
    assert await waiting == "now"
    assert await flag.wait() == "now"


async def test_a_cancelled_wait_is_unsubscribed() -> None:
    flag = Cancellation()
    waiting = asyncio.create_task(flag.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert flag._waiting == []
    flag.set("no waiter is there")


def test_threads_sleep_with_it(no_leaks: None) -> None:
    flag = Cancellation()
    assert not flag.wait_in_thread(0)
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(flag.wait_in_thread(60)))
    thread.start()
    flag.set("wake up")
    thread.join()
    assert woken == [True]
    assert flag.wait_in_thread(60)


def test_setting_the_flag_ignores_closed_loops() -> None:
    flag = Cancellation()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(flag.wait())
    loop.run_until_complete(asyncio.sleep(0))
    waiting.cancel()
    loop.run_until_complete(asyncio.wait([waiting]))
    # A waiter whose loop is closed meanwhile, as at the end of a thread.
    stuck = flag.wait()
    asyncio.set_event_loop(None)
    other = asyncio.new_event_loop()
    task = other.create_task(stuck)
    other.run_until_complete(asyncio.sleep(0))
    other.close()
    flag.set("too late")
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    stuck.close()
    loop.close()
