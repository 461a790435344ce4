"""Admission of guests: which peers are admitted, and that trouble with one guest affects no other."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import uuid
from pathlib import Path
from typing import Any

import pytest

from greenroom import ConfigError, Host, Server
from greenroom.actors.thespian_guests import guest_listener, guest_session
from greenroom.actors.thespian_guests.guest_listener import check_address
from greenroom.actors.thespian_guests.guest_wire import KIND, new_key_file, read_guest_key
from greenroom.supervision import StartFailed, kill, which_children
from greenroom.supervision.cluster.framing import LinkRefused
from greenroom.supervision.cluster.polling_link import LinkLost, PollingLink

from .played_guest import KEY, SOON, PlayedGuest, flushed, open_house, served, until

pytestmark = pytest.mark.greenroom(clock="real")


async def test_a_server_lets_guests_in_as_well() -> None:
    server = served()
    listener = server.admit_guests(KEY, address=f"unix:@greenroom-test-{uuid.uuid4().hex}")
    async with server.started():
        guest = await PlayedGuest(listener.address).enter()
        kind, fields = await guest.answer(
            guest.ask("CallTool", server="weather", tool="forecast", arguments={"city": "Oslo"})
        )
        assert (kind, fields["content"][0]["text"]) == ("ToolResult", "sunny in Oslo")
        assert listener.guests == 1
    assert "closed" in await guest.over()


async def test_nothing_listens_unless_it_is_asked_for() -> None:
    async with Host({"weather": served()}) as host, served().started():
        with pytest.raises(ConfigError, match="before the host is opened"):
            host.admit_guests(KEY)
        listening = Path("/proc/net/unix").read_text(encoding="utf-8")  # noqa: ASYNC240 - it is no file
        assert f"@greenroom-{os.geteuid()}-guests" not in listening


async def test_a_peer_without_the_key_learns_nothing() -> None:
    async with open_house() as (_, listener):
        assert "key" in await PlayedGuest(listener.address, b"another key than that").over()
        friend = await PlayedGuest(listener.address).enter()
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x80\x04\x95pickle", b"\x00\x00\x00\x04abcd", b"\xff" * 100):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.settimeout(0)
                stranger.connect("\0" + listener.address.removeprefix("unix:@"))
                stranger.send(garbage)
                heard = b""
                with contextlib.suppress(ConnectionError):
                    heard = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(stranger, 4096), SOON)
                assert heard == b""
        kind, _ = await friend.answer(friend.ask("ListServers"))
        assert kind == "Servers"
        friend.link.close()


async def test_a_node_is_no_guest() -> None:
    async with open_house() as (_, listener):
        assert "only guests" in await PlayedGuest(listener.address, kind="node").over()


async def test_there_are_so_many_and_no_more() -> None:
    async with open_house(most_guests=1) as (_, listener):
        first = await PlayedGuest(listener.address).enter()
        assert "there are 1 guests already" in await PlayedGuest(listener.address).over()
        first.link.close()
        await until(lambda: listener.guests == 0)
        second = await PlayedGuest(listener.address).enter()
        assert second.link.up
        second.link.close()


async def test_silent_strangers_do_not_keep_peers_out() -> None:
    async with open_house() as (_, listener):
        where = "\0" + listener.address.removeprefix("unix:@")
        strangers = [socket.socket(socket.AF_UNIX) for _ in range(20)]
        try:
            for stranger in strangers:
                stranger.settimeout(0)
                stranger.connect(where)
            guest = await PlayedGuest(listener.address).enter()
            assert guest.link.up
            assert await asyncio.get_running_loop().sock_recv(strangers[0], 1) == b""
            guest.link.close()
        finally:
            for stranger in strangers:
                stranger.close()


@pytest.mark.parametrize(
    "item",
    [
        ["nonsense"],
        ["ask"],
        ["ask", 1, "CallTool", [], 1],
        ["ask", "1", "CallTool", {}, 1],
        ["drop", None],
        ["answer", 1],
    ],
)
async def test_an_invalid_item_ends_its_own_link_only(item: list[Any]) -> None:
    async with open_house() as (_, listener):
        good, bad = await PlayedGuest(listener.address).enter(), await PlayedGuest(listener.address).enter()
        bad.say(item)
        assert "closed" in await bad.over()
        assert (await good.answer(good.ask("ListServers")))[0] == "Servers"
        good.link.close()


async def test_bytes_that_are_no_items_end_its_link() -> None:
    async with open_house() as (_, listener):
        for data in (b"\xc1", b"\xa3abc", b"\xc4\x03{{{"):
            bad = await PlayedGuest(listener.address).enter()
            bad.link.post([data])
            bad.link.flush()
            assert await bad.over()
        deep = await PlayedGuest(listener.address).enter()
        nested: Any = []
        for _ in range(100):
            nested = [nested]
        deep.say(["ask", 1, "CallTool", {"arguments": nested}, 1])
        assert await deep.over()


async def test_fields_that_are_missing_or_of_another_type_are_answered() -> None:
    async with open_house() as (_, listener):
        guest = await PlayedGuest(listener.address).enter()
        rows: list[tuple[str, dict[str, Any], str]] = [
            ("CallTool", {"server": "weather"}, "bad_request"),
            ("CallTool", {"server": 3, "tool": "forecast"}, "unknown_server"),
            ("ReadResource", {"server": "weather", "uri": []}, "bad_request"),
            ("GetPrompt", {"server": "weather"}, "bad_request"),
            ("Subscribe", {"server": "unknown", "uri": "sky://now"}, "unknown_server"),
            ("Nonsense", {}, "bad_request"),
        ]
        for kind, fields, reason in rows:
            answered, said = await guest.answer(guest.ask(kind, **fields))
            assert (answered, said["reason"]) == ("Failed", reason)
        guest.link.close()


async def test_a_guest_session_that_is_killed_ends_its_link_and_its_requests() -> None:
    async with open_house() as (host, listener):
        guest = await PlayedGuest(listener.address).enter()
        guest.ask("CallTool", server="weather", tool="slow")
        sitting = listener.name("sessions")
        await guest.answer(guest.ask("ListServers"))
        ((_, pid, *_),) = await which_children(sitting)
        kill(pid)
        assert "closed" in await guest.over()
        again = await PlayedGuest(listener.address).enter()
        assert (await again.answer(again.ask("ListServers")))[1]["states"] == {"weather": "ready"}
        assert host.status()["weather"].state.value == "ready"
        again.link.close()


async def test_a_job_that_is_killed_is_answered_for() -> None:
    async with open_house() as (_, listener):
        guest = await PlayedGuest(listener.address).enter()
        id = guest.ask("CallTool", server="weather", tool="slow")
        await guest.answer(guest.ask("ListServers"))
        ((_, pid, *_),) = await which_children(listener.name("sessions"))
        from greenroom.supervision.introspect import get_state  # noqa: PLC0415

        state: Any = await get_state(pid)
        kill(state["_jobs"][id])
        kind, said = await guest.answer(id)
        assert (kind, said["reason"]) == ("Failed", "crashed")
        guest.link.close()


async def test_a_killed_acceptor_lets_guests_in_again() -> None:
    async with open_house() as (_, listener):
        guest = await PlayedGuest(listener.address).enter()
        from greenroom.supervision import whereis  # noqa: PLC0415

        acceptor = whereis(listener.name("acceptor"))
        assert acceptor is not None
        kill(acceptor)
        await guest.over()

        def back() -> bool:
            return (found := whereis(listener.name("acceptor"))) is not None and found != acceptor

        await until(back)
        again = await PlayedGuest(listener.address).enter()
        assert (await again.answer(again.ask("ListServers")))[0] == "Servers"
        again.link.close()


async def test_an_answer_that_is_too_large_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_session, "TO_GUEST", 1000)
    async with open_house() as (_, listener):
        guest = await PlayedGuest(listener.address).enter()
        asked = guest.ask("CallTool", server="weather", tool="forecast", arguments={"city": "x" * 1000})
        kind, said = await guest.answer(asked)
        assert (kind, said["reason"]) == ("Failed", "too_large")
        guest.link.close()


async def test_a_guest_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_session, "_BACKLOG", 100_000)
    async with open_house() as (_, listener):
        guest = await PlayedGuest(listener.address).enter()
        for _ in range(20):
            guest.ask("CallTool", server="weather", tool="forecast", arguments={"city": "x" * 1_000_000})
            await until(lambda: not flushed(guest) or listener.guests == 0)
        await until(lambda: listener.guests == 0)
        guest.link.close()


async def test_a_subscription_ends_with_its_server() -> None:
    async with open_house() as (host, listener):
        guest = await PlayedGuest(listener.address).enter()
        wanted = {"server": "weather", "uri": "sky://now"}
        asked = [guest.ask("Subscribe", **wanted) for _ in range(3)]
        for id in asked:
            assert (await guest.answer(id))[0] == "Subscribed"
        await host.remove("weather")
        await until(lambda: guest.turn() or any(item[0] == "ended" for item in guest.heard))
        assert [item[:3] for item in guest.heard if item[0] == "ended"] == [["ended", "weather", "sky://now"]]
        guest.link.close()


async def test_a_dropped_request_is_not_answered() -> None:
    async with open_house() as (_, listener):
        guest = await PlayedGuest(listener.address).enter()
        id = guest.ask("CallTool", server="weather", tool="slow")
        guest.say(["drop", id], ["drop", 99], ["ping"])
        await until(lambda: guest.turn() or ["pong"] in guest.heard)
        assert [item for item in guest.heard if item[0] == "answer"] == []
        guest.link.close()


async def test_an_address_that_is_taken_is_said() -> None:
    async with open_house() as (_, listener):
        other = Host({"weather": served()})
        other.admit_guests(KEY, address=listener.address)
        with pytest.raises(StartFailed) as refused:
            await other.open()
        found: BaseException | None = refused.value
        texts: list[str] = []
        while found is not None:
            texts.append(str(found))
            found = found.__cause__
        assert any("guests cannot be let in" in text for text in texts)
        await other.close()


async def test_a_path_is_its_owners_and_is_gone_afterwards(tmp_path: Path) -> None:
    place = tmp_path / "guests.socket"
    host = Host({"weather": served()})
    host.admit_guests(KEY, address=f"unix:{place}")
    async with host:
        assert place.stat().st_mode & 0o077 == 0
        guest = await PlayedGuest(f"unix:{place}").enter()
        assert guest.link.up
        guest.link.close()
    assert not place.exists()


def test_keys_are_in_files_that_others_cannot_read(tmp_path: Path) -> None:
    place = new_key_file(tmp_path / "guests.key")
    assert place.stat().st_mode & 0o777 == 0o600
    assert len(read_guest_key(place)) == 64
    assert read_guest_key(place) == read_guest_key(str(place))
    with pytest.raises(ConfigError, match="no key can be written"):
        new_key_file(place)
    place.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_guest_key(place)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_guest_key(tmp_path / "none")
    with pytest.raises(ConfigError, match="no file"):
        read_guest_key("/dev/null")
    with pytest.raises(ConfigError, match="at least 16"):
        read_guest_key(b"short")


@pytest.mark.parametrize("address", ["", "unix:", "tcp:127.0.0.1", "tcp::80", "http://127.0.0.1:80", "somewhere"])
def test_an_address_that_is_none_is_said_at_once(address: str) -> None:
    with pytest.raises(ConfigError, match="not an address"):
        check_address(address)
    with pytest.raises(LinkRefused, match="no address"):
        PollingLink(address, KEY, "played guest", kind=KIND, largest=1)


def test_a_link_to_a_missing_process_is_lost() -> None:
    link = PollingLink("unix:@greenroom-test-unused", KEY, "played guest", kind=KIND, largest=1)
    assert isinstance(link.over, LinkLost)
    assert link.pump() == []
    link.flush()
    link.close()


async def test_tools_that_a_host_denies_its_program_are_denied_to_guests() -> None:
    async with Host({"weather": served()}) as before:
        await before.tools()
        pins = await before.pin()
    changed = Server("weather")

    @changed.tool
    def forecast(city: str, days: int = 3) -> str:
        """Now with days."""
        return f"{city} {days}"

    @changed.tool
    async def slow() -> None:
        """As it was."""

    _ = forecast, slow
    host = Host({"weather": changed}, pins=pins, policy="refuse")
    listener = host.admit_guests(KEY, address=f"unix:@greenroom-test-{uuid.uuid4().hex}")
    async with host:
        guest = await PlayedGuest(listener.address).enter()
        kind, said = await guest.answer(
            guest.ask("CallTool", server="weather", tool="forecast", arguments={"city": "x"})
        )
        assert (kind, said["reason"]) == ("Failed", "tool_refused")
        listed = (await guest.answer(guest.ask("ListTools", server="weather")))[1]["items"]["weather"]
        assert "forecast" not in [tool["name"] for tool in listed]
        guest.link.close()


async def test_of_several_nodes_one_lets_guests_in_and_another_when_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guest_listener, "_TURN", 0.02)
    async with open_house() as (first, listener):
        second = Host({"weather": served()})
        other = second.admit_guests(KEY, address=listener.address)
        listener.stands_by = other.stands_by = True
        async with second:
            guest = await PlayedGuest(listener.address).enter()
            assert (listener.guests, other.guests) == (1, 0)
            await first.close()
            await guest.over()
            again: list[PlayedGuest] = []

            def in_again() -> bool:
                played_guest = PlayedGuest(listener.address)
                if played_guest.link.over is None:
                    again.append(played_guest)
                return bool(again)

            await until(in_again)
            await again[0].enter()
            assert (await again[0].answer(again[0].ask("ListServers")))[0] == "Servers"
            assert other.guests == 1
            again[0].link.close()
            await first.open()
