"""However the program ends, its connection processes and the servers that they started end as well."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.transports.client_command.process_tree import MARK, PATIENCE, marked_processes, wait_until_gone

from greenroom.actors.client.client_handler import ClientHandler
from greenroom.host import Host
from greenroom.supervision import Supervisor, start, stop

from .isolated_hosts import connection_process_of, ledger

if TYPE_CHECKING:
    from greenroom.supervision import Ref

PROGRAM = Path(__file__).parent / "programs" / "host.py"
LEFT = 3.0 * 5
"""Seconds until nothing is left, where other tests run beside."""


@pytest.mark.deep
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_process_is_left_of_a_program_that_was_ended(number: signal.Signals, tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    words = [sys.executable, str(PROGRAM), str(tmp_path / "book"), mark]
    environment = os.environ | {MARK: mark}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as program:
        try:
            assert program.stdout is not None
            assert select.select([program.stdout], [], [], PATIENCE)[0]
            assert program.stdout.readline() == b"ready\n"
            there = marked_processes(mark)
            assert sum("ledger" in each for each in there.values()) == 2
            assert len(there) >= 8, (
                there
            )  # the program, two connection processes, what starts and guards them, and the servers
            program.send_signal(number)
            program.wait(PATIENCE)
            began = time.monotonic()
            assert not wait_until_gone(mark, LEFT)
            assert time.monotonic() - began < LEFT
        finally:
            program.kill()


@pytest.mark.greenroom(clock="real")
@pytest.mark.usefixtures("mark")
async def test_another_connection_to_the_same_server_runs_where_the_first_one_does(tmp_path: Path) -> None:
    async with Host({"one": ledger(tmp_path / "book", isolation="process")}) as host:
        first = await host.server("one").call("where", into=int)
        spec, line = host.connection("one", ClientHandler())
        keeper: Ref[Supervisor] = await start(Supervisor, [spec])
        called = await line.request("tools/call", {"name": "where", "arguments": {}})
        second = int(called["content"][0]["text"])
        process = await connection_process_of(host, "one")
        assert second != first
        assert _parent(first) == _parent(second) == process
        await stop(keeper)
        assert await host.server("one").call("where", into=int) == first


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[1])
