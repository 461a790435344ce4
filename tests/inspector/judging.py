"""Compares the outputs of two command lines: the same data, or on each side the expected error.

Two errors are never equal because both are errors: each has the exit code and the words that the question asks for.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from greenroom.protocol.jsonrpc import is_object
from greenroom.protocol.serialization import is_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .questions import Question

BY_CLIENT = frozenset(
    {
        "get-roots-list",
        "simulate-research-query",
        "trigger-elicitation-request",
        "trigger-elicitation-request-async",
        "trigger-sampling-request",
        "trigger-sampling-request-async",
        "trigger-url-elicitation",
        "trigger-url-elicitation-request",
    }
)
"""Tools that server-everything has only for clients that can do what they ask for: the two command lines declare different things."""
_CLOCK = re.compile(r"\b\d{1,2}:\d{2}:\d{2}(?: [AP]M)?")
_LONGEST = 1500


class Said(NamedTuple):
    """The end of a program: its exit code, the data on its standard output (None: there is none), and its standard error."""

    code: int
    data: Any
    error: str


def said(code: int, output: str, error: str) -> Said:
    """Read a program's output."""
    try:
        data = json.loads(output)
    except ValueError:
        return Said(code, None, f"{output}\n{error}".strip())
    refused = is_object(data) and data.keys() == {"error"}  # ours writes its errors as JSON, too
    return Said(code, None if refused else data, error)


def differences(question: Question, theirs: Said, mine: Said) -> Iterator[str]:
    """Everything that is not as it has to be."""
    ends = question.ends
    for who, got, code, words in (
        ("the Inspector", theirs, ends.theirs, ends.theirs_say),
        ("greenroom", mine, ends.ours, ends.ours_say),
    ):
        if got.code != code:
            yield f"{who} ended with {got.code} instead of {code}: {got.error[-300:]!r}"
        if words and words not in got.error:
            yield f"{who} was to say {words!r}, and said {got.error[-300:]!r}"
        if words and got.data is not None:
            yield f"{who} was to refuse, and has {_short(got.data)}"
        if not words and got.data is None:
            yield f"{who} has no data: {got.error[-300:]!r}"
    if ends.theirs_say or theirs.data is None or mine.data is None:
        return
    left, right = _comparable(theirs.data, question), _comparable(mine.data, question)
    if left != right:
        yield f"the Inspector has {_short(left)}\n    and greenroom {_short(right)}"
    elif bool(ends.theirs) != (is_object(left) and left.get("isError") is True):
        yield f"both have {_short(left)}, which is {'no' if ends.theirs else 'a'} failure"


def _comparable(found: Any, question: Question) -> Any:
    """A list by itself (the Inspector has it under the wire's name, and greenroom under its own), and no time of the day."""
    if question.ours[0] != "list":
        return _timeless(found)
    lists: list[list[dict[str, Any]]] = [value for value in found.values() if isinstance(value, list)]
    return sorted((entry for entry in lists[0] if entry.get("name") not in BY_CLIENT), key=_written)


def _timeless(found: Any) -> Any:
    """When a server wrote it is different for each who asks."""
    if is_object(found):
        return {key: _timeless(_decoded(value) if key == "blob" else value) for key, value in found.items()}
    if is_array(found):
        return [_timeless(each) for each in found]
    return _CLOCK.sub("(a time)", found) if isinstance(found, str) else found


def _decoded(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, TypeError):
        return value


def _written(entry: dict[str, Any]) -> str:
    return json.dumps(entry, sort_keys=True)


def _short(data: Any) -> str:
    return json.dumps(data, sort_keys=True)[:_LONGEST]
