"""Tools that fork: the child never becomes a second server, however it continues."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest
from tests.example_counts import one_in

from greenroom.supervision.kernel import forks

from .child_programs import EVERYTHING, program

if TYPE_CHECKING:
    from pathlib import Path

FORKS = EVERYTHING.with_name("forks.py")

WAYS = {
    "returns": ("0", ""),
    "exits": ("7", ""),
    "says why": ("1", "for this reason"),
    "execs": ("1", "FileNotFoundError"),
    "runs a loop": ("0", ""),
}


def forked(folder: Path, tool: str, how: str | None = None) -> tuple[str, str]:
    """The parent's report of its child, and the stderr output; other requests are served as before."""
    with program(folder, file=FORKS, clean=False) as served:
        served.greet()
        served.tell("tools/call", {"name": tool, "arguments": {"how": how} if how else {}}, 1)
        code: str = served.answer(1)["content"][0]["text"]
        served.tell("ping", id=2)
        assert served.answer(2) == {}
        served.hang_up()
        assert served.rest() == b""  # no second reply; and no other process holds the other end
        assert served.code() == 0
        assert [each["id"] for each in served.heard if "id" in each] == [0, 1, 2]
        return code, served.error_text()


@pytest.mark.parametrize("how", one_in(2, WAYS))
@pytest.mark.parametrize("tool", one_in(3, ["in_a_thread", "at_once", "later_on"]))
def test_a_forked_child_ends_with_its_handler(tmp_path: Path, tool: str, how: str) -> None:
    code, told = forked(tmp_path, tool, how)
    expected, said = WAYS[how]
    assert code == expected
    assert said in told
    assert ("Traceback" in told) == (how == "execs")


def test_a_forked_child_that_waits_ends(tmp_path: Path) -> None:
    code, told = forked(tmp_path, "that_waits")
    assert code == "1"
    assert "a forked child has come back to the event loop" in told


@pytest.mark.parametrize(("tool", "expected"), [("in_a_task", "1"), ("in_a_handler", "0"), ("in_a_call", "0")])
def test_a_child_forked_in_other_code_of_a_process_ends_as_well(tmp_path: Path, tool: str, expected: str) -> None:
    code, _ = forked(tmp_path, tool)
    assert code == expected


class Left(BaseException):
    """In place of the end of this process."""


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    def leaves(code: int) -> NoReturn:
        raise Left(code)

    monkeypatch.setattr("os._exit", leaves)


@pytest.mark.usefixtures("leaving")
@pytest.mark.parametrize("error", [ValueError("a fault"), SystemExit("for this reason")], ids=repr)
def test_a_child_that_cannot_report_why_it_ends_has_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    monkeypatch.setattr("sys.stderr", None)
    with pytest.raises(Left, match="1"):
        forks.exit_child(error)
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("leaving")
def test_a_child_without_any_report_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(error: BaseException) -> list[str]:
        raise MemoryError from error

    monkeypatch.setattr("traceback.format_exception", fails)
    with pytest.raises(Left, match="1"):
        forks.exit_child(ValueError("a fault"))
