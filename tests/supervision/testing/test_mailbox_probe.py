"""The probe records, waits on the loop's clock, and does what a process can do."""

from __future__ import annotations

import asyncio
from unittest.mock import ANY

import pytest

from greenroom.supervision import (
    ActorError,
    Crash,
    Down,
    Exit,
    GenServer,
    Killed,
    Normal,
    ProcessExited,
    Shutdown,
    is_alive,
    kill,
    send,
    send_after,
    start,
    start_link,
    stop,
    whereis,
)
from greenroom.supervision.testing import Probe, ProbeCrash, ReceivedAsk, ReceivedCall, ReceivedTell


class Echo(GenServer):
    def handle_info(self, message: tuple[object, object]) -> None:
        to, what = message
        send(to, what)

    def boom(self) -> None:
        raise ValueError("boom")


async def test_messages_come_in_order_and_with_their_time() -> None:
    probe = Probe()
    send_after(1, probe, "late")
    send(probe, "early")
    assert await probe.expect(str, within=2) == "early"
    assert await probe.expect("late", within=2) == "late"
    assert [(each.at, each.message) for each in probe.received] == [(0, "early"), (1, "late")]
    assert probe.pending == []


async def test_expect_takes_what_fits_and_leaves_the_rest() -> None:
    probe = Probe()
    for message in (1, "two", 3, 40):
        send(probe, message)
    assert await probe.expect(int, lambda number: number > 10) == 40

    def is_text(message: object) -> bool:
        return isinstance(message, str)

    assert await probe.expect(is_text) == "two"
    assert probe.pending == [1, 3]


async def test_expect_fails_in_time_and_says_what_came() -> None:
    probe = Probe("ear")
    send(probe, "noise")
    with pytest.raises(
        AssertionError, match=r"ear <node\.1>> did not get int within 3 s; these came:\n  at 0 s: 'noise'"
    ):
        await probe.expect(int, within=3)
    assert asyncio.get_running_loop().time() == 3
    await probe.expect("noise")
    with pytest.raises(AssertionError, match="1 messages came, and all were expected"):
        await probe.expect(int)
    with pytest.raises(AssertionError, match="nothing came"):
        await Probe().expect(Down, lambda down: down.pid is None)


async def test_nothing_is_expected_for_as_long_as_asked() -> None:
    probe = Probe()
    send_after(5, probe, "later")
    await probe.expect_nothing(within=4.5)
    with pytest.raises(AssertionError, match="expected nothing, and got 'later'"):
        await probe.expect_nothing(within=1)
    await probe.expect_nothing(int, within=1)
    with pytest.raises(AssertionError, match="expected no str that fits, and got 'later'"):
        await probe.expect_nothing(str, str.isalpha)
    assert asyncio.get_running_loop().time() == 6


async def test_a_probe_monitors() -> None:
    probe = Probe()
    one, two = await start(Echo), await start(Echo)
    watch = probe.monitor(one)
    probe.monitor(two)
    kill(one)
    two.cast(Echo.boom)
    assert await probe.expect_down(watch) == Killed()
    assert isinstance(await probe.expect_down(two), Crash)


async def test_a_monitor_that_was_ended_brings_nothing() -> None:
    probe = Probe()
    echo = await start(Echo)
    assert probe.demonitor(probe.monitor(echo), flush=True)
    kill(echo)
    await probe.expect_nothing()


async def test_a_probe_links_and_traps() -> None:
    probe = Probe()
    echo = await start(Echo)
    probe.link(echo)
    await stop(echo, Shutdown("enough"))
    assert await probe.expect_exit(echo) == Shutdown("enough")
    assert probe.reason is None


async def test_a_probe_that_does_not_trap_dies_with_a_linked_process() -> None:
    probe = Probe(trap_exit=False)
    echo = await start(Echo)
    probe.link(echo)
    kill(echo)
    with pytest.raises(AssertionError, match="cannot get str any more: it is dead; nothing came"):
        await probe.expect(str)
    assert probe.reason == Killed()
    await probe.expect_nothing()
    assert repr(probe).endswith("killed>")


async def test_unlinked_they_die_apart() -> None:
    probe = Probe(trap_exit=False)
    echo = await start(Echo)
    probe.link(echo)
    probe.unlink(echo)
    kill(echo)
    await probe.expect_nothing()
    assert probe.reason is None


async def test_a_probe_crashes_on_demand_and_its_linked_processes_with_it() -> None:
    probe = Probe()
    echo = await probe.act(start_link, Echo)
    probe.crash()
    witness = Probe()
    assert await witness.expect_down(witness.monitor(echo)) is not None
    assert isinstance(probe.reason, Crash)
    assert isinstance(probe.reason.error, ProbeCrash)
    error = OSError("disk")
    other = Probe()
    other.crash(error)
    assert other.reason == Crash(error)


async def test_a_probe_stops_on_demand_and_on_request() -> None:
    probe = Probe()
    probe.stop()
    assert probe.reason == Normal()
    other = Probe()
    await stop(other.ref, Shutdown())
    assert other.reason == Shutdown()
    assert not is_alive(other)


async def test_a_probe_sends_exit_signals_of_its_own() -> None:
    probe, victim = Probe(), Probe()
    probe.exit(victim, Shutdown("go"))
    assert await victim.expect(Exit) == Exit(probe.pid, Shutdown("go"))
    victim.trap_exit(on=False)
    probe.exit(victim, Shutdown("go"))
    assert victim.reason == Shutdown("go")


async def test_a_probe_stands_in_for_a_server() -> None:
    probe = Probe(name="echo")
    assert whereis("echo") == probe.pid
    asking = asyncio.create_task(probe.ref.ask("how many?"))
    asked = await probe.expect(ReceivedAsk)
    assert asked.request == "how many?"
    asked.caller.reply(3)
    assert await asking == 3
    calling = asyncio.create_task(probe.ref.call(Echo.boom))
    called = await probe.expect(ReceivedCall)
    assert called.method is Echo.boom
    assert called.caller is not None
    called.caller.fail(KeyError("no"))
    with pytest.raises(KeyError):
        await calling
    assert probe.ref.cast(Echo.boom)
    assert await probe.expect(ReceivedCall(Echo.boom, (), {}, None))
    assert probe.ref.tell("news")
    assert await probe.expect(ReceivedTell("news"))
    unanswered = asyncio.create_task(probe.ref.ask("?"))
    await probe.expect(ReceivedAsk)
    probe.crash()
    with pytest.raises(ProcessExited):
        await unanswered


async def test_values_are_compared_with_wildcards() -> None:
    probe = Probe()
    echo = await start(Echo)
    probe.monitor(echo)
    await stop(echo)
    assert await probe.expect(Down(ANY, echo.pid, Normal()))


async def test_expect_down_refuses_an_unknown_name() -> None:
    with pytest.raises(ActorError, match="no process is registered as 'missing'"):
        await Probe().expect_down("missing")


async def test_replies_reach_it_from_other_processes(probe: Probe) -> None:
    echo = await start(Echo)
    echo.send((probe.pid, "hello"))
    assert await probe.expect(str) == "hello"
