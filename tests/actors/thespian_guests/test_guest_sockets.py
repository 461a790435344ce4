"""The address of a guest listener: a host takes none at which another process answers, and reports it when a stranger has it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.supervision.cluster.core.two_nodes import here

from greenroom import ConfigError, Host
from greenroom.actors.thespian_guests import guest_listener
from greenroom.actors.thespian_guests import guest_listener as doors
from greenroom.actors.thespian_guests import guest_listener as knocking
from greenroom.actors.thespian_guests.guest_listener import GuestAddressTaken, GuestSocket, check_address
from greenroom.actors.thespian_guests.guest_wire import guest_link_key, read_guest_key
from greenroom.supervision import Report, StartFailed, current_node
from greenroom.supervision.cluster import link as links
from greenroom.supervision.cluster.framing import Seal, batch, frames
from greenroom.supervision.cluster.peers import LinkOffence, OffenceReporter
from greenroom.supervision.cluster.polling_link import PollingLink

from .played_guest import KEY, PlayedGuest, open_house, served, until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path

    from greenroom.supervision.cluster.link import Link

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.fixture(name="reports")
async def _reports() -> AsyncGenerator[list[Report]]:
    found: list[Report] = []

    def note(report: Report) -> None:
        if isinstance(report, LinkOffence | GuestAddressTaken):
            found.append(report)

    unsubscribe = current_node().reports.subscribe(note)
    yield found
    unsubscribe()


def house_at(address: str, *, stands_by: bool = False) -> Host:
    host = Host({"weather": served()})
    host.admit_guests(KEY, address=address).stands_by = stands_by
    return host


async def refused(host: Host) -> str:
    """The error when it does not open."""
    with pytest.raises(StartFailed) as told:
        await host.open()
    texts: list[str] = []
    found: BaseException | None = told.value
    while found is not None:
        texts.append(str(found))
        found = found.__cause__
    await host.close()
    return "\n".join(texts)


async def gets_in(address: str) -> None:
    """Wait until a guest is admitted there."""
    guests: list[PlayedGuest] = []

    def in_again() -> bool:
        played_guest = PlayedGuest(address)
        if played_guest.link.over is None:
            guests.append(played_guest)
        return bool(guests)

    await until(in_again)
    guest = await guests[0].enter()
    assert guest.link.up, guest.link.over
    guest.link.close()


# --- paths


async def test_a_path_at_which_a_process_answers_is_not_taken(tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'door'}"
    async with house_at(address):
        why = await refused(house_at(address))
        assert "guests cannot be let in" in why
        assert "another process listens there" in why
        await gets_in(address)
    assert not (tmp_path / "door").exists()


async def test_the_socket_file_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "door"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    assert path.is_socket()
    async with house_at(f"unix:{path}"):
        await gets_in(f"unix:{path}")
    assert not path.exists()


async def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "door"
    path.write_text("mine", encoding="utf-8")
    assert "guests cannot be let in" in await refused(house_at(f"unix:{path}"))
    assert path.read_text(encoding="utf-8") == "mine"
    assert "guests cannot be let in" in await refused(house_at(f"unix:{tmp_path / 'nowhere' / 'door'}"))


@pytest.mark.parametrize("then", ["gone", "another"])
async def test_a_door_takes_away_no_other_file_than_its_own(then: str, tmp_path: Path) -> None:
    path = tmp_path / "door"
    async with house_at(f"unix:{path}"):
        path.unlink()
        if then == "another":
            with socket.socket(socket.AF_UNIX) as other:
                other.bind(str(path))
    assert path.exists() == (then == "another")


def unexpected_link() -> Link:
    raise AssertionError("no connection is expected")


async def test_two_that_open_a_path_at_once_do_so_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"unix:{tmp_path / 'door'}"
    descriptor = os.open(tmp_path, os.O_RDONLY)
    flock, refused_locks = fcntl.flock, list[int]()

    def watched(locked: int, how: int) -> None:
        try:
            flock(locked, how)
        except BlockingIOError:
            refused_locks.append(locked)
            raise

    monkeypatch.setattr(fcntl, "flock", watched)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        one = GuestSocket()
        opening = asyncio.ensure_future(one.open(unexpected_link, address))
        async with asyncio.timeout(10):
            while len(refused_locks) < 2:  # noqa: ASYNC110 - a count, not an event
                await asyncio.sleep(0)
        assert not opening.done()
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        assert await opening == address
        one.close()

        fcntl.flock(descriptor, fcntl.LOCK_EX)
        monkeypatch.setattr(doors, "_TRIES", 2)
        with pytest.raises(OSError, match="has locked the folder"):
            await GuestSocket().open(unexpected_link, address)
    finally:
        os.close(descriptor)
    assert await one.open(unexpected_link, address) == address
    one.close()
    one.close()


async def test_many_that_stand_by_for_a_path_have_one_open_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reports: list[Report]
) -> None:
    monkeypatch.setattr(guest_listener, "_TURN", 0.02)
    address = f"unix:{tmp_path / 'door'}"
    hosts = [house_at(address, stands_by=True) for _ in range(3)]
    await asyncio.gather(*[host.open() for host in hosts])
    for host in hosts:
        await gets_in(address)
        await host.close()
    assert not (tmp_path / "door").exists()
    assert reports == []


# --- invalid addresses


@pytest.mark.parametrize(
    "address",
    ["tcp:127.0.0.1:99999", "tcp:127.0.0.1:²", "tcp:127.0.0.1:-1", f"tcp:127.0.0.1:{'1' * 5000}", "unix:a\0b"],
)
async def test_an_address_that_cannot_be_had_is_said_before_the_host_opens(address: str) -> None:
    with pytest.raises(ConfigError, match="not an address"):
        Host({"weather": served()}).admit_guests(KEY, address=address)
    assert check_address("tcp:127.0.0.1:0") == "tcp:127.0.0.1:0"


async def test_a_name_that_no_host_can_have_is_said() -> None:
    assert "guests cannot be let in" in await refused(house_at(f"tcp:{'ü' * 70}:80"))


# --- the process at the address


@pytest.fixture(name="squatter")
def _squatter() -> Generator[tuple[str, socket.socket]]:
    """A listener with another key at our address."""
    name = f"greenroom-test-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")
        listening.listen()
        listening.settimeout(0)
        yield f"unix:@{name}", listening


async def test_an_address_held_by_a_stranger_is_reported_once(
    squatter: tuple[str, socket.socket], monkeypatch: pytest.MonkeyPatch, reports: list[Report]
) -> None:
    monkeypatch.setattr(guest_listener, "_TURN", 0.02)
    address, listening = squatter
    loop = asyncio.get_running_loop()
    knocks = Counter[str]()

    async def answer() -> None:
        while True:
            with (await loop.sock_accept(listening))[0] as link:
                link.settimeout(0)
                await loop.sock_recv(link, 4096)
                await loop.sock_sendall(link, b"\0\0\0\x50" + bytes(0x50))
                knocks["all"] += 1

    async with house_at(address, stands_by=True):
        answering = asyncio.ensure_future(answer())
        await until(lambda: knocks["all"] > 5)
        answering.cancel()
        await asyncio.wait((answering,))
        listening.close()
        await gets_in(address)
    [told] = reports
    assert isinstance(told, GuestAddressTaken)
    assert told.address == address
    assert "another program: the other end does not" in str(told)


async def test_a_listener_with_the_same_key_is_no_stranger_and_notices_no_check(reports: list[Report]) -> None:
    async with open_house() as (_, listener):
        assert await knocking.address_conflict(listener.address, guest_link_key(KEY)) is None
        why = await knocking.address_conflict(listener.address, guest_link_key(b"another key than that"))
        assert "key" in str(why)
        await until(lambda: not listener.acceptor or not listener.acceptor._links)
        assert reports == []
    assert await knocking.address_conflict(listener.address, guest_link_key(KEY)) is None


async def test_a_listener_that_accepts_and_stays_silent_is_a_stranger(
    squatter: tuple[str, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "HANDSHAKE_SECONDS", 0.05)
    assert "did not shake hands" in str(await knocking.address_conflict(squatter[0], guest_link_key(KEY)))
    assert await knocking.address_conflict("nowhere", guest_link_key(KEY)) is not None


# --- connections


async def test_a_wrong_key_and_a_forged_frame_are_reported(reports: list[Report]) -> None:
    async with open_house() as (_, listener):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect("\0" + listener.address.removeprefix("unix:@"))
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: reports)
        told = reports.pop()
        assert isinstance(told, LinkOffence)
        assert "does not speak the protocol" in str(told)
        assert told.label == str(listener.name("acceptor"))
    async with open_house() as (_, listener):
        guest = await PlayedGuest(listener.address).enter()
        forger: Any = guest.link
        forger._out += next(frames(batch([]), Seal(b"f" * 32)))
        assert await guest.over()
        assert "forged" in str(reports.pop())
    async with open_house() as (_, listener):
        guest = await PlayedGuest(listener.address).enter()
        guest.say(["nonsense"])
        assert await guest.over()
        await until(lambda: reports)
        assert "nonsense" in str(reports.pop())
    assert reports == []


async def test_offences_are_told_once_a_second_and_none_is_forgotten() -> None:
    told: list[Any] = []
    now = [10.0]
    offences = OffenceReporter("acceptor", lambda: now[0], told.append)
    pid = current_node().root_pid()
    for seconds in (0, 0.5, 0.4, 0.2, 5):
        now[0] += seconds
        offences.note(pid, "it has no key")
    assert [(each.what, each.more) for each in told] == [
        ("it has no key", 0),
        ("it has no key", 2),
        ("it has no key", 0),
    ]
    assert {each.label for each in told} == {"acceptor"}


# --- keys


async def test_a_guest_with_a_clusters_key_is_no_node_and_no_node_is_a_guest() -> None:
    async with here() as peers:
        key: bytes = peers._key
        assert guest_link_key(key) != read_guest_key(key)
        guest = PollingLink(peers.addresses[0], guest_link_key(key), "guest", kind="guest", largest=1 << 20)
        await until(lambda: guest.pump() or guest.over)
        assert "does not hold this cluster's key" in str(guest.over)
        assert peers.connected == ()
    async with open_house() as (_, listener):
        node = PollingLink(listener.address, KEY, "node", kind="guest", largest=1 << 20)
        await until(lambda: node.pump() or node.over)
        assert "does not hold this cluster's key" in str(node.over)
