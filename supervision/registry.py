"""Registry: names beyond the node's own table, with unique or duplicate keys, values, and locks.

The registry process owns the entries and monitors their owners. Registering is a call of that process; reading goes straight to its tables, which is safe
because everything of a node runs in one thread. An entry of a dead or dying process is never returned. When the registry dies its entries are lost, and its
supervisor restarts it empty: owners that need their entries register in their own `init`, and link to it.

Owners may be on other nodes, and lose their entries when their node is lost. A process on another node than the registry registers and locks
by the same functions, and reads by a call: `await registry.call(Registry.lookup, key)`, where `registry` is `Ref(On("rooms", "home"))` or the
like. Names by `via` work on the registry's own node only.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count as count_from
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from .behaviours.gen_server import GenServer
from .behaviours.replies import Reject, later
from .kernel import api
from .kernel.errors import ActorError, AlreadyRegistered, NotAnActor, NotRegistered
from .kernel.process_lookup import Via, current, current_node, current_process
from .kernel.process_messages import NO_PROCESS, Down, Pid

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Hashable, Iterable

    from .behaviours.refs import Ref
    from .behaviours.replies import Caller
    from .kernel.links import Monitor
    from .kernel.process import Process

_tickets = count_from(1)

S = TypeVar("S", bound=GenServer)
KeyPolicy = Literal["unique", "duplicate"]


class RegistryEntry(NamedTuple):
    """One registration."""

    key: Hashable
    pid: Pid
    value: Any


@dataclass(frozen=True, slots=True)
class Registered:
    """The message to listeners when a process has taken a key of the registry with the pid `registry`."""

    registry: Pid
    key: Hashable
    pid: Pid
    value: Any


@dataclass(frozen=True, slots=True)
class Unregistered:
    """The message to listeners when a process has given a key back, or has died with it."""

    registry: Pid
    key: Hashable
    pid: Pid


@dataclass(slots=True)
class _Lock:
    """A lock: the ticket of its holder, and the waiting callers in order."""

    ticket: object = None
    waiting: deque[tuple[Pid, object, Caller[None]]] = field(
        default_factory=deque[tuple["Pid", object, "Caller[None]"]]
    )


class Registry(GenServer):
    """``registry = await start(Registry)``, or ``child(Registry, "duplicate")`` under a supervisor.

    ``Options(name=via(registry, "room-7")).start(Room)`` gives a process a name in it, and ``Ref(via(registry, key))``
    calls the process that has it now.
    """

    def __init__(self, keys: KeyPolicy = "unique", listeners: Iterable[Any] = ()) -> None:
        """`unique`: one process a key. `duplicate`: any number, in the order they registered.

        `listeners` are names, pids or `Ref`s of processes that get a `Registered` or an `Unregistered` for every
        change. A name that no process has at that moment is passed over.
        """
        if keys not in ("unique", "duplicate"):
            raise ValueError(f"keys must be 'unique' or 'duplicate', not {keys!r}")
        self.keys = keys
        self.listeners = tuple(listeners)
        self._entries: dict[Hashable, dict[int, RegistryEntry]] = {}
        self._owned: dict[Pid, dict[int, Hashable]] = {}
        self._monitors: dict[Pid, Monitor] = {}
        self._locks: dict[Hashable, _Lock] = {}
        self._held: dict[Pid, dict[object, Hashable]] = {}
        """By holder: its tickets, and the key of each."""
        self._last = 0

    def register(self, key: Hashable, pid: Pid, value: Any = None) -> None:
        """Register `pid` under `key`; with duplicate keys as often as requested."""
        _check(key)
        if self.keys == "unique" and key in self._entries:
            (holder,) = self._entries[key].values()
            if api.is_alive(holder.pid):
                raise Reject(AlreadyRegistered(key, holder.pid))
            self._forget(holder.pid)  # so that listeners get `Unregistered` before the successor's `Registered`
        if not api.is_alive(pid):
            raise Reject(ActorError(f"cannot register {key!r}: {pid} is not alive on this node"))
        self._last += 1
        self._entries.setdefault(key, {})[self._last] = RegistryEntry(key, pid, value)
        self._owned.setdefault(pid, {})[self._last] = key
        self._watch(pid)
        self._otp_notify_listeners(Registered(self.pid, key, pid, value))

    def lookup(self, key: Hashable) -> list[tuple[Pid, Any]]:
        """The processes under `key`, with the values, for callers on another node; on this node use the function `lookup`."""
        _check(key)
        return [(entry.pid, entry.value) for entry in self._living(key)]

    def dispatch(self, key: Hashable, message: object) -> int:
        """Send `message` to every process under `key`, once for each entry; how many mailboxes took it."""
        _check(key)
        return sum(api.send(entry.pid, message) for entry in self._living(key))

    def unregister(self, key: Hashable, pid: Pid, where: Callable[[Any], bool] | None = None) -> None:
        """Remove the entries of `pid` under `key`, or only those whose value satisfies `where`."""
        _check(key)
        held = self._entries.get(key, {})
        mine = sorted(held.keys() & self._owned.get(pid, {}).keys())
        try:
            leaving = [number for number in mine if where is None or where(held[number].value)]
        except Exception as error:
            raise Reject(error) from error  # the caller's mistake must not end the registry
        for number in leaving:
            self._remove(number, key, pid)
        self._unwatch(pid)

    def update(self, key: Hashable, pid: Pid, change: Callable[[Any], Any]) -> Any:
        """Replace the value of an entry by the result of `change`, and return that. For unique keys."""
        _check(key)
        if self.keys != "unique":
            raise Reject(ActorError(f"cannot update {key!r}: in a registry of duplicate keys it may have many values"))
        for number, entry in self._entries.get(key, {}).items():
            if entry.pid == pid and api.is_alive(pid):
                try:
                    value = change(entry.value)
                except Exception as error:
                    raise Reject(error) from error  # as in `unregister`
                self._entries[key][number] = entry._replace(value=value)
                return value
        raise Reject(NotRegistered(NO_PROCESS, key))

    def hold(self, key: Hashable, ticket: object) -> None:
        """Lock a key for the calling process, or wait for it; `ticket` identifies the lock in `release`. See `lock`."""
        _check(key)
        pid = self.caller.pid
        if pid is None:
            raise Reject(NotAnActor("hold a lock"))
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = _Lock()
            self._give(key, lock, pid, ticket)
            return None
        lock.waiting.append((pid, ticket, self.caller))
        return later()  # type: ignore[no-any-return]  # stands for the None that comes later

    def release(self, key: Hashable, pid: Pid, ticket: object) -> None:
        """Release a lock of `pid`, or stop waiting for it."""
        lock = self._locks.get(key)
        if lock is not None and lock.ticket != ticket:
            lock.waiting = deque(entry for entry in lock.waiting if entry[1] != ticket)
        elif lock is not None:
            held = self._held[pid]
            del held[ticket]
            if not held:
                del self._held[pid]
            self._pass_on(key, lock)
        self._unwatch(pid)

    def handle_info(self, message: Any) -> None:
        """Handle the exit of an owner: remove its entries and release its locks."""
        match message:
            case Down(pid=Pid() as pid):
                self._monitors.pop(pid, None)
                for key in self._held.pop(pid, {}).values():  # the holder has unwound, so two never hold a key at once
                    self._pass_on(key, self._locks[key])
                self._forget(pid)
            case _:
                super().handle_info(message)

    def _give(self, key: Hashable, lock: _Lock, pid: Pid, ticket: object) -> None:
        lock.ticket = ticket
        self._held.setdefault(pid, {})[ticket] = key
        self._watch(pid)

    def _pass_on(self, key: Hashable, lock: _Lock) -> None:
        """Give the lock to the first caller that still waits; without one, drop the lock's record."""
        while lock.waiting:
            pid, ticket, caller = lock.waiting.popleft()
            if not caller.over and api.is_alive(pid) and caller.reply(None):
                self._give(key, lock, pid, ticket)
                return
        del self._locks[key]

    def _forget(self, pid: Pid) -> None:
        for number, key in tuple(self._owned.get(pid, {}).items()):
            self._remove(number, key, pid)
        self._unwatch(pid)

    def _remove(self, number: int, key: Hashable, pid: Pid) -> None:
        del self._entries[key][number]
        if not self._entries[key]:
            del self._entries[key]
        del self._owned[pid][number]
        if not self._owned[pid]:
            del self._owned[pid]
        self._otp_notify_listeners(Unregistered(self.pid, key, pid))

    def _watch(self, pid: Pid) -> None:
        if pid not in self._monitors:
            self._monitors[pid] = api.monitor(pid)

    def _unwatch(self, pid: Pid) -> None:
        if pid in self._monitors and pid not in self._owned and pid not in self._held:
            api.demonitor(self._monitors.pop(pid), flush=True)

    def _otp_notify_listeners(self, message: Registered | Unregistered) -> None:
        for listener in self.listeners:
            with suppress(NotRegistered):  # the listener's name is in a registry that does not run now
                api.send(listener, message)

    def _living(self, key: Hashable) -> list[RegistryEntry]:
        return [entry for entry in self._entries.get(key, {}).values() if api.is_alive(entry.pid)]

    def report_state(self) -> str:
        """The numbers of keys, owners and locks; keys and values may be private."""
        return f"keys={self.keys}, {len(self._entries)} keys, {len(self._owned)} owners, {len(self._locks)} locks"


