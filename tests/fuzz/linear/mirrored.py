"""Mirrored headers: their values, lists of them in preflights, and a tool's schema with annotations."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.fuzz.linearity import KIB, Reader

from greenroom.protocol.mirrored_headers import (
    BadHeaderAnnotation,
    HeaderMismatch,
    HeaderPlan,
    MirroredParameter,
    decode_header_value,
    encode_header_value,
    header_plan_of,
)
from greenroom.transports.http_request import headers_by_name, preflight_headers

if TYPE_CHECKING:
    from collections.abc import Callable

PLAN = HeaderPlan((MirroredParameter("mcp-param-a", "Mcp-Param-A", ("a",)),))
UNITS = ("a", "A===", "=", "?", "=?base64?", "?=", " ", "\t", "0", ".0", "é", "\0", "mcp-param-a,", ",", "mcp-name ")
FRONTS = ("", "=?base64?", "42.", "mcp-param-")
ENDS = ("", "?=", "=?=", "1", "\x01")


def _made(front: str, unit: str, end: str) -> Callable[[int], str]:
    return lambda size: front + unit * ((size - len(front) - len(end)) // len(unit)) + end


def _values(text: str) -> None:
    with suppress(ValueError):
        decode_header_value(text)
    encode_header_value(text)
    for value in (42, 4.5, True, text, None):
        with suppress(HeaderMismatch):
            PLAN.check({"a": value}, {"mcp-param-a": text})


def _lists(text: str) -> None:
    preflight_headers(("POST",), (), {"origin": "http://localhost", "access-control-request-headers": text})
    headers_by_name([("mcp-name", text)])


def _schemas(size: int, name: Callable[[int], str], place: dict[str, Any]) -> dict[str, Any]:
    members = {f"p{n}": {**place, "x-mcp-header": name(n)} for n in range(size // 40)}
    return {"type": "object", "properties": members}


def _nested(size: int) -> dict[str, Any]:
    """As deep as a message may be, with an annotation in each property at the bottom."""
    found = _schemas(size, str, {"type": "string"})
    for _ in range(24):
        found = {"properties": {"a": found}}
    return found


_SCHEMAS: dict[str, Callable[[int], dict[str, Any]]] = {
    "valid": lambda size: _schemas(size, str, {"type": "string"}),
    "no type at the end": lambda size: {"properties": {"a": _schemas(size, str, {"type": "string"}), "b": {"x-mcp-header": "x"}}},
    "one behind many": lambda size: {"properties": {**{f"p{n}": {} for n in range(size // 40)}, "z": {"x-mcp-header": ""}}},
    "deep": _nested,
}  # fmt: skip

READERS = (
    Reader(
        "mirrored",
        _values,
        {f"{front!r} {unit!r} {end!r}": _made(front, unit, end) for front in FRONTS for unit in UNITS for end in ENDS},
    ),
    Reader(
        "preflights",
        _lists,
        {f"{front!r} {unit!r}": _made(front, unit, "") for front in FRONTS for unit in UNITS},
        sizes=(256, 512, KIB, 4 * KIB),
    ),
    Reader(
        "annotations",
        header_plan_of,
        _SCHEMAS,
        refuses=(BadHeaderAnnotation,),
    ),
)
