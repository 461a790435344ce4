"""What stands behind `greenroom tree`: a socket that is opened without touching anybody else's files, and what comes through one that is none of ours."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from greenroom import lookout
from greenroom.errors import ConfigError
from greenroom.lookout import look, looked_at
from greenroom.supervision import StartFailed

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


def refused(mask: int) -> int:
    pytest.fail(f"others make files meanwhile, and would with {mask:o}")


@pytest.mark.greenroom(clock="real")
async def test_opening_one_leaves_the_umask_of_the_program_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del folder
    before = os.umask(0)  # with it whatever others make may be opened by all
    try:
        monkeypatch.setattr(os, "umask", refused)
        async with looked_at("x") as path:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        monkeypatch.undo()
        os.umask(before)


@contextmanager
def saying(path: Path, data: bytes) -> Generator[None]:
    """Somebody at that socket who says this to whoever comes first."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        sock.listen()
        sock.settimeout(30)

        def say() -> None:
            with sock.accept()[0] as peer:
                try:
                    peer.sendall(data)
                except OSError:
                    return  # whoever came has heard enough

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
def test_what_is_no_snapshot_is_told_so(tmp_path: Path, data: bytes) -> None:
    with saying(tmp_path / "s", data), pytest.raises(ConfigError, match="nothing that can be read: is it a lookout"):
        look(tmp_path / "s")


def test_who_never_stops_talking_is_not_listened_to_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookout, "_MOST", 100_000)
    with (
        saying(tmp_path / "s", b" " * 10_000_000),
        pytest.raises(ConfigError, match="shows more than 100000 bytes: is it a lookout"),
    ):
        look(tmp_path / "s")


# --- which there are


@pytest.mark.greenroom(clock="real")
async def test_those_of_programs_that_have_died_are_cleared_away(folder: Path) -> None:
    del folder
    where = lookout.folder()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(where / "1-dead.sock"))
    for name in ("a-word.sock", "1.sock", "1-word.txt"):
        (where / name).touch()
    (where / "2-odd.sock").symlink_to(where / "2-odd.sock")
    async with looked_at("a name / of mine") as path:
        assert [(each.pid, each.name) for each in lookout.lookouts()] == [(os.getpid(), "a_name___of_mine")]
        assert path.exists()
    assert {each.name for each in where.iterdir()} == {"a-word.sock", "1.sock", "1-word.txt", "2-odd.sock"}
    assert lookout.lookouts() == []


@pytest.mark.greenroom(clock="real")
async def test_a_path_that_is_too_long_says_what_to_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = folder / ("x" * 90)
    long.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(long))
    with pytest.raises(StartFailed, match="too long for a socket: set XDG_RUNTIME_DIR to a shorter path"):
        async with looked_at("x"):
            raise AssertionError


@pytest.mark.greenroom(clock="real")
async def test_one_that_cannot_be_opened_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del folder

    async def refused(*_: object, **__: object) -> None:
        raise OSError("too many files")

    monkeypatch.setattr(asyncio, "start_unix_server", refused)
    with pytest.raises(StartFailed, match="too many files"):
        async with looked_at("x"):
            raise AssertionError
    assert list(lookout.folder().iterdir()) == []


def test_a_folder_that_others_can_open_is_not_used(folder: Path) -> None:
    del folder
    lookout.folder().chmod(0o755)
    with pytest.raises(ConfigError, match="a folder that only you can open: remove it, or set XDG_RUNTIME_DIR"):
        lookout.folder()


# --- who looks


def stranger(*_: object) -> tuple[int, int, int]:
    """Who the system says is at the other end."""
    return 1, os.geteuid() + 1, 1


@pytest.mark.greenroom(clock="real")
async def test_somebody_else_is_shown_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del folder
    async with looked_at("x") as path:
        with monkeypatch.context() as other:
            other.setattr(lookout, "struct", SimpleNamespace(unpack=stranger, calcsize=struct.calcsize))
            with pytest.raises(ConfigError, match="shows nothing that can be read"):
                await asyncio.to_thread(look, path)
        assert (await asyncio.to_thread(look, path))["name"] == "x"
