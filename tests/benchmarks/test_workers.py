"""One process against several: the table, the page, and the error without a compiler. The compiler and generator are fakes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from benchmarks.serving import workers
from benchmarks.serving.workers import Kind, Round

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.deep

LOAD = f"""#!{sys.executable}
import json, pathlib, sys, urllib.request
_, port, connections, seconds, mode, tool, arguments = sys.argv
call = {{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {{"protocolVersion": "2025-11-25", "capabilities": {{}},
        "clientInfo": {{"name": "load", "version": "1"}}}}}}
heads = {{"content-type": "application/json", "accept": "application/json, text/event-stream"}}
with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{{port}}/mcp", json.dumps(call).encode(), heads)) as answer:
    assert answer.status == 200
with pathlib.Path(__file__).parent.with_name("runs").open("a") as runs:
    print(json.dumps([connections, float(seconds), mode, tool, json.loads(arguments)]), file=runs)
print(json.dumps({{"calls": 100, "rate": 4000.0, "p50": 0.002, "p99": 0.03, "busy": 0.25, "wrong": WRONG}}))
"""
COMPILER = f"""#!{sys.executable}
import pathlib, sys
out, source = sys.argv[sys.argv.index("-o") + 1 :]
assert "int main(" in pathlib.Path(source).read_text()
made = pathlib.Path(out)
made.write_text(pathlib.Path(__file__).with_name("load").read_text())
made.chmod(0o700)
"""
OWN = Kind("in the program", None, "own", "echo", '{"text":"hello"}')
CROSSED = Kind("by way of the other", 2, "crossed", "work", '{"count":10}')


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only compiler on the path; its output for any source is `load`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "cc").write_text(COMPILER, encoding="utf-8")
    (folder / "cc").chmod(0o700)
    (folder / "load").write_text(LOAD.replace("WRONG", "0"), encoding="utf-8")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def test_the_table_has_the_median_of_each_row() -> None:
    rounds = [Round(rate, rate / 1e6, rate / 1e5, rate / 1e4, rate / 1e7) for rate in (3000.0, 1000.0, 2000.0)]
    told = workers.table({OWN: rounds, CROSSED: rounds[:1]}, 7).splitlines()
    assert told[2] == "| in the program | 2,000 | 0.20 ms | 2.0 ms | 20 ms | 20% |"
    assert told[3] == "| by way of the other | 3,000 | 0.30 ms | 3.0 ms | 30 ms | 30% |"
    assert told[5].startswith("7 connections with a session each, ")
    assert told[5].endswith("the median of 3 rounds of all rows in turn.")


def test_each_row_has_a_server_of_its_own_and_the_table_goes_into_the_page(
    tmp_path: Path, compiler: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{workers.BEGIN}\n\n{workers.END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(workers, "PAGE", page)
    monkeypatch.setattr(workers, "KINDS", (OWN, CROSSED))
    assert workers.main(["--rounds", "1", "--seconds", "0.25", "--connections", "3", "--write"]) == 0
    runs = [json.loads(line) for line in (compiler.parent / "runs").read_text(encoding="utf-8").splitlines()]
    own, crossed = ["own", "echo", {"text": "hello"}], ["crossed", "work", {"count": 10}]
    assert runs == [["3", seconds, *rest] for rest in (own, crossed) for seconds in (0.5, 0.25)]
    written = page.read_text(encoding="utf-8")
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert "| in the program | 4,000 | " in written
    assert "| 2.0 ms | 30 ms | 25% |" in written
    assert capsys.readouterr().out.strip() in written


def test_answers_that_are_wrong_are_no_figures(tmp_path: Path, compiler: Path) -> None:
    (compiler / "load").write_text(LOAD.replace("WRONG", "2"), encoding="utf-8")
    with workers.generator() as load, pytest.raises(RuntimeError, match="2 answers were wrong"):
        workers.measure(OWN, load, 1, 0.1, tmp_path / "log")


def test_without_a_compiler_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert workers.main([]) == 2
    assert "there is no C compiler" in capsys.readouterr().err
