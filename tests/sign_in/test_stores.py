"""Where logins are kept: nobody else reads them, nobody loses them, one at a time changes them."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import ConfigError, FileStore, KeyringStore, MemoryStore, SignInError, best_store
from greenroom.auth.client.locks import file_lock
from greenroom.auth.client.record import Record
from greenroom.auth.client.sealing import Seal, Unsealed

if TYPE_CHECKING:
    from pathlib import Path

    from greenroom import TokenStore

pytestmark = pytest.mark.row("CB-07")
KEY = b"0" * 43 + b"="


class Fake:
    """A keyring."""

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


async def test_what_is_put_is_there_until_it_is_forgotten(store: TokenStore) -> None:
    assert await store.get("a") is None
    await store.put("a", {"token": "hüsh", "scopes": ["x"]})
    await store.put("b", {"n": 1})
    assert await store.get("a") == {"token": "hüsh", "scopes": ["x"]}
    await store.put("a", None)
    await store.put("a", None)
    assert (await store.get("a"), await store.get("b")) == (None, {"n": 1})


async def test_one_at_a_time_holds_a_name(store: TokenStore) -> None:
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


async def test_a_file_that_others_can_read_is_not_believed(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.put("a", {"token": "hush"})
    store.path.chmod(0o644)
    with pytest.raises(SignInError, match="can be read by others") as caught:
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
    assert "put aside" in caplog.text
    assert (tmp_path / "credentials.unreadable").exists()
    await store.put("a", {"token": "new"})
    assert await store.get("a") == {"token": "new"}


async def test_a_key_of_the_programs_own_leaves_none_beside_the_file(tmp_path: Path) -> None:
    await FileStore(tmp_path, key=KEY).put("a", {"n": 1})
    assert not (tmp_path / "credentials.key").exists()
    assert await FileStore(tmp_path, key=KEY).get("a") == {"n": 1}
    with pytest.raises(ConfigError):
        FileStore(tmp_path, key=b"short")
    with pytest.raises(Unsealed):
        Seal(KEY).open(b"x")


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


async def test_a_lock_that_is_held_too_long_is_told_and_given_back(tmp_path: Path) -> None:
    async with file_lock(tmp_path / "l", 1.0):
        with pytest.raises(SignInError, match="another program has been signing in") as caught:
            async with file_lock(tmp_path / "l", 1.0):
                pass
    assert caught.value.temporary
    async with file_lock(tmp_path / "l", 1.0):
        pass


async def test_a_keyring_that_refuses_says_what_to_do(fake: Fake, tmp_path: Path) -> None:
    store = KeyringStore(folder=tmp_path)
    fake.locked = True
    with pytest.raises(SignInError, match="unlock it"):
        await store.get("a")
    fake.locked = False
    fake.kept["greenroom", "a"] = "no json"
    assert await store.get("a") is None


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
def test_what_is_kept_and_not_whole_is_nothing(kept: dict[str, Any]) -> None:
    assert Record.read(kept) is None
    record = Record("i", "r", "t", "c", "a", "f", 1.0, 2.0, ("x",))
    assert Record.read(record.as_dict()) == record
    assert os.name == "posix"