def _check(key: Hashable) -> None:
    try:
        hash(key)
    except TypeError as error:
        raise Reject(error) from None


def server_of(ref: Ref[Any], kind: type[S], ask: str) -> S:
    """The server object behind a ref, to read its tables; `ask` is the call to suggest for another node. Raises `NotRegistered`."""
    process, pid, name = api.resolve(current_node(), ref)
    if process is not None and process.is_remote:
        raise ActorError(f"{ref} is on another node, and has to be asked: {ask}")
    if process is None or process.life or not isinstance(process.behaviour.inner, kind):
        raise NotRegistered(NO_PROCESS, name or pid)
    return process.behaviour.inner


def _server(registry: Ref[Registry]) -> Registry:
    return server_of(registry, Registry, "await registry.call(Registry.lookup, …)")


# --- reading: it sends nothing, and predicates run where they are written


def lookup(registry: Ref[Registry], key: Hashable, where: Callable[[Any], bool] | None = None) -> list[tuple[Pid, Any]]:
    """The processes under `key`, with the values, in the order they registered; `where` selects by value."""
    entries = _server(registry)._living(key)  # noqa: SLF001 - reading is this module's half of the registry
    return [(entry.pid, entry.value) for entry in entries if where is None or where(entry.value)]


def values(registry: Ref[Registry], key: Hashable, pid: Pid) -> list[Any]:
    """The values of the entries of `pid` under `key`."""
    return [value for holder, value in lookup(registry, key) if holder == pid]


