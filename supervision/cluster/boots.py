"""What a process is told to become a node: read once, in that process; and what it says of itself when it is one."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
    path: list[bytes] | None
    """Names of files are bytes, and any bytes may be one."""
    cwd: bytes | None
    env: dict[bytes, bytes]
    preload: list[str]
    main_module: str | None
    main_path: bytes | None
    stop_timeout: float
    log_level: int


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Boot)


LARGEST: Final = 192 * 1024
"""Bytes of a boot: it travels in one of Thespian's frames, whose size is bounded."""


def pack(boot: Boot) -> bytes:
    """As bytes. Raises `ValueError`, which says what is wrong with it."""
    try:
        data = _encoder.encode(boot)
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object!r} is no text that can be told to another process") from None
    if len(data) > LARGEST:
        raise ValueError(
            f"what it is to be told has {len(data)} bytes, and may have {LARGEST}: look at its env and path"
        )
    return data


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
        path=None if path is None else folders(path),
        cwd=_here() if not away and spec.cwd is None else _encoded(spec.cwd),
        env={os.fsencode(name): os.fsencode(value) for name, value in spec.env.items()},
        preload=list(spec.preload),
        main_module=None if main is None else main.module,
        main_path=None if main is None else _encoded(main.path),
        stop_timeout=spec.stop_timeout,
        log_level=logging.getLogger().getEffectiveLevel(),
    )


def folders(path: Iterable[object]) -> list[bytes]:
    """Those of a `sys.path`, as the system has them; anything else in it import passes over as well."""
    found: list[Any] = [each for each in path if isinstance(each, str | os.PathLike)]
    return [os.fsencode(each) for each in found]


def _encoded(path: str | os.PathLike[str] | None) -> bytes | None:
    return None if path is None else os.fsencode(path)


def _here() -> bytes | None:
    """The directory that this process works in; None when that was removed."""
    try:
        return os.fsencode(Path.cwd())
    except FileNotFoundError:
        return None


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
    """... what its code has logged and printed: logger, level and line of each, and what a record has as data. `dropped` lines there was no room for."""

    name: str
    lines: list[tuple[str, int, str, dict[str, Any] | None]]
    dropped: int
