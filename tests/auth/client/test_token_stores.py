"""Token stores: other users cannot read them, no entry is lost, and one holder at a time changes an entry."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import logging
import os
import sys
import types
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.fernet import Fernet, InvalidToken

from greenroom import ConfigError
from greenroom.auth import FileStore, KeyringStore, MemoryStore, SignInError, best_store
from greenroom.auth.client import token_stores
from greenroom.auth.client.token_stores import LoginRecord, file_lock, load_or_create_key, seal_from_key
from greenroom.cli.target_client import _stored_login  # pyright: ignore[reportPrivateUsage]
from greenroom.supervision.private_files import write_private

if TYPE_CHECKING:
    from pathlib import Path

    from greenroom.auth import TokenStore

KEY = b"0" * 43 + b"="


class Fake:
    """A keyring in memory."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.locked = False

    def get_password(self, service: str, name: str) -> str | None:
        if self.locked:
            raise RuntimeError("locked")
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, value: str) -> None:
        self.kept[service, name] = value

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    ring = Fake()
    module: Any = types.ModuleType("keyring")
    backends, fail = types.ModuleType("keyring.backends"), types.ModuleType("keyring.backends.fail")
    fail.Keyring = type("Keyring", (), {})  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    module.get_keyring = lambda: ring
    for name, each in (("keyring", module), ("keyring.backends", backends), ("keyring.backends.fail", fail)):
        monkeypatch.setitem(sys.modules, name, each)
    return ring


@pytest.fixture(params=["memory", "file", "keyring"])
def store(request: pytest.FixtureRequest, tmp_path: Path, fake: Fake) -> TokenStore:
    if request.param == "memory":
        return MemoryStore()
    return FileStore(tmp_path / "a" / "b") if request.param == "file" else KeyringStore(folder=tmp_path / "locks")


def files_with(words: bytes, folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file() and words in each.read_bytes()]


@pytest.mark.row("CB-07")
async def test_an_entry_is_stored_until_it_is_deleted(store: TokenStore) -> None:
    assert await store.get("a") is None
    await store.put("a", {"token": "hüsh", "scopes": ["x"]})
    await store.put("b", {"n": 1})
    assert await store.get("a") == {"token": "hüsh", "scopes": ["x"]}
    await store.put("a", None)
    await store.put("a", None)
    assert (await store.get("a"), await store.get("b")) == (None, {"n": 1})


async def test_a_lock_has_one_holder_at_a_time(store: TokenStore) -> None:
    order: list[int] = []

    async def hold(number: int) -> None:
        async with store.lock("a"):
            order.append(number)
            await asyncio.sleep(0.2)
            order.append(number)

    async with store.lock("other"):
        await asyncio.gather(*(hold(each) for each in range(3)))
    assert sorted(order) == [0, 0, 1, 1, 2, 2]
    assert order[::2] == order[1::2]


@pytest.mark.row("CB-07")
async def test_a_file_is_its_owners_and_says_nothing(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "here")
    await store.put("a", {"token": "hush"})
    assert {each.name: oct(each.stat().st_mode & 0o777) for each in store.folder.iterdir()} == {
        "credentials": "0o600",
        "credentials.key": "0o600",
        "credentials.lock": "0o600",
    }
    assert oct(store.folder.stat().st_mode & 0o777) == "0o700"
    assert b"hush" not in store.path.read_bytes()
    assert await FileStore(tmp_path / "here").get("a") == {"token": "hush"}
    assert "hush" not in repr(store)


@pytest.mark.row("CB-07")
async def test_a_file_that_others_can_read_is_not_believed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.put("a", {"token": "hush"})
    store.path.chmod(0o644)
    with pytest.raises(SignInError, match="can be read by other users") as caught:
        await store.get("a")
    assert caught.value.step == "store"


async def test_a_file_that_was_changed_is_put_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = FileStore(tmp_path)
    await store.put("a", {"token": "hush"})
    data = bytearray(store.path.read_bytes())
    data[20] ^= 1
    store.path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert await store.get("a") is None
    assert "renamed to .unreadable" in caplog.text
    assert (tmp_path / "credentials.unreadable").exists()
    await store.put("a", {"token": "new"})
    assert await store.get("a") == {"token": "new"}


async def test_a_key_of_the_programs_own_leaves_none_beside_the_file(tmp_path: Path) -> None:
    await FileStore(tmp_path, key=KEY).put("a", {"n": 1})
    assert not (tmp_path / "credentials.key").exists()
    assert await FileStore(tmp_path, key=KEY).get("a") == {"n": 1}
    with pytest.raises(ConfigError):
        FileStore(tmp_path, key=b"short")
    for sealed in (b"x", seal_from_key(Fernet.generate_key()).encrypt(b"{}")):
        with pytest.raises(InvalidToken):
            seal_from_key(KEY).decrypt(sealed)


