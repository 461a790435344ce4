"""Registry: names beyond the node's own table, with unique or duplicate keys, and values beside them.

One process owns the entries and hears of each owner's death. Whoever registers does so through that process; reading
goes straight to its tables, which is safe because everything of a node runs in one thread, and an entry of a process
that is dead or dying is never returned, whether its end was heard of or not. When the registry itself dies its entries
are gone with it, and its supervisor starts it empty: owners that care register in their own `init`, and link to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from .behaviours.actions import Reject
from .behaviours.gen_server import GenServer
from .kernel import api
from .kernel.current import current, current_node, current_process
from .kernel.errors import ActorError, AlreadyRegistered, NotRegistered
from .kernel.messages import Down
from .kernel.names import Via
from .kernel.reasons import NO_PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from .behaviours.calls import Ref
    from .kernel.links import Monitor
    from .kernel.pid import Pid
    from .kernel.process import Process

Keys = Literal["unique", "duplicate"]


class Registry(GenServer):
    """``registry = await start(Registry)``, or ``child(Registry, "duplicate")`` under a supervisor.

    ``Options(name=via(registry, "room-7")).start(Room)`` gives a process a name in it, and ``Ref(via(registry, key))``
    calls whoever has it now.
    """

    def __init__(self, keys: Keys = "unique") -> None:
        """`unique`: one process a key. `duplicate`: any number, in the order they registered."""
        if keys not in ("unique", "duplicate"):
            raise ValueError(f"keys must be 'unique' or 'duplicate', not {keys!r}")
        self.keys = keys
        self._entries: dict[Hashable, dict[Pid, Any]] = {}
        self._owned: dict[Pid, dict[Hashable, None]] = {}
        self._monitors: dict[Pid, Monitor] = {}

    def register(self, key: Hashable, pid: Pid, value: Any = None) -> None:
        """Enter `pid` under `key`."""
        hash(key)
        holders = self._living(key)
        if pid in holders or (self.keys == "unique" and holders):
            raise Reject(AlreadyRegistered(key, next(iter(holders)) if pid not in holders else pid))
        if not api.is_alive(pid):
            raise Reject(ActorError(f"cannot register {key!r}: {pid} is not alive on this node"))
        self._entries.setdefault(key, {})[pid] = value
        self._owned.setdefault(pid, {})[key] = None
        if pid not in self._monitors:
            self._monitors[pid] = api.monitor(pid)

    def unregister(self, key: Hashable, pid: Pid) -> None:
        """Take `pid` off `key`; the last key of a process ends its monitor too."""
        self._remove(key, pid)
        owned = self._owned.get(pid)
        if owned is not None:
            owned.pop(key, None)
            if not owned:
                del self._owned[pid]
                api.demonitor(self._monitors.pop(pid), flush=True)

    def update(self, key: Hashable, pid: Pid, change: Callable[[Any], Any]) -> Any:
        """Replace the value of one entry by what `change` makes of it, and return that."""
        holders = self._living(key)
        if pid not in holders:
            raise Reject(NotRegistered(NO_PROCESS, key))
        self._entries[key][pid] = value = change(holders[pid])
        return value

    def handle_info(self, message: Any) -> None:
        """An owner is gone: so are its entries."""
        match message:
            case Down(pid=pid) if pid is not None:
                self._monitors.pop(pid, None)
                for key in self._owned.pop(pid, {}):
                    self._remove(key, pid)
            case _:
                super().handle_info(message)

    def _remove(self, key: Hashable, pid: Pid) -> None:
        holders = self._entries.get(key)
        if holders is not None:
            holders.pop(pid, None)
            if not holders:
                del self._entries[key]

    def _living(self, key: Hashable) -> dict[Pid, Any]:
        return {pid: value for pid, value in self._entries.get(key, {}).items() if api.is_alive(pid)}

    def report_state(self) -> str:
        """How much is in it; keys and values are the users'."""
        return f"keys={self.keys}, {len(self._entries)} keys, {len(self._owned)} owners"


def _server(registry: Ref[Registry]) -> Registry:
    process, _, name = api.resolve(current_node(), registry)
    if process is None or process.life or not isinstance(process.behaviour.inner, Registry):
        raise NotRegistered(NO_PROCESS, name or registry.pid)
    return process.behaviour.inner


def lookup(registry: Ref[Registry], key: Hashable) -> list[tuple[Pid, Any]]:
    """Who is registered under `key`, with the values, in the order they registered. Reads; sends nothing."""
    return list(_server(registry)._living(key).items())  # noqa: SLF001 - reading is this module's half of the registry


def keys(registry: Ref[Registry], pid: Pid) -> list[Hashable]:
    """Under which keys `pid` is registered, in the order of registration."""
    return list(_server(registry)._owned.get(pid, {})) if api.is_alive(pid) else []  # noqa: SLF001


def count(registry: Ref[Registry]) -> int:
    """How many entries there are, of the living."""
    server = _server(registry)
    return sum(len(server._living(key)) for key in tuple(server._entries))  # noqa: SLF001


def dispatch(registry: Ref[Registry], key: Hashable, message: object) -> int:
    """Send `message` to everybody under `key`; how many mailboxes took it."""
    return sum(api.send(pid, message) for pid, _ in lookup(registry, key))


async def join(registry: Ref[Registry], key: Hashable, value: Any = None) -> None:
    """Register the calling process under `key`. Raises `AlreadyRegistered`."""
    await registry.call(Registry.register, key, current_process("register itself").pid, value)


async def leave(registry: Ref[Registry], key: Hashable) -> None:
    """Take the calling process off `key`."""
    await registry.call(Registry.unregister, key, current_process("unregister itself").pid)


class RegistryVia(Via):
    """A key of a registry, as a name: for `Options(name=…)`, `Ref(…)`, `whereis` and everything that takes a name."""

    __slots__ = ("key", "registry", "value")

    def __init__(self, registry: Ref[Registry], key: Hashable, value: Any = None) -> None:
        """`value` goes beside the entry of whoever takes this name."""
        self.registry = registry
        self.key = key
        self.value = value

    def whereis(self) -> Pid | None:
        """Who has the key; with duplicate keys there is no single answer, and that is an error."""
        server = _server(self.registry)
        if server.keys != "unique":
            raise ActorError(f"{self.key!r} may have many owners in a registry of duplicate keys: use lookup()")
        holders = server._living(self.key)  # noqa: SLF001
        return next(iter(holders), None)

    def register(self, pid: Pid) -> None:
        """Enter a process that is just being started."""
        self._within(lambda server: server.register(self.key, pid, self.value))

    def unregister(self, pid: Pid) -> None:
        """Give the key back."""
        self._within(lambda server: server.unregister(self.key, pid))

    def _within(self, change: Callable[[Registry], None]) -> None:
        # A start cannot wait for another process: it enters the name between two messages of the registry, in the
        # registry's own context, so that the monitor is the registry's.
        server = _server(self.registry)
        process: Process = server._process  # noqa: SLF001
        try:
            if process is current.get():
                change(server)
            else:
                process.own_context().run(change, server)
        except Reject as rejected:
            raise rejected.error from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RegistryVia) and (self.registry, self.key) == (other.registry, other.key)

    def __hash__(self) -> int:
        return hash((self.registry, self.key))

    def __repr__(self) -> str:
        return f"{self.key!r} in {self.registry}"


def via(registry: Ref[Registry], key: Hashable, value: Any = None) -> RegistryVia:
    """A key of a registry, as a name."""
    return RegistryVia(registry, key, value)
