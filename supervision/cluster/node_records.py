"""The engine's record of each node's process, the messages about it to the node's owner, and the values and errors that say how it ended."""

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
    """The node is ready: the pid of its process, and the actor that stops the node."""

    os_pid: int
    stopper: Pid


class NodeProcessEnded(NamedTuple):
    """To the owner of a node: its process has ended."""

    ending: ProcessEnding


@dataclass(eq=False, repr=False, slots=True)
class NodeRecord:
    """A node's process, from the request for it to its end."""

    name: str
    spec: NodeSpec
    host: Pid
    """The owner of the node, which gets the end."""
    watch: Monitor
    starting: Caller[Any] | None
    """The call that waits until the node is ready."""
    ending: list[Caller[Any]] = field(default_factory=list["Caller[Any]"])
    stopper: Pid | None = None
    pid: int = 0
    pidfd: int | None = None
    is_placing: bool = False
    """Whether no machine was chosen yet."""
    host_monitor: Monitor | None = None
    machine_host: Ref[Any] | None = None
    """For a node on another machine, that machine's machine host."""
    why: str = ""
    words: str = ""
    hung: bool = False
    asked: bool = False
    timers: list[Timer] = field(default_factory=list["Timer"])

    def ended(self, status: int | None, words: str) -> ProcessEnding:
        """How it ended, from its exit status (None when unknown) and its last output."""
        how = ProcessEnding(lost=True) if status is None else ProcessEnding.of_status(status)
        memory = self.spec.limits.memory
        return replace(how, hung=self.hung, asked=self.asked, memory=memory, words=words or self.words)


class ScheduledCall(NamedTuple):
    """A message of a process to itself, sent by a timer or a task: call this function."""

    do: Callable[..., object]
    args: tuple[Any, ...] = ()


# --- How a process ended, as a value that describes itself, and the errors that carry it.

EXIT_LOST: Final = 70
"""Exit code of a node's process that lost the application's node and stopped."""
EXIT_MEMORY: Final = 71
"""Exit code of one that ended by an uncaught `MemoryError`."""
EXIT_BROKEN: Final = 72
"""Exit code of one whose event loop failed."""
_CODES: Final = {
    EXIT_LOST: "stopped because it lost its connection to the application",
    EXIT_MEMORY: "ended because it was out of memory",
    EXIT_BROKEN: "ended because its event loop broke",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnding:
    """How a process ended.

    `signal` or `code` is from the exit status; a process that is `lost` has neither, since no status was found. `hung`: it did not respond, and was killed.
    `asked`: this side requested its end. `memory` is its limit, if it had one. `words` are its last output, such as its stacks when a fatal signal came;
    they are for the operator's log and not for callers, so `str` leaves them out.
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
        """From an exit status as Python gives it: negative for a signal."""
        return cls(signal=-status) if status < 0 else cls(code=status)

    @property
    def orderly(self) -> bool:
        """Whether it exited with code 0, and did not hang."""
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
        return "was lost: its exit status is unknown"

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
    """A node did not become ready; `why` says what failed."""

    def __init__(self, node: str, why: str) -> None:
        """`why` is a sentence."""
        super().__init__(node, why)
        self.node = node
        self.why = why

    def __str__(self) -> str:
        return f"node {self.node} did not come up: {self.why}"


class EngineFailed(ActorError):
    """The engine cannot start processes: the message says why, and what to do."""


def signal_name(number: int) -> str:
    """The name of a signal: SIGSEGV, or SIG64 for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _bytes(count: int) -> str:
    mega = 1024 * 1024
    return f"{count // mega} MiB" if count >= mega else f"{count} bytes"
