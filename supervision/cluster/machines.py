"""Machines of a cluster, as values: what one announces when it joins, what nodes may require of it, and the events of its coming and going.

Pure. An announcement travels as capabilities of the machine's Thespian system: Thespian passes them on to the leader of the convention,
and places actors by them.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping  # noqa: TC003 - msgspec reads what the fields are
from dataclasses import dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from greenroom.errors import ConfigError
from greenroom.supervision.kernel.errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Iterable

Capability: TypeAlias = str | int | float | bool

ID: Final = "greenroom.machine"
SYSTEM: Final = "greenroom.system"
"""Of one Thespian system of a machine: a machine that has its own replaced announces itself anew, and the other may be on record still."""
ANNOUNCED: Final = "greenroom.announced"
NAME: Final = "machine"
"""What every machine can be required by: its name."""
MANY: Final = 64
_TEXT: Final = 256
_KEY: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
NODE: Final = "machine:"
"""What the names of machines' own nodes begin with."""


class MachineUp(NamedTuple):
    """A machine has joined, and takes nodes."""

    name: str
    capabilities: Mapping[str, Capability]


class MachineDown(NamedTuple):
    """A machine cannot be reached any more; `why` in words."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One that has announced itself.

    `id` is of one run of its member program. `addresses` lead to its own node. It takes `room` nodes at most; None is no limit.
    """

    name: str
    id: str
    addresses: tuple[str, ...] = ()
    capabilities: Mapping[str, Capability] = field(default_factory=dict[str, "Capability"])
    room: int | None = None
    greenroom: str = ""
    python: str = ""

    @property
    def node(self) -> str:
        """What its own node is called."""
        return NODE + self.name

    @property
    def host(self) -> str | None:
        """Where its nodes listen for others."""
        return next(
            (each.removeprefix("tcp:").rpartition(":")[0] for each in self.addresses if each.startswith("tcp:")), None
        )

    @property
    def offers(self) -> dict[str, Capability]:
        """What a node can require of it."""
        return {**self.capabilities, NAME: self.name}

    def announcement(self) -> dict[str, Capability]:
        """As capabilities of a Thespian system."""
        return {**self.offers, ID: self.id, ANNOUNCED: msgspec.json.encode(self).decode()}

    @classmethod
    def announced(cls, id: str, announcement: str) -> Machine | None:
        """What a system has announced; None when it is nothing of ours."""
        try:
            told = {**msgspec.json.decode(announcement), "id": id}
            return msgspec.convert(told, cls) if told.keys() >= {*cls.__slots__} else None
        except (TypeError, ValueError, msgspec.MsgspecError):
            return None

    def __str__(self) -> str:
        return f"{self.name} ({shown(self.capabilities)})"


def here() -> tuple[str, str]:
    """The versions of greenroom and Python that run here."""
    return metadata.version("greenroom"), platform.python_version()


def mismatch(mine: Machine, other: Machine) -> str | None:
    """Why two machines cannot be of one cluster, naming both; None when they can."""
    if mine.greenroom == other.greenroom:
        return None
    return (
        f"machine {other.name} runs greenroom {other.greenroom}, and machine {mine.name} runs greenroom {mine.greenroom}: "
        "install the same version on both"
    )


def fits(offers: Mapping[str, Capability], requires: Mapping[str, object]) -> bool:
    """Whether all that is required is there. True is not 1."""
    return all(
        name in offers and offers[name] == wanted and isinstance(offers[name], bool) is isinstance(wanted, bool)
        for name, wanted in requires.items()
    )


def shown(capabilities: Mapping[str, object]) -> str:
    """For people."""
    return ", ".join(f"{name}={_written(value)}" for name, value in capabilities.items()) or "no capabilities"


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse(text: str) -> tuple[str, Capability]:
    """A capability as it is written: ``gpu=true``, ``cores=8``, ``room=green``; a name alone is true. Raises `ConfigError`."""
    name, equals, value = text.partition("=")
    return check(name.strip(), _value(value.strip()) if equals else True)


def _value(text: str) -> Capability:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def check(name: str, value: object) -> tuple[str, Capability]:
    """A capability that can be announced. Raises `ConfigError`."""
    if not _KEY.fullmatch(name) or name == NAME or name.startswith("greenroom."):
        raise ConfigError(
            f"a capability is called by 1 to 64 lower-case letters, digits, '.', '-' and '_' (and neither {NAME!r} nor "
            f"greenroom.…), not {name!r}"
        )
    if not isinstance(value, str | int | float | bool) or (isinstance(value, str) and len(value) > _TEXT):
        raise ConfigError(f"capability {name} must be true, false, a number or a text of up to {_TEXT} characters")
    return name, value


def check_all(capabilities: Mapping[str, object]) -> dict[str, Capability]:
    """All that a machine announces. Raises `ConfigError`."""
    if len(capabilities) > MANY:
        raise ConfigError(f"a machine has up to {MANY} capabilities, not {len(capabilities)}")
    return dict(check(*each) for each in capabilities.items())


# --- Which machine a node goes to: of those that have what it requires, and room for it, the one with the fewest of ours. Pure.
# The count is ours since Thespian's own is always zero: of two equal members, it places everything on the first.


class Candidate(NamedTuple):
    """A machine that can be reached, with how many nodes it has and is about to have."""

    machine: Machine
    nodes: int

    @property
    def full(self) -> bool:
        """Whether it takes no more."""
        return self.machine.room is not None and self.nodes >= self.machine.room

    def __str__(self) -> str:
        room = "" if self.machine.room is None else f", {self.nodes} of {self.machine.room} nodes"
        return f"{self.machine.name} ({shown(self.machine.capabilities)}{room})"


class NothingFits(ActorError):
    """No machine has what a node requires, or all that have it are full: what was required, and what there is."""

    def __init__(self, requires: Mapping[str, object], there: tuple[str, ...], *, full: bool = False) -> None:
        """`there` is each machine in words; `full` when some would fit."""
        super().__init__(dict(requires), there)
        self.requires = dict(requires)
        self.there = there
        self.full = full

    def __str__(self) -> str:
        why = "every machine that fits is full" if self.full else "no machine of the cluster has that"
        return f"a node requires {shown(self.requires)}, and {why}; there are: {'; '.join(self.there) or 'none'}"


def choose(requires: Mapping[str, object], there: Iterable[Candidate]) -> Machine:
    """The machine with the fewest nodes of those that fit; of equals, the one that comes first by its name. Raises `NothingFits`."""
    known = tuple(there)
    fitting = [each for each in known if fits(each.machine.offers, requires)]
    free = [each for each in fitting if not each.full]
    if not free:
        raise NothingFits(requires, tuple(map(str, known)), full=bool(fitting))
    return min(free, key=lambda each: (each.nodes, each.machine.name)).machine
