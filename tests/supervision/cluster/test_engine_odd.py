"""Odd or too large messages to a node, and failures of its loop and its machine: the caller gets an error, and no other node notices."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.example_counts import one_in

from greenroom.errors import ConfigError
from greenroom.supervision import GenServer, Node, StartFailed
from greenroom.supervision.cluster import bootstrap as death_pipe
from greenroom.supervision.cluster import daemon_handle
from greenroom.supervision.cluster.bootstrap import InheritedState
from greenroom.supervision.cluster.cluster import NodeOwner
from greenroom.supervision.cluster.cluster_settings import NodeSpec
from greenroom.supervision.cluster.daemon_handle import DaemonHandle
from greenroom.supervision.cluster.daemon_protocol import (
    FinishDaemon,
    ForeignNodeStarted,
    ProcessReaped,
    encode_message,
)
from greenroom.supervision.cluster.node_records import EngineFailed, NodeFailed
from greenroom.supervision.cluster.remote_spawn import start_on

from .engine_fixtures import Hand, staged

if TYPE_CHECKING:
    from collections.abc import Generator

pytestmark = pytest.mark.deep

ODD = "odd-\udcff"
"""A file name that is not Unicode."""


class Where(GenServer):
    """Returns what its process was told."""

    def told(self) -> tuple[bytes, bytes, bytes]:
        return os.fsencode(Path.cwd()), os.environb[b"ODD"], os.fsencode(sys.path[0])


class Noter(GenServer):
    """Sends the daemon messages that it should not get."""

    def note(self, data: bytes) -> None:
        assert InheritedState.notes is not None
        InheritedState.notes.send(data)


NOTHING = [
    b"",
    b"x",
    *map(
        encode_message,
        (
            ForeignNodeStarted("odd", 0),
            ForeignNodeStarted("odd", -1),
            ForeignNodeStarted("odd", 1),
            ProcessReaped(1, 0),
            ProcessReaped(-1, -9),
            FinishDaemon(),
        ),
    ),
]
"""Datagrams that code in a node may send to the socket of the notes; none is about a process that exists or existed."""


@pytest.mark.greenroom(clock="real")
async def test_names_that_are_no_text_are_told_byte_for_byte(tmp_path: Path) -> None:
    folder = tmp_path / ODD
    folder.mkdir()
    root: Any = Path(__file__).parents[3]  # a path, where import has strings
    async with staged() as stage:
        told = NodeSpec(cwd=str(folder), env={"ODD": ODD}, path=(str(folder), root, *sys.path))
        host = await stage.cluster.start_node(told)
        where = await start_on(await host.call(NodeOwner.node_name), Where)
        assert await where.call(Where.told) == (os.fsencode(folder), os.fsencode(ODD), os.fsencode(folder))


@pytest.mark.greenroom(clock="real")
async def test_too_large_boot_messages_are_refused_and_end_no_other_node() -> None:
    async with staged() as stage:
        hand = await stage.hand(await stage.host())
        for wanted, why in (({"env": {"A": "x" * 1_000_000}}, "look at its env"), ({"preload": (ODD,)}, "is not text")):
            with pytest.raises(StartFailed) as failed:
                await stage.host(**wanted)
            assert isinstance(failed.value.__cause__, NodeFailed)
            assert why in str(failed.value.__cause__)
        assert await hand.call(Hand.process_id) in (await stage.running()).values()
        await stage.host()


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ({"env": {"A": 5}}, "the value of A must be a text"),
        ({"env": {"A": "b\0c"}}, "the value of A must be a text without NUL"),
        ({"env": {"A=B": "c"}}, "names of variables, without ="),
        ({"env": {5: "c"}}, "names of variables"),
        ({"path": "lib"}, r"such as \('lib',\)"),
        ({"requires": {1: 2}}, "capabilit"),
    ],
    ids=str,
)
def test_invalid_options_are_refused_at_registration(wanted: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        NodeSpec(**wanted)


@pytest.mark.greenroom(clock="real")
async def test_a_program_whose_folder_was_removed_can_start_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    async with staged() as stage:
        hand = await stage.hand(await stage.host())
        assert await hand.call(Hand.process_id) != os.getpid()


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize("data", one_in(3, NOTHING))
async def test_a_note_that_says_nothing_is_nobodys_end(data: bytes) -> None:
    async with staged() as stage:
        host = await stage.host()
        daemon = await stage.part("daemon")
        noter = await start_on(await host.call(NodeOwner.node_name), Noter)
        await noter.call(Noter.note, data)
        await stage.host()
        assert await stage.part("daemon") == daemon


@pytest.fixture
def no_place(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """No temporary file can be made, on disk or in memory."""

    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(daemon_handle, "anonymous_file", full)
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.usefixtures("no_place")
def test_a_daemon_that_cannot_be_started_leaves_nothing() -> None:
    async def main() -> None:
        before = len(death_pipe._uncut_pipes)
        with pytest.raises(EngineFailed, match="No space left on device"):
            DaemonHandle(lambda _: None)
        assert len(death_pipe._uncut_pipes) == before

    asyncio.run(main())


def test_all_of_it_works_on_uvloop(caplog: pytest.LogCaptureFixture) -> None:
    import uvloop  # noqa: PLC0415 - an extra

    async def main() -> None:
        async with Node(), staged() as stage:
            hand = await stage.hand(await stage.host())
            assert await hand.call(Hand.process_id) != os.getpid()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
