"""The order of waiting calls, the number of workers, and what becomes of a call whose worker is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.company import Company
from greenroom.actors.pools.pool_options import MIB, Pool
from greenroom.actors.pools.remote_call import StartLocks
from greenroom.actors.pools.worker_proxy import why_not_begun
from greenroom.actors.settings import Settings
from greenroom.supervision import Crash, StartFailed, kill, stop, whereis
from greenroom.supervision.cluster.node_records import NodeFailed, NodeLost, ProcessEnding
from greenroom.supervision.cluster.value_codec import RemoteError
from greenroom.supervision.introspect import resume, suspend

from . import handlers
from .local_processes import text_of

if TYPE_CHECKING:
    from greenroom.wire_probe import WireProbe

    from .local_processes import House, LocalProvider

SEGFAULT = "Tool execution failed: its process was ended by signal 11 (SIGSEGV)"


async def begun(probe: WireProbe, name: str, times: int = 1) -> int:
    """Call something that says so when it has begun."""
    before = len(probe.notifications("notifications/message"))
    asked = 0
    for _ in range(times):
        asked = await probe.ask("tools/call", {"name": name})
    await probe.wait_for_notifications("notifications/message", before + times)
    return asked


async def settled() -> None:
    """Until nothing moves any more."""
    await asyncio.sleep(0.01)


# --- how many


async def test_workers_come_as_they_are_needed_and_no_more_than_there_may_be(house: House) -> None:
    house.tool(handlers.waits, Pool(size=3))
    await house.open()
    async with house.probe() as probe:
        assert house.provider.attempts == 0
        await begun(probe, "waits")
        assert house.provider.attempts == 1
        await begun(probe, "waits", 2)
        await probe.ask("tools/call", {"name": "waits"})
        await settled()
        assert house.provider.attempts == 3


async def test_warm_workers_are_there_before_the_first_call(house: House) -> None:
    house.tool(handlers.pid, Pool(size=3, warm=2))
    await house.open()
    await settled()
    assert house.provider.open_processes == 2


async def test_workers_without_anything_to_do_go_but_for_the_warm_ones(house: House) -> None:
    house.tool(handlers.pauses, Pool(size=3, warm=1, idle=10))
    await house.open()
    async with house.probe() as probe:
        await asyncio.gather(*(probe.call("pauses", seconds=0.01) for _ in range(3)))
        assert house.provider.open_processes == 3
        await asyncio.sleep(21)
        assert house.provider.open_processes == 1
        assert text_of(await probe.call("pauses", seconds=0)) == "paused"
        assert house.provider.attempts == 3


async def test_a_worker_is_replaced_after_so_many_calls(house: House) -> None:
    house.tool(handlers.add, Pool(size=1, max_calls=3))
    await house.open()
    async with house.probe() as probe:
        for number in range(7):
            assert text_of(await probe.call("add", a=number, b=0)) == str(number)
        await settled()
    assert house.provider.attempts == 3


async def test_a_pool_is_shared_by_the_handlers_that_have_it(house: House) -> None:
    shared = Pool(size=1)
    house.tool(handlers.add, shared)
    house.tool(handlers.echo, shared)
    house.tool(handlers.pid, "process")
    await house.open()
    async with house.probe() as probe:
        await probe.call("add", a=1, b=1)
        await probe.call("echo", value=1)
        assert house.provider.attempts == 1
        await probe.call("pid")
        assert house.provider.attempts == 2


# --- who waits


async def test_calls_wait_in_order_and_each_has_a_worker_alone(house: House) -> None:
    house.tool(handlers.tells, Pool(size=1))
    await house.open()
    async with house.probe() as probe:
        asked = [
            await probe.ask(
                "tools/call", {"name": "tells", "arguments": {"times": 2}, "_meta": {"progressToken": number}}
            )
            for number in range(5)
        ]
        await probe.answer(asked[-1])
        told = [each["progressToken"] for each in probe.notifications("notifications/progress")]
        assert told == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


async def test_the_queue_has_an_end_and_says_so(house: House) -> None:
    house.tool(handlers.waits, Pool(size=1, queue=2))
    await house.open()
    async with house.probe() as probe:
        await begun(probe, "waits")
        for _ in range(2):
            await probe.ask("tools/call", {"name": "waits"})
        refused = await probe.call("waits")
        assert refused["isError"]
        assert "1 process is busy, and 2 calls wait for that already; try again later" in text_of(refused)


async def test_a_principal_with_hundreds_of_calls_delays_another_by_what_lies_before_a_worker(house: House) -> None:
    pool = Pool(size=1)
    house.tool(handlers.waits, pool)
    house.tool(handlers.notes, pool)
    await house.open()
    handlers.NOTED.clear()
    async with house.probe() as greedy, house.probe() as other:
        first = await begun(greedy, "waits")
        flood = [await greedy.ask("tools/call", {"name": "notes", "arguments": {"text": "greedy"}}) for _ in range(200)]
        asked = await other.ask("tools/call", {"name": "notes", "arguments": {"text": "other"}})
        await settled()
        await greedy.notify("notifications/cancelled", {"requestId": first})
        await other.answer(asked)
        await greedy.answer(flood[-1])
    assert len(handlers.NOTED) == 201
    assert handlers.NOTED.index("other") <= 17  # sixteen may be with the worker


async def test_a_full_queue_takes_from_the_principal_with_most(house: House) -> None:
    house.tool(handlers.waits, Pool(size=1, queue=4))
    await house.open()
    async with house.probe() as greedy, house.probe() as other:
        await begun(greedy, "waits")
        for _ in range(3):
            await greedy.ask("tools/call", {"name": "waits"})
        last = await greedy.ask("tools/call", {"name": "waits"})
        await settled()
        await other.ask("tools/call", {"name": "waits"})
        assert "4 calls wait for that already; try again later" in text_of((await greedy.answer(last))["result"])
        assert "4 calls wait" in text_of(await greedy.call("waits"))


async def test_a_full_queue_takes_from_the_principal_with_one_more_than_the_newcomer(house: House) -> None:
    house.tool(handlers.waits, Pool(size=1, queue=2))
    await house.open()
    async with house.probe() as greedy, house.probe() as other:
        await begun(greedy, "waits")
        await greedy.ask("tools/call", {"name": "waits"})
        last = await greedy.ask("tools/call", {"name": "waits"})
        await settled()
        await other.ask("tools/call", {"name": "waits"})
        assert "2 calls wait for that already" in text_of((await greedy.answer(last))["result"])


async def test_a_call_that_waits_is_bounded_by_its_own_deadline(house: House) -> None:
    pool = Pool(size=1)
    house.tool(handlers.waits, pool)
    house.tool(handlers.add, pool, timeout=2)
    await house.open()
    async with house.probe() as probe:
        await begun(probe, "waits")
        assert "timed out after 2 s" in (await probe.call("add", a=1, b=1))["content"][0]["text"]
        assert house.provider.attempts == 1


async def test_a_call_that_is_cancelled_while_it_waits_never_begins(house: House) -> None:
    pool = Pool(size=1)
    house.tool(handlers.waits, pool)
    house.tool(handlers.add, pool)
    await house.open()
    async with house.probe() as probe:
        first = await begun(probe, "waits")
        second = await probe.ask("tools/call", {"name": "waits"})
        await probe.cancel(second)
        await settled()
        await probe.cancel(first)
        assert text_of(await probe.call("add", a=1, b=1)) == "2"
        assert len(probe.notifications("notifications/message")) == 1


# --- cancelled


async def test_a_cancelled_call_that_notices_leaves_its_worker_to_the_next(house: House) -> None:
    pool = Pool(size=1)
    house.tool(handlers.waits_in_thread, pool)
    house.tool(handlers.waits, pool)
    house.tool(handlers.add, pool)
    await house.open()
    async with house.probe() as probe:
        for name in ("waits_in_thread", "waits"):
            await probe.cancel(await begun(probe, name), "not wanted")
            assert text_of(await probe.call("add", a=1, b=1)) == "2"
    assert house.provider.attempts == 1
    assert house.provider.processes[0].ends == 0


async def test_a_handler_that_ignores_its_cancellation_costs_the_process(house: House) -> None:
    pool = Pool(size=1)
    house.tool(handlers.stays, pool)
    house.tool(handlers.add, pool)
    await house.open()
    async with house.probe() as probe:
        try:
            await probe.cancel(await begun(probe, "stays"))
            assert text_of(await probe.call("add", a=1, b=1)) == "2"
            await asyncio.sleep(1)
            assert [process.ends for process in house.provider.processes] == [1, 0]
        finally:
            handlers.LET_GO.set()


async def test_the_end_of_a_session_ends_its_calls(house: House) -> None:
    pool = Pool(size=1)
    house.tool(handlers.waits, pool)
    house.tool(handlers.add, pool)
    await house.open()
    async with house.probe() as probe:
        await begun(probe, "waits")
    async with house.probe() as probe:
        assert text_of(await probe.call("add", a=1, b=1)) == "2"


async def test_nothing_is_left_when_the_company_stops(house: House) -> None:
    house.tool(handlers.waits, Pool(size=2, warm=2))
    await house.open()
    async with house.probe() as probe:
        await begun(probe, "waits", 2)
        await stop(house.top)
    assert house.provider.open_processes == 0


# --- lost


async def test_a_lost_worker_is_one_result_that_says_what_happened_and_a_new_worker(house: House) -> None:
    pool = Pool(size=1)
    house.tool(handlers.waits, pool)
    house.tool(handlers.add, pool)
    await house.open()
    async with house.probe() as probe:
        asked = await begun(probe, "waits")
        house.provider.processes[0].lose(ProcessEnding(signal=11))
        answer = (await probe.answer(asked))["result"]
        assert answer == {"content": [{"type": "text", "text": SEGFAULT}], "isError": True}
        assert text_of(await probe.call("add", a=1, b=1)) == "2"
        assert sum(message.get("id") == asked for message in probe.received) == 1
    assert house.provider.attempts == 2


async def test_many_that_are_lost_at_once_are_replaced_at_once(house: House) -> None:
    house.tool(handlers.add, Pool(size=8, warm=8))
    await house.open()
    await settled()
    async with house.probe() as probe:
        for process in tuple(house.provider.processes):
            process.lose(ProcessEnding(lost=True))
        await settled()
        assert house.provider.open_processes == 8
        assert text_of(await probe.call("add", a=1, b=1)) == "2"


async def test_calls_behind_a_hung_one_are_served_by_the_next_worker(house: House) -> None:
    pool = Pool(size=1)
    house.tool(handlers.waits, pool)
    house.tool(handlers.add, pool)
    await house.open()
    async with house.probe() as probe:
        await begun(probe, "waits")
        others = [asyncio.ensure_future(probe.call("add", a=number, b=0)) for number in range(10)]
        await settled()
        house.provider.processes[0].lose(ProcessEnding(code=1))
        assert [text_of(each) for each in await asyncio.gather(*others)] == [str(number) for number in range(10)]


async def test_resources_and_prompts_get_an_error_that_says_it(house: House) -> None:
    pool = Pool(size=1)
    house.resource("test://waits", handlers.waits, pool)
    await house.open()
    async with house.probe() as probe:
        asked = await probe.ask("resources/read", {"uri": "test://waits"})
        await probe.wait_for_notifications("notifications/message")
        house.provider.processes[0].lose(ProcessEnding(code=3))
        error = (await probe.answer(asked))["error"]
        assert error["message"] == "Internal error: its process exited with code 3"


async def test_a_worker_proxy_may_die_too(house: House) -> None:
    pool = Pool(size=1)
    house.tool(handlers.waits, pool)
    house.tool(handlers.add, pool)
    await house.open()
    async with house.probe() as probe:
        asked = await begun(probe, "waits")
        proxy = house.provider.processes[0].warmer
        assert proxy is not None
        kill(proxy)
        answer = (await probe.answer(asked))["result"]
        assert answer["isError"]
        assert text_of(await probe.call("add", a=1, b=1)) == "2"


async def test_a_call_that_was_taken_back_before_its_worker_proxy_read_it_is_run_by_the_other_worker_alone(
    house: House,
) -> None:
    """A worker proxy that is held up finds calls in its mailbox that are another's by now."""
    pool = Pool(size=2, warm=2)
    house.provider.locks = StartLocks.made
    for function in (handlers.naps, handlers.notes):
        house.tool(function, pool)
    await house.open()
    await settled()
    handlers.NOTED.clear()
    async with house.probe() as probe:
        short, long = [
            await probe.ask("tools/call", {"name": "naps", "arguments": {"seconds": seconds}}) for seconds in (0.1, 2.0)
        ]
        await probe.answer(short)
        for number in range(5):  # the second worker's numbers are ahead of the first's
            await probe.call("notes", text=f"before {number}")
        short = await probe.ask("tools/call", {"name": "naps", "arguments": {"seconds": 0.5}})
        await asyncio.sleep(0.1)
        held_up = house.provider.processes[0].warmer
        await suspend(held_up)
        noted = await probe.ask("tools/call", {"name": "notes", "arguments": {"text": "once"}})
        await probe.answer(noted)  # by the second worker, behind its nap
        await resume(held_up)
        for each in (long, short):
            assert text_of((await probe.answer(each))["result"]) == "rested"
        for number in range(20):
            assert text_of(await probe.call("notes", text=f"after {number}")) == f"after {number}"
    assert handlers.NOTED.count("once") == 1
    house.provider.processes.clear()  # each holds a file


