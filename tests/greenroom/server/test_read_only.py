"""On a read-only root, without a folder for temporary files, without HOME, and as a user without a name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

PROGRAM = Path(__file__).with_name("read_only_program.py")

# Each Python process of the program reads this first: so it runs for any user, where a mount needs a privileged one.
READ_ONLY = """
import errno, os, pwd, sys

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

def refuse(event, args):
    if event == "open":
        path, _, flags = args
        if isinstance(path, int) or not flags & WRITES or os.fsdecode(path).startswith(("/dev/", "/proc/")):
            return
    elif event not in {"os.mkdir", "os.rename", "os.link", "os.symlink", "tempfile.mkstemp", "tempfile.mkdtemp"}:
        return
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), "a file")

def nameless(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")

pwd.getpwuid = nameless
sys.addaudithook(refuse)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Hardly anything."""
    (tmp_path / "sitecustomize.py").write_text(READ_ONLY)
    return {"PATH": os.defpath, "PYTHONPATH": str(tmp_path)}


def test_isolated_tools_and_tasks_need_no_folder(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, "here"], env=environment, capture_output=True, check=False, timeout=60, text=True
    )
    assert (done.returncode, done.stdout) == (0, "apart\nworked\n"), done.stderr


@pytest.fixture
def serving(environment: dict[str, str]) -> Generator[subprocess.Popen[str]]:
    """The program with a worker."""
    with subprocess.Popen(
        [sys.executable, PROGRAM], env=environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_workers_need_no_folder(serving: subprocess.Popen[str]) -> None:
    assert serving.stderr is not None
    line = serving.stderr.readline()
    assert " serves on http://" in line, line + serving.stderr.read()
    assert httpx.get(line.split()[-1].removesuffix("mcp"), timeout=30).json()["status"] == "ok"
    serving.send_signal(signal.SIGTERM)
    assert serving.wait(30) == 0


def test_a_missing_folder_is_named_in_the_error(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, "inspect"], env=environment, capture_output=True, check=False, timeout=60, text=True
    )
    assert done.returncode == 1
    assert "set XDG_RUNTIME_DIR to a writable folder, or leave out inspect" in done.stderr
