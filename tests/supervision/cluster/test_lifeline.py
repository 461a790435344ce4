"""The lifeline in a process that waits at it: the wait is given up when the application ends."""

from __future__ import annotations

import os
import select
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision.cluster import bootstrap as lifeline
from greenroom.supervision.cluster.bootstrap import Cut, Lifeline, holds, waiting

if TYPE_CHECKING:
    from collections.abc import Generator

PATIENCE = 50


@pytest.fixture
def line() -> Generator[tuple[Lifeline, int]]:
    """The application's end, and the one of a process below."""
    before = signal.getsignal(signal.SIGIO)
    made = Lifeline()
    below = os.dup(made.reading)
    made.handed_over()
    try:
        yield made, below
    finally:
        made.cut()
        os.close(below)
    assert signal.getsignal(signal.SIGIO) == before
    assert lifeline._Armed.waiting == -1


def wait() -> bool:
    """For something that does not come; False when the time was up."""
    never, other = os.pipe()
    try:
        return bool(select.select([never], [], [], PATIENCE)[0])
    finally:
        os.close(never)
        os.close(other)


def test_what_waits_is_given_up_when_the_application_ends(line: tuple[Lifeline, int]) -> None:
    made, below = line
    ending = threading.Timer(0.05, made.cut)
    ending.start()
    with pytest.raises(Cut), waiting(below):
        wait()
    ending.join()


def test_nothing_is_begun_when_it_has_ended_already(line: tuple[Lifeline, int]) -> None:
    made, below = line
    made.cut()
    with pytest.raises(Cut), waiting(below):
        raise AssertionError


def test_what_comes_to_its_end_is_not_disturbed_afterwards(line: tuple[Lifeline, int]) -> None:
    made, below = line
    with waiting(below):
        pass
    made.cut()
    assert lifeline.is_cut(below)


def test_where_the_kernel_cannot_be_asked_it_is_just_waited(
    line: tuple[Lifeline, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, below = line
    monkeypatch.setattr(lifeline, "_SETSIG", None)
    with waiting(below):
        made.cut()


def test_whose_end_was_closed_by_somebodys_code_is_not_armed(line: tuple[Lifeline, int]) -> None:
    _, below = line
    closed = os.dup(below)
    os.close(closed)
    assert lifeline._armed(closed, signal.SIGIO) is None


def test_where_the_kernel_cannot_be_asked_a_thread_ends_the_process(
    line: tuple[Lifeline, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, below = line
    ended = threading.Event()
    codes: list[int] = []

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    monkeypatch.setattr(lifeline._Armed, "reading", below)
    monkeypatch.setattr(os, "_exit", end)
    lifeline.watch_in_thread()
    assert "greenroom-lifeline" not in [each.name for each in threading.enumerate()], "the kernel does it here"
    monkeypatch.setattr(lifeline, "_SETSIG", None)
    lifeline.watch_in_thread()
    (thread,) = [each for each in threading.enumerate() if each.name == "greenroom-lifeline"]
    assert not ended.wait(0)
    made.cut()
    assert ended.wait(PATIENCE)
    thread.join(PATIENCE)
    assert codes == [1]


def test_who_closes_all_descriptors_lets_it_be(line: tuple[Lifeline, int], monkeypatch: pytest.MonkeyPatch) -> None:
    _, below = line
    assert not holds(below)
    assert not holds(-1)
    monkeypatch.setattr(lifeline._Armed, "reading", below)
    assert holds(below)


def test_a_fork_does_not_keep_those_alive_whom_the_application_has_left(line: tuple[Lifeline, int]) -> None:
    made, below = line
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, b"forked")
        os.read(below, 1)  # until no process has the other end
        os._exit(7)
    try:
        assert os.read(reading, 6) == b"forked"
        assert not lifeline.is_cut(below), "the application has it still"
        made.cut()
        assert lifeline.is_cut(below)
    finally:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        os.close(reading)
        os.close(writing)