async def test_a_call_that_a_worker_is_given_twice_before_its_worker_proxy_read_either_leaves_no_other_without_an_answer(
    house: House,
) -> None:
    """The scheduler has been held up, and finds all of this at once: a call, that the one before it lasts, and that this has ended."""
    pool = Pool(size=1)
    house.provider.locks = StartLocks.made
    for function in (handlers.naps, handlers.notes):
        house.tool(function, pool)
    await house.open()
    async with house.probe() as probe:
        await probe.call("notes", text="loaded")
        napping = await probe.ask("tools/call", {"name": "naps", "arguments": {"seconds": 0.2}})
        asked = [await probe.ask("tools/call", {"name": "notes", "arguments": {"text": "second"}})]
        await asyncio.sleep(0.01)
        scheduler = whereis(house.company.pools._name("pool", pool))
        assert scheduler is not None
        await suspend(scheduler)
        asked.append(await probe.ask("tools/call", {"name": "notes", "arguments": {"text": "third"}}))
        await asyncio.sleep(0.5)
        await resume(scheduler)
        asked.append(await probe.ask("tools/call", {"name": "notes", "arguments": {"text": "fourth"}}))
        for each in (napping, *asked):
            assert not (await probe.answer(each))["result"]["isError"]
        for number in range(20):
            assert text_of(await probe.call("notes", text=str(number))) == str(number)
    house.provider.processes.clear()  # each holds a file


