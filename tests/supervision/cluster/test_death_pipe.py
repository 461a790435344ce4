"""The death pipe in a process that waits: the wait is aborted when the application ends."""

from __future__ import annotations

import os
import select
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision.cluster import bootstrap as death_pipe
from greenroom.supervision.cluster.bootstrap import (
    ApplicationGone,
    DeathPipe,
    abort_when_application_ends,
    is_death_pipe,
)

if TYPE_CHECKING:
    from collections.abc import Generator

PATIENCE = 50


@pytest.fixture
def line() -> Generator[tuple[DeathPipe, int]]:
    """The application's end, and that of a process below."""
    before = signal.getsignal(signal.SIGIO)
    made = DeathPipe()
    below = os.dup(made.reading)
    made.handed_over()
    try:
        yield made, below
    finally:
        made.cut()
        os.close(below)
    assert signal.getsignal(signal.SIGIO) == before
    assert death_pipe._DeathPipeState.waiting == -1


def wait() -> bool:
    """Wait for something that does not come; False after the timeout."""
    never, other = os.pipe()
    try:
        return bool(select.select([never], [], [], PATIENCE)[0])
    finally:
        os.close(never)
        os.close(other)


def test_a_wait_is_aborted_when_the_application_ends(line: tuple[DeathPipe, int]) -> None:
    made, below = line
    ending = threading.Timer(0.05, made.cut)
    ending.start()
    with pytest.raises(ApplicationGone), abort_when_application_ends(below):
        wait()
    ending.join()


def test_nothing_is_begun_when_it_has_ended_already(line: tuple[DeathPipe, int]) -> None:
    made, below = line
    made.cut()
    with pytest.raises(ApplicationGone), abort_when_application_ends(below):
        raise AssertionError


def test_a_call_that_has_ended_is_not_cancelled_afterwards(line: tuple[DeathPipe, int]) -> None:
    made, below = line
    with abort_when_application_ends(below):
        pass
    made.cut()
    assert death_pipe.is_application_gone(below)


def test_where_the_kernel_cannot_be_asked_it_is_just_waited(
    line: tuple[DeathPipe, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, below = line
    monkeypatch.setattr(death_pipe, "_SETSIG", None)
    with abort_when_application_ends(below):
        made.cut()


def test_a_process_whose_descriptor_was_closed_is_not_armed(line: tuple[DeathPipe, int]) -> None:
    _, below = line
    closed = os.dup(below)
    os.close(closed)
    assert death_pipe._armed(closed, signal.SIGIO) is None


def test_where_the_kernel_cannot_be_asked_a_thread_ends_the_process(
    line: tuple[DeathPipe, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, below = line
    ended = threading.Event()
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(death_pipe._DeathPipeState, "reading", below)
    monkeypatch.setattr(os, "_exit", end)
    death_pipe.watch_death_pipe_in_thread()
    assert "greenroom-death-pipe" not in [each.name for each in threading.enumerate()], "the kernel does it here"
    monkeypatch.setattr(death_pipe, "_SETSIG", None)
    death_pipe.watch_death_pipe_in_thread()
    (thread,) = [each for each in threading.enumerate() if each.name == "greenroom-death-pipe"]
    assert not ended.wait(0)
    made.cut()
    assert ended.wait(PATIENCE)
    thread.join(PATIENCE)
    assert codes == [1]


def test_the_death_pipe_survives_code_that_closes_all_descriptors(
    line: tuple[DeathPipe, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, below = line
    assert not is_death_pipe(below)
    assert not is_death_pipe(-1)
    monkeypatch.setattr(death_pipe._DeathPipeState, "reading", below)
    assert is_death_pipe(below)


def test_a_fork_of_the_application_does_not_hold_the_death_pipe_open(line: tuple[DeathPipe, int]) -> None:
    made, below = line
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, b"forked")
        os.read(below, 1)  # until no process has the other end
        os._exit(7)
    try:
        assert os.read(reading, 6) == b"forked"
        assert not death_pipe.is_application_gone(below), "the application has it still"
        made.cut()
        assert death_pipe.is_application_gone(below)
    finally:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        os.close(reading)
        os.close(writing)
