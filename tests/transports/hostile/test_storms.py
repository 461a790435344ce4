"""Storms over real connections: of readers, DELETEs, unknown sessions and connections; and a reader of standard output that stops."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .raw_clients import TARGET_PROGRAM, VERSION, target_server, until_cut

if TYPE_CHECKING:
    from .raw_clients import RawCaller, TargetServer

STORM = [150, pytest.param(3_000, marks=pytest.mark.soak)]


def settled(opened: TargetServer, before: dict[str, int], within: float = 20.0) -> None:
    """Wait until there is no more of anything than before."""
    deadline = time.perf_counter() + within
    while any((after := opened.cost())[what] > before[what] for what in ("descriptors", "processes", "names")):
        assert time.perf_counter() < deadline, (before, after)
        time.sleep(0.05)  # another process: there is no event to wait for


@pytest.mark.row("ST-11")
@pytest.mark.parametrize("storm", STORM)
def test_a_storm_of_readers_leaves_one_reader(storm: int, no_leaks: None) -> None:
    with target_server() as opened:
        before = opened.cost()
        one = opened.entered()
        readers: list[RawCaller] = []
        for _ in range(storm):
            reader = opened.caller(session=one.session)
            reader.send("GET", last_event_id="g0:0")
            assert reader.head()[0] == 200
            readers.append(reader)
        shouter = opened.entered()
        shouter.call("shout", words=1, size=10)
        heard = [reader.hear_chunks() for reader in readers[:-1]]  # each one ends in order, for the next
        assert not any(b"notifications/message" in each for each in heard)
        assert b"notifications/message" in readers[-1].hear_chunks(until=b"notifications/message")
        readers[-1].close()
        one.send("DELETE")
        assert one.hear().status == 204
        for each in readers:
            each.close()
        settled(
            opened,
            {
                **before,
                "descriptors": before["descriptors"] + 2,
                "processes": before["processes"] + 1,
                "names": before["names"] + 1,
            },
        )


@pytest.mark.row("SX-08")
@pytest.mark.parametrize("storm", STORM)
def test_a_storm_of_unknown_sessions_and_deletes_leaves_nothing(storm: int, no_leaks: None) -> None:
    with target_server() as opened:
        before = opened.cost()
        unknown, line = opened.caller(), opened.caller()
        for count in range(storm):
            unknown.session = f"mcp_{count:032x}"
            for verb in ("GET", "DELETE"):
                unknown.send(verb)
                assert unknown.hear().status == 404
            assert unknown.post({"id": 1, "method": "ping"}).status == 404
            line.session = ""
            line.enter()
            line.send("DELETE")
            assert line.hear().status == 204
            line.send("DELETE")
            assert line.hear().status == 404
        for each in (unknown, line):
            each.close()
        settled(opened, before)


@pytest.mark.row("ST-28")
@pytest.mark.parametrize("storm", STORM)
def test_a_storm_of_silent_or_short_connections_leaves_nothing(storm: int, no_leaks: None) -> None:
    with target_server({"header_timeout": 1.0, "max_connections": 100}) as opened:
        before = opened.cost()
        honest = opened.entered()
        silent = [opened.caller() for _ in range(storm)]
        assert honest.call("echo", text="still here") == "still here"
        assert len(until_cut(silent, 10.0)) == storm  # in time, or because of the limit
        assert honest.call("echo", text="still here") == "still here"
        for each in silent:
            each.close()
        honest.send("DELETE")
        assert honest.hear().status == 204
        honest.close()
        settled(opened, before)


@pytest.mark.row("ST-28")
def test_an_abandoned_reply_leaves_nothing(no_leaks: None) -> None:
    with target_server() as opened:
        before = opened.cost()
        one = opened.entered()
        for _ in range(100):
            gone = opened.caller(session=one.session)
            gone.begin("echo", text="x" * 100_000)
            gone.close()
        one.send("DELETE")
        assert one.hear().status == 204
        one.close()
        settled(opened, before)


@pytest.mark.parametrize("calls", [3_000, pytest.param(60_000, marks=pytest.mark.soak)])
def test_a_client_that_does_not_read_standard_output_is_not_read_from(calls: int, no_leaks: None) -> None:
    text = "x" * 10_000
    command = [sys.executable, str(TARGET_PROGRAM), "stdio"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            into, out = process.stdin, process.stdout

            def say(**message: Any) -> None:
                into.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

            info = {"name": "slow", "version": "1"}
            say(id=0, method="initialize", params={"protocolVersion": VERSION, "capabilities": {}, "clientInfo": info})
            say(method="notifications/initialized")
            into.flush()
            assert json.loads(out.readline())["id"] == 0

            def flood() -> None:
                for id in range(1, calls + 1):
                    say(id=id, method="ping" if id % 2 else "tools/list", params={"_meta": {"x": text}})
                into.flush()

            memory = Path(f"/proc/{process.pid}/statm")
            before = int(memory.read_text(encoding="ascii").split()[1]) * 4096
            writer = threading.Thread(target=flood)
            writer.start()
            quiet = most = 0
            while quiet < 10:  # until it reads no more input, and so does not grow
                now = int(memory.read_text(encoding="ascii").split()[1]) * 4096
                quiet, most = (quiet + 1, most) if now <= most else (0, now)
                time.sleep(0.05)
            assert most - before < 48 * 1024 * 1024
            answered = [json.loads(out.readline())["id"] for _ in range(calls)]
            writer.join()
            assert answered == list(range(1, calls + 1))
            into.close()
            assert process.wait(30.0) == 0
        finally:
            process.kill()
