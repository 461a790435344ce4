"""The main function of a node's process: undo inherited state, run the imports, open a node, and connect it to the application's.

The main thread runs the imports and then belongs to Thespian again; the node runs in a thread of its own. When the node is told to stop, or loses the
application's node, it stops in order and the process exits with `os._exit`: atexit handlers and other threads could block a normal exit.
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

from greenroom.supervision.behaviours.gen_server import GenServer
from greenroom.supervision.behaviours.process_start import Options, start
from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.kernel.node import Node
from greenroom.supervision.kernel.process_messages import Pid

from . import bootstrap, crash_output, os_processes
from .bootstrap import InheritedState, NodeBoot, send_log_line
from .crash_output import CapturedOutput
from .node_records import EXIT_BROKEN, EXIT_LOST, EXIT_MEMORY, signal_name
from .peers import NodeDown, Peering, Peers

if TYPE_CHECKING:
    from collections.abc import Iterable

NODE_STOPPER: Final = "greenroom.node_stopper"
_IGNORED_BY_PYTHON: Final = ("SIGPIPE", "SIGXFSZ")


class _State:
    """Of this process."""

    booted = False
    foreign = False
    code = EXIT_LOST
    """The exit code for when the node has stopped."""
    stop: asyncio.Event | None = None
    loop: asyncio.AbstractEventLoop | None = None


class NodeStopper(GenServer):
    """Ends the process when told to, and when the application's node is lost."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, home: str, stop: asyncio.Event) -> None:
        """`home` is the name of the application's node."""
        self.home = home
        self.stop = stop

    def handle_info(self, message: object) -> None:
        """Stop on the engine's message, or when the home node is lost."""
        if message == bootstrap.LEAVE:
            self.stop.set()
        elif isinstance(message, NodeDown) and message.name == self.home:
            _State.code = EXIT_LOST
            self.stop.set()


def become_node(data: bytes, keep: Iterable[int], *, foreign: bool = False) -> None:
    """In the main thread, once: become the node that the boot data describes. `keep` are Thespian's own descriptors.

    With `foreign`, another machine asked for the node: Thespian's admin made the process, and the daemon does not know it yet.
    """
    if _State.booted:
        return
    _State.booted, _State.foreign = True, foreign
    try:
        boot = bootstrap.unpack(data)
        InheritedState.node, InheritedState.pid = boot.name, os.getpid()
        if foreign and not bootstrap.announce_foreign_node():
            os._exit(EXIT_BROKEN)
        output = _undo_inherited_state(boot, frozenset(keep))
        wrong = _prepare(boot)
    except BaseException:  # noqa: BLE001 - there is no link yet to report it over
        send_log_line(logging.ERROR, f"the process of a node could not be set up:\n{traceback.format_exc()}")
        os._exit(EXIT_BROKEN)
    thread = threading.Thread(target=_run, args=(boot, output, wrong), name=f"greenroom-{boot.name}", daemon=True)
    thread.start()


def stop_node() -> None:
    """Stop the node and exit."""
    if _State.loop is not None and _State.stop is not None:
        _State.loop.call_soon_threadsafe(_State.stop.set)
    else:
        os._exit(0)


# --- the process


def _undo_inherited_state(boot: NodeBoot, keep: frozenset[int]) -> CapturedOutput:
    """Reset signal handlers, environment, name and descriptors to what a fresh process would have."""
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):  # some signals cannot be handled
            signal.signal(number, signal.SIG_IGN if signal_name(number) in _IGNORED_BY_PYTHON else signal.SIG_DFL)
    bootstrap.restore_environment()
    os_processes.set_process_name(bootstrap.name_of_node(boot.name))
    gc.collect()
    gc.freeze()
    _redirect_inherited_fds(keep)
    bootstrap.watch_death_pipe_in_thread()
    os.environb.update(boot.env)
    os.environ[bootstrap.NODE_VARIABLE] = boot.name
    crash_output.install_crash_stacks()
    output = CapturedOutput(boot.name, boot.log_level)
    output.install()
    return output


