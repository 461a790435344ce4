"""Sealed states and the fields of a retry: long texts, states with long values, many responses, and params whose digest is taken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fuzz.linearity import Reader

from greenroom.protocol.errors import McpError
from greenroom.protocol.input_required import RequestState, check_response, read_responses, request_digest
from greenroom.protocol.sealing import KeyRing

if TYPE_CHECKING:
    from collections.abc import Callable

RING = KeyRing([b"k" * 32])
OWNER = "principal ada"
CALL: dict[str, Any] = {"name": "a"}
UNITS = ("A", "AQ", "=", "-_", " ", "é", "\ud800", ".")


def _open(text: str) -> None:
    RequestState.open(RING, text, OWNER, "tools/call", CALL, 0.0)


def _repeated(unit: str) -> Callable[[int], str]:
    return lambda size: unit * (size // len(unit))


def _sealed(size: int) -> str:
    """A state whose text has about that size."""
    state = RequestState(expires=1.0, request=request_digest("tools/call", CALL), value="x" * (size * 3 // 4))
    return state.seal(RING, OWNER)


def _changed(size: int) -> str:
    text = _sealed(size)
    return text[:-2] + ("BB" if text.endswith("AA") else "AA")


def _retry(params: dict[str, Any]) -> None:
    request_digest("tools/call", params)
    for key, response in (read_responses(params).responses or {}).items():
        check_response("sampling/createMessage", response, key)


def _response(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "model": "m"}


RETRIES: dict[str, Callable[[int], dict[str, Any]]] = {
    "long text": lambda size: {"inputResponses": {"a": _response({"type": "text", "text": "x" * size})}},
    "many blocks": lambda size: {"inputResponses": {"a": _response([{}] * (size // 3))}},
    "many responses": lambda size: {"inputResponses": {f"{n}": _response({}) for n in range(size // 50)}},
    "long keys": lambda size: {"inputResponses": {"x" * size: 7}},
    "long state": lambda size: {"requestState": "x" * size},
    # The digest sorts the members of each object. With as many as a message may have that costs less than decoding the message, but n log n.
    "arguments backwards": lambda size: {"arguments": {f"{n:06x}": n for n in range(size // 12, 0, -1)}},
    "nested arguments": lambda size: {"arguments": [[[[{"a": [n]}]]] for n in range(size // 16)]},
}

READERS = (
    Reader(
        "states",
        _open,
        {
            **{f"{unit!r}": _repeated(unit) for unit in UNITS},
            "sealed": _sealed,
            "sealed and changed": _changed,
        },
        refuses=(McpError,),
    ),
    Reader("retries", _retry, RETRIES, refuses=(McpError,)),
)
