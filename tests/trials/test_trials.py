"""The runner of trials: reports, time limits, and cleanup of left processes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from . import __main__ as trials

if TYPE_CHECKING:
    from pathlib import Path

LEAVES = '''"""It left a program behind.

More of it."""
import os, subprocess, sys
left = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"], start_new_session=True)
print(left.pid, os.environ["PYTHON"] == sys.executable, os.getcwd() == os.environ["HOME"])
'''


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:  # noqa: PTH123 - it may be gone
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_script_has_the_environments_python_and_what_it_leaves_is_ended(tmp_path: Path) -> None:
    script = write(tmp_path, leaves_dot_py=LEAVES) / "leaves.py"
    outcome = trials.run(script, "leaves")
    pid, *claims = outcome.printed.split()
    assert claims == ["True", "True"]
    assert (outcome.about, outcome.ended) == ("It left a program behind.", "")
    deadline = time.monotonic() + 10
    while lives(int(pid)):
        assert time.monotonic() < deadline
        time.sleep(0.01)  # polled, since another process ends


def test_a_script_that_hangs_is_ended_and_said_so(tmp_path: Path) -> None:
    script = write(tmp_path, hangs_dot_sh="#!/bin/sh\n# It hung.\necho begun\nsleep 600\n") / "hangs.sh"
    outcome = trials.run(script, "hangs", 0.5)
    assert (outcome.about, outcome.printed, outcome.ended) == ("It hung.", "begun\n", "not over after 0.5 s")
    assert outcome.verdict(None) == "not over after 0.5 s"
    assert outcome.verdict("^done$") == "NOT AS EXPECTED, not over after 0.5 s"


def test_expected_stands_beside_actual_and_the_verdict_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(
        tmp_path / "scripts",
        a__good_dot_py='"""It failed."""\nprint("status 404")\n',
        a__bad_dot_py='"""It failed too."""\nprint("status 204")\n',
        b__new_dot_py="print('whatever')\nraise SystemExit(3)\n",
        b__notes_dot_txt="no script",
    )
    expected = tmp_path / "expected.toml"
    expected.write_text('good = "^status 404$"\nbad = "^status 404$"\n')
    monkeypatch.setattr(trials, "EXPECTED", expected)
    monkeypatch.chdir(tmp_path)
    assert trials.main(["scripts"]) == 1
    out = capsys.readouterr().out
    assert (
        "== a/good: as expected\n   was:      It failed.\n   expected: ^status 404$\n   printed:  status 404\n" in out
    )
    assert "== a/bad: NOT AS EXPECTED\n" in out
    assert "== b/new: ended with 3\n" in out
    assert "3 scripts: 1 as expected, 1 not, 1 without expectation" in out
    assert trials.main([str(folder), "--only", "good"]) == 0
    assert trials.main([str(tmp_path / "nowhere")]) == 2
    assert "there is no script in" in capsys.readouterr().err


def test_only_the_end_of_a_long_output_is_shown() -> None:
    outcome = trials.Outcome("x", "", "\n".join(map(str, range(100))), "")
    assert "(88 lines before)" in trials.show(outcome, None)
    assert outcome.verdict("^3$") == "as expected"


def test_the_expectations_can_be_read() -> None:
    assert trials.read(trials.EXPECTED.read_text()) is not None
    with pytest.raises(ValueError, match="x: '\\(' is no regular expression"):
        trials.read("x = '('")
    assert os.path.basename(trials.EXPECTED) == "expected.toml"  # noqa: PTH119 - the name alone
