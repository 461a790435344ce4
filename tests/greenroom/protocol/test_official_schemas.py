"""The method table, compared with the schemas of the five revisions.

`official.json` holds for each method of a schema which side sends it, and which members its params require and allow.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from greenroom.protocol.methods import METHODS, MessageDirection, MethodKind, methods_of
from greenroom.protocol.versions import STATELESS, SUPPORTED

OFFICIAL: dict[str, dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "official.json").read_text("utf-8")
)

LENIENT = {
    (
        "notifications/cancelled",
        "requestId",
    ): "required before tasks could be cancelled; without it nothing is cancelled",
    ("elicitation/create", "requestedSchema"): "required before URL elicitation",
}
"""Members that some revisions require and others do not: the table has one shape for all, the lenient one."""

OURS = {"notifications/replay_truncated"}

REVISIONS = (STATELESS, *SUPPORTED)
BOTH_WAYS_BEFORE = {(STATELESS, "notifications/progress")}
"""Notifications that only servers send now. The table has one direction for all revisions, and a notification is never refused."""


@pytest.mark.row("WC-21")
@pytest.mark.row("WC-22")
@pytest.mark.row("WC-23")
@pytest.mark.row("26-M20")
@pytest.mark.parametrize("version", REVISIONS)
def test_each_revision_has_the_methods_that_its_schema_lists(version: str) -> None:
    assert {method.name for method in methods_of(version)} - OURS == set(OFFICIAL[version])
    for name, official in OFFICIAL[version].items():
        method = METHODS[name]
        verb = "asks" if method.kind is MethodKind.REQUEST else "tells"
        who = {
            MessageDirection.TO_SERVER: ["client"],
            MessageDirection.TO_CLIENT: ["server"],
            MessageDirection.BOTH: ["client", "server"],
        }
        sides = ["server"] if (version, name) in BOTH_WAYS_BEFORE else who[method.direction]
        assert official["who"] == [f"{side} {verb}" for side in sides]


@pytest.mark.row("WC-18")
@pytest.mark.parametrize("version", REVISIONS)
def test_params_need_what_the_schema_needs(version: str) -> None:
    for name, official in OFFICIAL[version].items():
        needed = {member.encode_name for member in msgspec.structs.fields(METHODS[name].params) if member.required}
        assert needed | {member for method, member in LENIENT if method == name} >= set(official["needs"])
        assert needed <= set(official["needs"])


def test_params_have_no_member_that_the_newest_schema_does_not_have() -> None:
    newest = (SUPPORTED[0], STATELESS)
    for name in {name for version in newest for name in OFFICIAL[version]}:
        known = {member.encode_name for member in msgspec.structs.fields(METHODS[name].params)} - {"_meta"}
        officials = [OFFICIAL[version][name] for version in newest if name in OFFICIAL[version]]
        assert known <= {member for official in officials for member in (*official["needs"], *official["may"])}


def test_nothing_is_lenient_without_need() -> None:
    for name, member in LENIENT:
        assert any(member in OFFICIAL[version][name]["needs"] for version in SUPPORTED if name in OFFICIAL[version])
        assert any(member not in OFFICIAL[version][name]["needs"] for version in SUPPORTED if name in OFFICIAL[version])
