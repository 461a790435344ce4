"""Context variables of one actor are never seen by another, nor by its callers."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision import (
    GenServer,
    Node,
    ProcessExited,
    Ref,
    inbox,
    self_pid,
    spawn,
    start,
    start_link,
    wait_down,
)
from greenroom.supervision.behaviours.refs import process_of, request

from .sample_servers import turns

if TYPE_CHECKING:
    from greenroom.supervision import Pid

mood: contextvars.ContextVar[str] = contextvars.ContextVar("mood", default="none")


class Moody(GenServer):
    """Has a mood, which it keeps in a context variable."""

    def __init__(self, first: str | None = None) -> None:
        if first is not None:
            mood.set(first)

    def put(self, value: str) -> str:
        before = mood.get()
        mood.set(value)
        return before

    async def put_slowly(self, value: str) -> str:
        before = mood.get()
        await asyncio.sleep(0)
        assert mood.get() == before
        mood.set(value)
        await asyncio.sleep(0)
        assert mood.get() == value
        return before

    def get(self) -> str:
        return mood.get()

    async def get_slowly(self) -> str:
        await asyncio.sleep(0)
        return mood.get()

    async def get_in_tasks(self) -> list[str]:
        async def inner(value: str) -> str:
            seen = mood.get()
            mood.set(value)
            await asyncio.sleep(0)
            return seen

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(inner(str(number))) for number in range(2)]
        in_thread = await asyncio.to_thread(mood.get)
        return [task.result() for task in tasks] + [in_thread, mood.get()]

    async def ask(self, other: Ref[Moody], value: str) -> list[str]:
        mood.set(value)
        there = [await other.call(Moody.get), await other.call(Moody.get_slowly), await other.call(Moody.put, "theirs")]
        return [*there, mood.get()]

    async def raise_and_set(self) -> None:
        mood.set("lost")
        raise ValueError("x")

    def whoami(self) -> Pid:
        return self_pid()

    async def whoami_slowly(self) -> Pid:
        await asyncio.sleep(0)
        return self_pid()


@pytest.mark.parametrize("queued", [False, True])
async def test_an_actor_sees_only_its_own_context_variables(*, queued: bool) -> None:
    mood.set("the caller's")
    one, two = await start(Moody), await start(Moody, "from init")
    for ref, before in ((one, "none"), (two, "from init")):
        if queued:
            ref.cast(Moody.get)
        assert await ref.call(Moody.put, "first") == before
        assert await ref.call(Moody.put_slowly, "second") == "first"
        assert await ref.call(Moody.get) == await ref.call(Moody.get_slowly) == "second"
    assert mood.get() == "the caller's"


async def test_a_context_variable_set_in_one_message_is_there_in_the_next() -> None:
    ref = await start(Moody)
    ref.cast(Moody.put, "by a cast")
    ref.cast(Moody.put_slowly, "by a slow cast")
    assert await ref.call(Moody.get) == "by a slow cast"


async def test_two_that_call_each_other_keep_their_own() -> None:
    one, two = await start(Moody), await start(Moody, "two's")
    assert await one.call(Moody.ask, two, "one's") == ["two's", "two's", "two's", "one's"]
    assert await two.call(Moody.get) == "theirs"
    assert await one.call(Moody.get) == "one's"


async def test_tasks_and_threads_of_a_handler_have_copies_of_it() -> None:
    ref = await start(Moody, "mine")
    assert await ref.call(Moody.get_in_tasks) == ["mine", "mine", "mine", "mine"]


async def test_many_at_once_on_the_same_worker_do_not_mix() -> None:
    refs = [await start(Moody, str(number)) for number in range(100)]
    calls = [request(ref, Moody.put_slowly, f"{number} again") for number, ref in enumerate(refs)]
    assert [await call.wait() for call in calls] == [str(number) for number in range(100)]
    assert [await ref.call(Moody.get) for ref in refs] == [f"{number} again" for number in range(100)]


async def test_a_crashed_handler_leaves_nothing_to_the_next_on_its_worker(node: Node) -> None:
    for _ in range(3):
        ref = await start(Moody)
        with pytest.raises(ProcessExited):
            await ref.call(Moody.raise_and_set)
        fresh = await start(Moody)
        assert await fresh.call(Moody.get_slowly) == "none"
    assert mood.get() == "none"


async def test_children_do_not_inherit_the_starters() -> None:
    mood.set("the test's")
    async with inbox():
        ref = await start_link(Moody)
        assert await ref.call(Moody.get) == "none"
    seen: list[str] = []

    async def routine() -> None:
        seen.append(mood.get())

    await wait_down(spawn(routine))
    assert seen == ["none"]


async def test_each_knows_who_it_is_in_every_kind_of_handler() -> None:
    async with inbox() as me:
        ref = await start(Moody)
        assert await ref.call(Moody.whoami) == await ref.call(Moody.whoami_slowly) == ref.pid
        assert await request(ref, Moody.whoami).wait() == ref.pid
        assert self_pid() == me.pid
        await turns()
        assert self_pid() == me.pid


async def test_an_idle_one_that_set_nothing_keeps_no_context() -> None:
    plain, moody = process_of(await start(Moody)), process_of(await start(Moody, "x"))
    assert plain is not None
    assert moody is not None
    assert plain.context is None
    assert moody.context is not None
