"""The theatre simulation on virtual time: for every random seed each event is shown, and the tree survives."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
from examples.demo.theatre.event_log import EventLog
from examples.demo.theatre.simulation import Simulation, bad_luck, look, prompt
from examples.demo.theatre.supervision_tree import PERFORMERS, open_house
from examples.demo.theatre.tree_picture import Scene, clipped, paint, picture, uncoloured

from greenroom.supervision import Node, kill, spawn, stop, whereis, which_children
from greenroom.supervision.testing import VirtualLoop

if TYPE_CHECKING:
    from examples.demo.theatre.tree_picture import Scene as AnyScene


class Gallery:
    """A screen that keeps the pictures."""

    def __init__(self) -> None:
        self.scenes: list[AnyScene] = []
        self.pictures: list[str] = []
        self.closed = False

    def open(self, scene: AnyScene) -> None:
        self.show(scene)

    def show(self, scene: AnyScene) -> None:
        self.scenes.append(scene)
        self.pictures.append("\n".join(map(uncoloured, picture(scene))))

    def close(self, scene: AnyScene) -> None:
        self.show(scene)
        self.closed = True


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(6))
def test_an_evening(seed: int) -> None:
    gallery = Gallery()
    show = Simulation(gallery, 30, seed)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(show.play())
        assert asyncio.all_tasks(runner.get_loop()) == set()
    book = show.book
    assert gallery.closed
    assert len(gallery.pictures) > 300
    for drawn in gallery.pictures:
        lines = drawn.splitlines()
        assert len(lines) == 23
        assert max(map(len, lines)) <= 80
    assert 10 < book.deaths < 60
    assert book.restarts > book.deaths
    assert book.answered > book.refused > 0
    assert book.late == 0
    assert "theatre" not in book.last  # the root supervisor never restarts
    told = [entry.text for entry in book.entries]
    assert any("cast gives up" in text for text in told)
    assert told[-1].endswith("light, theatre")
    assert "cast gave up → theatre restarts all of it" in told


async def test_bad_luck_goes_on_until_the_supervisor_is_another(node: Node) -> None:
    book = EventLog(asyncio.get_running_loop().time)
    node.reports.subscribe(book.report)
    house = await open_house()
    calls = spawn(prompt, random.Random(1), book)
    before, king = whereis("cast"), whereis("king")
    await bad_luck("king", book)
    await which_children(house)
    kill(calls)
    assert whereis("cast") not in {None, before}
    assert whereis("king") not in {None, king}
    assert [entry.text for entry in book.entries] == [
        "a run of bad luck for the king begins",
        "king was killed → cast restarts it",
        "king was killed → cast restarts it",
        "king died again, more than 2 times in 5 s → cast gives up",
        "cast gave up → theatre restarts all of it",
    ]
    await stop(house)
    assert all(whereis(part) is None for part in PERFORMERS)
    assert look() is None


def test_events_are_returned_once() -> None:
    book = EventLog(lambda: 1.0)
    assert book.since(0) == []
    book.tell("one")
    book.tell("two")
    assert [entry.text for entry in book.since(1)] == ["two"]
    assert book.since(2) == []
    for number in range(100):
        book.tell(str(number))
    assert len(book.since(2)) == 50
    assert book.since(0)[-1].text == "99"


def test_an_empty_stage_is_a_picture_too() -> None:
    scene = Scene(None, EventLog(lambda: 0.0), 0, 30, 1)
    lines = [uncoloured(line) for line in picture(scene)]
    assert len(lines) == 23
    assert lines[1].startswith("theatre   ·")


def test_clipping_counts_what_is_seen() -> None:
    line = paint("red", "31") + " and plain"
    assert clipped(line, 80) == line
    assert uncoloured(clipped(line, 6)) == "red a…"
    assert clipped(line, 6).startswith("\x1b[31mred\x1b[0m")
