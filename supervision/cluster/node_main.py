"""What a node's process does: it makes itself at home, imports what it was told to, opens a node, and connects that to the application's.

The main thread imports, and then belongs to what made the process again; the node has a thread of its own. When the application's node is
lost, or when it is told to, the node stops in order, and the process ends: at once, without what Python does at the end of a program.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import logging
import os
import resource
import runpy
import signal
import sys
import threading
import traceback
import types
from typing import TYPE_CHECKING, ClassVar, Final

from greenroom.supervision.behaviours.calls import Ref
from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.behaviours.starting import Options, start
from greenroom.supervision.kernel.messages import Pid
from greenroom.supervision.kernel.node import Node

from . import bootstrap, pids
from . import crash_output as last_words
from .bootstrap import Boot, Inherited, take_note
from .crash_output import Utterances
from .node_records import EXIT_BROKEN, EXIT_LOST, EXIT_MEMORY, signal_name
from .peers import NodeDown, Peering, Peers

if TYPE_CHECKING:
    from collections.abc import Iterable

STEWARD: Final = "greenroom.steward"
_IGNORED_BY_PYTHON: Final = ("SIGPIPE", "SIGXFSZ")


class _State:
    """Of this process."""

    booted = False
    guest = False
    code = EXIT_LOST
    """Its exit code, once the node has stopped."""
    stop: asyncio.Event | None = None
    loop: asyncio.AbstractEventLoop | None = None


class Steward(GenServer):
    """Ends the process: when it is told to, and when the application's node is lost."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, home: str, stop: asyncio.Event) -> None:
        """`home` is the name of that node."""
        self.home = home
        self.stop = stop

    def handle_info(self, message: object) -> None:
        """It is told to, or a node is connected, or lost."""
        if message == bootstrap.LEAVE:
            self.stop.set()
        elif isinstance(message, NodeDown) and message.name == self.home:
            _State.code = EXIT_LOST
            self.stop.set()


def boot(data: bytes, keep: Iterable[int], *, guest: bool = False) -> None:
    """In the main thread, once: become what these bytes say. The descriptors `keep` are those of what made the process.

    A `guest` was wanted by another machine, and made by the admin: the warden does not know of it yet.
    """
    if _State.booted:
        return
    _State.booted, _State.guest = True, guest
    try:
        told = bootstrap.unpack(data)
        Inherited.node, Inherited.pid = told.name, os.getpid()
        if guest and not bootstrap.come_aboard():
            os._exit(EXIT_BROKEN)
        said = _settle_in(told, frozenset(keep))
        wrong = _prepare(told)
    except BaseException:  # noqa: BLE001 - there is no link yet to tell it by
        take_note(logging.ERROR, f"the process of a node could not be set up:\n{traceback.format_exc()}")
        os._exit(EXIT_BROKEN)
    thread = threading.Thread(target=_run, args=(told, said, wrong), name=f"greenroom-{told.name}", daemon=True)
    thread.start()


def leave() -> None:
    """The process is to end."""
    if _State.loop is not None and _State.stop is not None:
        _State.loop.call_soon_threadsafe(_State.stop.set)
    else:
        os._exit(0)


# --- the process


def _settle_in(told: Boot, keep: frozenset[int]) -> Utterances:
    """Take back what the processes before have made of this one."""
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):  # some cannot be handled
            signal.signal(number, signal.SIG_IGN if signal_name(number) in _IGNORED_BY_PYTHON else signal.SIG_DFL)
    bootstrap.restore_environment()
    pids.take_name(bootstrap.name_of_node(told.name))
    gc.collect()
    gc.freeze()
    _let_go(keep)
    bootstrap.watch_in_thread()
    os.environb.update(told.env)
    os.environ[bootstrap.NODE_VARIABLE] = told.name
    last_words.arrange()
    said = Utterances(told.name, told.log_level)
    said.install()
    return said


