"""What the engine keeps of each node's process, and what it tells that node's host. Values."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.supervision.kernel.errors import ActorError

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.behaviours.refs import Ref
    from greenroom.supervision.behaviours.replies import Caller
    from greenroom.supervision.kernel.api import Timer
    from greenroom.supervision.kernel.links import Monitor
    from greenroom.supervision.kernel.process_messages import Pid

    from .cluster_settings import NodeSpec


class NodeStarted(NamedTuple):
    """What a host learns of its process when the node is ready: its pid, and the process that ends the node."""

    os_pid: int
    stopper: Pid


class NodeProcessEnded(NamedTuple):
    """To a host: its process has ended, so."""

    ending: ProcessEnding


@dataclass(eq=False, repr=False, slots=True)
class NodeRecord:
    """A node's process, from the moment when a host asks for it until it has ended."""

    name: str
    spec: NodeSpec
    host: Pid
    """Told of its end."""
    watch: Monitor
    starting: Caller[Any] | None
    """Waits for it to be ready."""
    ending: list[Caller[Any]] = field(default_factory=list["Caller[Any]"])
    stopper: Pid | None = None
    pid: int = 0
    pidfd: int | None = None
    is_placing: bool = False
    """Whether it is not known yet on which machine it is to be."""
    host_monitor: Monitor | None = None
    machine_host: Ref[Any] | None = None
    """The landlord that sees to it when it is on another machine."""
    why: str = ""
    words: str = ""
    hung: bool = False
    asked: bool = False
    timers: list[Timer] = field(default_factory=list["Timer"])

    def ended(self, status: int | None, words: str) -> ProcessEnding:
        """How it ended, by its exit status, which is None when that is not known, and its last words."""
        how = ProcessEnding(lost=True) if status is None else ProcessEnding.of_status(status)
        memory = self.spec.limits.memory
        return replace(how, hung=self.hung, asked=self.asked, memory=memory, words=words or self.words)


class ScheduledCall(NamedTuple):
    """What a process of this room tells itself, by the clock or by a routine of its own: it is time to do that."""

    do: Callable[..., object]
    args: tuple[Any, ...] = ()


# --- How a process ended, as a value that says it in words, and the error that carries it.

EXIT_LOST: Final = 70
"""The exit code of a node's process that has lost the application's node, and has stopped by itself."""
EXIT_MEMORY: Final = 71
"""... that ended of a `MemoryError` which no handler caught."""
EXIT_BROKEN: Final = 72
"""... whose event loop ended of an error."""
_CODES: Final = {
    EXIT_LOST: "stopped because it lost its connection to the application",
    EXIT_MEMORY: "ended because it was out of memory",
    EXIT_BROKEN: "ended because its event loop broke",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnding:
    """How a process ended.

    `signal` or `code` is what the system tells; a process that is `lost` has neither: its status could not be had. `hung`:
    it did not answer, and was ended for that. `asked`: it was ended on request of this side. `memory` is its limit,
    when it had one. `words` are the last that it said of itself: where it was when a fatal signal came, for instance. They are for the
    operator, and not for its callers: `str` leaves them out.
    """

    signal: int | None = None
    code: int | None = None
    hung: bool = False
    lost: bool = False
    asked: bool = False
    memory: int | None = None
    words: str = ""

    @classmethod
    def of_status(cls, status: int) -> ProcessEnding:
        """From an exit status as Python tells it: a negative one is a signal."""
        return cls(signal=-status) if status < 0 else cls(code=status)

    @property
    def orderly(self) -> bool:
        """Whether it ended as it should: with exit code 0, and it was not hung."""
        return self.code == 0 and not self.hung

    def __str__(self) -> str:
        if self.hung:
            return "did not answer any more, and was killed"
        if self.signal is not None:
            return self._signalled()
        if self.code == EXIT_MEMORY and self.memory is not None:
            return f"{_CODES[EXIT_MEMORY]} (its limit is {_bytes(self.memory)})"
        if self.code is not None:
            return _CODES.get(self.code, f"exited with code {self.code}")
        return "was lost: nobody could tell how it ended"

    def _signalled(self) -> str:
        assert self.signal is not None
        name = signal_name(self.signal)
        what = f"was ended by signal {self.signal} ({name})"
        if name == "SIGXCPU":
            return f"{what}: it used more CPU time than its limit"
        if self.asked:
            return f"{what}, which greenroom sent"
        if name == "SIGKILL":
            return f"{what}, which greenroom did not send: the system may have been out of memory"
        if self.memory is not None and name in ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL", "SIGTRAP"):
            return f"{what}; its memory limit is {_bytes(self.memory)}, and C code that gets no memory may end so"
        return what


class NodeLost(ActorError):
    """The process of a node has ended, or cannot be reached; `ending` says how."""

    def __init__(self, node: str, ending: ProcessEnding) -> None:
        """`node` is its name."""
        super().__init__(node, ending)
        self.node = node
        self.ending = ending
        if ending.words:
            self.add_note(ending.words)

    def __str__(self) -> str:
        return f"the process of node {self.node} {self.ending}"


class NodeFailed(ActorError):
    """A node did not come up: what it was at, and what went wrong."""

    def __init__(self, node: str, why: str) -> None:
        """`why` is a sentence."""
        super().__init__(node, why)
        self.node = node
        self.why = why

    def __str__(self) -> str:
        return f"node {self.node} did not come up: {self.why}"


class EngineFailed(ActorError):
    """What starts processes does not run: why not, and what to do."""


def signal_name(number: int) -> str:
    """SIGSEGV, or SIG64 for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _bytes(count: int) -> str:
    mega = 1024 * 1024
    return f"{count // mega} MiB" if count >= mega else f"{count} bytes"