def _redirect_inherited_fds(keep: frozenset[int]) -> None:
    """Redirect descriptors that the process inherited and does not use."""
    mine = {0, 1, 2, *keep}
    if InheritedState.notes is not None:
        mine.add(InheritedState.notes.fileno())
    theirs = [number for number in bootstrap.open_fds() if number not in mine and not bootstrap.is_death_pipe(number)]
    bootstrap.redirect_to_null(theirs)


def _prepare(boot: NodeBoot) -> str | None:
    """Set path, directory and limits, and run the imports. Returns the traceback of what failed, or None."""
    try:
        if boot.path is not None:
            sys.path[:] = map(os.fsdecode, boot.path)
        if boot.cwd is not None:
            os.chdir(boot.cwd)
        _limit(boot)
        importlib.invalidate_caches()
        for name in boot.preload:
            importlib.import_module(name)
        if boot.main_module is not None or boot.main_path is not None:
            load_main_module(boot.main_module, None if boot.main_path is None else os.fsdecode(boot.main_path))
    except BaseException as error:  # noqa: BLE001 - sent to the engine
        return "".join(traceback.format_exception(error))
    return None


def _limit(boot: NodeBoot) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if boot.memory is not None:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (boot.memory, hard))
    if boot.open_files is not None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(boot.open_files, hard) if hard >= 0 else boot.open_files, hard))


# --- the node


def _run(boot: NodeBoot, output: CapturedOutput, wrong: str | None) -> None:
    try:
        code = asyncio.run(_run_node(boot, output, wrong))
    except MemoryError:
        code = EXIT_MEMORY
    except BaseException:  # noqa: BLE001 - the process exits, and logs why
        send_log_line(logging.ERROR, f"node {boot.name} ended with an error:\n{traceback.format_exc()}")
        code = EXIT_BROKEN
    os._exit(code)


async def _run_node(boot: NodeBoot, output: CapturedOutput, wrong: str | None) -> int:
    stop = asyncio.Event()
    _State.stop, _State.loop = stop, asyncio.get_running_loop()
    node = Node(boot.name, handle_sigint=False, stop_grace=boot.stop_timeout)
    await node.open()
    peers = Peers(node, InheritedState.key, heartbeat=boot.heartbeat, misses=boot.misses)
    await start(Peering, peers, boot.tcp)
    home = await peers.connect(boot.home)
    stopper = await Options(name=NODE_STOPPER).start(NodeStopper, home, stop)
    peers.watch(stopper)
    if not _State.foreign:
        # The application may stand still in a debugger or a long import without being gone. When it really ends, the death pipe tells.
        peers.allow_silence(home, on=True)
    engine: Ref[GenServer] = Ref(Pid(*boot.engine))
    output.begin(engine, asyncio.get_running_loop())
    if wrong is not None:
        engine.send(bootstrap.NodeImportFailed(boot.name, wrong[-8000:]))
    elif home in peers.connected:
        _State.code = 0
        engine.send(bootstrap.NodeReady(boot.name, os.getpid(), stopper.pid))
        await stop.wait()
    output.flush()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(node.close(), boot.stop_timeout)
    return _State.code


# --- The application's own main module, imported in a process that was not started with it: `python server.py` may define handlers there.
# It is executed under another name, so that its `if __name__ == "__main__"` block is left out, and is registered as `__main__`, so that names which refer to
# that module are found.

NAME: Final = "__mp_main__"
"""The name that multiprocessing uses; programs that check their own name know it."""


class MainImport:
    """Whether the main module is being imported right now, so that calls which would start the program do nothing."""

    now = False


def load_main_module(module: str | None, path: str | None) -> None:
    """Execute the module. Its exceptions are raised."""
    made = types.ModuleType(NAME)
    sys.modules[NAME] = sys.modules["__main__"] = made
    MainImport.now = True
    try:
        if module is not None:
            found = runpy.run_module(module, run_name=NAME, alter_sys=True)
        else:
            assert path is not None
            found = runpy.run_path(path, run_name=NAME)
    except SystemExit as end:
        raise RuntimeError(
            f"{module or path} ended while it was imported ({end}): put the code that runs the program behind "
            'if __name__ == "__main__":'
        ) from end
    finally:
        MainImport.now = False
    sys.modules[NAME] = sys.modules["__main__"] = made
    made.__dict__.update(found)
