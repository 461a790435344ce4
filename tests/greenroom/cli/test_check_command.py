"""check with a missing program, a hanging suite, or an interrupt: the reason is reported, and no process stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.cli import check_command
from greenroom.cli.check_command import SUITE, _served_url
from greenroom.cli.exit_codes import CommandFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]

PLAYED = """
import json, os, pathlib, sys, time
words = sys.argv[sys.argv.index("server"):]
name, place = words[words.index("--scenario") + 1], pathlib.Path(words[words.index("--output-dir") + 1])
if name == "endless":
    pathlib.Path(__file__).with_name("pid").write_text(str(os.getpid()))
    time.sleep(600)
pathlib.Path(__file__).with_name("said").write_text(" ".join(sys.argv[1:]))
(place / "checks.json").write_text(json.dumps([{"name": "A", "status": "SUCCESS"}]))
"""
URL = "http://127.0.0.1:9/mcp"


@pytest.fixture
def bin_(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with two programs only: node, which prints its version, and an npx that the test writes."""
    found = folder / "bin"
    found.mkdir()
    (folder / "suite.py").write_text(PLAYED)
    program(found / "node", "echo v24.1.0")
    monkeypatch.setenv("PATH", str(found))
    return found


def program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def test_without_npx_it_is_said_what_to_do(typed: Type, bin_: Path) -> None:
    assert bin_.exists()
    seen = typed("check", URL)

    assert (seen.code, seen.out) == (4, "")
    assert "pass the path of an installed suite with --suite" in seen.err


def test_the_suite_is_fetched_with_npx_in_the_version_that_we_know_and_sent_to_the_url(
    typed: Type, bin_: Path, folder: Path
) -> None:
    program(bin_ / "npx", f'exec {sys.executable} {folder / "suite.py"} "$@"')

    assert typed("check", URL, "--scenario", "ping").out == "passed  ping  (1 of 1 checks)\n"
    assert (folder / "said").read_text().startswith(f"--yes {SUITE} server --url {URL} --scenario ping ")


def test_an_interrupt_leaves_no_process_of_the_suite(
    typed: Type, bin_: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(bin_ / "npx", f'exec {sys.executable} {folder / "suite.py"} "$@"')
    communicate: Any = getattr(subprocess.Popen, "communicate")  # noqa: B009 - it has no type of its own

    def interrupted(process: Any, *given: Any, timeout: float | None = None) -> Any:
        if timeout != check_command._ENDS_WITHIN:
            return communicate(process, *given, timeout=timeout)
        while not (folder / "pid").exists() or not (folder / "pid").read_text():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupted)
    seen = typed("check", URL, "--scenario", "endless")

    assert (seen.code, seen.err.strip()) == (130, "greenroom: interrupted")
    with pytest.raises(ProcessLookupError):
        os.kill(int((folder / "pid").read_text()), 0)


def test_a_server_that_does_not_come_up_is_not_waited_for_for_ever_and_is_ended_whatever_it_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "deaf.py").write_text(
        f"""
import os, pathlib, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path({str(folder / "pid")!r}).write_text(str(os.getpid()))
time.sleep(600)
"""
    )
    monkeypatch.setattr(check_command, "_STARTS_WITHIN", 2.0)
    monkeypatch.setattr(check_command, "_STOPS_WITHIN", 0.2)

    with (
        pytest.raises(CommandFailed, match="the server does not start within 2 seconds") as caught,
        _served_url("deaf.py"),
    ):
        raise AssertionError("there is nothing to check")

    assert caught.value.code == 4
    if (folder / "pid").exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int((folder / "pid").read_text()), signal.SIGTERM)
