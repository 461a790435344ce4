"""Machines, keys and placement as values; nothing here opens a socket."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from greenroom import ConfigError
from greenroom.supervision.cluster.cluster_settings import ClusterSettings
from greenroom.supervision.cluster.key_files import read_key, write_key
from greenroom.supervision.cluster.machines import (
    Candidate,
    Machine,
    NothingFits,
    check_capabilities,
    choose_machine,
    meets_requirements,
    parse_capability,
    version_mismatch,
)
from greenroom.supervision.cluster.member import main

if TYPE_CHECKING:
    from pathlib import Path

    from greenroom.supervision.cluster.machines import Capability

KEY = b"sixteen bytes, or more"


def machine(name: str, room: int | None = None, **capabilities: Capability) -> Machine:
    return Machine(
        name=name, id=f"id of {name}", capabilities=capabilities, room=room, greenroom="1.0", python="3.11.7"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("gpu=true", True),
        ("gpu=False", False),
        ("gpu", True),
        ("cores=8", 8),
        ("memory=1.5", 1.5),
        ("zone=b", "b"),
        ("zone=", ""),
        ("rack = a=b", "a=b"),
    ],
)
def test_a_capability_is_written_as_name_and_value(text: str, value: Capability) -> None:
    found = parse_capability(text)[1]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text", ["", "=1", "GPU=true", "Admin Port=1", "machine=b", "greenroom.machine=x", "a" * 65, f"a={'x' * 257}"]
)
def test_a_capability_that_is_none_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ConfigError, match="capability"):
        parse_capability(text)


def test_too_many_capabilities_are_refused() -> None:
    with pytest.raises(ConfigError, match="up to 64"):
        check_capabilities({f"c{number}": 1 for number in range(65)})


def test_an_announcement_comes_back_as_it_was() -> None:
    told = Machine(
        name="b",
        id="1",
        addresses=("tcp:10.0.0.2:1",),
        capabilities={"gpu": True, "cores": 8},
        room=3,
        greenroom="1",
        python="3",
    )
    text = told.announcement()["greenroom.announced"]
    assert isinstance(text, str)
    assert Machine.announced("1", text) == told
    assert told.host == "10.0.0.2"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "b"}', "null"])
def test_a_foreign_announcement_is_no_machine(text: str) -> None:
    assert Machine.announced("1", text) is None


def test_all_that_is_required_has_to_be_there() -> None:
    offers = machine("b", gpu=True, cores=1).offers
    assert meets_requirements(offers, {"gpu": True, "cores": 1})
    assert meets_requirements(offers, {"machine": "b"})
    assert not meets_requirements(offers, {"gpu": 1})
    assert not meets_requirements(offers, {"cores": True})
    assert not meets_requirements(offers, {"gpu": True, "tpu": True})
    assert not meets_requirements(offers, {"machine": "a"})


def test_a_node_goes_where_the_fewest_are_of_those_that_fit() -> None:
    one, two, plain = machine("one", gpu=True), machine("two", gpu=True), machine("plain")
    there = [Candidate(two, 1), Candidate(one, 1), Candidate(plain, 0)]
    assert choose_machine({"gpu": True}, there) is one
    assert choose_machine({"gpu": True}, [Candidate(one, 2), *there[:1]]) is two
    assert choose_machine({}, there) is plain


def test_an_unmet_requirement_is_an_error_that_lists_the_machines() -> None:
    with pytest.raises(
        NothingFits,
        match=r"requires gpu=true, and no machine .* has that; there are: a \(no capabilities\); b \(zone=x",
    ):
        choose_machine({"gpu": True}, [Candidate(machine("a"), 0), Candidate(machine("b", zone="x"), 0)])


def test_a_full_machine_is_reported_as_full() -> None:
    with pytest.raises(NothingFits, match=r"every machine that fits is full; there are: b \(gpu=true, 2 of 2 nodes\)"):
        choose_machine({"gpu": True}, [Candidate(machine("b", room=2, gpu=True), 2)])


def test_two_versions_are_both_named() -> None:
    old = Machine(name="b", id="2", greenroom="0.9", python="3.11.7")
    assert version_mismatch(machine("a"), machine("b")) is None
    wrong = version_mismatch(machine("a"), old)
    assert wrong == "machine b runs greenroom 0.9, and machine a runs greenroom 1.0: install the same version on both"


# --- keys


def test_a_key_that_was_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(read_key(path)) == 64
    with pytest.raises(ConfigError, match="File exists"):
        write_key(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    write_key(path)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"mode is {mode:o}.*chmod 600"):
        read_key(path)


def test_invalid_keys_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"No such file.*--new-key"):
        read_key(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="is no file"):
        read_key(tmp_path)
    for content in (b"", b"short\n", b"x" * 5000):
        path = tmp_path / "wrong"
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(ConfigError, match="must have 16 to 4096"):
            read_key(path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigError, match="is no file"):
        read_key(tmp_path / "pipe")


# --- settings


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"convention": "10.0.0.1:7400"}, "share a key"),
        ({"convention": "10.0.0.1", "key": KEY}, "the leader's address"),
        ({"convention": "0.0.0.0:7400", "key": KEY}, "the leader's address"),
        ({"convention": "leader:7400", "key": KEY}, "the leader's address"),
        ({"convention": "10.0.0.1:0", "key": KEY}, "the leader's address"),
        ({"convention": "10.0.0.1:7400", "key": b"short"}, "at least 16"),
        ({"convention": "10.0.0.1:7400", "key": KEY, "key_file": "key"}, "one of them"),
        ({"convention": "10.0.0.1:7400", "key": KEY, "listen": "0.0.0.0"}, "all its networks"),
        ({"listen": "10.0.0.2"}, "convention"),
        ({"machine": ""}, "a machine's name"),
        ({"room": -1}, "how many nodes"),
        ({"capabilities": {"GPU": True}}, "a capability is called"),
    ],
)
def test_settings_that_cannot_work_are_refused_where_they_are_written(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ClusterSettings(**wrong)  # type: ignore[arg-type]  # what is wrong with them


def test_the_machine_that_listens_at_the_leaders_address_leads() -> None:
    leader = ClusterSettings(listen="10.0.0.1", convention="10.0.0.1:7400", key=KEY)
    other = ClusterSettings(listen="10.0.0.2", convention="10.0.0.1:7400", key=KEY)
    assert (leader.port_of_leader, leader.bind, leader.tcp) == (7400, "10.0.0.1", "10.0.0.1")
    assert other.port_of_leader == 0
    assert "sixteen" not in repr(leader)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "--convention is missing"),
        (["--convention", "10.0.0.1:7400", "--listen", "127.0.0.1"], "--key-file is missing"),
        (
            ["--convention", "10.0.0.1:7400", "--key-file", "/nowhere/key", "--listen", "127.0.0.1"],
            "cannot be read from /nowhere/key",
        ),
        (
            ["--convention", "10.0.0.1:7400", "--key-file", "k", "--listen", "127.0.0.1", "--capability", "GPU"],
            "a capability is called",
        ),
    ],
)
def test_the_member_program_says_what_is_wrong(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert why in capsys.readouterr().err