async def test_nothing_is_followed_out_of_the_folder(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "credentials").symlink_to(other)
    with pytest.raises(SignInError, match="cannot be read"):
        await FileStore(tmp_path / "here").get("a")


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SignInError, match="name another folder"):
        await FileStore(tmp_path / "file" / "under").put("a", {})


@pytest.mark.parametrize(
    ("number", "says"),
    [(errno.EMFILE, "raise ulimit -n"), (errno.ENFILE, "raise ulimit -n"), (errno.ENOSPC, "make room")],
)
async def test_a_file_that_cannot_be_made_says_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    store = FileStore(tmp_path, key=b"0" * 43 + b"=")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(SignInError, match=f"cannot be locked: .*; {says}"):
            async with file_lock(tmp_path / "l", 1.0):
                pass
    monkeypatch.setattr(token_stores, "write_private", full)
    with pytest.raises(SignInError, match=f"cannot be written: .*; {says}"):
        await store.put("a", {})


async def test_a_lock_that_is_held_too_long_is_told_and_given_back(tmp_path: Path) -> None:
    async with file_lock(tmp_path / "l", 1.0):
        with pytest.raises(SignInError, match="another program has been signing in") as caught:
            async with file_lock(tmp_path / "l", 1.0):
                pass
    assert caught.value.temporary
    async with file_lock(tmp_path / "l", 1.0):
        pass


async def test_a_lock_that_is_waited_for_is_tried_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, tries = 10.0, 0
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        nonlocal tries
        tries += 1
        assert tries < 200, "it is polled without a pause"
        real(descriptor, operation)

    async with file_lock(tmp_path / "l", 1.0):
        monkeypatch.setattr(fcntl, "flock", flock)
        with pytest.raises(SignInError, match="another program has been signing in"):
            async with file_lock(tmp_path / "l", seconds):
                pass
    assert seconds / 0.1 <= tries <= seconds / 0.1 + 5


def test_a_key_file_that_another_program_makes_at_the_same_moment_is_the_one(tmp_path: Path) -> None:
    theirs, ours = b"1" * 43 + b"=", b"2" * 43 + b"="

    def make() -> bytes:
        write_private(tmp_path / "key", theirs)
        return ours

    assert load_or_create_key(tmp_path / "key", make) == theirs
    assert load_or_create_key(tmp_path / "key", lambda: ours) == theirs


async def test_a_keyring_that_refuses_says_what_to_do(fake: Fake, tmp_path: Path) -> None:
    store = KeyringStore(folder=tmp_path)
    fake.locked = True
    with pytest.raises(SignInError, match="unlock it"):
        await store.get("a")
    fake.locked = False
    fake.kept["greenroom", "a"] = "no json"
    assert await store.get("a") is None


