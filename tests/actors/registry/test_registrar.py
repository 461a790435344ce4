"""The registrar: it keeps callers waiting until it is ready, writes one entry after the other, and loses nothing when it dies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.catalogue import RegistrationError
from greenroom.actors.catalogue_entries import tool_entry
from greenroom.actors.server_registry import CatalogueRegistrar, RegistrarState
from greenroom.supervision import (
    CallTimeout,
    GenServer,
    NotRegistered,
    ProcessExited,
    is_alive,
    register,
    start,
    stop,
    wait_down,
)
from greenroom.supervision.introspect import get_state
from greenroom.supervision.statem import draw
from greenroom.supervision.testing import kill, restart_of

from .registry_services import RegistryServices, start_registry

if TYPE_CHECKING:
    from greenroom.supervision.testing import CollectedReports


async def hello(name: str) -> str:
    return f"hello {name}"


class Database(GenServer):
    """A process that a company waits for."""


@pytest.mark.row("RG-02", "RG-03")
async def test_without_anything_to_wait_for_it_is_ready_at_once(services: RegistryServices) -> None:
    await services.registry.ready(timeout=0.1)
    await services.registry.register_tool("hello", hello)
    assert [name for name, _ in services.registry.list_tools()] == ["hello"]


@pytest.mark.row("RG-01", "RG-02")
async def test_the_registrar_waits_for_a_process_and_its_callers_wait_too() -> None:
    services = await start_registry(wait_for="database")
    loop = asyncio.get_running_loop()
    began = loop.time()
    asked = [asyncio.create_task(services.registry.register_tool(f"t{n}", hello)) for n in range(3)]
    asked.append(asyncio.create_task(services.registry.ready(timeout=None)))
    await asyncio.sleep(60)
    assert not any(task.done() for task in asked)
    assert services.registry.list_tools() == []
    database = await start(Database)
    register("database", database.pid)
    await asyncio.gather(*asked)
    assert loop.time() - began < 61
    assert [name for name, _ in services.registry.list_tools()] == ["t0", "t1", "t2"]


@pytest.mark.row("RG-03")
async def test_waiting_for_it_has_a_deadline() -> None:
    services = await start_registry(wait_for="database")
    with pytest.raises(CallTimeout):
        await services.registry.ready(timeout=2.0)
    assert is_alive("registry")


@pytest.mark.row("RG-03")
async def test_a_registry_that_was_never_started_raises_not_registered() -> None:
    with pytest.raises(NotRegistered):
        await RegistryServices().registry.ready()


@pytest.mark.row("RG-02")
@pytest.mark.parametrize("kind", ["event", "coroutine", "future", "function"])
async def test_the_registrar_waits_for_anything_awaitable(kind: str) -> None:
    event = asyncio.Event()

    async def comes() -> None:
        await event.wait()

    future = asyncio.ensure_future(event.wait()) if kind == "future" else None
    wait_for: Any = {"event": event, "coroutine": None, "future": future, "function": comes}[kind]
    services = await start_registry(wait_for=comes() if kind == "coroutine" else wait_for)
    ready = asyncio.create_task(services.registry.ready(timeout=None))
    await asyncio.sleep(10)
    assert not ready.done()
    event.set()
    await ready


async def test_a_wait_that_would_block_the_loop_is_refused() -> None:
    import threading  # noqa: PLC0415 - the mistake itself

    with pytest.raises(TypeError, match="blocks"):
        await start_registry(wait_for=threading.Event())


@pytest.mark.row("RG-01")
@pytest.mark.parametrize("kind", ["event", "coroutine"])
async def test_a_registrar_that_dies_waiting_has_a_successor_that_waits_on(kind: str) -> None:
    event = asyncio.Event()
    services = await start_registry(wait_for=event if kind == "event" else event.wait())
    await kill(services.registrar, successor=True)
    ready = asyncio.create_task(services.registry.ready(timeout=None))
    await asyncio.sleep(1)
    assert not ready.done()
    event.set()
    await ready


@pytest.mark.row("RG-01")
async def test_once_it_was_ready_every_successor_is_at_once() -> None:
    event = asyncio.Event()
    services = await start_registry(wait_for=event)
    event.set()
    await services.registry.ready()
    event.clear()
    await kill(services.registrar, successor=True)
    await services.registry.ready(timeout=0.1)


@pytest.mark.parametrize("error", [ValueError("no database"), SystemExit(3)])
async def test_a_failed_wait_keeps_the_registrar_from_coming_up(error: BaseException) -> None:
    async def fails() -> None:
        await asyncio.sleep(1)
        raise error

    services = await start_registry(wait_for=fails())
    reason = await wait_down(services.supervisor, timeout=600)
    assert "intensity" in str(reason).lower()


async def test_a_registrar_killed_while_it_waits_has_a_successor_that_waits() -> None:
    event = asyncio.Event()
    services = await start_registry(wait_for=event)
    async with restart_of(services.registrar):
        await kill((await get_state(services.registrar))["_waiter"])
    ready = asyncio.create_task(services.registry.ready(timeout=None))
    await asyncio.sleep(1)
    assert not ready.done()
    event.set()
    await ready


async def test_unexpected_messages_are_reported_while_the_registrar_waits(reports: CollectedReports) -> None:
    services = await start_registry(wait_for="database")
    services.registrar.send("what?")
    with pytest.raises(CallTimeout):
        await services.registry.ready(timeout=1)
    assert any("what?" in str(report) for report in reports)


async def test_stopping_the_company_ends_the_wait() -> None:
    ended: list[str] = []

    async def comes() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("abandoned")

    services = await start_registry(wait_for=comes())
    await asyncio.sleep(1)
    await stop(services.supervisor)
    await asyncio.sleep(0)
    assert ended == ["abandoned"]


@pytest.mark.row("RG-04", "RG-05")
async def test_writes_are_whole_or_nothing(services: RegistryServices) -> None:
    await services.registry.register_tool("first", hello)
    with pytest.raises(RegistrationError, match="there is a tool 'first' already"):
        await services.registry.put(tool_entry("second", hello), tool_entry("first", hello), replace=False)
    assert [name for name, _ in services.registry.list_tools()] == ["first"]
    before = services.catalogue_ref.current
    await services.registry.put(tool_entry("second", hello), tool_entry("third", hello))
    assert before.count("tool") == 1
    assert services.catalogue_ref.current.version == before.version + 2


@pytest.mark.row("RG-04")
async def test_writes_are_serialized(services: RegistryServices) -> None:
    await asyncio.gather(*(services.registry.register_tool(f"t{n % 10}", hello) for n in range(100)))
    assert services.catalogue_ref.current.count("tool") == 10
    assert services.catalogue_ref.current.version == 100


@pytest.mark.row("RG-04")
async def test_reading_asks_no_process(services: RegistryServices) -> None:
    await services.registry.register_tool("hello", hello)
    await stop(services.supervisor)
    assert [name for name, _ in services.registry.list_tools()] == ["hello"]
    assert await services.registry.call_tool("hello", {"name": "Ada"}) == "hello Ada"


@pytest.mark.row("RG-04", "RG-05")
async def test_registrations_survive_a_crash(services: RegistryServices) -> None:
    for n in range(5):
        await services.registry.register_tool(f"t{n}", hello)
    await kill(services.registrar, successor=True)
    assert services.catalogue_ref.current.count("tool") == 5
    await services.registry.register_tool("after", hello)
    assert services.catalogue_ref.current.count("tool") == 6


async def test_callers_of_a_registrar_that_dies_get_an_error() -> None:
    services = await start_registry(wait_for="database")
    asked = asyncio.create_task(services.registry.register_tool("hello", hello))
    await asyncio.sleep(1)
    await kill(services.registrar, successor=True)
    with pytest.raises(ProcessExited):
        await asked
    assert services.registry.list_tools() == []


@pytest.mark.greenroom(seeds=20)
async def test_a_registrar_that_is_killed_amid_writes_has_written_each_of_them_or_not(
    services: RegistryServices,
) -> None:
    done: list[str] = []

    async def write(n: int) -> None:
        try:
            await services.registry.put(tool_entry(f"a{n}", hello), tool_entry(f"b{n}", hello))
        except ProcessExited:
            return
        done.append(str(n))

    writing = [asyncio.create_task(write(n)) for n in range(30)]
    await asyncio.sleep(0)
    await kill(services.registrar, successor=True)
    await asyncio.gather(*writing)
    names = {name for name, _ in services.registry.list_tools()}
    assert {name[1:] for name in names if name[0] == "a"} == {name[1:] for name in names if name[0] == "b"}
    assert {f"a{n}" for n in done} <= names


async def test_a_cast_that_cannot_be_registered_is_reported_and_the_registrar_goes_on(
    services: RegistryServices, reports: CollectedReports
) -> None:
    services.registrar.cast(CatalogueRegistrar.put, [tool_entry("t", hello)], replace=False)
    services.registrar.cast(CatalogueRegistrar.put, [tool_entry("t", hello)], replace=False)
    await services.registry.ready()
    assert any("already" in str(report) for report in reports)
    services.registrar.cast(CatalogueRegistrar.drop, "tool", "t")
    await services.registry.ready()
    assert services.catalogue_ref.current.count("tool") == 0


async def test_the_registrars_state_can_be_read_and_drawn() -> None:
    services = await start_registry(wait_for="database")
    assert (await get_state(services.registrar))["state"] is RegistrarState.NOT_READY
    assert "NOT_READY --> READY" in draw(CatalogueRegistrar)


async def test_an_unexpected_message_is_reported(services: RegistryServices, reports: CollectedReports) -> None:
    services.registrar.send("what?")
    await services.registry.ready()
    assert any("what?" in str(report) for report in reports)


async def test_a_crash_is_followed_by_another_registrar(services: RegistryServices) -> None:
    async with restart_of(services.registrar):
        services.registrar.cast(CatalogueRegistrar.put, [None])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    await services.registry.ready()
