"""A random machine does what OTP's documentation says: the same events in the same order at the same time."""

from __future__ import annotations

from hypothesis import given, note, settings
from hypothesis import strategies as st

from .model import Model
from .player import play
from .tables import Source, script, table


@settings(max_examples=2_000)
@given(machine=st.binary(min_size=200, max_size=600), events=st.binary(min_size=8, max_size=60))
def test_a_machine_does_what_the_rules_say(machine: bytes, events: bytes) -> None:
    plan, happens = table(Source(machine)), script(Source(events))
    note(f"{plan}\n{happens}")
    assert play(plan, happens) == Model(plan).play(happens)
