"""Events as sentences."""

from __future__ import annotations

import pytest

from greenroom.event_types import LoopBlocked, LoopLagged, UpstreamChanged
from greenroom.observe.event_views import text_of_event


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0 s"),
        (0.0000455, "0.000046 s"),
        (0.000388, "0.000388 s"),
        (1.234, "1.23 s"),
        (99.96, "100 s"),
        (3600.4, "3600 s"),
    ],
)
def test_a_duration_has_no_exponent(seconds: float, said: str) -> None:
    assert text_of_event(LoopLagged(node="node", seconds=seconds)) == f"the event loop was late by {said}"


def test_the_first_state_of_an_upstream_has_none_before_it() -> None:
    begun = UpstreamChanged(program="host", upstream="git", before="", state="starting", reason="")
    assert text_of_event(begun) == "git: starting"
    degraded = UpstreamChanged(
        program="host", upstream="git", before="ready", state="degraded", reason="gone", next_attempt=2
    )
    assert text_of_event(degraded) == "git: ready → degraded: gone; next attempt in 2 s"


def test_a_block_that_is_told_while_it_goes_on_says_no_end() -> None:
    begun = LoopBlocked(node="node", label="tools/call 'grind'", kind="run_job", pid="<node.9>", seconds=1.0)
    assert text_of_event(begun) == "tools/call 'grind' <node.9> blocks the event loop, for 1 s by now"
