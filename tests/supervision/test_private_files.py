"""Private files: each writer makes a new file that only its owner can open, and on failure leaves the old file and nothing else."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import ConfigError
from greenroom.actors.consent.consent import DecisionMemory
from greenroom.actors.output.output_limits import Spill
from greenroom.auth import FileStore, SignInError
from greenroom.auth.client.token_stores import load_or_create_key
from greenroom.cli import program_entries as program_file
from greenroom.supervision.cluster.key_files import write_key
from greenroom.supervision.private_files import check_folder, write_private

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

KEY = b"0" * 43 + b"="


def _plain(folder: Path) -> None:
    write_private(folder / "file", b"new")


def _logins(folder: Path) -> None:
    asyncio.run(FileStore(folder, key=KEY).put("a", {"n": 1}))


def _seal(folder: Path) -> None:
    load_or_create_key(folder / "credentials.key")


def _decisions(folder: Path) -> None:
    DecisionMemory(time.time, folder / "decisions").keep("server:t", "hash", allow=True, seconds=None)


def _cluster_key(folder: Path) -> None:
    write_key(folder / "key")


def _answers(folder: Path) -> None:
    Spill(folder).keep("answer", ".txt", b"whole")


def _settings(folder: Path) -> None:
    program_file.write_entries(folder / "settings.json", program_file.json_text({"a": 1}), {})


WRITERS: dict[str, Callable[[Path], None]] = {
    "a file": _plain,
    "logins": _logins,
    "the key of logins": _seal,
    "decisions": _decisions,
    "a cluster's key": _cluster_key,
    "answers": _answers,
    "settings": _settings,
}
FAILURES = (SignInError, ConfigError, OSError)


@pytest.fixture(name="writer", params=WRITERS)
def _writer(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    return WRITERS[request.param]


@pytest.fixture(name="opened")
def _opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """Record the files opened for writing, with flags and mode."""
    found: list[tuple[str, int, int]] = []
    real = os.open

    def spy(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            found.append((str(path), flags, mode))
        return real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", spy)
    return found


def files(folder: Path) -> dict[str, bytes]:
    """All files below a folder, except for empty lock files."""
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in folder.rglob("*")
        if each.is_file() and each.suffix != ".lock"
    }


def modes(folder: Path) -> set[int]:
    """The modes of all files below a folder."""
    return {stat.S_IMODE(each.stat().st_mode) for each in folder.rglob("*") if each.is_file()}


def test_a_private_file_is_made_anew_under_a_name_of_its_own(
    tmp_path: Path, writer: Callable[[Path], None], opened: list[tuple[str, int, int]]
) -> None:
    writer(tmp_path)
    made = [each for each in opened if not each[0].endswith(".lock")]
    assert made
    for path, flags, mode in made:
        assert flags & os.O_EXCL, path
        assert flags & os.O_CREAT, path
        assert flags & os.O_NOFOLLOW, path
        assert mode == 0o600, path
        assert not Path(path).exists(), "it was moved to its place, or removed"


@pytest.mark.parametrize("mask", [0, 0o022, 0o277])
def test_whatever_the_umask_its_owner_alone_can_read_it(
    tmp_path: Path, writer: Callable[[Path], None], mask: int
) -> None:
    before = os.umask(mask)
    try:
        writer(tmp_path)
    finally:
        os.umask(before)
    found = {path: stat.S_IMODE((tmp_path / path).stat().st_mode) for path in files(tmp_path)}
    assert set(found.values()) == {0o600}, found


def test_a_file_that_is_left_over_is_neither_written_to_nor_followed(
    tmp_path: Path, writer: Callable[[Path], None]
) -> None:
    """Under each name that a writer could have used, were the name made of its target's and of the process's number."""
    writer(tmp_path)
    fresh, elsewhere = tmp_path / "again", tmp_path / "elsewhere"
    fresh.mkdir(mode=0o700)
    elsewhere.write_bytes(b"theirs")
    left: list[Path] = []
    for name in [Path(each).name for each in files(tmp_path) if each != "elsewhere"]:
        for number, planted in enumerate((f"{name}.{os.getpid()}", f"{name}.tmp", f".{name}.tmp", f"{name}.new")):
            where = fresh / planted
            if number % 2:
                where.symlink_to(elsewhere)
            else:
                where.write_bytes(b"theirs")
                where.chmod(0o666)
            left.append(where)
    writer(fresh)
    assert all(each.read_bytes() == b"theirs" for each in [*left, elsewhere])
    for path in set(files(fresh)) - {each.name for each in left}:
        assert stat.S_IMODE((fresh / path).stat().st_mode) == 0o600


def _nothing(*_: object) -> None:
    return


class Disk:
    """A disk that fails at one step with one error, for every user including root."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    def fails(self, step: str, number: int) -> None:
        """From now on."""

        def fail(*_: Any, **__: Any) -> Any:
            raise OSError(number, os.strerror(number))

        if step == "open":
            real = os.open

            def guarded(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
                return (
                    fail()
                    if flags & os.O_CREAT and not str(path).endswith(".lock")
                    else real(path, flags, mode, **more)
                )

            self._patch.setattr(os, "open", guarded)
        elif step == "write":
            opens = os.fdopen

            def unwritable(descriptor: int, mode: str = "r", *more: Any, **named: Any) -> Any:
                if "w" not in mode:
                    return opens(descriptor, mode, *more, **named)
                os.close(descriptor)
                return open("/dev/full", "wb")  # noqa: PTH123 - the caller closes it

            self._patch.setattr(os, "fdopen", unwritable)
            self._patch.setattr(os, "fchmod", _nothing)
            self._patch.setattr(os, "fsync", _nothing)
        elif step == "sync":
            self._patch.setattr(os, "fsync", fail)
        else:
            for name in ("replace", "rename", "link"):
                self._patch.setattr(os, name, fail)


@pytest.fixture(name="disk")
def _disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO], ids=os.strerror)
@pytest.mark.parametrize("step", ["open", "write", "sync", "move"])
@pytest.mark.parametrize("again", [False, True], ids=["new", "there already"])
def test_a_disk_that_fails_leaves_what_was_there_and_nothing_beside_it(
    tmp_path: Path, writer: Callable[[Path], None], disk: Disk, step: str, number: int, *, again: bool
) -> None:
    if writer is _answers and step == "sync":
        step = "move"  # answers need not outlive the program, and are not synced
    if again and writer is not _seal:
        writer(tmp_path)
    before = files(tmp_path)
    disk.fails(step, number)
    if again and writer in (_cluster_key, _settings):
        number, step = 0, ""  # the one makes no second key; the other sees that the file is not as it was
    with pytest.raises((*FAILURES, program_file.ChangedMeanwhile)) as caught:
        writer(tmp_path)
    assert files(tmp_path) == before
    if step not in ("", "write"):
        assert os.strerror(number) in str(caught.value)


