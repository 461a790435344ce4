"""The socket behind `greenroom tree`: it touches no other files, and hostile sockets are read safely."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import stat
import struct
import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from greenroom import Client, Command, Host, Server, inspect_socket
from greenroom.actors.federation.upstream_spec import UpstreamState
from greenroom.cli.tree_command import tree_lines
from greenroom.errors import ConfigError
from greenroom.inspect_socket import InspectListener, inspectable, read_snapshot
from greenroom.supervision import StartFailed, kill, start, wait_down
from greenroom.supervision.event_bus import bus

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path
    from typing import Any


def refused(mask: int) -> int:
    pytest.fail(f"others make files meanwhile, and would with {mask:o}")


@pytest.mark.greenroom(clock="real")
async def test_opening_one_leaves_the_umask_of_the_program_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del folder
    before = os.umask(0)  # with this umask other users could open every new file
    try:
        monkeypatch.setattr(os, "umask", refused)
        async with inspectable("x") as path:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        monkeypatch.undo()
        os.umask(before)


@contextmanager
def saying(path: Path, data: bytes) -> Generator[None]:
    """A peer at that socket that sends these bytes to its first client."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
        sock.settimeout(30)

        def say() -> None:
            with sock.accept()[0] as peer:
                try:
                    peer.sendall(data)
                except OSError:
                    return  # the client has closed the connection

        thread = threading.Thread(target=say)
        thread.start()
        try:
            yield
        finally:
            thread.join()


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"{}", b'"x"', b"\xff", b"[" * 100_000, b'{"name": "x", "pid": "one"}'],
    ids=lambda data: repr(data[:20]),
)
def test_bytes_that_are_no_snapshot_are_reported(tmp_path: Path, data: bytes) -> None:
    with (
        saying(tmp_path / "s", data),
        pytest.raises(ConfigError, match="nothing that can be read: is it an inspect socket"),
    ):
        read_snapshot(tmp_path / "s")


def test_reading_of_an_endless_snapshot_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_socket, "_LARGEST_SNAPSHOT", 100_000)
    with (
        saying(tmp_path / "s", b" " * 10_000_000),
        pytest.raises(ConfigError, match="sent more than 100000 bytes: is it an inspect socket"),
    ):
        read_snapshot(tmp_path / "s")


# --- listing of sockets


@pytest.mark.greenroom(clock="real")
async def test_those_of_programs_that_have_died_are_cleared_away(folder: Path) -> None:
    del folder
    where = inspect_socket.socket_folder()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(where / "1-dead.sock"))
    for name in ("a-word.sock", "1.sock", "1-word.txt"):
        (where / name).touch()
    (where / "2-odd.sock").symlink_to(where / "2-odd.sock")
    async with inspectable("a name / of mine") as path:
        assert [(each.pid, each.name) for each in inspect_socket.inspect_sockets()] == [
            (os.getpid(), "a_name___of_mine")
        ]
        assert path.exists()
    assert {each.name for each in where.iterdir()} == {"a-word.sock", "1.sock", "1-word.txt", "2-odd.sock"}
    assert inspect_socket.inspect_sockets() == []


@pytest.mark.greenroom(clock="real")
async def test_one_whose_process_is_killed_is_closed_and_hears_no_events(folder: Path) -> None:
    del folder
    listener = await start(InspectListener, "x", tuple)
    assert len(inspect_socket.inspect_sockets()) == 1
    kill(listener)
    await wait_down(listener, None)
    assert inspect_socket.inspect_sockets() == []
    assert bus.listener is None


@pytest.mark.greenroom(clock="real")
async def test_one_that_is_being_opened_is_not_cleared_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del folder
    listen = socket.socket.listen

    def listen_late(sock: socket.socket, backlog: int) -> None:
        assert inspect_socket.inspect_sockets() == []
        listen(sock, backlog)

    monkeypatch.setattr(socket.socket, "listen", listen_late)
    async with inspectable("x") as path:
        assert [each.path for each in inspect_socket.inspect_sockets()] == [path]


@pytest.mark.greenroom(clock="real")
async def test_a_path_that_is_too_long_says_what_to_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = folder / ("x" * 90)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with pytest.raises(StartFailed, match="too long for a socket: set XDG_RUNTIME_DIR to a shorter path"):
        async with inspectable("x"):
            raise AssertionError


@pytest.mark.greenroom(clock="real")
async def test_a_socket_that_cannot_be_opened_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del folder

    def refused(*_: object, **__: object) -> None:
        raise OSError("too many files")

    monkeypatch.setattr(inspect_socket, "serve", refused)
    with pytest.raises(StartFailed, match="too many files"):
        async with inspectable("x"):
            raise AssertionError
    assert list(inspect_socket.socket_folder().iterdir()) == []


def test_a_folder_that_others_can_open_is_not_used(folder: Path) -> None:
    del folder
    inspect_socket.socket_folder().chmod(0o755)
    with pytest.raises(ConfigError, match="a folder that only you can open: remove it, or set XDG_RUNTIME_DIR"):
        inspect_socket.socket_folder()


# --- the reading user


def stranger(*_: object) -> tuple[int, int, int]:
    """The peer credentials that the system reports."""
    return 1, os.geteuid() + 1, 1


