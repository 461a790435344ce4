"""Guests that come and go: no request or subscription is mistaken for another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import pytest

from greenroom.actors.thespian_guests import guest_listener, guest_session
from greenroom.actors.thespian_guests.guest_session import JobAnswer, SubscriptionNews
from greenroom.actors.thespian_guests.guest_wire import (
    KIND,
    MOST_ITEMS,
    TO_GUEST,
    BadItem,
    guest_link_key,
    pack_item,
    payload_limit,
    unpack_items,
)
from greenroom.protocol.errors import PeerError
from greenroom.supervision import Ref, is_alive, kill, self_pid, start_child, which_children
from greenroom.supervision.cluster.framing import batch
from greenroom.supervision.cluster.polling_link import PollingLink
from greenroom.supervision.introspect import get_state

from .played_guest import KEY, SOON, PlayedGuest, open_house, until

if TYPE_CHECKING:
    from greenroom.actors.thespian_guests.guest_listener import GuestListener
    from greenroom.supervision import Pid

pytestmark = pytest.mark.greenroom(clock="real")
SKY = {"server": "weather", "uri": "sky://now"}


async def there(listener: GuestListener) -> list[Pid]:
    """The pids of the guest sessions."""
    return [pid for _, pid, *_ in await which_children(listener.name("sessions")) if pid is not None]


async def until_there(listener: GuestListener, count: int) -> None:
    async with asyncio.timeout(SOON):
        while len(await there(listener)) != count:  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.005)


# --- short sessions


async def test_a_guest_that_leaves_while_it_is_admitted_affects_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    started = start_child
    leaving: list[PlayedGuest] = []
    left = asyncio.Event()

    async def and_leaves(*args: Any) -> Any:
        made = await started(*args)
        leaving[0].link.close()
        await until(lambda: listener.guests == 1)
        left.set()
        return made

    async with open_house() as (_, listener):
        friend = await PlayedGuest(listener.address).enter()
        await friend.answer(friend.ask("ListServers"))
        acceptor = listener.acceptor
        monkeypatch.setattr(guest_listener, "start_child", and_leaves)
        leaving.append(PlayedGuest(listener.address))
        await leaving[0].enter()
        await asyncio.wait_for(left.wait(), SOON)
        await until_there(listener, 1)
        assert (await friend.answer(friend.ask("ListServers")))[0] == "Servers"
        assert listener.acceptor is acceptor
        friend.link.close()
        await until_there(listener, 0)


async def test_hundreds_of_brief_guests_harm_no_other() -> None:
    async with open_house() as (_, listener):
        friend = await PlayedGuest(listener.address).enter()
        acceptor = listener.acceptor
        for number in range(300):
            brief = PollingLink(listener.address, guest_link_key(KEY), "x", kind=KIND, largest=payload_limit(TO_GUEST))
            async with asyncio.timeout(SOON):
                while not (brief.proven or brief.over):
                    brief.pump()
                    await asyncio.sleep(0)
            assert brief.proven
            brief.flush()
            brief.close()
            for _ in range(number % 12):
                await asyncio.sleep(0)
        await until(lambda: listener.guests == 1)
        assert (await friend.answer(friend.ask("ListServers")))[0] == "Servers"
        assert listener.acceptor is acceptor
        friend.link.close()
        await until_there(listener, 0)


async def test_an_acceptor_killed_while_it_admits_a_guest_leaves_no_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = start_child
    killed: list[Pid] = []

    async def and_is_killed(*args: Any) -> Any:
        made = await started(*args)
        if not killed:
            killed.append(self_pid())
            kill(killed[0])
            await asyncio.get_running_loop().create_future()
        return made

    monkeypatch.setattr(guest_listener, "start_child", and_is_killed)
    async with open_house() as (_, listener):
        assert await (await PlayedGuest(listener.address).enter()).over()
        await until_there(listener, 0)
        assert killed


# --- how much at once


def test_a_payload_has_so_many_items_and_no_more() -> None:
    item = pack_item(["pong"], TO_GUEST)
    assert len(list(unpack_items(batch([item] * MOST_ITEMS), TO_GUEST))) == MOST_ITEMS
    with pytest.raises(BadItem, match="at most 4096 items"):
        next(unpack_items(batch([item] * (MOST_ITEMS + 1)), TO_GUEST))


async def test_a_guest_that_sends_too_much_at_once_is_disconnected() -> None:
    async with open_house() as (_, listener):
        flood = await PlayedGuest(listener.address).enter()
        flood.say(*[["drop", 1]] * (MOST_ITEMS + 1))
        assert "closed" in await flood.over()
        await until_there(listener, 0)


async def test_answers_to_a_guest_come_in_payloads_that_it_accepts() -> None:
    async with open_house() as (_, listener):
        guest = await PlayedGuest(listener.address).enter()
        count = 3 * MOST_ITEMS
        for _ in range(3):
            guest.link.post([pack_item(["ping"], TO_GUEST)] * MOST_ITEMS)
        await until(lambda: guest.turn() or len(guest.heard) >= count)
        assert guest.heard == [["pong"]] * count
        guest.link.close()


# --- which one is meant


async def test_late_messages_of_an_abandoned_call_are_not_delivered_to_the_next() -> None:
    async with open_house() as (_, listener):
        guest = await PlayedGuest(listener.address).enter()
        await guest.answer(guest.ask("Subscribe", **SKY))
        [pid] = await there(listener)
        guest_session = Ref[Any](pid)
        key = ("weather", "sky://now")
        first: Pid = (await _state(pid))["_subscriptions"][key]
        await guest.answer(guest.ask("Unsubscribe", **SKY))
        await guest.answer(guest.ask("Subscribe", **SKY))
        second: Pid = (await _state(pid))["_subscriptions"][key]
        assert first != second

        guest_session.send(SubscriptionNews(first, ["updated", *key, False]))
        guest_session.send(SubscriptionNews(first, ["ended", *key, "it was given up"]))
        await guest.answer(guest.ask("ListServers"))
        assert [item for item in guest.heard if item[0] != "answer"] == []
        assert (await _state(pid))["_subscriptions"] == {key: second}
        await guest.answer(guest.ask("Unsubscribe", **SKY))
        await until(lambda: not is_alive(second))

        slow = guest.ask("CallTool", server="weather", tool="slow")
        await guest.answer(guest.ask("ListServers"))
        dropped = (await _state(pid))["_jobs"][slow]
        guest.say(["drop", slow], ["ask", slow, "CallTool", {"server": "weather", "tool": "slow"}, 30])
        await guest.answer(guest.ask("ListServers"))
        guest_session.send(JobAnswer(dropped, "Servers", {"states": {}}))
        await guest.answer(guest.ask("ListServers"))
        assert [item for item in guest.heard if item[:2] == ["answer", slow]] == []
        guest.link.close()


async def _state(pid: Pid) -> Any:
    return await get_state(pid)


class Line:
    """The first subscriber waits for ever, or for a failure; later ones succeed."""

    def __init__(self) -> None:
        self.first: asyncio.Future[None] | None = None

    def found(self, *_: object) -> Self:
        return self

    def subscribe(self, uri: str) -> Self:
        assert uri == SKY["uri"]
        return self

    async def __aenter__(self) -> Self:
        if self.first is None:
            self.first = asyncio.get_running_loop().create_future()
            await self.first
        return self

    async def __aexit__(self, *error: object) -> None:
        """No session, link or request is left."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("given_up", [False, True])
