"""Machines of a cluster as values: their announcements, what nodes may require of them, the events of joining and leaving, and the choice of one for a node.

Pure. An announcement travels as capabilities of the machine's Thespian system: Thespian passes them on to the leader of the convention, and places actors by
them.
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
"""The id of one Thespian system. A machine whose system is replaced announces itself again while the old one may still be listed."""
ANNOUNCED: Final = "greenroom.announced"
NAME: Final = "machine"
"""A capability that every machine has: its name."""
MANY: Final = 64
_TEXT: Final = 256
_KEY: Final = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
NODE: Final = "machine:"
"""Prefix of the names of machines' own nodes."""


class MachineUp(NamedTuple):
    """A machine has joined, and takes nodes."""

    name: str
    capabilities: Mapping[str, Capability]


class MachineDown(NamedTuple):
    """A machine cannot be reached any more; `why` is a text."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine that has announced itself.

    `id` identifies one run of its member program. `addresses` are those of its own node. It takes at most `room` nodes; None is no limit.
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
        """The name of its own node."""
        return NODE + self.name

    @property
    def host(self) -> str | None:
        """The host on which its nodes listen."""
        return next(
            (each.removeprefix("tcp:").rpartition(":")[0] for each in self.addresses if each.startswith("tcp:")), None
        )

    @property
    def offers(self) -> dict[str, Capability]:
        """The capabilities that a node can require of the machine."""
        return {**self.capabilities, NAME: self.name}

    def announcement(self) -> dict[str, Capability]:
        """The announcement, as capabilities of a Thespian system."""
        return {**self.offers, ID: self.id, ANNOUNCED: msgspec.json.encode(self).decode()}

    @classmethod
    def announced(cls, id: str, announcement: str) -> Machine | None:
        """The machine that a system has announced; None for a system that is not ours."""
        try:
            told = {**msgspec.json.decode(announcement), "id": id}
            return msgspec.convert(told, cls) if told.keys() >= {*cls.__slots__} else None
        except (TypeError, ValueError, msgspec.MsgspecError):
            return None

    def __str__(self) -> str:
        return f"{self.name} ({capabilities_text(self.capabilities)})"


def local_versions() -> tuple[str, str]:
    """The versions of greenroom and Python that run here."""
    return metadata.version("greenroom"), platform.python_version()


def version_mismatch(mine: Machine, other: Machine) -> str | None:
    """Why two machines cannot be in one cluster, with both names; None when they can."""
    if mine.greenroom == other.greenroom:
        return None
    return (
        f"machine {other.name} runs greenroom {other.greenroom}, and machine {mine.name} runs greenroom {mine.greenroom}: "
        "install the same version on both"
    )


def meets_requirements(offers: Mapping[str, Capability], requires: Mapping[str, object]) -> bool:
    """Whether every requirement is met. True does not equal 1 here."""
    return all(
        name in offers and offers[name] == wanted and isinstance(offers[name], bool) is isinstance(wanted, bool)
        for name, wanted in requires.items()
    )


def capabilities_text(capabilities: Mapping[str, object]) -> str:
    """Capabilities as a text."""
    return ", ".join(f"{name}={_written(value)}" for name, value in capabilities.items()) or "no capabilities"


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_capability(text: str) -> tuple[str, Capability]:
    """Parse ``gpu=true``, ``cores=8``, ``room=green``; a name alone is true. Raises `ConfigError`."""
    name, equals, value = text.partition("=")
    return check_capability(name.strip(), _value(value.strip()) if equals else True)


def _value(text: str) -> Capability:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def check_capability(name: str, value: object) -> tuple[str, Capability]:
    """Check one capability. Raises `ConfigError`."""
    if not _KEY.fullmatch(name) or name == NAME or name.startswith("greenroom."):
        raise ConfigError(
            f"a capability is called by 1 to 64 lower-case letters, digits, '.', '-' and '_' (and neither {NAME!r} nor "
            f"greenroom.…), not {name!r}"
        )
    if not isinstance(value, str | int | float | bool) or (isinstance(value, str) and len(value) > _TEXT):
        raise ConfigError(f"capability {name} must be true, false, a number or a text of up to {_TEXT} characters")
    return name, value


def check_capabilities(capabilities: Mapping[str, object]) -> dict[str, Capability]:
    """Check all capabilities of a machine. Raises `ConfigError`."""
    if len(capabilities) > MANY:
        raise ConfigError(f"a machine has up to {MANY} capabilities, not {len(capabilities)}")
    return dict(check_capability(*each) for each in capabilities.items())


# --- The choice of a machine: of those that meet the requirements and have room, the one with the fewest of this application's nodes. Pure.
# The nodes are counted here, since Thespian's own count is always zero: of two equal machines it would place every actor on the first.


class Candidate(NamedTuple):
    """A machine that can be reached, and how many nodes it has or is about to get."""

    machine: Machine
    nodes: int

    @property
    def full(self) -> bool:
        """Whether it takes no more nodes."""
        return self.machine.room is not None and self.nodes >= self.machine.room

    def __str__(self) -> str:
        room = "" if self.machine.room is None else f", {self.nodes} of {self.machine.room} nodes"
        return f"{self.machine.name} ({capabilities_text(self.machine.capabilities)}{room})"


class NothingFits(ActorError):
    """No machine meets the requirements of a node, or all that do are full."""

    def __init__(self, requires: Mapping[str, object], there: tuple[str, ...], *, full: bool = False) -> None:
        """`there` describes each machine; `full` when some machine would fit."""
        super().__init__(dict(requires), there)
        self.requires = dict(requires)
        self.there = there
        self.full = full

    def __str__(self) -> str:
        why = "every machine that fits is full" if self.full else "no machine of the cluster has that"
        return f"a node requires {capabilities_text(self.requires)}, and {why}; there are: {'; '.join(self.there) or 'none'}"


def choose_machine(requires: Mapping[str, object], there: Iterable[Candidate]) -> Machine:
    """Of the machines that fit and have room, the one with the fewest nodes, then the first by name. Raises `NothingFits`."""
    known = tuple(there)
    fitting = [each for each in known if meets_requirements(each.machine.offers, requires)]
    free = [each for each in fitting if not each.full]
    if not free:
        raise NothingFits(requires, tuple(map(str, known)), full=bool(fitting))
    return min(free, key=lambda each: (each.nodes, each.machine.name)).machine
