"""The settings of a cluster, and of a node in a process of its own: values that check themselves."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from greenroom.errors import ConfigError

from .addresses import parse_port
from .framing import check_key
from .key_files import read_key
from .machines import check_capabilities

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

LEAST_MEMORY: Final = 64 * 1024 * 1024
"""Enough for Python, greenroom and the stacks of some threads; with less, a process would not start."""
LEAST_FILES: Final = 64
_NAME: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessLimits:
    """Limits of a process; None is no limit.

    `memory` is in bytes, for all that the process allocates: at the limit Python raises `MemoryError`, and C code gets no memory. `cpu` is in seconds of processor
    time for one call (the code that runs calls resets it for each); `open_files` counts descriptors.
    """

    memory: int | None = None
    cpu: float | None = None
    open_files: int | None = None

    def __post_init__(self) -> None:
        _check_number("memory", self.memory, LEAST_MEMORY, "bytes")
        _check_number("open_files", self.open_files, LEAST_FILES, "descriptors")
        if self.cpu is not None and not (_is_number(self.cpu) and self.cpu > 0):
            raise ConfigError(f"cpu must be more than 0 seconds, or None for no limit, not {self.cpu!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MainModule:
    """The application's own `__main__`, for what is defined there: a module's name (`python -m`), or a path (`python server.py`)."""

    module: str | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        if (self.module is None) == (self.path is None):
            raise ConfigError("give the module's name or the script's path: one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node in a process of its own.

    `name` is generated when it is None; a restarted node then gets a new one. `path` is its `sys.path` (None: the application's), `cwd` its working directory, `env`
    what is added to its environment. It is ready when the modules in `preload` and `main` are imported, within `start_timeout` seconds. `requires` are capabilities of
    the machine it is placed on. `stop_timeout` is how long it may take to stop in order.
    """

    name: str | None = None
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    path: tuple[str, ...] | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    preload: tuple[str, ...] = ()
    main: MainModule | None = None
    requires: Mapping[str, object] = field(default_factory=dict[str, object])
    start_timeout: float = 30.0
    stop_timeout: float = 2.0

    def __post_init__(self) -> None:
        if self.name is not None and (not self.name or not self.name.isprintable() or len(self.name) > 128):  # noqa: PLR2004
            raise ConfigError(f"a node's name is 1 to 128 printable characters, not {self.name!r}")
        _check_names("preload", self.preload)
        _check_requirements(self.requires)
        _check_environment(self.env)
        if isinstance(self.path, str | bytes):
            raise ConfigError(f"path is a tuple of folders, such as ('lib',), not {self.path!r}")
        for what, seconds in (("start_timeout", self.start_timeout), ("stop_timeout", self.stop_timeout)):
            if not (_is_number(seconds) and seconds > 0):
                raise ConfigError(f"{what} must be more than 0 seconds, not {seconds!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """How processes are started and watched.

    Thespian listens on the address `bind` alone, at `port` or a free one. A node that is silent for `heartbeat * misses` seconds has hung. The modules in `preload`
    are imported once, before any process is forked, so they must not start threads. `capabilities` describe this machine. Nodes listen on the host `tcp` besides
    their unix sockets. More than `intensity` deaths of the Thespian system within `period` seconds end the engine.

    Machines form one cluster when they have the same `convention`, which is the address of the leader ("10.0.0.1:7400"; the machine whose `listen` it is leads), and
    the same `key` or `key_file`. `listen` is this machine's address in their network: Thespian and nodes listen there, and nowhere else. `machine` is its name, and
    `room` how many nodes it takes at most.
    """

    bind: str = "127.0.0.1"
    port: int = 0
    heartbeat: float = 1.0
    misses: int = 3
    preload: tuple[str, ...] = ()
    capabilities: Mapping[str, object] = field(default_factory=dict[str, object])
    tcp: str | None = None
    intensity: int = 5
    period: float = 10.0
    listen: str | None = None
    convention: str | None = None
    key: bytes | None = field(default=None, repr=False)
    key_file: str | os.PathLike[str] | None = None
    machine: str = field(default_factory=socket.gethostname)
    room: int | None = None

    def __post_init__(self) -> None:
        if self.listen is not None:
            object.__setattr__(self, "bind", self.listen)
        if (self.listen is not None or self.convention is not None) and self.tcp is None:
            object.__setattr__(self, "tcp", self.bind)
        try:
            address = ipaddress.IPv4Address(self.bind)
        except ValueError:
            raise ConfigError(
                f"the address to listen on must be an IPv4 address of this machine, such as 127.0.0.1, not {self.bind!r}"
            ) from None
        if address.is_unspecified:
            raise ConfigError("listen on one address of this machine: 0.0.0.0 would be reachable from all its networks")
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"port must be 1 to 65535, or 0 for a free one, not {self.port!r}")
        _check_names("preload", self.preload)
        check_capabilities(self.capabilities)
        if not self.machine or not self.machine.isprintable() or len(self.machine) > _NAME:
            raise ConfigError(f"a machine's name is 1 to {_NAME} printable characters, not {self.machine!r}")
        if self.room is not None and self.room < 0:
            raise ConfigError(
                f"room is how many nodes this machine takes: 0 or more, or None for no limit, not {self.room!r}"
            )
        if self.convention is not None:
            self._check_convention(self.convention)
        elif self.listen is not None:
            raise ConfigError(
                "listen is for a cluster of several machines: set `convention`, the address of their leader, as well"
            )
        self.secret()

    def _check_convention(self, convention: str) -> None:
        host, _, port = convention.rpartition(":")
        try:
            found = ipaddress.IPv4Address(host)
        except ValueError:
            found = None
        if found is None or found.is_unspecified or parse_port(port) is None:
            raise ConfigError(
                f"convention must be the leader's address, an IPv4 address and a port such as 10.0.0.1:7400, not {convention!r}"
            )
        if self.key is None and self.key_file is None:
            raise ConfigError("machines of one cluster share a key: give all of them the same `key_file`, or `key`")

    def secret(self) -> bytes | None:
        """The key; None when there are no other machines. Raises `ConfigError`."""
        if self.key is not None and self.key_file is not None:
            raise ConfigError("give the key, or the file that it is in: one of them")
        if self.key is None:
            return None if self.key_file is None else read_key(self.key_file)
        return check_key(self.key)

    @property
    def port_of_leader(self) -> int:
        """Thespian's port on the machine that leads the convention; else 0."""
        host, _, port = (self.convention or "").rpartition(":")
        return int(port) if port and host == self.bind else 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_names(what: str, names: Any) -> None:
    if isinstance(names, str) or not all(isinstance(each, str) and each for each in names):
        raise ConfigError(f"{what} is a tuple of modules' names, such as ('json',), not {names!r}")


def _check_requirements(requires: Mapping[Any, Any]) -> None:
    for name, value in requires.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float):
            raise ConfigError(
                f"requires maps names of capabilities to the values they must have, such as {{'gpu': True}}, not {{{name!r}: {value!r}}}"
            )


def _check_environment(env: Mapping[Any, Any]) -> None:
    for name, value in env.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            raise ConfigError(f"env has names of variables, without =, and not {name!r}")
        if not isinstance(value, str) or "\0" in value:
            raise ConfigError(f"env: the value of {name} must be a text without NUL")


def _check_number(what: str, value: Any, least: int, of: str) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise ConfigError(f"{what} must be {least} {of} or more, or None for no limit, not {value!r}")
