"""What the engine keeps of each node's process, what it tells that node's host, and what the clock tells it about one. Values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .endings import Ending

if TYPE_CHECKING:
    from greenroom.supervision.behaviours.caller import Caller
    from greenroom.supervision.behaviours.calls import Ref
    from greenroom.supervision.kernel.links import Monitor
    from greenroom.supervision.kernel.pid import Pid

    from .specs import NodeSpec


class Started:
    """What a host learns of its process: its pid, and who ends the node."""

    __slots__ = ("os_pid", "steward")

    def __init__(self, os_pid: int, steward: Pid) -> None:
        """The node is ready."""
        self.os_pid = os_pid
        self.steward = steward


class Ended:
    """To a host: its process has ended, so."""

    __slots__ = ("ending",)

    def __init__(self, ending: Ending) -> None:
        """It is gone."""
        self.ending = ending


class Charge:
    """A node's process, from the moment when somebody wants it until it has ended."""

    def __init__(self, name: str, spec: NodeSpec, host: Pid, caller: Caller[Any], watch: Monitor) -> None:
        """`host` is told of its end, `caller` waits for it to be ready."""
        self.name = name
        self.spec = spec
        self.host = host
        self.watch = watch
        self.starting: Caller[Any] | None = caller
        self.ending: list[Caller[Any]] = []
        self.steward: Pid | None = None
        self.pid = 0
        self.pidfd: int | None = None
        self.placing = False
        """Whether it is not known yet on which machine it is to be."""
        self.watch_elsewhere: Monitor | None = None
        self.landlord: Ref[Any] | None = None
        """Who sees to it when it is on another machine."""
        self.why = ""
        self.words = ""
        self.hung = False
        self.asked = False
        self.timers: list[Any] = []

    def ended(self, status: int | None, words: str) -> Ending:
        """How, when that is its exit status, or None since nobody could tell, and those were its last words."""
        how = Ending(lost=True) if status is None else Ending.of_status(status)
        return Ending(
            signal=how.signal,
            code=how.code,
            lost=how.lost,
            hung=self.hung,
            asked=self.asked,
            memory=self.spec.limits.memory,
            words=words or self.words,
        )


class _Timed:
    __slots__ = ("charge", "number")
    __match_args__ = ("charge", "number")

    def __init__(self, charge: Charge, number: int = 0) -> None:
        self.charge = charge
        self.number = number


class Late(_Timed):
    """It should be ready by now."""

    __slots__ = ()


class Again(_Timed):
    """It is time to look for another place for it."""

    __slots__ = ()


class Silent(_Timed):
    """Its link is gone, and nobody has told of its end."""

    __slots__ = ()


class Signal(_Timed):
    """It had its time."""

    __slots__ = ()