@pytest.mark.row("CB-07")
async def test_where_there_is_a_keyring_it_holds_the_tokens_and_no_file_does(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store = best_store()
    assert isinstance(store, KeyringStore)
    async with store.lock("a"):
        await store.put("a", {"token": "hush"})
    assert json.loads(fake.kept["greenroom", "a"]) == {"token": "hush"}
    assert files_with(b"hush", tmp_path) == []


@pytest.mark.row("CB-07")
def test_a_keyring_that_keeps_nothing_is_none(fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    keyring, fail = sys.modules["keyring"], sys.modules["keyring.backends.fail"]
    monkeypatch.setattr(keyring, "get_keyring", fail.Keyring)
    assert isinstance(best_store(), FileStore)


@pytest.mark.row("CB-07")
@pytest.mark.usefixtures("fake")
def test_the_command_line_looks_for_logins_in_the_keyring() -> None:
    found: Any = _stored_login("https://mcp.example/mcp")
    assert isinstance(found.store, KeyringStore)
    assert isinstance(best_store("another"), KeyringStore)
    assert repr(best_store("another")) == "KeyringStore('another')"


def test_without_a_keyring_it_is_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "keyring", None)
    store = best_store()
    assert isinstance(store, FileStore)
    if sys.platform == "linux":
        assert store.folder == tmp_path / "greenroom"
    with pytest.raises(ConfigError, match="greenroom\\[keyring\\]"):
        KeyringStore()


@pytest.mark.parametrize(
    "kept", [{}, {"issuer": 1}, {"issuer": "a", "resource": "b", "token_endpoint": "c", "client_id": "d"}]
)
def test_an_incomplete_stored_login_is_ignored(kept: dict[str, Any]) -> None:
    assert LoginRecord.read(kept) is None
    record = LoginRecord("i", "r", "t", "c", "a", "f", 1.0, 2.0, ("x",))
    assert LoginRecord.read(record.as_dict()) == record
    assert os.name == "posix"


# --- a store that cannot be written, is full, or stands open to others


class Disk:
    """A disk that refuses writes of every user, root included: opening for writing, creating and moving fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self.number = number
        self.on = False
        for name in ("open", "mkdir", "replace", "rename", "link", "unlink"):
            monkeypatch.setattr(os, name, self._guarded(name, getattr(os, name)))

    def _guarded(self, name: str, real: Any) -> Any:
        def guarded(path: Any, *more: Any, **named: Any) -> Any:
            flags = more[0] if name == "open" else os.O_CREAT
            if self.on and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                if name == "mkdir" and os.path.isdir(path):  # noqa: PTH112 - what is patched here is below `Path`
                    raise FileExistsError
                raise OSError(self.number, os.strerror(self.number), str(path))
            return real(path, *more, **named)

        return guarded


@pytest.fixture(params=[errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT], ids=os.strerror)
def disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch, request.param)


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def opened_to_others(folder: Path, mode: int) -> None:
    folder.chmod(mode)


async def test_a_store_that_cannot_be_written_is_read_and_says_why_it_takes_nothing(tmp_path: Path, disk: Disk) -> None:
    await FileStore(tmp_path).put("a", {"token": "hush"})
    before = contents(tmp_path)
    disk.on = True
    store = FileStore(tmp_path)
    for name in ("a", "b"):
        async with store.lock(name):
            assert await store.get("a") == {"token": "hush"}
            with pytest.raises(SignInError, match=os.strerror(disk.number)) as caught:
                await store.put("a", {"token": "new"})
            assert (caught.value.step, "name another folder" in caught.value.message) == ("store", True)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("again", [False, True], ids=["a new name", "a name that was held before"])
async def test_a_store_that_cannot_be_written_is_still_held_by_one_at_a_time(
    tmp_path: Path, disk: Disk, *, again: bool
) -> None:
    await FileStore(tmp_path).put("a", {"n": 1})
    if again:
        async with FileStore(tmp_path).lock("a"):
            pass
    disk.on = True
    order: list[str] = []
    entered, leave = asyncio.Event(), asyncio.Event()

    async def first() -> None:
        async with FileStore(tmp_path).lock("a"):
            entered.set()
            await leave.wait()
            order.append("first")

    async def second() -> None:
        await entered.wait()
        asyncio.get_running_loop().call_later(0.05, leave.set)
        async with FileStore(tmp_path).lock("a"):
            order.append("second")

    async with asyncio.timeout(10):
        await asyncio.gather(first(), second())
    assert order == ["first", "second"]


async def test_a_lock_for_which_no_descriptor_is_left_is_refused_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program may have the token, and a refresh token that is used twice is revoked."""
    Disk(monkeypatch, errno.EMFILE).on = True
    with pytest.raises(SignInError, match="Too many open files") as caught:
        async with FileStore(tmp_path).lock("a"):
            raise AssertionError
    assert caught.value.temporary
    with pytest.raises(SignInError, match="Too many open files") as caught:
        await FileStore(tmp_path).put("a", {"n": 1})
    assert caught.value.temporary


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
@pytest.mark.parametrize("kind", [FileStore, KeyringStore])
async def test_a_folder_that_others_may_write_to_holds_no_logins(
    tmp_path: Path, fake: Fake, kind: Any, mode: int
) -> None:
    assert not fake.kept
    store = kind(folder=tmp_path)
    opened_to_others(tmp_path, mode)
    refused = pytest.raises(SignInError, match=r"others may write to the folder .*: chmod go-w")
    with refused:
        async with store.lock("a"):
            raise AssertionError
    if kind is FileStore:
        with refused:
            await store.get("a")
        with refused:
            await store.put("a", {"n": 1})
    assert not contents(tmp_path)
    opened_to_others(tmp_path, 0o700)


async def test_a_key_that_cannot_be_read_is_told_with_its_path(tmp_path: Path) -> None:
    await FileStore(tmp_path).put("a", {"n": 1})
    key = tmp_path / "credentials.key"
    key.chmod(0o644)
    with pytest.raises(SignInError, match="can be read by other users"):
        await FileStore(tmp_path).get("a")
    key.unlink()
    os.mkfifo(key, 0o600)
    with pytest.raises(SignInError, match="is not a regular file: remove it"):
        await FileStore(tmp_path).get("a")