def keys(registry: Ref[Registry], pid: Pid) -> list[Hashable]:
    """The keys of `pid`, in the order of registration, each as often as it is registered."""
    return list(_server(registry)._owned.get(pid, {}).values()) if api.is_alive(pid) else []  # noqa: SLF001


def select(registry: Ref[Registry], where: Callable[[RegistryEntry], bool] | None = None) -> list[RegistryEntry]:
    """All entries of living processes, key by key; `where` selects entries."""
    server = _server(registry)
    entries = (entry for key in tuple(server._entries) for entry in server._living(key))  # noqa: SLF001
    return [entry for entry in entries if where is None or where(entry)]


def count(registry: Ref[Registry], where: Callable[[RegistryEntry], bool] | None = None) -> int:
    """The number of entries of living processes; `where` selects entries."""
    return len(select(registry, where))


def dispatch(registry: Ref[Registry], key: Hashable, message: object) -> int:
    """Send `message` to every process under `key`, once for each entry; how many mailboxes took it."""
    return _server(registry).dispatch(key, message)


# --- for the calling process


async def join(registry: Ref[Registry], key: Hashable, value: Any = None) -> None:
    """Register the calling process under `key`. Raises `AlreadyRegistered`."""
    await registry.call(Registry.register, key, current_process("register itself").pid, value)


async def leave(registry: Ref[Registry], key: Hashable, where: Callable[[Any], bool] | None = None) -> None:
    """Remove the calling process's entries under `key`, or only those whose value satisfies `where`."""
    await registry.call(Registry.unregister, key, current_process("unregister itself").pid, where)


async def update(registry: Ref[Registry], key: Hashable, change: Callable[[Any], Any]) -> Any:
    """Change the value of the calling process's entry, and return the new one. Raises `NotRegistered`."""
    return await registry.call(Registry.update, key, current_process("update its entry").pid, change)


@asynccontextmanager
async def lock(registry: Ref[Registry], key: Hashable, timeout: float | None = 5.0) -> AsyncGenerator[None]:
    """Hold the lock of a key for the block; waiting blocks get it in order. Raises `CallTimeout`.

    The key need not be registered, and locks of other keys are not affected. For processes only: when the holder dies, and has unwound, the next one gets the
    lock. The block itself is not ended when the registry dies.
    """
    me = current_process("hold a lock").pid
    ticket = (me, next(_tickets))  # unique across nodes
    try:
        await registry.within(timeout).call(Registry.hold, key, ticket)
        yield
    finally:
        # Also when the wait was cancelled: the lock may have been given in that moment.
        registry.cast(Registry.release, key, me, ticket)


class RegistryVia(Via):
    """A key of a registry, as a name: for `Options(name=…)`, `Ref(…)`, `whereis` and everything that takes a name."""

    __slots__ = ("key", "registry", "value")

    def __init__(self, registry: Ref[Registry], key: Hashable, value: Any = None) -> None:
        """`value` is the value of the entry made under this name."""
        self.registry = registry
        self.key = key
        self.value = value

    def whereis(self) -> Pid | None:
        """The process that has the key. Raises `ActorError` for a registry of duplicate keys."""
        server = _server(self.registry)
        if server.keys != "unique":
            raise ActorError(f"{self.key!r} may have many owners in a registry of duplicate keys: use lookup()")
        return next((entry.pid for entry in server._living(self.key)), None)  # noqa: SLF001

    def register(self, pid: Pid) -> None:
        """Register a process that is being started."""
        self._within(lambda server: server.register(self.key, pid, self.value))

    def unregister(self, pid: Pid) -> None:
        """Give the key back."""
        self._within(lambda server: server.unregister(self.key, pid))

    def _within(self, change: Callable[[Registry], None]) -> None:
        # A start cannot wait for another process, so this changes the registry's tables between two of its messages, without a
        # call. It runs in the registry's own context, so that the monitor belongs to the registry.
        server = _server(self.registry)
        process: Process = server._otp_process  # noqa: SLF001
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
