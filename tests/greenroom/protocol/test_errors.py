"""Protocol errors: codes, the side at fault, and the wire form."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.errors import GreenroomError
from greenroom.protocol import errors
from greenroom.protocol.errors import (
    ErrorCode,
    LocalProtocolError,
    McpError,
    PeerError,
    ProtocolError,
    RemoteProtocolError,
    ToolError,
    Unacceptable,
    not_executed,
)
from greenroom.protocol.jsonrpc import is_object


@pytest.mark.row("WC-25")
def test_the_codes_are_those_of_the_wire() -> None:
    assert {code.name: code.value for code in ErrorCode} == {
        "PARSE_ERROR": -32700,
        "INVALID_REQUEST": -32600,
        "METHOD_NOT_FOUND": -32601,
        "INVALID_PARAMS": -32602,
        "INTERNAL_ERROR": -32603,
        "TOOL_ERROR": -32000,
        "RESOURCE_NOT_FOUND": -32002,
        "URL_ELICITATION_REQUIRED": -32042,
        "CANCELLED": -32800,
        "USER_REJECTED": -1,
        "HEADER_MISMATCH": -32020,
        "MISSING_REQUIRED_CLIENT_CAPABILITY": -32021,
        "UNSUPPORTED_PROTOCOL_VERSION": -32022,
    }


@pytest.mark.row("WC-32")
def test_an_error_object_has_data_only_when_there_is_some() -> None:
    assert McpError(-32602, "no").to_wire() == {"code": -32602, "message": "no"}
    assert McpError(-32602, "no", {}).to_wire() == {"code": -32602, "message": "no", "data": {}}
    assert McpError(ErrorCode.RESOURCE_NOT_FOUND, "no", 0).to_wire() == {"code": -32002, "message": "no", "data": 0}


@pytest.mark.row("WC-32")
def test_an_error_is_a_value_and_an_exception() -> None:
    one, same, other = McpError(1, "a", [2]), McpError(1, "a", [2]), McpError(1, "a", [3])
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != "a"
    with pytest.raises(McpError) as caught:
        raise one
    assert caught.value is one
    assert str(one) == "a (1)"


@pytest.mark.row("WC-32")
@pytest.mark.row("SX-07")
def test_a_wrapped_error_reveals_nothing_about_its_cause() -> None:
    own = McpError(-32602, "which?")
    assert McpError.wrap(own) is own
    assert McpError.wrap(RemoteProtocolError(-32700, "broken", 7)) == McpError(-32700, "broken", 7)
    for error in (
        ValueError("secret"),
        ToolError("secret"),
        KeyboardInterrupt("secret"),
        BaseExceptionGroup("secret", [SystemExit()]),
    ):
        wrapped = McpError.wrap(error)
        assert wrapped == McpError(ErrorCode.INTERNAL_ERROR, "Internal error")
        assert "secret" not in str(wrapped)


def test_the_tree_of_errors_is_as_its_docstring_draws_it() -> None:
    assert PeerError.__bases__ == (McpError,)
    assert McpError.__bases__ == ToolError.__bases__ == ProtocolError.__bases__ == (GreenroomError,)
    assert LocalProtocolError.__bases__ == RemoteProtocolError.__bases__ == (ProtocolError,)
    assert Unacceptable.__bases__ == (RemoteProtocolError,)
    drawn = errors.__doc__ or ""
    for name, found in vars(errors).items():
        if isinstance(found, type) and issubclass(found, Exception):
            assert f"─ {name} " in drawn or name == "GreenroomError"


def test_a_remote_error_says_how_it_travels() -> None:
    error = RemoteProtocolError(ErrorCode.PARSE_ERROR, "broken", {"at": 1}, id="a", status=400)
    assert (error.code, error.message, error.data, error.id, error.status, error.response_to) == (
        *(-32700, "broken", {"at": 1}, "a"),
        *(400, None),
    )
    assert str(error) == "broken (-32700)"


def test_a_tool_error_carries_what_the_model_sees() -> None:
    error = ToolError([{"type": "text", "text": "no"}], {"a": 1})
    assert (error.content, error.meta) == ([{"type": "text", "text": "no"}], {"a": 1})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["code", "message", "data"]), inner),
    max_leaves=6,
)


@given(_JSON)
def test_a_malformed_error_object_is_still_an_error(wire: Any) -> None:
    error = PeerError.from_wire(wire)
    assert type(error.code) is int
    assert type(error.message) is str
    if is_object(wire):
        assert error.data == wire.get("data")


def test_a_peers_error_is_read_back_as_it_was_written() -> None:
    error = McpError(-32042, "visit", {"elicitations": []})
    assert PeerError.from_wire(error.to_wire()) == error


@pytest.mark.parametrize(
    ("data", "maybe"),
    [
        (not_executed("too_many_requests"), False),
        ({"maybe_done": False}, False),
        ({"maybe_done": True}, True),
        ({"server": "notes", "reason": "parked", "maybeDone": False}, False),
        ({"server": "notes", "reason": "lost", "maybeDone": True}, True),
        ({"maybe_done": 0}, True),
        ({"reason": "too_many_requests"}, True),
        ([False], True),
        (None, True),
    ],
)
def test_a_request_may_have_been_executed_unless_its_error_says_that_it_was_not(data: object, maybe: bool) -> None:  # noqa: FBT001 - a table's column
    error = PeerError.from_wire({"code": -32603, "message": "Too many requests at once", "data": data})
    assert error.maybe_done is maybe