async def test_a_handler_that_cannot_be_found_any_more_fails_one_call_and_starts_no_second_worker(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool(size=1)
    house.provider.locks = StartLocks.made  # so that calls are given before their turn
    house.tool(handlers.naps, pool)
    await house.open()
    async with house.probe() as probe:
        assert text_of(await probe.call("naps", seconds=0)) == "rested"
        house.tool(handlers.add, pool)
        monkeypatch.delattr(handlers, "add")
        napping = await probe.ask("tools/call", {"name": "naps", "arguments": {"seconds": 1}})
        await settled()
        assert (await probe.call("add", a=1, b=1))["isError"]
        assert text_of((await probe.answer(napping))["result"]) == "rested"
        house.provider.processes[0].lose(ProcessEnding(code=3))
        await settled()
        for _ in range(3):
            assert text_of(await probe.call("naps", seconds=0)) == "rested"
    house.provider.processes.clear()  # each holds a file


async def test_the_scheduler_may_die_and_the_pool_begins_anew(house: House) -> None:
    pool = Pool(size=1)
    house.tool(handlers.waits, pool)
    house.tool(handlers.add, pool)
    await house.open()
    async with house.probe() as probe:
        asked = await begun(probe, "waits")
        scheduler = whereis(house.company.pools._name("pool", pool))
        assert scheduler is not None
        kill(scheduler)
        assert (await probe.answer(asked))["result"]["isError"]
        assert text_of(await probe.call("add", a=1, b=1)) == "2"
        assert house.provider.open_processes == 1


# --- not come up


async def test_a_worker_that_does_not_come_up_says_why_in_the_log_and_is_not_tried_for_ever(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    house.tool(handlers.add, Pool(size=2, warm=2))
    house.provider.refuses = NodeFailed("w1", "there are no processes left")
    await house.open()
    async with house.probe() as probe:
        await asyncio.sleep(60)
        attempts = house.provider.attempts
        assert attempts < 20
        for _ in range(50):
            failed = await probe.call("add", a=1, b=1)
            assert failed["isError"]
            assert text_of(failed) == "Tool execution failed: its process could not be started"
        assert "there are no processes left" in caplog.text
        assert house.provider.attempts - attempts <= 2
        house.provider.refuses = None
        await asyncio.sleep(31)
        assert text_of(await probe.call("add", a=1, b=1)) == "2"


@pytest.mark.parametrize("exposed", [False, True])
@pytest.mark.parametrize("runs_already", [False, True])
async def test_a_handler_that_cannot_be_loaded_says_so_to_each_caller_and_why_to_the_log(
    house: House, provider: LocalProvider, *, exposed: bool, runs_already: bool, caplog: pytest.LogCaptureFixture
) -> None:
    house.company = Company(Settings(name="test", expose_errors=exposed), process_provider=provider)
    pool = Pool(size=1)
    if runs_already:
        house.tool(handlers.pid, pool)
    else:
        house.tool(handlers.add, pool)
    await house.open()
    async with house.probe() as probe:
        if runs_already:
            assert not (await probe.call("pid")).get("isError")
            house.tool(handlers.add, pool)
        handler = house.company.catalogue_ref.current.tool("add").handler  # type: ignore[union-attr]
        place = type(handler.import_path)("no.such.module", "add")  # type: ignore[misc]
        scheduler = await house.company.pools.scheduler(pool)
        await scheduler.call(_mislead, handler.number, place)
        told = "no.such.module:add cannot be imported by a worker: ModuleNotFoundError"
        for _ in range(2):
            failed = await probe.call("add", a=1, b=1)
            assert failed["isError"]
            if exposed:
                assert told in text_of(failed)
            else:
                why = "a worker could not import its handler" if runs_already else "its process could not be started"
                assert text_of(failed) == f"Tool execution failed: {why}"
    assert told in caplog.text


def _mislead(scheduler: Any, number: int, place: Any) -> None:
    from greenroom.actors.pools.handler_spec import HandlerSpec, _encoder  # noqa: PLC0415 - here only

    scheduler._specs[number] = _encoder.encode(HandlerSpec("tool", "add", place, None, {}))


async def test_a_worker_that_dies_idle_is_not_restarted_again_and_again(house: House) -> None:
    house.tool(handlers.add, Pool(size=1, warm=1))
    await house.open()
    for _ in range(600):
        await asyncio.sleep(0.1)
        if house.provider.open_processes:
            house.provider.processes[-1].lose(ProcessEnding(signal=11))
    assert 3 < house.provider.attempts < 20


@pytest.mark.parametrize("size", [1, 3])
async def test_every_call_has_one_outcome_whatever_happens_to_workers(
    house: House, provider: LocalProvider, size: int
) -> None:
    pool = Pool(size=size, queue=500)
    house.tool(handlers.pauses, pool)
    await house.open()
    async with house.probe() as probe:
        asked = [await probe.ask("tools/call", {"name": "pauses", "arguments": {"seconds": 0.05}}) for _ in range(200)]
        for number in range(100):
            await asyncio.sleep(0.013)
            alive = [process for process in provider.processes if process.is_open]
            if alive:
                alive[number % len(alive)].lose(ProcessEnding(signal=9))
        answers = [(await probe.answer(each, within=120))["result"] for each in asked]
        assert len(answers) == 200
        assert {text_of(each).partition(":")[0] for each in answers} <= {"paused", "Tool execution failed"}
        assert len({message["id"] for message in probe.received if "result" in message}) == 201
        assert sum("result" in message for message in probe.received) == 201


@pytest.mark.parametrize(
    ("error", "logged", "told"),
    [
        (
            StartFailed(Crash(RemoteError("NotLoaded", "a:f cannot be imported by a worker: MemoryError"))),
            "a:f cannot be imported by a worker: MemoryError; its memory limit is 70 MiB, which is too little for what it imports",
            "its process could not be started; its memory limit is 70 MiB, which is too little for what it imports",
        ),
        (
            StartFailed(
                Crash(RemoteError("NotLoaded", "ImportError: libx.so: failed to map segment from shared object"))
            ),
            "shared object; its memory limit is 70 MiB, which is too little for what it imports",
            "its process could not be started; its memory limit is 70 MiB, which is too little for what it imports",
        ),
        (
            StartFailed(Crash(RemoteError("NotLoaded", "ImportError: no module named x"))),
            "ImportError: no module named x",
            "its process could not be started",
        ),
    ],
)
async def test_a_worker_without_memory_for_its_imports_names_the_limit_to_the_caller_and_in_the_log(
    house: House, caplog: pytest.LogCaptureFixture, error: Exception, logged: str, told: str
) -> None:
    house.provider.refuses = error
    house.tool(handlers.add, Pool(size=1, memory=70 * MIB))
    await house.open()
    async with house.probe() as probe:
        assert text_of(await probe.call("add", a=1, b=1)) == f"Tool execution failed: {told}"
    (line,) = [each.getMessage() for each in caplog.records if "did not start" in each.getMessage()]
    assert line.endswith(logged)


@pytest.mark.parametrize(
    ("memory", "code", "told"),
    [
        (70 * MIB, 1, "; its memory limit is 70 MiB, which may be too little for what it imports"),
        (70 * MIB, 3, ""),
        ("half", 1, ""),
        (None, 1, ""),
    ],
)
def test_a_process_that_ends_with_1_before_its_first_call_may_have_had_too_little_memory(
    memory: Any, code: int, told: str
) -> None:
    reason = Crash(NodeLost("node-1", ProcessEnding(code=code)))
    text = why_not_begun(reason, Pool(memory=memory))
    assert text == f"its process exited with code {code} before it could take a call{told}"
