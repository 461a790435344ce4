"""Verdicts about servers' eras that outlast the program: what a second program knows, and what becomes of broken and unwritable files."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom import Client, Server
from greenroom.actors.client import era_verdict_file
from greenroom.actors.client.era_verdict_file import EraVerdictFile
from greenroom.protocol.dialect import HANDSHAKE_VERSIONS, LATEST_DIALECT, STATELESS_DIALECT
from greenroom.supervision.private_files import write_beside

if TYPE_CHECKING:
    from pathlib import Path

URL = "https://books.example/mcp?key=a-very-secret-key"
OLD, NEW = LATEST_DIALECT.version, STATELESS_DIALECT.version


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "greenroom" / "eras.json"


@pytest.mark.row("26-V10")
def test_another_program_knows_what_one_has_found_out(path: Path) -> None:
    first = EraVerdictFile(path)
    assert first.of(URL) is None
    first.learn(URL, OLD)
    first.learn("other", NEW)
    second = EraVerdictFile(path)
    assert (second.of(URL), second.of("other"), second.of("third")) == (OLD, NEW, None)
    second.learn(URL, NEW)
    second.forget("other")
    third = EraVerdictFile(path)
    assert (third.of(URL), third.of("other")) == (NEW, None)


def test_the_file_is_private_and_names_no_server(path: Path) -> None:
    EraVerdictFile(path).learn(URL, OLD)
    text = path.read_text()
    assert OLD in text
    assert "secret" not in text
    assert "books" not in text
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in path.parent.iterdir()] == ["eras.json"]


def test_it_is_in_the_users_folder_for_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert EraVerdictFile().path == tmp_path / "greenroom" / "eras.json"


def test_nothing_is_read_or_written_before_there_is_a_verdict(path: Path) -> None:
    verdicts = EraVerdictFile(path)
    verdicts.forget(URL)
    verdicts.learn("", OLD)
    assert verdicts.of("") is None
    assert not path.parent.exists()


def test_a_verdict_that_does_not_change_is_not_written_again(path: Path) -> None:
    verdicts = EraVerdictFile(path)
    verdicts.learn(URL, OLD)
    before = path.stat().st_ino
    verdicts.learn(URL, OLD)
    verdicts.forget("unknown")
    assert path.stat().st_ino == before


@pytest.mark.row("26-V10")
def test_a_server_of_the_handshake_era_is_asked_again_after_a_week(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = EraVerdictFile(path)
    verdicts.learn(URL, OLD)
    verdicts.learn("modern", NEW)
    now = time.time()
    for days, known in ((6.9, OLD), (7.1, None), (-1.0, None)):
        monkeypatch.setattr(time, "time", lambda days=days: now + days * 86_400)
        assert (verdicts.of(URL), EraVerdictFile(path).of(URL)) == (known, known)
        assert verdicts.of("modern") == NEW
    monkeypatch.setattr(time, "time", lambda: now + 8 * 86_400)
    verdicts.learn(URL, OLD)
    assert EraVerdictFile(path).of(URL) == OLD


def test_two_programs_that_take_turns_keep_what_the_other_has_written(path: Path) -> None:
    one, other = EraVerdictFile(path), EraVerdictFile(path)
    assert (one.of(URL), other.of(URL)) == (None, None)
    one.learn("a", OLD)
    other.learn("b", OLD)
    one.learn("c", NEW)
    assert [EraVerdictFile(path).of(each) for each in "abc"] == [OLD, OLD, NEW]


def test_the_oldest_verdicts_are_dropped(path: Path) -> None:
    verdicts = EraVerdictFile(path, most=3)
    for number in range(10):
        verdicts.learn(str(number), OLD)
    assert len(verdicts) == len(verdicts._times) == len(json.loads(path.read_text())) == 3
    assert [number for number in range(10) if EraVerdictFile(path).of(str(number))] == [7, 8, 9]


def test_all_verdicts_can_be_forgotten(path: Path) -> None:
    verdicts = EraVerdictFile(path)
    verdicts.learn(URL, OLD)
    verdicts.clear()
    assert verdicts.of(URL) is None
    assert not path.exists()
    verdicts.clear()


BROKEN: list[Any] = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'{"a": 1}',
    b'{"a": ["2025-11-25"]}',
    b'{"a": ["2025-11-25", 1.5]}',
    b"\xff\xfe",
    b"[" * 100_000,
    b" " * 600_000,
]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_file_is_reported_once_and_replaced(
    content: bytes, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    verdicts = EraVerdictFile(path)
    assert verdicts.of(URL) is None
    verdicts.learn(URL, OLD)
    assert [record.getMessage().startswith(f"{path}, which remembers") for record in caplog.records] == [True]
    assert EraVerdictFile(path).of(URL) == OLD


def test_entries_that_are_no_verdicts_are_left_out(path: Path) -> None:
    verdicts = EraVerdictFile(path)
    verdicts.learn(URL, OLD)
    noted = json.loads(path.read_text())
    digest = next(iter(noted))
    path.write_text(json.dumps({digest: ["2099-01-01", int(time.time())], "short": [OLD, 1]}))
    again = EraVerdictFile(path)
    assert again.of(URL) is None
    assert len(again) == 0


@given(
    st.binary(max_size=300)
    | st.dictionaries(
        st.text(max_size=70), st.tuples(st.sampled_from([*HANDSHAKE_VERSIONS, NEW, "x"]), st.integers())
    ).map(lambda each: json.dumps(each).encode())
)
def test_any_file_is_read_without_an_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "eras.json"
    path.write_bytes(content)
    verdicts = EraVerdictFile(path)
    assert verdicts.of(URL) is None
    verdicts.learn(URL, NEW)
    assert EraVerdictFile(path).of(URL) == NEW


def test_a_file_that_others_may_write_is_not_believed(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    EraVerdictFile(path).learn(URL, OLD)
    path.chmod(0o666)
    assert EraVerdictFile(path).of(URL) is None
    assert "others may write to it" in caplog.text


def test_a_pipe_in_place_of_the_file_blocks_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    assert EraVerdictFile(path).of(URL) is None
    assert "it is no file" in caplog.text


def test_what_cannot_be_written_is_known_to_this_program_alone(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.parent.mkdir(parents=True)
    path.parent.write_text("a file where the folder should be")
    verdicts = EraVerdictFile(path)
    verdicts.learn(URL, OLD)
    verdicts.learn("other", NEW)
    assert (verdicts.of(URL), verdicts.of("other")) == (OLD, NEW)
    assert len(caplog.records) == 1
    assert EraVerdictFile(path).of(URL) is None


def test_a_folder_that_others_may_write_to_gets_no_file(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir(parents=True)
    path.parent.chmod(0o777)
    verdicts = EraVerdictFile(path)
    verdicts.learn(URL, OLD)
    assert verdicts.of(URL) == OLD
    assert not path.exists()
    assert "others may write to the folder" in caplog.text


def test_a_write_that_fails_in_the_middle_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdicts = EraVerdictFile(path)
    verdicts.learn(URL, OLD)
    before = path.read_bytes()

    def full(target: Path, data: bytes, *, sync: bool = True) -> None:
        write_beside(target, data[:10], sync=sync).unlink()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(era_verdict_file, "write_private", full)
    verdicts.learn(URL, NEW)
    assert path.read_bytes() == before
    assert verdicts.of(URL) == NEW


@pytest.mark.row("26-V10")
async def test_a_later_program_speaks_at_once_as_an_earlier_one_did(path: Path) -> None:
    server = Server("books")
    async with server.started():
        url = await server.listen(port=0)
        EraVerdictFile(path).learn(url, OLD)
        client = Client(url)
        client._line.verdicts = EraVerdictFile(path)
        async with client:
            assert client.protocol_version == OLD
        other = Client(url)
        other._line.verdicts = EraVerdictFile(path.with_name("other.json"))
        async with other:
            assert other.protocol_version == NEW
    assert EraVerdictFile(path.with_name("other.json")).of(url) == NEW
