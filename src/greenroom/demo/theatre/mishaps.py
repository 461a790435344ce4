"""What happens to the company: deaths of every kind, guests who come, and somebody who calls all the while.

Each is a plain process beside the tree, in the order that its dice say.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Final

from greenroom.supervision import (
    CallTimeout,
    MaxChildren,
    ProcessExited,
    Ref,
    kill,
    start_child,
    whereis,
    which_children,
)

from .company import BAND, CAST, LIGHT, PERFORMERS, Performer, guest

if TYPE_CHECKING:
    import random

    from .book import Book

PAUSES: Final = (0.5, 1.6)  # seconds between two mishaps
UNLUCKY: Final = 9  # every so many mishaps one is a run of bad luck
STAYS: Final = (2.0, 7.0)
CALLS_EVERY: Final = 0.02
PATIENCE: Final = 2.0

SLIPS: Final = (Performer.forget, Performer.faint, Performer.trip, Performer.walk_off)


async def mischief(dice: random.Random, book: Book) -> None:
    """End somebody, now and then; and sometimes the same one again and again, until its supervisor gives up."""
    for number in count(1):
        await asyncio.sleep(dice.uniform(*PAUSES))
        if number % UNLUCKY == UNLUCKY // 2:
            await bad_luck(dice.choice(CAST), book)
            continue
        part = dice.choice((*LIGHT, *BAND, dice.choice(CAST), "somebody in the house"))
        how = dice.randrange(len(SLIPS) + 2)
        if part not in PERFORMERS:
            for guest_pid in [one.pid for one in await which_children("guests")][:1]:
                kill(guest_pid)
        elif how < len(SLIPS):
            Ref[Performer](part).cast(SLIPS[how])
        else:
            kill(part)


async def bad_luck(part: str, book: Book) -> None:
    """Kill one part as soon as it is back."""
    book.tell(f"a run of bad luck for the {part} begins", grave=True)
    supervisor = whereis("cast")
    while supervisor is not None and whereis("cast") == supervisor:
        if book.beats.pop(part, None) is not None:  # it has answered since it came back
            kill(part)
        await asyncio.sleep(CALLS_EVERY)


async def welcome(dice: random.Random) -> None:
    """Let guests in while there are free seats."""
    for number in count(1):
        await asyncio.sleep(dice.uniform(0.5, 1.5))
        stay = dice.uniform(*STAYS)
        try:
            await start_child("guests", guest(number, stay))
        except MaxChildren:
            continue  # sold out


async def prompt(dice: random.Random, book: Book) -> None:
    """Call somebody or other, by name, and write down how each call ended."""
    while True:
        await asyncio.sleep(CALLS_EVERY)
        part = dice.choice(PERFORMERS)
        try:
            book.beats[part] = await Ref[Performer](part).within(PATIENCE).call(Performer.beat)
        except CallTimeout:
            book.late += 1
        except ProcessExited:
            book.refused += 1
        else:
            book.answered += 1
