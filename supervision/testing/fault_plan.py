"""Faults as data: what is to go wrong in a run, with whom, and when. A plan is a value; `inject` carries it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

Which: TypeAlias = int | Literal["all"]


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """After `at` seconds, do `what` to `whom`.

    `what` is a kind of fault (`fault_kinds()` lists them). `whom` is one of

    - ``Worker``: a role, that is the label of a process or a class that it is of; `*` stands for anything;
    - ``office/desks/desk 3``: a path in the tree, from any process down: ids of children, names or labels; `**` for any depth;
    - ``@till``: the process that has that name;
    - ``#7``: the seventh process of the node.

    It is looked up when the moment comes. When several fit, `which` takes one in the order in which they were started
    (-1 is the newest), or "all". `seconds`, `count` and `reason` mean what the kind says; None is the kind's own choice.
    """

    at: float
    what: str
    target: str
    which: Which = 0
    seconds: float | None = None
    count: int | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        """Refuse what can never be done."""
        for name in ("at", "seconds"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"a fault has {name} 0 or more seconds, not {value!r}")
        if self.count is not None and self.count < 1:
            raise ValueError(f"a fault has a count of 1 or more, not {self.count!r}")
        if not self.target.strip("@#/"):
            raise ValueError(f"a fault happens to somebody: {self.target!r} is nobody")

    def but(self, **changes: object) -> Fault:
        """The same, with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def __str__(self) -> str:
        which = "" if self.which == 0 else f"[{self.which}]"
        said = [
            f"{name}={value}" for name in ("seconds", "count", "reason") if (value := getattr(self, name)) is not None
        ]
        return f"{self.at:g} s: {self.what} {self.target}{which}{' ' if said else ''}{' '.join(said)}"


class FaultPlan(msgspec.Struct, frozen=True):
    """Faults in the order in which they happen; those of one moment in the order in which they were given."""

    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        """Put them in order."""
        ordered = tuple(sorted(self.faults, key=lambda fault: fault.at))
        if ordered != self.faults:
            msgspec.structs.force_setattr(self, "faults", ordered)

    @classmethod
    def of(cls, *faults: Fault) -> FaultPlan:
        """A plan of these."""
        return cls(faults)

    @classmethod
    def joined(cls, *parts: Fault | FaultPlan) -> FaultPlan:
        """One plan of several, and of single faults."""
        return cls(tuple(fault for part in parts for fault in (part if isinstance(part, FaultPlan) else (part,))))

    def __len__(self) -> int:
        return len(self.faults)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.faults)

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults)) or "no faults"

    def dump(self, *, indent: int = 0) -> str:
        """As JSON: in one line, or indented for a file that people read."""
        text = msgspec.json.encode(self)
        return (msgspec.json.format(text, indent=indent) if indent else text).decode()

    @classmethod
    def load(cls, text: str | bytes) -> FaultPlan:
        """Back from JSON."""
        return msgspec.json.decode(text, type=cls)
