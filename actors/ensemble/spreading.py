"""Making a company one of several: what it is called by, whom it tells, and the door and the desk through which the others reach it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from greenroom.supervision import On, Ref, multi_call

from .desk import Desk, desk_child
from .door import EnsembleDoor
from .node_messages import DESK, Marks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.company import Company
    from greenroom.actors.task_store import TaskStore
    from greenroom.supervision import ChildSpec


@dataclass(frozen=True, slots=True)
class Place:
    """One node's place among all of an ensemble: which of `names` it is. The key is theirs alone."""

    number: int
    names: tuple[str, ...]
    key: bytes = field(repr=False)

    def desks(self) -> dict[int, Ref[Desk]]:
        """Those of the others, by their places, whether they are there just now or not."""
        return {number: Ref(On(DESK, name), None) for number, name in enumerate(self.names) if number != self.number}


class Spread:
    """What one node of an ensemble adds to a company, which has not begun yet."""

    def __init__(self, company: Company, place: Place, renew: Callable[[], object]) -> None:
        """`renew` reads certificates again, when another node wants it."""
        desks = place.desks()
        marks = Marks(place.key, place.number)
        self.door = EnsembleDoor(company, marks, desks)
        self.child: ChildSpec[Ref[Desk]] = desk_child(company, tuple(desks.values()), renew)
        company.new_id = marks.new
        of_place: Callable[[int], TaskStore] | None = getattr(company.tasks.store, "of_place", None)
        if of_place is not None:
            company.tasks.store = of_place(place.number)
        company.others = _Others(tuple(desks.values()))


class _Others:
    """The other nodes, as a company speaks to them: by way of its own desk what may be collected for a moment, else at once."""

    def __init__(self, desks: Sequence[Ref[Desk]]) -> None:
        self._desks = desks
        self._own: Ref[Desk] = Ref(DESK)

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        self._own.cast(Desk.updated, uri, extra)

    def list_changed(self, kind: Kind) -> None:
        self._own.cast(Desk.list_changed, kind)

    def completed(self, elicitation_id: str) -> None:
        for each in self._desks:
            each.cast(Desk.completed, elicitation_id)

    def renew_certificates(self) -> None:
        for each in self._desks:
            each.cast(Desk.renew_certificates)

    async def broadcast(self, method: str, params: Mapping[str, Any]) -> int:
        """How many the others reached; a node that is lost meanwhile reaches nobody."""
        answers = await multi_call([each.within(5.0) for each in self._desks], Desk.broadcast, method, params)
        return sum(answers.replies.values())