def test_there_is_one_key_however_many_make_one(tmp_path: Path) -> None:
    key = load_or_create_key(tmp_path / "key", lambda: b"ours")
    assert key == b"ours"
    assert load_or_create_key(tmp_path / "key", lambda: b"theirs") == b"ours"

    def late() -> bytes:
        (tmp_path / "other").write_bytes(b"theirs")
        (tmp_path / "other").chmod(0o600)
        return b"ours"

    assert load_or_create_key(tmp_path / "other", late) == b"theirs"
    assert sorted(files(tmp_path)) == ["key", "other"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS], ids=os.strerror)
def test_a_new_file_is_made_once_also_where_there_are_no_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    write_private(tmp_path / "key", b"first", replace=False)
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "key", b"second", replace=False)
    assert files(tmp_path) == {"key": b"first"}
    assert modes(tmp_path) == {0o600}

    def replace(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="Input/output error"):
        write_private(tmp_path / "other", b"third", replace=False)
    assert files(tmp_path) == {"key": b"first"}


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("sync", [True, False])
def test_the_folder_is_synced_once_the_file_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, replace: bool, sync: bool
) -> None:
    there: list[list[str]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            there.append(sorted(files(tmp_path)))
            assert os.path.samestat(os.fstat(descriptor), tmp_path.stat())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_private(tmp_path / "file", b"whole", replace=replace, sync=sync)
    assert there == ([["file"]] if sync else [])


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_folder_that_cannot_be_synced_fails_only_where_its_disk_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    if number == errno.EIO:
        with pytest.raises(OSError, match="Input/output error"):
            write_private(tmp_path / "file", b"whole")
    else:
        write_private(tmp_path / "file", b"whole")


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(ConfigError, match=r"others may write to the folder .*: chmod go-w, or name another folder"):
        check_folder(tmp_path)
    tmp_path.chmod(0o755)
    check_folder(tmp_path)


def test_a_folder_of_another_user_is_refused_and_a_file_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner:
        with pytest.raises(ConfigError, match=f"belongs to user {owner}, and not to {owner + 1}"):
            check_folder(tmp_path)
    else:
        check_folder(tmp_path)  # root could read it all anyway
        os.chown(tmp_path, 4711, -1)
        with pytest.raises(ConfigError, match="belongs to user 4711, and not to 1"):
            check_folder(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="is no folder"):
        check_folder(tmp_path / "file")


@pytest.fixture(autouse=True)
def _writable_again(tmp_path: Path) -> Generator[None]:
    yield
    os.chown(tmp_path, os.geteuid(), -1)
    tmp_path.chmod(0o700)
