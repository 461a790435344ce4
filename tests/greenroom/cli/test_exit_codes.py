"""Ends of commands: help, errors with their reason and exit code, a closed output pipe, and saved answers."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from tests.example_counts import one_in

from greenroom import cli
from greenroom.cli import serve_command as renewing
from greenroom.cli.command_table import COMMANDS
from greenroom.cli.exit_codes import UsageError
from greenroom.cli.serve_command import serve_and_watch, start_process, stop_process

from .test_malformed_answers import odd

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]
    Odd = Callable[..., Typed]

__all__ = ["odd"]

# --- help, and errors


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.epilog], ids=lambda each: each.name)
def test_the_examples_of_a_commands_help_stand_line_by_line(typed: Type, command: Any) -> None:
    seen = typed(command.name, "--help")

    assert (seen.code, seen.err) == (0, "")
    lines = [line.strip() for line in seen.out.splitlines()]
    examples = [line for line in command.epilog.splitlines() if line.startswith("greenroom ")]
    assert [line for line in examples if line not in lines] == []


def test_which_version_it_is(typed: Type) -> None:
    seen = typed("--version")
    assert (seen.code, seen.out.startswith("greenroom "), seen.err) == (0, True, "")


@pytest.mark.parametrize(
    ("cause", "says"),
    [
        (None, "greenroom: so it is not\n"),
        (ValueError("the moon is away"), "greenroom: so it is not\ngreenroom: because: the moon is away\n"),
        (ValueError("so it is"), "greenroom: so it is not\n"),
        (KeyError(), "greenroom: so it is not\ngreenroom: because: KeyError\n"),
    ],
)
def test_an_error_is_a_line_and_its_reason_another(
    typed: Type, monkeypatch: pytest.MonkeyPatch, cause: Exception | None, says: str
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise UsageError("so it is not") from cause

    monkeypatch.setattr("greenroom.cli.inspect_command.connected", fails)
    seen = typed("list", "weather.py")
    assert (seen.code, seen.err) == (2, says)
    monkeypatch.setenv("GREENROOM_TRACEBACK", "1")
    seen = typed("list", "weather.py")
    assert seen.code == 2
    assert seen.err.startswith("Traceback") or cause is not None
    assert seen.err.endswith("UsageError: so it is not\n")
    assert "report" not in seen.err


def test_a_reader_that_has_gone_away_is_no_error(folder: Path) -> None:
    command = [sys.executable, "-m", "greenroom.cli", "list", "weather.py", "--json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60.0) == 0


@pytest.mark.parametrize("missing", ["click", "greenroom.cli.command_table"])
def test_without_its_library_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, "greenroom.cli.command_table", None)

    def imported(name: str, *given: Any, **more: Any) -> Any:
        if name == "command_table":
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, *given, **more)

    real = __import__
    monkeypatch.setattr("builtins.__import__", imported)
    if missing == "click":
        with pytest.raises(SystemExit, match=r"pip install 'greenroom\[cli\]'"):
            cli.main()
    else:
        with pytest.raises(ModuleNotFoundError, match="command_table"):
            cli.main()


# --- answers


def test_every_block_of_an_answer_is_shown_or_saved(odd: Odd, folder: Path) -> None:
    data = base64.b64encode(b"12345").decode()
    content = [
        {"type": "resource_link", "uri": "note://one", "name": "one"},
        {"type": "resource", "resource": {"uri": "note://two", "text": "two"}},
        {"type": "resource", "resource": {"uri": "note://three", "blob": data, "mimeType": "image/svg+xml"}},
        {"type": "audio", "data": data, "mimeType": "audio/x-what?"},
    ]
    answers = {"tools/call": {"content": content}}

    assert odd(answers, "call", "x").out.splitlines() == [
        "→ note://one  one",
        "two",
        "[image/svg+xml, 5 bytes: --save FOLDER saves it]",
        "[audio/x-what?, 5 bytes: --save FOLDER saves it]",
    ]
    assert odd(answers, "call", "x", "--save", "kept").code == 0
    assert {path.name: path.read_bytes() for path in (folder / "kept").iterdir()} == {
        "3.svg": b"12345",
        "4.bin": b"12345",
    }


@pytest.mark.parametrize(
    "block",
    [
        {"type": "resource", "resource": [1]},
        {"type": "resource", "resource": {"uri": "a:b", "blob": 3}},
        {"type": "resource"},
    ],
    ids=json.dumps,
)
def test_a_block_that_is_none_is_not_our_fault(odd: Odd, block: dict[str, Any]) -> None:
    seen = odd({"tools/call": {"content": [block]}}, "call", "x")

    assert (seen.code, seen.out) == (1, "")
    assert seen.err.startswith("greenroom: the tool's answer has a resource with neither text nor blob: ")


def test_a_tool_that_is_not_there_is_told_with_what_there_is(odd: Odd, typed: Type) -> None:
    seen = typed("call", "weather.py", "forcast", "city=Oslo")
    assert (seen.code, "did you mean forecast?" in seen.err) == (2, True)
    seen = odd({}, "call", "x", "a=1")
    assert (seen.code, "it has none" in seen.err) == (2, True)


def test_a_resource_is_saved_in_a_file_or_written_to_a_pipe(typed: Type, folder: Path) -> None:
    seen = typed("read", "weather.py", "today", "--save", "-")
    assert (seen.out, seen.err) == ("sunny", "")
    seen = typed("read", "weather.py", "weather://photo", "--save", "photo.png")
    assert (seen.out, seen.err) == ("", "→ photo.png (2 bytes)\n")
    assert (folder / "photo.png").read_bytes() == b"\x00\x01"
    seen = typed("read", "weather.py", "nothing")
    assert (seen.code, seen.out) == (2, "")


@pytest.mark.parametrize("word", ["city", "=Oslo"])
def test_a_prompts_arguments_have_names(typed: Type, word: str) -> None:
    seen = typed("prompt", "weather.py", "pack", word)

    assert (seen.code, seen.err) == (2, f"greenroom: {word!r} is not an argument: write key=value\n")


# --- serve --watch


def test_a_server_that_has_ended_is_told_once_and_waits_for_a_change(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "short.py").write_text("raise SystemExit(3)\n")
    said: list[str] = []
    turns: list[float] = []

    def heard(text: str, *, error: bool) -> None:
        assert error
        said.append(text)

    async def sleep(_: float) -> None:
        said_ends = [line for line in said if "has ended" in line]
        if said_ends:
            turns.append(len(said_ends))
        if len(turns) == 3:
            (folder / "short.py").write_text("raise SystemExit(4)\nagain = 1\n")
        if len(turns) > 3 and len(said_ends) == 2:
            signal.raise_signal(signal.SIGINT)
        await pause(0.02)

    pause = anyio.sleep
    monkeypatch.setattr(anyio, "sleep", sleep)
    monkeypatch.setattr(renewing, "echo", heard)

    assert serve_and_watch(["short.py", "--http", "0"], folder) == 0
    told = [line.partition("greenroom: ")[2].partition(":")[0].partition(" with")[0] for line in said]
    assert told == ["the server has ended", "short.py changed", "the server has ended"]
    assert turns[:3] == [1, 1, 1]


def test_a_server_that_does_not_end_in_order_is_ended_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewing, "_GRACE", 0.2)
    code = "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); pathlib.Path('up').touch(); time.sleep(600)"

    async def serve() -> None:
        process = await start_process([sys.executable, "-c", code])
        while not (folder / "up").exists():  # noqa: ASYNC110 - another program tells of itself with a file
            await anyio.sleep(0.01)
        await stop_process(process)
        assert process.returncode == -9
        await stop_process(process)
        assert process.returncode == -9

    anyio.run(serve)


@pytest.mark.parametrize("closed", one_in(3, ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"]))
def test_a_command_that_is_started_without_a_standard_stream_does_its_work(folder: Path, closed: str) -> None:
    line = f'exec "$0" -m greenroom.cli call weather.py forecast city=Oslo days=1 {closed}'
    done = subprocess.run(
        ["/bin/sh", "-c", line, sys.executable], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ("Oslo 0" in done.stdout) == ("1>&-" not in closed)
