"""The comparison of two command lines shows when they differ: also when both of them fail."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from .judging import Said, differences, said
from .questions import FAILED, TOOLS, Ends, called, read, refused

REFUSED = read("demo://nowhere", refused("not found"))
GOOD = {"contents": [{"uri": "demo://a", "text": "made at 10:11:12 AM"}]}
LATER = {"contents": [{"uri": "demo://a", "text": "made at 9:59:01 PM"}]}
ERROR: dict[str, Any] = {"content": [], "isError": True}


def blob(text: str) -> dict[str, Any]:
    return {"contents": [{"uri": "demo://a", "blob": base64.b64encode(text.encode()).decode()}]}


@pytest.mark.parametrize(
    ("question", "theirs", "mine"),
    [
        (read("demo://a"), Said(0, GOOD, ""), Said(0, LATER, "")),
        (read("demo://a"), Said(0, blob("at 10:11:12"), ""), Said(0, blob("at 9:11:12"), "")),
        (REFUSED, Said(1, None, "a: not found"), Said(1, None, "b: not found")),
        (called("fail", FAILED), Said(5, ERROR, ""), Said(1, ERROR, "")),
        (
            TOOLS,
            Said(0, {"tools": [{"name": "a"}, {"name": "b"}]}, ""),
            Said(0, {"tools": [{"name": "b"}, {"name": "a"}]}, ""),
        ),
    ],
)
def test_equal_answers_are_judged_equal(question: Any, theirs: Said, mine: Said) -> None:
    assert list(differences(question, theirs, mine)) == []


@pytest.mark.parametrize(
    ("question", "theirs", "mine", "complaint"),
    [
        (read("demo://a"), Said(0, GOOD, ""), Said(0, blob("x"), ""), "and greenroom"),
        (read("demo://a"), Said(1, None, "broken"), Said(1, None, "broken"), "ended with 1 instead of 0"),
        (REFUSED, Said(1, None, "not found"), Said(1, None, "no such command"), "greenroom was to say 'not found'"),
        (REFUSED, Said(1, None, "cannot connect"), Said(1, None, "not found"), "the Inspector was to say 'not found'"),
        (REFUSED, Said(1, None, "not found"), Said(4, None, "not found"), "greenroom ended with 4 instead of 1"),
        (REFUSED, Said(1, GOOD, "not found"), Said(1, None, "not found"), "the Inspector was to refuse"),
        (called("fail", FAILED), Said(5, {"content": []}, ""), Said(1, {"content": []}, ""), "which is no failure"),
        (called("add"), Said(0, ERROR, ""), Said(0, ERROR, ""), "which is a failure"),
        (called("add", Ends(0, 0)), Said(0, None, ""), Said(0, ERROR, ""), "the Inspector has no data"),
    ],
)
def test_different_answers_are_reported(question: Any, theirs: Said, mine: Said, complaint: str) -> None:
    assert complaint in "\n".join(differences(question, theirs, mine))


def test_output_that_is_no_json_is_no_data() -> None:
    assert said(0, json.dumps(GOOD), "") == Said(0, GOOD, "")
    assert said(1, json.dumps({"error": {"message": "not found"}}), "not found") == Said(1, None, "not found")
    assert said(1, "usage: …", "what?") == Said(1, None, "usage: …\nwhat?")
