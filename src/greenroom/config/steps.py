"""What has to be done so that the servers that run are those that are wanted: a pure comparison, one step a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .values import ServerConfig

Doing: TypeAlias = Literal["remove", "replace", "add", "adjust"]


@dataclass(frozen=True, slots=True)
class Step:
    """One server, and what becomes of it."""

    doing: Doing
    """`adjust`: only what is looked up at each call is different, so nobody has to be touched."""
    name: str
    server: ServerConfig | None
    """How it is wanted; None when it is not."""

    def __str__(self) -> str:
        return f"{self.doing} {self.name}"


def step_for(name: str, wanted: ServerConfig | None, running: ServerConfig | None) -> Step | None:
    """What has to be done about one server; None when it is as it should be."""
    if wanted is None:
        return None if running is None else Step("remove", name, None)
    if running is None:
        return Step("add", name, wanted)
    if wanted.does_as(running):
        return None
    return Step("adjust" if wanted.runs_as(running) else "replace", name, wanted)


def steps(wanted: Mapping[str, ServerConfig], running: Mapping[str, ServerConfig]) -> tuple[Step, ...]:
    """For all of them: who goes first, so that there is room, then who changes, then who comes."""
    names = dict.fromkeys((*running, *wanted))
    found = [step for name in names if (step := step_for(name, wanted.get(name), running.get(name))) is not None]
    order: tuple[Doing, ...] = ("remove", "replace", "adjust", "add")
    return tuple(sorted(found, key=lambda step: order.index(step.doing)))
