"""A program on standard streams that dies between two calls and in the middle of one, and is of the other era when it is started again."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Command, Host, RequestLost
from greenroom.actors.client.settings import ClientSettings
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.supervision import Backoff

if TYPE_CHECKING:
    from greenroom.actors.client.interfaces import Line

pytestmark = pytest.mark.greenroom(clock="real")

PROGRAM = Path(__file__).parent / "programs" / "either_era.py"
SETTINGS = ClientSettings(backoff=Backoff(first=0.01, longest=0.1), request_timeout=20.0)


class Program:
    """The program, and what it has done."""

    def __init__(self, folder: Path, isolation: Any) -> None:
        self._era, self._book = folder / "era", folder / "book"
        self.spec = UpstreamSpec(
            Command(sys.executable, "-S", str(PROGRAM), str(self._era), str(self._book)),
            settings=SETTINGS,
            isolation=isolation,
            intensity=50,
        )

    def speak(self, *, stateless: bool) -> None:
        """The era of the next start."""
        self._era.write_text("stateless" if stateless else "handshake")

    @property
    def done(self) -> list[str]:
        """What it was asked to do, in all of its lives."""
        return self._book.read_text().split()


async def reconnected(line: Line, generation: int) -> None:
    """Wait until the connection was opened once more."""
    async for status in line.watch():
        if status.generation > generation:
            return


@pytest.mark.row("26-S3")
@pytest.mark.row("26-V10")
@pytest.mark.parametrize("isolation", [None, "process"], ids=["here", "in a process of its own"])
@pytest.mark.parametrize("stateless", [True, False], ids=["stateless at first", "a handshake at first"])
async def test_a_program_that_dies_may_be_of_another_era_in_its_next_life(
    *, stateless: bool, isolation: Any, tmp_path: Path
) -> None:
    program = Program(tmp_path, isolation)
    program.speak(stateless=stateless)
    async with Host({"either": program.spec}) as host:
        server = host.server("either")
        line = host.federation.line("either")
        assert line is not None
        async with server.subscribe("note://book") as updates:
            news = aiter(updates)
            for life in range(3):
                era = stateless if life % 2 == 0 else not stateless
                reply = await host.call_tool("either:book", {"what": f"turn-{life}"})
                assert (await anext(news)).params["uri"] == "note://book"
                assert host.status()["either"].revision == ("2026-07-28" if era else "2025-11-25")
                assert {tool.name for tool in await server.list_tools()} == {"book", "stateless" if era else "session"}
                generation = line.status.generation
                program.speak(stateless=not era)
                os.kill(int(reply.text), signal.SIGKILL)
                await reconnected(line, generation)
                assert (await anext(news)).gap
        assert program.done == ["turn-0", "turn-1", "turn-2"]


@pytest.mark.row("26-H12")
@pytest.mark.parametrize("stateless", [True, False], ids=["to the stateless era", "to a handshake"])
async def test_a_call_that_ends_its_server_is_done_once_and_the_next_one_answered_by_the_other_era(
    *, stateless: bool, tmp_path: Path
) -> None:
    program = Program(tmp_path, None)
    program.speak(stateless=not stateless)
    async with Host({"either": program.spec}) as host:
        await host.tools()
        program.speak(stateless=stateless)
        with pytest.raises(RequestLost) as caught:
            await host.call_tool("either:book", {"what": "die"})
        assert caught.value.maybe_done
        await host.call_tool("either:book", {"what": "live"})
        assert program.done == ["die", "live"]
        assert host.status()["either"].revision == ("2026-07-28" if stateless else "2025-11-25")