def _let_go(keep: frozenset[int]) -> None:
    """Descriptors that came with the fork lead nowhere from now on."""
    mine = {0, 1, 2, *keep}
    if Inherited.notes is not None:
        mine.add(Inherited.notes.fileno())
    theirs = [number for number in bootstrap.opened() if number not in mine and not bootstrap.holds(number)]
    bootstrap.lead_nowhere(theirs)


def _prepare(told: Boot) -> str | None:
    """What the node's code needs; why it is not there, or None."""
    try:
        if told.path is not None:
            sys.path[:] = map(os.fsdecode, told.path)
        if told.cwd is not None:
            os.chdir(told.cwd)
        _limit(told)
        importlib.invalidate_caches()
        for name in told.preload:
            importlib.import_module(name)
        if told.main_module is not None or told.main_path is not None:
            load(told.main_module, None if told.main_path is None else os.fsdecode(told.main_path))
    except BaseException as error:  # noqa: BLE001 - it is told to the node's starter
        return "".join(traceback.format_exception(error))
    return None


def _limit(told: Boot) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if told.memory is not None:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (told.memory, hard))
    if told.open_files is not None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(told.open_files, hard) if hard >= 0 else told.open_files, hard))


# --- the node


def _run(told: Boot, said: Utterances, wrong: str | None) -> None:
    try:
        code = asyncio.run(_live(told, said, wrong))
    except MemoryError:
        code = EXIT_MEMORY
    except BaseException:  # noqa: BLE001 - the process ends, and says why
        take_note(logging.ERROR, f"node {told.name} ended of an error:\n{traceback.format_exc()}")
        code = EXIT_BROKEN
    os._exit(code)


async def _live(told: Boot, said: Utterances, wrong: str | None) -> int:
    stop = asyncio.Event()
    _State.stop, _State.loop = stop, asyncio.get_running_loop()
    node = Node(told.name, handle_sigint=False, stop_grace=told.stop_timeout)
    await node.open()
    peers = Peers(node, Inherited.key, heartbeat=told.heartbeat, misses=told.misses)
    await start(Peering, peers, told.tcp)
    home = await peers.connect(told.home)
    steward = await Options(name=STEWARD).start(Steward, home, stop)
    peers.watch(steward)
    if not _State.guest:
        # An application that stands still, in a debugger or over a long import, is not gone; its end is told by the kernel.
        peers.patient(home, on=True)
    engine: Ref[GenServer] = Ref(Pid(*told.engine))
    said.begin(engine, asyncio.get_running_loop())
    if wrong is not None:
        engine.send(bootstrap.NodeUnfit(told.name, wrong[-8000:]))
    elif home in peers.connected:
        _State.code = 0
        engine.send(bootstrap.NodeReady(told.name, os.getpid(), steward.pid))
        await stop.wait()
    said.flush()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(node.close(), told.stop_timeout)
    return _State.code


# --- The application's own main module, in a process that was not started with it: handlers of `python server.py` live there.
# It is executed once more under another name, so that what stands behind ``if __name__ == "__main__"`` is left out, and is known as `__main__`
# from then on: what travels by its name is found.

NAME: Final = "__mp_main__"
"""As multiprocessing calls it: programs that look at their own name know that one."""


class Importing:
    """Whether the main module is being executed just now: what would run a program then does not."""

    now = False


def load(module: str | None, path: str | None) -> None:
    """Execute it. Whatever it raises is raised."""
    made = types.ModuleType(NAME)
    sys.modules[NAME] = sys.modules["__main__"] = made
    Importing.now = True
    try:
        if module is not None:
            found = runpy.run_module(module, run_name=NAME, alter_sys=True)
        else:
            assert path is not None
            found = runpy.run_path(path, run_name=NAME)
    except SystemExit as end:
        raise RuntimeError(
            f"{module or path} ended while it was imported ({end}): put what runs the program behind "
            'if __name__ == "__main__":'
        ) from end
    finally:
        Importing.now = False
    sys.modules[NAME] = sys.modules["__main__"] = made
    made.__dict__.update(found)
