"""A random machine does what OTP's documentation says: the same events in the same order at the same time."""

from __future__ import annotations

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from .machine_player import play
from .random_machines import Source, script, table
from .transition_model import Model

machines = st.binary(min_size=200, max_size=600)
happenings = st.binary(min_size=8, max_size=60)


def check(machine: bytes, happening: bytes) -> None:
    plan, happens = table(Source(machine)), script(Source(happening))
    note(f"{plan}\n{happens}")
    assert play(plan, happens) == Model(plan).play(happens)


@settings(max_examples=examples(2_000))
@given(machine=machines, happening=happenings)
def test_a_machine_does_what_the_rules_say(machine: bytes, happening: bytes) -> None:
    check(machine, happening)


@pytest.mark.soak
@settings(max_examples=50_000)
@given(machine=machines, happening=happenings)
def test_a_machine_does_what_the_rules_say_for_long(machine: bytes, happening: bytes) -> None:
    check(machine, happening)
