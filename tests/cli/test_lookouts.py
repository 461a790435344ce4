"""What stands behind `greenroom tree`: a socket that is opened without touching anybody else's files, and what comes through one that is none of ours."""

from __future__ import annotations

import os
import socket
import stat
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from greenroom import lookout
from greenroom.errors import ConfigError
from greenroom.lookout import look, looked_at

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
