"""Odd messages to another node: nonsense to a spawn server, a start on the own node, a reason that cannot be encoded."""

from __future__ import annotations

import pytest

from greenroom.supervision import ActorError, Crash, Down, On, Ref, Shutdown, exit, inbox, is_alive, monitor, stop
from greenroom.supervision.cluster.remote_spawn import SPAWN_SERVER, start_link_on, start_on
from greenroom.supervision.cluster.value_codec import RemoteError

from .two_nodes import Counter, pair

pytestmark = pytest.mark.greenroom(clock="real", name="one")


class Wordless:
    """A value that cannot travel, and whose str raises."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Local(Exception):
    """An error whose class only this program knows."""


async def test_an_spawn_server_that_is_asked_for_nonsense_says_what_it_is_for() -> None:
    async with pair(), inbox():
        spawn_server: Ref[object] = Ref(On(SPAWN_SERVER, "two"))
        with pytest.raises(TypeError, match="a spawn server starts processes and knows names; 'nonsense' is neither"):
            await spawn_server.ask("nonsense")
        assert await (await start_on("two", Counter)).call(Counter.add, 2) == 2


async def test_a_start_on_the_own_node_is_a_start_here() -> None:
    async with pair(), inbox() as me:
        ref = await start_on("one", Counter, 3)
        assert (ref.pid.node, await ref.call(Counter.add, 1)) == ("one", 4)
        linked = await start_link_on("one", Counter)
        await stop(linked)
        assert (await me.receive()).pid == linked.pid
        assert is_alive(ref)


@pytest.mark.parametrize(
    ("reason", "said"),
    [(Shutdown(Wordless()), "Wordless object at"), (Shutdown(object()), "<object object at")],
    ids=["without words", "that does not travel"],
)
async def test_a_reason_that_cannot_travel_is_told_in_words(reason: Shutdown, said: str) -> None:
    async with pair(), inbox() as me:
        ref = await start_on("two", Counter)
        monitor(ref)
        exit(ref, reason)
        down: Down = await me.receive()
        assert isinstance(down.reason, Shutdown)
        assert said in str(down.reason.detail)


async def test_an_error_that_cannot_travel_keeps_its_name() -> None:
    class Inner(Local):
        pass

    async with pair(), inbox() as me:
        ref = await start_on("two", Counter)
        monitor(ref)
        exit(ref, Crash(Inner("its words")))
        down: Down = await me.receive()
        assert isinstance(down.reason, Crash)
        assert isinstance(down.reason.error, RemoteError)
        assert "Inner" in str(down.reason.error)
        assert "its words" in str(down.reason.error)


async def test_an_item_too_long_for_a_link_is_refused_by_its_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    from greenroom.supervision.cluster import remote_node  # noqa: PLC0415 - for this alone

    async with pair(), inbox():
        ref = await start_on("two", Counter)
        monkeypatch.setattr(remote_node, "LARGEST", 100_000)
        with pytest.raises(ActorError, match="cannot travel to another node: at most 99995"):
            await ref.call(Counter.echo, bytes(200_000))
        assert await ref.call(Counter.echo, b"x") == b"x"
