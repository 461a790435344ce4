"""Programs of both eras as servers: which one a program speaks is found out, and again when it is another program by now."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, ClientSettings, Command
from greenroom.actors.client.errors import StreamLost
from greenroom.protocol.errors import RequestCancelled

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.greenroom(clock="real")
PROGRAM = Path(__file__).parent / "programs" / "era_server.py"
VERSION = "2026-07-28"


@pytest.fixture
def era(tmp_path: Path) -> Callable[[str], Command]:
    """The command of a program that speaks this era from its next start on."""
    file = tmp_path / "era"

    def command(name: str) -> Command:
        file.write_text(name, encoding="utf-8")
        return Command(sys.executable, str(PROGRAM), str(file))

    return command


async def asked(client: Client, what: str) -> Any:
    """What the program says: its id, or what it was told."""
    return json.loads((await client.call_tool(what)).text)


@pytest.mark.row("26-S1")
@pytest.mark.parametrize(
    ("name", "version"),
    [("stateless", VERSION), ("handshake", "2025-11-25"), ("silent", "2025-11-25"), ("fragile", "2025-11-25")],
)
async def test_a_program_is_asked_for_its_era_first(era: Any, name: str, version: str) -> None:
    """It is started once, or once more where the question ends it."""
    async with Client(era(name), settings=ClientSettings(probe_timeout=0.5)) as client:
        assert (client.protocol_version, client.server_info["name"]) == (version, name)
        told = await asked(client, "told")
        assert [each["method"] for each in told] == ([] if name == "stateless" else ["notifications/initialized"])
        assert client.status.attempts == 0


@pytest.mark.row("26-S2")
async def test_a_program_is_told_of_a_cancelled_call_by_its_id(era: Any) -> None:
    async with Client(era("stateless")) as client:
        call = client.start_tool("wait")
        await client.ping()
        call.cancel("enough")
        with pytest.raises(RequestCancelled):
            await call.result()
        [told] = await asked(client, "told")
        assert told["method"] == "notifications/cancelled"
        assert told["params"]["reason"] == "enough"
        assert isinstance(told["params"]["requestId"], int)


@pytest.mark.row("26-S3", "26-H12")
@pytest.mark.parametrize("how", ["crash", "kill"])
async def test_a_program_that_crashes_is_started_again_and_what_may_be_repeated_is(era: Any, how: str) -> None:
    async with Client(era("stateless")) as client:
        before = await asked(client, "where")
        waiting = client.start_tool("wait")
        await client.ping()
        read = asyncio.create_task(client.read_resource("wait")) if how == "kill" else None
        if how == "crash":
            with pytest.raises(StreamLost):
                await client.call_tool("crash")
        else:
            os.kill(before, signal.SIGKILL)
        with pytest.raises(StreamLost) as lost:
            await waiting.result()
        assert lost.value.maybe_done
        after = await asked(client, "where")
        assert after != before
        assert client.protocol_version == VERSION
        if read is not None:
            assert json.loads((await read).text) == after


@pytest.mark.row("26-V10")
async def test_a_command_may_change_its_era_between_two_calls_and_during_one(era: Any) -> None:
    """From one program to the other and back; the call under way is lost, or never answered, and the next one is right."""
    async with Client(era("handshake")) as client:
        for name, version in (("stateless", VERSION), ("handshake", "2025-11-25"), ("stateless", VERSION)):
            before = await asked(client, "where")
            waiting = client.start_tool("wait")
            await client.ping()
            era(name)
            os.kill(before, signal.SIGKILL)
            with pytest.raises(Exception, match="may have been done or not") as lost:
                await waiting.result()
            assert lost.value.maybe_done  # type: ignore[attr-defined]
            assert await asked(client, "where") != before
            assert (client.protocol_version, client.server_info["name"]) == (version, name)
