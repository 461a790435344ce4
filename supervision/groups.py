"""Process groups: members, broadcasts to them, and monitors of joins and leaves; OTP's `pg`.

A process may join a group more than once and is then a member as often; it leaves all groups when it dies.
Joining and leaving are calls of the `Groups` process that owns the groups; reading goes straight to its tables, and never
returns a dead or dying process. When `Groups` dies, all groups are lost; members that need them link to it.

Members may be on other nodes, and leave when their node is lost. A process on another node than `Groups` joins and leaves by the same
functions, and reads by a call: `await groups.call(Groups.members, "room")`, where `groups` is `Ref(On("groups", "home"))` or the like.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .behaviours.gen_server import GenServer
from .behaviours.replies import Reject
from .kernel import api
from .kernel.errors import ActorError
from .kernel.process_lookup import current_process
from .kernel.process_messages import Down, Pid
from .registry import server_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from .behaviours.refs import Ref
    from .kernel.links import Monitor


@dataclass(frozen=True, slots=True)
class GroupChange:
    """The message to a monitor of a group, or of all groups: these processes have joined, or left."""

    ref: int
    change: Literal["joined", "left"]
    group: Hashable
    pids: tuple[Pid, ...]


@dataclass(frozen=True, slots=True)
class _AllGroups:
    """Stands for all groups in `monitor`."""

    def __repr__(self) -> str:
        return "all groups"


ALL_GROUPS = _AllGroups()


class Groups(GenServer):
    """``groups = await start(Groups)``, or ``child(Groups)`` under a supervisor."""

    def __init__(self) -> None:
        """Start without groups."""
        self._members: dict[Hashable, list[Pid]] = {}
        self._joined: dict[Pid, Counter[Hashable]] = {}
        self._down: dict[Pid, Monitor] = {}
        self._listeners: dict[int, tuple[Pid, Hashable]] = {}
        self._last_ref = 0

    def join(self, group: Hashable, pids: Sequence[Pid]) -> None:
        """Add each of `pids`, as often as it occurs. All of them must be alive, or none is added."""
        hash(group)
        for pid in pids:
            if not api.is_alive(pid):
                raise Reject(ActorError(f"{pid} cannot join {group!r}: it is not alive on this node"))
        for pid in pids:
            self._members.setdefault(group, []).append(pid)
            self._joined.setdefault(pid, Counter())[group] += 1
            self._watch(pid)
        self._announce("joined", group, tuple(pids))

    def members(self, group: Hashable) -> list[Pid]:
        """The members of the group, for callers on another node; on this node use the function `members`."""
        return self._living(group)

    def which(self) -> list[Hashable]:
        """All groups that have a living member, for callers on another node."""
        return [group for group in self._members if self._living(group)]

    def broadcast(self, group: Hashable, message: object) -> int:
        """Send `message` to each member, once for each time it joined; how many mailboxes took it."""
        return sum(api.send(pid, message) for pid in self._living(group))

    def leave(self, group: Hashable, pids: Sequence[Pid]) -> int:
        """Remove each of `pids`, as often as it occurs; returns how many were members. Others are ignored."""
        left = tuple(pid for pid in pids if self._take_out(group, pid))
        self._announce("left", group, left)
        return len(left)

    def monitor(self, group: Hashable, pid: Pid) -> tuple[int, Any]:
        """Send `pid` every change of this group, or with `ALL_GROUPS` of all; returns a ref and the current members."""
        if not api.is_alive(pid):
            raise Reject(ActorError(f"{pid} is not alive on this node"))
        self._last_ref += 1
        self._listeners[self._last_ref] = (pid, group)
        self._watch(pid)
        if isinstance(group, _AllGroups):
            return self._last_ref, {name: self._living(name) for name in self._members if self._living(name)}
        return self._last_ref, self._living(group)

    def demonitor(self, ref: int) -> bool:
        """End a monitor; whether it existed."""
        listener = self._listeners.pop(ref, None)
        if listener is None:
            return False
        self._unwatch(listener[0])
        return True

    def handle_info(self, message: Any) -> None:
        """Handle the exit of a member or a listener."""
        match message:
            case Down(pid=Pid() as pid):
                self._down.pop(pid, None)
                self._listeners = {ref: entry for ref, entry in self._listeners.items() if entry[0] != pid}
                for group, times in self._joined.pop(pid, Counter()).items():
                    for _ in range(times):
                        self._remove(group, pid)
                    self._announce("left", group, (pid,) * times)
            case _:
                super().handle_info(message)

    def _take_out(self, group: Hashable, pid: Pid) -> bool:
        joined = self._joined.get(pid)
        if joined is None or not joined[group]:
            return False
        joined[group] -= 1
        if not joined[group]:
            del joined[group]
        if not joined:
            del self._joined[pid]
        self._remove(group, pid)
        self._unwatch(pid)
        return True

    def _remove(self, group: Hashable, pid: Pid) -> None:
        members = self._members[group]
        members.remove(pid)
        if not members:
            del self._members[group]

    def _watch(self, pid: Pid) -> None:
        if pid not in self._down:
            self._down[pid] = api.monitor(pid)

    def _unwatch(self, pid: Pid) -> None:
        if pid not in self._joined and all(listener != pid for listener, _ in self._listeners.values()):
            api.demonitor(self._down.pop(pid), flush=True)

    def _announce(self, change: Literal["joined", "left"], group: Hashable, pids: tuple[Pid, ...]) -> None:
        if not pids:
            return
        for ref, (listener, wanted) in self._listeners.items():
            if isinstance(wanted, _AllGroups) or wanted == group:
                api.send(listener, GroupChange(ref, change, group, pids))

    def _living(self, group: Hashable) -> list[Pid]:
        return [pid for pid in self._members.get(group, ()) if api.is_alive(pid)]

    def report_state(self) -> str:
        """The numbers of groups, members and listeners."""
        return f"{len(self._members)} groups, {len(self._joined)} members, {len(self._listeners)} listeners"


def _server(groups: Ref[Groups]) -> Groups:
    return server_of(groups, Groups, "await groups.call(Groups.members, …)")


def members(groups: Ref[Groups], group: Hashable) -> list[Pid]:
    """The members of the group, in the order they joined, as often as they joined. Sends no message."""
    return _server(groups).members(group)


def which_groups(groups: Ref[Groups]) -> list[Hashable]:
    """All groups that have a living member."""
    return _server(groups).which()


def broadcast(groups: Ref[Groups], group: Hashable, message: object) -> int:
    """Send `message` to each member, once for each time it joined; how many mailboxes took it."""
    return _server(groups).broadcast(group, message)


async def join(groups: Ref[Groups], group: Hashable) -> None:
    """Make the calling process join a group."""
    await groups.call(Groups.join, group, [current_process("join a group").pid])


async def leave(groups: Ref[Groups], group: Hashable) -> None:
    """Make the calling process leave a group, once."""
    await groups.call(Groups.leave, group, [current_process("leave a group").pid])


async def monitor(groups: Ref[Groups], group: Hashable) -> tuple[int, Any]:
    """Send the calling process a `GroupChange` for every change from now on; returns a ref and the current members."""
    return await groups.call(Groups.monitor, group, current_process("monitor a group").pid)
