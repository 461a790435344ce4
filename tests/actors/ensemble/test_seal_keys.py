"""The keys of sealed values: from the settings, the environment, or the secret that the nodes of one company share."""

from __future__ import annotations

import pytest

from greenroom import Server, Settings
from greenroom.actors.company import Company
from greenroom.actors.ensemble.session_router import EnsembleMember, NodeSlot
from greenroom.actors.settings import SEAL_KEYS_VARIABLE
from greenroom.errors import ConfigError
from greenroom.protocol.sealing import BadSeal, KeyRing

OLD, NEW = KeyRing.new_key(), KeyRing.new_key()


def test_without_keys_each_company_has_its_own() -> None:
    assert not opens(Company(), Company())


def test_companies_with_one_key_open_what_the_other_has_sealed() -> None:
    old, new = Company(Settings(seal_keys=[OLD])), Company(Settings(seal_keys=[NEW, OLD]))

    assert opens(old, new)
    assert not opens(new, old)


def test_keys_are_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEAL_KEYS_VARIABLE, f"{NEW}, {OLD}")

    assert opens(Company(Settings(seal_keys=[OLD])), Company())
    assert opens(Company(), Company(Settings(seal_keys=[NEW])))
    monkeypatch.setenv(SEAL_KEYS_VARIABLE, " ")
    assert not opens(Company(), Company())


def test_a_wrong_key_is_refused_where_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"seal_keys\[0\] is not base64"):
        Settings(seal_keys=["hunter2!"])
    with pytest.raises(ConfigError, match=r"seal_keys must be a list"):
        Settings(seal_keys=OLD)
    monkeypatch.setenv(SEAL_KEYS_VARIABLE, f"{OLD},hunter2!")
    with pytest.raises(ConfigError, match=r"GREENROOM_SEAL_KEYS\[1\] is not base64") as caught:
        Server("sealed")
    assert "hunter2" not in str(caught.value)
    assert OLD not in str(caught.value)


def test_settings_show_no_key() -> None:
    assert OLD not in repr(Settings(seal_keys=[OLD]))


def test_settings_that_are_changed_before_the_start_change_the_keys() -> None:
    server = Server("sealed")
    server.set_up(seal_keys=[NEW])

    assert opens(Company(Settings(seal_keys=[NEW])), server.company)


def test_the_nodes_of_a_company_share_the_keys_of_their_secret() -> None:
    one, two = joined(Company(), 0, b"secret" * 8), joined(Company(), 1, b"secret" * 8)

    assert opens(one, two)
    assert opens(two, one)
    assert not opens(one, joined(Company(), 1, b"another" * 8))


def test_keys_of_the_settings_are_used_on_all_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    named = Company(Settings(seal_keys=[OLD]))

    assert opens(named, joined(Company(Settings(seal_keys=[OLD])), 0, b"secret" * 8))
    monkeypatch.setenv(SEAL_KEYS_VARIABLE, OLD)
    assert opens(named, joined(Company(), 0, b"secret" * 8))


def joined(company: Company, number: int, secret: bytes) -> Company:
    EnsembleMember(company, NodeSlot(number, ("a", "b"), secret), lambda: None)
    return company


def opens(sealer: Company, opener: Company) -> bool:
    text = sealer.sealing.seal("test", b"payload")
    try:
        return opener.sealing.open("test", text) == b"payload"
    except BadSeal:
        return False
