"""Snapshots of what an upstream offers: first come keeps its name, and a difference is exactly what is different."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.federation.offering import EMPTY_OFFERING, PARTS, Difference, Offering

Lists = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2), max_size=6)


def tools(named: dict[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "description": str(number)} for name, number in named.items()]


@given(Lists, Lists)
def test_a_difference_is_what_is_different(before: dict[str, int], after: dict[str, int]) -> None:
    old = EMPTY_OFFERING.with_lists({"tools": tools(before)})
    new = old.with_lists({"tools": tools(after)})
    found = old.until(new)
    assert found.tools.added == after.keys() - before.keys()
    assert found.tools.removed == before.keys() - after.keys()
    assert found.tools.changed == {name for name in before if name in after and before[name] != after[name]}
    assert bool(found) is (before != after)
    assert (new is old) is (before == after)
    assert new.version == old.version + (before != after)


@given(st.lists(Lists, max_size=5))
def test_differences_add_up(steps: list[dict[str, int]]) -> None:
    offering: Offering = EMPTY_OFFERING
    names: set[str] = set()
    for step in steps:
        later = offering.with_lists({"tools": tools(step)})
        difference = offering.until(later).tools
        names = (names - difference.removed) | difference.added
        offering = later
    assert names == set(offering.tools)


def test_the_first_of_a_name_stays_and_the_nameless_are_counted() -> None:
    first, second = {"uri": "a:1", "name": "x"}, {"uri": "a:1", "name": "y"}
    made = EMPTY_OFFERING.with_lists({"resources": [first, second, {"name": "no uri"}, "nonsense", {"uri": ""}]})
    assert dict(made.resources) == {"a:1": first}
    assert made.left_out["resources"] == 4


def test_a_rename_is_one_gone_and_one_new() -> None:
    old = EMPTY_OFFERING.with_lists({"prompts": [{"name": "a"}]})
    new = old.with_lists({"prompts": [{"name": "b"}]})
    assert old.until(new).prompts == Difference(frozenset("b"), frozenset("a"))


def test_each_part_has_its_key() -> None:
    entry = {"name": "n", "uri": "u:", "uriTemplate": "u:{x}"}
    made = EMPTY_OFFERING.with_lists({part: [entry] for part in PARTS})
    assert [list(made.part(part)) for part in PARTS] == [["n"], ["u:"], ["u:{x}"], ["n"]]
    assert made.until(made) == EMPTY_OFFERING.until(EMPTY_OFFERING)
