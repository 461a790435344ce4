"""Plans of faults as data: which fault is applied to which process, and when. `inject` applies a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

Which: TypeAlias = int | Literal["all"]


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """After `at` seconds, apply the fault `what` to `target`.

    `what` is a kind of fault (`fault_kinds()` lists them). `target` is one of

    - ``Worker``: the label of a process, or one of its classes; `*` matches any text;
    - ``office/desks/desk 3``: a path in the tree, from any process down: ids of children, names or labels; `**` matches any depth;
    - ``@till``: a registered name;
    - ``#7``: the process with serial number 7.

    The target is looked up when the time comes. If several processes match, `which` is the index in the order of their start (-1 is the newest), or "all".
    The kind defines what `seconds`, `count` and `reason` mean; None is its default.

    """

    at: float
    what: str
    target: str
    which: Which = 0
    seconds: float | None = None
    count: int | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        """Raises `ValueError` for an impossible fault."""
        for name in ("at", "seconds"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ValueError(f"a fault must have {name} of 0 or more seconds, not {value!r}")
        if self.count is not None and self.count < 1:
            raise ValueError(f"a fault must have a count of 1 or more, not {self.count!r}")
        if not self.target.strip("@#/"):
            raise ValueError(f"a fault needs a target: {self.target!r} names none")

    def but(self, **changes: object) -> Fault:
        """A copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def __str__(self) -> str:
        which = "" if self.which == 0 else f"[{self.which}]"
        details = [
            f"{name}={value}" for name in ("seconds", "count", "reason") if (value := getattr(self, name)) is not None
        ]
        return f"{self.at:g} s: {self.what} {self.target}{which}{' ' if details else ''}{' '.join(details)}"


class FaultPlan(msgspec.Struct, frozen=True):
    """Faults in the order of their times; those of one time keep their order."""

    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        """Sort the faults by time."""
        ordered = tuple(sorted(self.faults, key=lambda fault: fault.at))
        if ordered != self.faults:
            msgspec.structs.force_setattr(self, "faults", ordered)

    @classmethod
    def of(cls, *faults: Fault) -> FaultPlan:
        """A plan of these faults."""
        return cls(faults)

    @classmethod
    def joined(cls, *parts: Fault | FaultPlan) -> FaultPlan:
        """One plan of several plans and single faults."""
        return cls(tuple(fault for part in parts for fault in (part if isinstance(part, FaultPlan) else (part,))))

    def __len__(self) -> int:
        return len(self.faults)

    def __iter__(self) -> Iterator[Fault]:
        return iter(self.faults)

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults)) or "no faults"

    def dump(self, *, indent: int = 0) -> str:
        """The plan as JSON, in one line or indented."""
        text = msgspec.json.encode(self)
        return (msgspec.json.format(text, indent=indent) if indent else text).decode()

    @classmethod
    def load(cls, text: str | bytes) -> FaultPlan:
        """The plan in a JSON text."""
        return msgspec.json.decode(text, type=cls)
