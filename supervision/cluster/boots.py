"""What a process is told to become a node: read once, in that process; and what it says of itself when it is one."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from greenroom.supervision.kernel.pid import Pid

    from .machines import Machine
    from .specs import ClusterSettings, NodeSpec


class Boot(msgspec.Struct, frozen=True, kw_only=True):
    """All that it needs to know; the key it has inherited."""

    name: str
    home: list[str]
    """Addresses of the application's node."""
    engine: tuple[str, int, int]
    """The pid of whoever is told that it is ready."""
    heartbeat: float
    misses: int
    tcp: str | None
    memory: int | None
    open_files: int | None
    path: list[str] | None
    cwd: str | None
    env: dict[str, str]
    preload: list[str]
    main_module: str | None
    main_path: str | None
    stop_timeout: float
    log_level: int


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Boot)


def pack(boot: Boot) -> bytes:
    """As bytes."""
    return _encoder.encode(boot)


def of(
    name: str, spec: NodeSpec, settings: ClusterSettings, home: Iterable[str], engine: Pid, machine: Machine | None
) -> Boot:
    """For a node here, or on another machine, which has other directories, and reaches this one by TCP alone."""
    main, away = spec.main, machine is not None
    path = spec.path if away else tuple(sys.path if spec.path is None else spec.path)
    return Boot(
        name=name,
        home=[each for each in home if each.startswith("tcp:") or not away],
        engine=(engine.node, engine.incarnation, engine.serial),
        heartbeat=settings.heartbeat,
        misses=settings.misses,
        tcp=settings.tcp if machine is None else machine.host,
        memory=spec.limits.memory,
        open_files=spec.limits.open_files,
        path=None if path is None else list(path),
        cwd=spec.cwd if away or spec.cwd is not None else os.getcwd(),  # noqa: PTH109 - a string
        env=dict(spec.env),
        preload=list(spec.preload),
        main_module=None if main is None else main.module,
        main_path=None if main is None else main.path,
        stop_timeout=spec.stop_timeout,
        log_level=logging.getLogger().getEffectiveLevel(),
    )


def unpack(data: bytes) -> Boot:
    """Raises `msgspec.MsgspecError`."""
    return _decoder.decode(data)


LEAVE: Final = "leave"
"""To a node's steward: stop in order."""


@dataclass(frozen=True, slots=True)
class NodeReady:
    """From a node to the application's engine: it has imported what it was to, and `steward` ends it when told to."""

    name: str
    os_pid: int
    steward: Pid


@dataclass(frozen=True, slots=True)
class NodeUnfit:
    """... it could not, and ends."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Said:
    """... what its code has logged and printed: logger, level and line of each. `dropped` lines there was no room for."""

    name: str
    lines: list[tuple[str, int, str]]
    dropped: int
