"""`python -m greenroom.testing rogue`, run in this process: its input, its output, and its exit."""

from __future__ import annotations

import io
import json
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from greenroom.testing import __main__ as program
from greenroom.testing import rogue_servers

HELLO: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
CALL: dict[str, Any] = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "any", "arguments": {}}}


def played(monkeypatch: pytest.MonkeyPatch, *words: str) -> tuple[int, bytes]:
    """The exit code, and the output for a handshake and a call."""
    heard = b"".join(json.dumps(each).encode() + b"\n" for each in (HELLO, CALL))
    said = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(heard)))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=said))
    monkeypatch.setattr(sys, "argv", ["testing", "rogue", *words])
    return program.main(), said.getvalue()


def test_a_rogue_answers_correctly_until_its_manner_applies(monkeypatch: pytest.MonkeyPatch) -> None:
    status, said = played(monkeypatch, "exits", "--after", "1")
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["id"] for line in lines] == [1, 2]
    assert status == 0


def test_a_rogue_exits_with_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    status, said = played(monkeypatch, "exits")
    assert [json.loads(line)["id"] for line in said.splitlines()] == [1]
    assert status != 0


def test_a_rogue_answers_late(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(rogue_servers, "time", SimpleNamespace(sleep=waited.append))
    _, said = played(monkeypatch, "late", "--seconds", "7")
    assert waited == [7.0]
    assert [json.loads(line)["id"] for line in said.splitlines()] == [1, 2]


def test_a_rogue_ends_by_a_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(Exception):
        pass

    def kill(pid: int, number: int) -> None:
        assert pid == os.getpid()
        raise Ended(number)

    monkeypatch.setattr(os, "kill", kill)
    with pytest.raises(Ended):
        played(monkeypatch, "segfaults")


def test_an_unknown_manner_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["testing", "rogue", "polite"])
    with pytest.raises(SystemExit):
        program.main()
    assert "invalid choice: 'polite'" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["testing"])
    with pytest.raises(SystemExit):
        program.main()
