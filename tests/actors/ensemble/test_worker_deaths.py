"""`server.run("http", workers=2)`: what is lost when a process ends by anything but a tool, and when the program gives up."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision.cluster import os_processes

from .worker_programs import Crew, Line, crew, ended, is_running, wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")


def part(program: Crew, name: str, but: int = 0) -> int:
    """The pid of the engine's process with that name, once there is one other than `but`."""

    def found() -> list[int]:
        others = program.relatives() - {but}
        return [pid for pid in others if os_processes.name_of(pid) == name and is_running(pid)]

    return int(wait_for(found, program.said)[0])


def gone(program: Crew, *victims: int) -> None:
    """Wait until none of these processes runs."""
    wait_for(lambda: not any(map(is_running, victims)), program.said)


@pytest.mark.deep
def test_a_worker_that_gives_no_sign_of_life_is_replaced(tmp_path: Path) -> None:
    with crew(tmp_path, "crew.py", "2", "4") as program:
        one, other = program.lines()
        victim, home = int(one.tool("where")), other.tool("where")
        program.relatives()
        os.kill(victim, signal.SIGSTOP)
        assert other.tool("where") == home
        gone(program, victim)
        wait_for(lambda: "did not answer any more, and was killed" in program.said(), program.said)
        again, fourth = program.lines()
        assert home in {again.tool("where"), fourth.tool("where")}
        assert other.tool("where") == home
        for line in (one, other, again, fourth):
            line.close()


@pytest.mark.deep
def test_a_program_whose_worker_dies_again_and_again_gives_up(tmp_path: Path) -> None:
    with crew(tmp_path, "crew.py", "1", "30", "3") as program:
        for time in range(4):
            line = program.line()  # the connection waits in the socket until there is a worker
            line.enter()
            victim = int(line.tool("where"))
            line.close()
            program.relatives()
            assert (time, program.process.poll()) == (time, None)
            ended(victim)
            gone(program, victim)
        assert program.process.wait(30) == 1
        assert "gives up on child 'worker-1'" in program.said()
        assert "more than 3 restarts within 60 s" in program.said()
        assert program.said().splitlines()[-1].startswith("greenroom: the server has ended: ")
        wait_for(lambda: not program.left(), lambda: f"{program.left()} are left")


def test_when_the_daemon_is_killed_all_sessions_end_and_the_workers_are_there_again(tmp_path: Path) -> None:
    with crew(tmp_path) as program:
        one, other = program.lines()
        homes = {one.tool("where"), other.tool("where")}
        before = part(program, "gr-daemon")
        program.relatives()
        ended(before)
        gone(program, *map(int, homes))
        assert part(program, "gr-daemon", but=before) != before
        again, fourth = program.lines()
        assert not homes & {again.tool("where"), fourth.tool("where")}
        for session in (one.session, other.session):
            late = Line(program.port, session)
            with contextlib.closing(late):
                answer = late.begin("where")
                answer.read()
                assert answer.status == 404
        assert program.process.poll() is None
        for line in (one, other, again, fourth):
            line.close()


def test_when_the_keeper_is_killed_no_session_notices(tmp_path: Path) -> None:
    with crew(tmp_path) as program:
        one, other = program.lines()
        homes = [one.tool("where"), other.tool("where")]
        before = part(program, "gr-forkserver")
        ended(before)
        assert part(program, "gr-forkserver", but=before) != before
        assert [one.tool("where"), other.tool("where")] == homes
        ended(int(homes[0]))  # the new fork server starts workers as the old one did
        wait_for(lambda: "SIGKILL" in program.said(), program.said)
        again, fourth = program.lines()
        assert homes[1] in {again.tool("where"), fourth.tool("where")}
        assert other.tool("where") == homes[1]
        for line in (one, other, again, fourth):
            line.close()