@pytest.mark.greenroom(clock="real")
async def test_another_user_gets_no_snapshot(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del folder
    async with inspectable("x") as path:
        with monkeypatch.context() as other:
            other.setattr(inspect_socket, "struct", SimpleNamespace(unpack=stranger, calcsize=struct.calcsize))
            with pytest.raises(ConfigError, match="sent nothing that can be read"):
                await asyncio.to_thread(read_snapshot, path)
        assert (await asyncio.to_thread(read_snapshot, path))["name"] == "x"


# --- the servers of a host


@contextmanager
def holding() -> Generator[tuple[Server, asyncio.Semaphore]]:
    """A server whose tool `hold` waits until the test releases the call."""
    up, begun = Server("up"), asyncio.Semaphore(0)

    @up.tool
    async def hold() -> None:
        begun.release()
        await asyncio.Event().wait()

    yield up, begun


def lines_of(seen: dict[str, Any]) -> dict[str, str]:
    """The line of each server of a host, by its id, without colours and pids."""
    plain = [re.sub(r"\x1b\[\d*m|<[^<>]*>", "", line) for line in tree_lines(seen)]
    found = [re.search(r"─ upstream (\S+) *(.*)", line) for line in plain]
    return {each[1]: each[2] for each in found if each is not None}


async def reaches(host: Host, id: str, state: UpstreamState) -> None:
    async with asyncio.timeout(30):
        async for standing in host.watch():
            if (standing.id, standing.state) == (id, state):
                return


@pytest.mark.greenroom(clock="real")
async def test_the_tree_shows_state_reason_next_attempt_and_calls_of_each_server(folder: Path) -> None:
    del folder
    with holding() as (up, begun):
        async with Host({"up": up, "broken": Command("/no/such/\u202eprogram")}) as host, inspectable("h") as path:
            await reaches(host, "broken", UpstreamState.DEGRADED)
            calls = [asyncio.ensure_future(host.call("up:hold")) for _ in range(2)]
            for _ in calls:
                await begun.acquire()
            seen = await asyncio.to_thread(read_snapshot, path)
            for each in calls:
                each.cancel()
    lines = lines_of(seen)
    assert lines["up"] == "ready, speaks 2026-07-28, 2 calls in progress"
    assert re.fullmatch(
        r"degraded: .*/no/such/\\u202eprogram.*, (attempt under way|next attempt in \d+\.\d s)", lines["broken"]
    )
    up_, broken = sorted(seen["servers"], key=lambda each: -each["in_progress"])
    assert (up_["id"], up_["state"], up_["reason"], up_["next_attempt"], up_["in_progress"]) == (
        "up",
        "ready",
        "",
        None,
        2,
    )
    assert (broken["id"], broken["state"], broken["revision"]) == ("broken", "degraded", "")


@pytest.mark.greenroom(clock="real")
async def test_a_parked_server_is_in_the_tree_though_no_process_of_it_runs(folder: Path) -> None:
    del folder
    async with Host({"up": Server("up")}) as host, inspectable("h") as path:
        await reaches(host, "up", UpstreamState.READY)
        upstream = host.federation.members["up"]
        upstream.restarts.intensity = 0
        pid = host.federation.whereis("up")
        assert pid is not None
        kill(pid)
        await reaches(host, "up", UpstreamState.PARKED)
        seen = await asyncio.to_thread(read_snapshot, path)
    assert not any(each["label"] == "upstream up" for each in seen["processes"])
    assert re.fullmatch(r"parked: .+, next attempt in \d+\.\d s", lines_of(seen)["up"])


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize("shared", [False, True])
async def test_a_call_through_a_gateway_is_counted_once_until_it_ends(folder: Path, *, shared: bool) -> None:
    del folder
    with holding() as (up, begun):
        host, front = Host({"up": up}), Server("front")
        front.mount(host, shared=shared)
        async with Client(front) as peer, inspectable("h") as path:
            call = peer.start_tool("up__hold")
            await begun.acquire()
            seen = await asyncio.to_thread(read_snapshot, path)
            assert lines_of(seen)["up"] == "ready, speaks 2026-07-28, 1 call in progress"
            call.cancel()
            async with asyncio.timeout(30):
                while host.status()["up"].in_progress:  # noqa: ASYNC110 - nothing announces it
                    await asyncio.sleep(0)


def test_texts_of_a_snapshot_are_escaped_and_many_servers_are_listed() -> None:
    bad = "\x1b[2J\u202e"
    one = {"pid": None, "parent": None, "state": "needs_sign_in", "reason": bad, "next_attempt": 0.0, "in_progress": 0}
    servers = [{**one, "id": f"{number}{bad}", "sign_in_url": f"https://x/{bad}"} for number in range(20)]
    head: dict[str, Any] = {"name": "x", "pid": 1, "urls": [], "lag": 0.0, "leaked": 0, "processes": []}
    lines = list(tree_lines({**head, "servers": servers}))
    assert len(lines) == 21
    assert "0\\u001b[2J\\u202e  " in lines[1]
    assert "needs sign in" in lines[1]
    assert lines[1].endswith(": \\u001b[2J\\u202e, sign in at https://x/\\u001b[2J\\u202e, attempt under way")
