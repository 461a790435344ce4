"""Actors of a Thespian system as tools: each call has one outcome, whatever the actor does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.thespian_guests.programs import theirs

from greenroom import Client, RegistrationError, Server
from greenroom.supervision.cluster.foreign_actor import (
    ActorGone,
    ActorNotMade,
    ActorPoisoned,
    ActorSilent,
    ForeignActor,
    is_simple,
)
from greenroom.supervision.cluster.thespian_patches import ActorExitRequest

from .systems import simple

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom import ToolReply

pytestmark = [
    pytest.mark.greenroom(clock="real"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # of Thespian's own endpoints
]
OF_PROCESSES = pytest.mark.parametrize("system", ["processes"], indirect=True)
SOON = 5.0
CALCULATOR = f"{theirs.__name__}.Calculator"


def value(reply: theirs.Sum) -> int:
    return reply.value


def sum_of(*many: int) -> int:
    return sum(many)


async def until(true: Callable[[], object]) -> None:
    """Poll until it is so: there is no event for it."""
    late = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < late
        await asyncio.sleep(0.01)


async def outcome(system: Any, arguments: dict[str, Any], **said: Any) -> ToolReply:
    server = Server("theirs")
    server.thespian_tool(system, said.pop("actor", CALCULATOR), "it", **said)
    async with Client(server) as client:
        return await client.call_tool("it", arguments)


async def test_a_message_class_is_the_schema_and_the_reply_is_the_result(system: Any) -> None:
    server = Server("theirs")
    server.thespian_tool(system, theirs.Calculator, "add", request=theirs.Add, reply=value)
    server.thespian_tool(system, theirs.Calculator, request=theirs.Note)
    async with Client(server) as client:
        note, add = await client.list_tools()
        assert add.input_schema["properties"]["a"] == {"type": "integer", "description": "The first of them."}
        assert add.input_schema["required"] == ["a"]
        assert add.description == "Add two numbers."
        assert add.output_schema is not None
        assert (note.name, note.description) == ("Note", None)
        assert await client.call("add", a=2, b=3) == 5
        assert await client.call("add", a=2) == 3
        assert await client.call("Note", text="milk") == "milk []"
        refused = await client.call_tool("add", {"a": "two"})
        assert refused.is_error
        assert "expected an integer" in refused.text


async def test_a_function_may_make_the_message(system: Any) -> None:
    def twice(n: int) -> theirs.Add:
        """Double it."""
        return theirs.Add(n, n)

    reply = await outcome(system, {"n": 4}, request=twice, reply=value)
    assert (reply.is_error, reply.data) == (False, 8)


async def test_an_actor_that_is_there_already_is_asked_by_its_address(system: Any) -> None:
    address = system.createActor(CALCULATOR)
    reply = await outcome(system, {"a": 1, "b": 1}, actor=address, request=theirs.Add, reply=value)
    assert reply.data == 2


async def test_an_exception_of_the_actor_is_a_tool_error_with_its_reason(system: Any) -> None:
    reply = await outcome(system, {"how": "raise"}, request=theirs.Misbehave)
    assert reply.is_error
    assert reply.text == "Calculator has failed at the message: ValueError: that is more than I can take"


async def test_silence_is_an_error_when_the_time_is_over(system: Any) -> None:
    reply = await outcome(system, {"how": "silence"}, request=theirs.Misbehave, timeout=0.2)
    assert (reply.is_error, reply.text) == (True, "Calculator has not answered within 0.2 s")


async def test_an_actor_that_ends_instead_of_answering_is_an_error_at_once_and_another_one_is_made(system: Any) -> None:
    server = Server("theirs")
    server.thespian_tool(system, theirs.Calculator, "how", request=theirs.Misbehave, timeout=60)
    how = "exit" if is_simple(system) else "kill"
    async with Client(server) as client:
        before = time.monotonic()
        reply = await client.call_tool("how", {"how": how})
        assert reply.is_error
        assert "has ended before it answered" in reply.text
        assert time.monotonic() - before < SOON
        assert (await client.call("how", how="pid")).isdecimal()


async def test_an_actor_that_cannot_be_made_is_an_error(system: Any) -> None:
    for actor in (f"{theirs.__name__}.Stillborn", "nowhere.Missing"):
        reply = await outcome(system, {"a": 1}, actor=actor, request=theirs.Add)
        assert reply.is_error
        assert f"{actor.rpartition('.')[2]} cannot be started" in reply.text or "not there" in reply.text


def test_a_late_answer_is_nobodys(system: Any) -> None:
    actor = ForeignActor(system, theirs.Calculator)
    if is_simple(system):
        assert actor.ask(theirs.Misbehave("twice")) == "once"
        assert actor.ask(theirs.Add(1, 1)) == theirs.Sum(2)
    with pytest.raises(ActorSilent):
        actor.ask(theirs.Misbehave("late", 0.1), 0.02)
    replies = [actor.ask(theirs.Add(n, 1), SOON) for n in range(20)]
    assert replies == [theirs.Sum(n + 1) for n in range(20)]
    actor.close()


def test_the_address_of_a_dead_actor_is_an_error_at_once(system: Any) -> None:
    address = system.createActor(CALCULATOR)
    actor = ForeignActor(system, address)
    assert actor.ask(theirs.Add(1, 1), SOON) == theirs.Sum(2)
    process = Path(f"/proc/{actor.ask(theirs.Misbehave('pid'), SOON)}")
    system.tell(address, ActorExitRequest())
    late = time.monotonic() + SOON
    while process.exists() and not is_simple(system) and time.monotonic() < late:
        time.sleep(0.01)
    before = time.monotonic()
    with pytest.raises((ActorGone, ActorSilent)) as caught:
        actor.ask(theirs.Add(1, 1), 60.0)
    assert time.monotonic() - before < SOON
    assert is_simple(system) or isinstance(caught.value, ActorGone)


def test_many_ask_at_once_and_each_hears_its_own(system: Any) -> None:
    actor = ForeignActor(system, theirs.Calculator)
    heard: dict[int, Any] = {}

    def ask(number: int) -> None:
        heard[number] = actor.ask(theirs.Add(number, 0), SOON)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    actor.close()
    assert heard == {number: theirs.Sum(number) for number in range(8)}


@OF_PROCESSES
async def test_a_call_that_is_cancelled_gives_its_thread_back(system: Any) -> None:
    server = Server("theirs")
    server.thespian_tool(system, theirs.Calculator, "how", request=theirs.Misbehave, timeout=600)
    async with Client(server) as client:
        call = asyncio.ensure_future(client.call_tool("how", {"how": "silence"}))
        await until(lambda: server.company.bulkheads.running == 1)
        call.cancel()
        await until(lambda: server.company.bulkheads.running == 0)
        assert call.cancelled()


@OF_PROCESSES
async def test_an_actor_made_for_a_server_ends_with_it(system: Any) -> None:
    server = Server("theirs")
    server.thespian_tool(system, theirs.Calculator, "how", request=theirs.Misbehave)
    async with server.started(), Client(server) as client:
        pid = int(await client.call("how", how="pid"))
        os.kill(pid, 0)
    await until(lambda: not Path(f"/proc/{pid}").exists())


def test_no_endpoint_is_left(system: Any) -> None:
    actor = ForeignActor(system, theirs.Calculator)
    actor.ask(theirs.Add(1, 1), SOON)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for how in ("raise", "silence", "pid"):
        try:
            actor.ask(theirs.Misbehave(how), 0.05)
        except (ActorPoisoned, ActorSilent):
            continue
    actor.close()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"request": 3}, "give the message's class"),
        ({"request": theirs.Add, "reply": 3}, "takes the actor's reply"),
        ({"request": theirs.Add, "isolation": "loop"}, "waits in a thread"),
        ({"request": sum_of}, "take a list"),
        ({"request": theirs.Add, "actor": 3}, "an actor is its address"),
        ({"request": theirs.Add, "timeout": -1}, "timeout is more than 0"),
        ({"request": theirs.Add, "descriptoin": ""}, "did you mean description"),
    ],
)
def test_errors_of_a_tool_are_raised_at_registration(said: dict[str, Any], complaint: str) -> None:
    with simple() as system, pytest.raises(RegistrationError, match=complaint):
        Server("theirs").thespian_tool(system, said.pop("actor", theirs.Calculator), "it", **said)


def test_something_else_than_a_system_is_refused() -> None:
    with pytest.raises(RegistrationError, match="is no ActorSystem"):
        Server("theirs").thespian_tool("system", theirs.Calculator, request=theirs.Add)


def test_errors_say_who_and_why() -> None:
    assert str(ActorPoisoned("it", None)) == "it has failed at the message: it did not say why"
    assert "importable" in str(ActorNotMade("it", "its module has to be importable there"))


@OF_PROCESSES
def test_an_actor_that_takes_long_to_start_is_silent_and_is_not_started_twice(system: Any) -> None:
    actor = ForeignActor(system, theirs.Calculator)
    with pytest.raises(ActorSilent):
        actor.ask(theirs.Add(1, 1), 0.000_001)
    first = actor._watcher
    assert actor.ask(theirs.Add(1, 1), SOON) == theirs.Sum(2)
    assert actor._watcher is first
    actor.close()


def test_an_watcher_that_is_gone_is_replaced(system: Any) -> None:
    actor = ForeignActor(system, theirs.Calculator)
    assert actor.ask(theirs.Add(1, 1), SOON) == theirs.Sum(2)
    first = actor._watcher
    assert first is not None
    system.tell(first, ActorExitRequest())
    late = time.monotonic() + SOON
    while True:
        with contextlib.suppress(ActorGone, ActorSilent, ActorNotMade):
            if actor.ask(theirs.Add(1, 2), 1.0) == theirs.Sum(3) and actor._watcher is not first:
                break
        assert time.monotonic() < late
    actor.close()
