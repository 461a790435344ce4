"""Whether a program can take calls: what `/readyz` answers, read from the tree without a message to any process."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from greenroom.supervision import GenServer, Supervisor, current_node, whereis

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from greenroom.supervision import ExitReason

_MOST_REASONS: Final = 20
_RESTARTS: Final = {"restarting": "is being restarted", "undefined": "is stopped", "running": "has ended"}


class ProgramReadiness:
    """The readiness of one program: it has started, does not stop, and the parts that it needs run."""

    def __init__(self, missing: Callable[[], Iterable[str]]) -> None:
        """`missing` says which parts do not run that have to: see `missing_parts`."""
        self._missing = missing
        self.has_started = False
        self.is_stopping = False
        self.is_drained = False
        """Whether an operator asked that no new calls be sent here."""

    def drain(self) -> None:
        """Ask that no new calls be sent here; what runs goes on."""
        self.is_drained = True

    def undrain(self) -> None:
        """Ask for calls again, after `drain`."""
        self.is_drained = False

    def state(self) -> str:
        """The state of the program in one word, as views have it."""
        if self.is_stopping:
            return "draining"
        if self.is_drained:
            return "drained"
        return "serving" if self.has_started else "starting"

    def reasons(self) -> list[str]:
        """Why the program is not ready; empty if it is."""
        if self.is_stopping:
            return ["the program is stopping"]
        if self.is_drained:
            return ["an operator has drained the program"]
        if not self.has_started:
            return ["the program is starting"]
        return list(islice(self._missing(), _MOST_REASONS))


def missing_parts(name: Hashable) -> Iterator[str]:
    """The permanent parts below the supervisor of this name that do not run. Children of dynamic supervisors come and go, and are no parts."""
    pid = whereis(name)
    process = None if pid is None else current_node().process(pid)
    if process is None or process.life:
        yield f"{name} is not running"
        return
    waiting: list[tuple[str, Any]] = [(str(name), process.behaviour.inner)]
    while waiting:
        path, behaviour = waiting.pop()
        if not isinstance(behaviour, Supervisor):
            continue
        for record in behaviour.children():
            if record.spec.restart != "permanent":
                continue
            part = f"{path}: {record.spec.id}"
            process = None if record.pid is None else current_node().process(record.pid)
            if process is None or process.life:
                yield f"{part} {_RESTARTS.get(record.state, record.state)}"
            else:
                waiting.append((part, process.behaviour.inner))


class ReadyMark(GenServer):
    """The last child of a program's tree: it starts when all other parts run, and stops before they do."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, readiness: ProgramReadiness) -> None:
        self._readiness = readiness

    def init(self) -> None:
        """Everything has started."""
        self._readiness.has_started = True
        self._readiness.is_stopping = False

    def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - the same for any reason
        """The program, or this part of it, stops."""
        self._readiness.is_stopping = True