async def test_a_request_that_joins_a_subscription_has_its_own_timeout(
    given_up: bool,  # noqa: FBT001 - a table
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = Line()
    monkeypatch.setattr(guest_session, "line_of", line.found)
    async with open_house() as (_, listener):
        guest = await PlayedGuest(listener.address).enter()
        guest.say(["ask", 1, "Subscribe", SKY, 30 if given_up else 0.2])
        await until(lambda: line.first is not None)
        guest.say(*[["ask", id, "Subscribe", SKY, 30] for id in (2, 3, 4)], ["drop", 3])
        if given_up:
            guest.say(["drop", 1])
        assert await guest.answer(2) == ("Subscribed", SKY)
        assert await guest.answer(4) == ("Subscribed", SKY)
        heard = {item[1]: item[3].get("reason") for item in guest.heard if item[0] == "answer"}
        assert heard == {**({} if given_up else {1: "timeout"}), 2: None, 4: None}
        [pid] = await there(listener)
        assert (await _state(pid))["_jobs"] == {}
        guest.link.close()


async def test_a_request_that_joins_a_subscription_gets_its_failure_and_may_be_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    line = Line()
    monkeypatch.setattr(guest_session, "line_of", line.found)
    async with open_house() as (_, listener):
        guest = await PlayedGuest(listener.address).enter()
        guest.say(*[["ask", id, "Subscribe", SKY, 30] for id in (1, 2)])
        await until(lambda: line.first is not None)
        assert line.first is not None
        line.first.set_exception(PeerError(-32000, "no"))
        for id in (1, 2):
            kind, said = await guest.answer(id)
            assert (kind, said["reason"]) == ("Failed", "peer_error")
        guest.say(["ask", 3, "Subscribe", SKY, 30])
        assert await guest.answer(3) == ("Subscribed", SKY)
        guest.link.close()


async def test_callers_that_wait_for_the_same_are_counted() -> None:
    async with open_house() as (_, listener):
        guest = await PlayedGuest(listener.address).enter()
        guest.say(*[["ask", id, "Subscribe", SKY, 30] for id in range(1, guest_session.MOST + 2)])
        kind, said = await guest.answer(guest_session.MOST + 1)
        assert (kind, said["reason"]) == ("Failed", "busy")
        assert await guest.answer(guest_session.MOST) == ("Subscribed", SKY)
        guest.link.close()
