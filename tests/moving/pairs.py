"""The five pairs: a server in the style of one of the two libraries, the same server here, and what is asked of both."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenroom import Command

from .looking import call, complete, prompt, read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .looking import Request

HERE = Path(__file__).parent
REFEREES = (HERE.parents[1] / ".referees").resolve()


@dataclass(frozen=True)
class Pair:
    """One server, twice."""

    name: str
    library: str
    requests: Sequence[Request]
    forms: Mapping[str, Any] | None = None
    """The user's answer to any form; None declines."""
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names that differ in our port, by the original name."""

    @property
    def original(self) -> Command:
        """As it was, in its library's own interpreter."""
        return Command(str(REFEREES / self.library / "bin" / "python"), str(HERE / "python" / f"{self.name}.py"))

    @property
    def port(self) -> Command:
        """As it is with us."""
        return Command(sys.executable, str(HERE / "ports" / f"{self.name}.py"))


SEAT = {"row": "A", "number": 1}
PAIRS = (
    Pair(
        "box_office",
        "mcp-2",
        (
            call("book", seats=[SEAT, {"row": "B", "number": 2}], price="student"),
            call("book", seats=[{"row": "AAA", "number": 99}]),
            call("book", seats=[SEAT], price="royal"),
            call("takings", play="Hamlet"),
            call("on_tonight", stages=["cellar", "attic"]),
            call("on_tonight", stages=[]),
            call("free_seats"),
            call("occupancy", evening=2),
            call("occupancy"),
            call("cancel", reference="B1"),
            call("cancel", reference="B2"),
            call("nowhere"),
        ),
    ),
    Pair(
        "programme",
        "mcp-2",
        (
            read("programme://season"),
            read("programme://plays/hamlet"),
            read("programme://poster"),
            read("programme://nowhere"),
            prompt("praise", play="tempest"),
            prompt("praise", play="tempest", tone="cool"),
            prompt("praise"),
            prompt("audition", part="Ariel"),
            prompt("nowhere"),
            complete("praise", "play", "h"),
            complete("praise", "play", "z"),
            call("picture", play="hamlet"),
        ),
    ),
    Pair(
        "rehearsal",
        "mcp-2",
        (
            call("run_through", scenes=2),
            call("say", line="To be"),
            call("say", line="or not"),
            call("cast", actor="Ann"),
        ),
        forms={"part": "Ophelia", "understudy": True},
    ),
    Pair("rehearsal", "mcp-2", (call("cast", actor="Ann"),)),
    Pair(
        "wardrobe",
        "fastmcp",
        (
            call("find", name="cloak"),
            call("find", name="sword"),
            call("find", name=""),
            call("find"),
            call("find", name="cloak", colour="red"),
            call("mend", name="cloak"),
            call("borrow", name="cloak"),
            call("borrow", name="crown"),
            call("sketch", name="crown"),
            call("measure"),
            read("wardrobe://inventory"),
            read("wardrobe://cloak/label"),
            read("wardrobe://nowhere"),
            prompt("dress", part="king"),
            prompt("dress"),
            call("nowhere"),
        ),
        forms={"value": 180},
    ),
    Pair(
        "stage",
        "fastmcp",
        (
            call("lights_dim", percent=30),
            call("trapdoor_drop", who="the ghost"),
            call("trapdoor_drop", who="the director"),
            prompt("lights_mood", scene="the storm"),
            call("playing"),
        ),
        renamed={
            "lights_dim": "lights__dim",
            "trapdoor_drop": "trapdoor__drop",
            "lights_mood": "lights__mood",
        },
    ),
)
