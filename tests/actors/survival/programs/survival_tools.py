"""Tools that kill their process, and tools that go on meanwhile: a module that any worker can import."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

CHUNK = 16 * 1024 * 1024


# --- those that go on


async def in_loop(n: int) -> int:
    await asyncio.sleep(0.001)
    return n


def in_thread(n: int) -> int:
    time.sleep(0.001)
    return n


def in_process(n: int) -> int:
    return n


def who() -> int:
    """The process that answers."""
    return os.getpid()


def naps() -> int:
    """The same, and not at once."""
    time.sleep(0.05)
    return os.getpid()


def lasts(seconds: float) -> int:
    """The same, much later; until then no other thread has the interpreter."""
    holds_interpreter(seconds)
    return os.getpid()


def burns(seconds: float) -> int:
    """The same, after so much time on a processor."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return os.getpid()


# --- those that do not


def exits_at_once() -> None:
    os._exit(1)


def exits() -> None:
    sys.exit(3)


def reads_nothing() -> str:
    return str(ctypes.string_at(0))


def kills_itself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stops_itself() -> str:
    """It is another thread that is told of the signal, perhaps, and this one goes on a little."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(3600)
    return "went on"


def aborts() -> None:
    os.abort()


def allocates() -> int:
    kept: list[bytes] = []
    while True:
        kept.append(os.urandom(1) * CHUNK)


def spins() -> None:
    while True:
        pass


async def spins_in_loop() -> None:
    while True:
        pass


def holds_interpreter(seconds: float) -> str:
    """C code that keeps the interpreter's lock: what `PyDLL` calls does."""
    ctypes.PyDLL(None).usleep(round(seconds * 1_000_000))
    return "let go"


def forks() -> int:
    child = os.fork()
    if not child:
        return -1  # the child comes back too, and ends there
    return os.waitpid(child, 0)[1]


def forks_and_leaves() -> int:
    child = os.fork()
    if not child:
        time.sleep(3600)
        os._exit(0)
    return child


def forks_unseen() -> int:
    """As code in C does: Python hears nothing of it."""
    child: int = ctypes.PyDLL(None).fork()  # the thread that forks has the interpreter, and so has the child
    if not child:
        time.sleep(3600)
        os._exit(0)
    return child


def starts_program() -> int:
    """In a session of its own, so that no signals to the worker's group reach it."""
    return subprocess.Popen(["sleep", "3600"], start_new_session=True).pid


def is_survived(told: str) -> None:
    """By a child that says there who it is, and is known for whose it is a while after that."""
    libc = ctypes.PyDLL(None)
    if not libc.fork():
        worker = os.getppid()
        libc.prctl(15, b"another's", 0, 0, 0)
        Path(told).write_text(str(os.getpid()))
        os.kill(worker, signal.SIGKILL)
        time.sleep(0.3)
        libc.prctl(15, f"gr-of-{worker}".encode(), 0, 0, 0)
        time.sleep(3600)
        os._exit(0)
    time.sleep(3600)


def closes_everything() -> str:
    os.closerange(0, 4096)
    return "closed"


def writes_garbage() -> str:
    os.write(1, b"\x00garbage{]\n" * 10_000)
    print("more of it")  # noqa: T201 - what it is about
    return "written"


def deadlocks() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def deadlocks_in_another_thread() -> None:
    lock = threading.Lock()
    lock.acquire()
    stuck = threading.Thread(target=lock.acquire)
    stuck.start()
    stuck.join()


def much(megabytes: int) -> str:
    return "x" * (megabytes * 1_000_000)


def nothing_of_json() -> Any:
    return object()


def ignores_sigterm() -> None:
    """As much as code can that is not in the main thread."""
    libc = ctypes.CDLL(None)
    libc.signal(signal.SIGTERM, ctypes.c_void_p(1))
    time.sleep(3600)


def marks(path: str, number: int, die: str = "", seconds: float = 0.0) -> int:
    """Say in a file that this has been run; and then perhaps never come back, or after a while."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{number}\n".encode())
    os.close(file)
    if die:
        globals()[die]()
    time.sleep(seconds)
    return number


QUICK = ("exits_at_once", "exits", "reads_nothing", "kills_itself", "aborts", "nothing_of_json", "closes_everything")
SLOW = ("allocates", "forks", "forks_and_leaves", "writes_garbage", "holds_interpreter")
ENDLESS = (
    "stops_itself",
    "spins",
    "spins_in_loop",
    "deadlocks",
    "deadlocks_in_another_thread",
    "ignores_sigterm",
)

RARE = 53


def drawn(seed: int) -> str:
    """What the call with this number does: more than half of them something evil, and now and then it is something that takes long."""
    turn, place = divmod(seed, RARE)
    if place == RARE // 2:
        return (SLOW + ENDLESS)[turn % len(SLOW + ENDLESS)]
    draw = random.Random(seed)
    return draw.choice(QUICK) if draw.random() < 0.52 else ""


async def at_random(seed: int) -> Any:
    """That, or a result."""
    name = drawn(seed)
    if not name:
        return seed
    given = (0.5,) if name == "holds_interpreter" else ()
    result = globals()[name](*given)
    return await result if inspect.isawaitable(result) else result
