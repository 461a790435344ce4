"""JSON-RPC messages: parsing, encoding and classification."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError, PeerError, RemoteProtocolError
from greenroom.protocol.jsonrpc import (
    ID_LIMIT,
    JsonRpcError,
    JsonRpcMessage,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    classify,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    parse,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
IDS = TEXTS | st.integers(-(10**17), 10**17)
OBJECTS = st.dictionaries(TEXTS, st.none() | st.integers() | TEXTS | st.lists(TEXTS, max_size=2), max_size=4)


def wire(**members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **members}).encode()


def refusal(data: bytes) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        parse(data)
    return caught.value


@pytest.mark.row("WC-30")
@given(IDS, TEXTS, OBJECTS)
def test_requests_come_back_as_they_went(id: str | int, method: str, params: dict[str, Any]) -> None:
    assert parse(encode_request(id, method, params)) == JsonRpcRequest(id, method, params)
    assert parse(encode_request(id, method)) == JsonRpcRequest(id, method, {})


@pytest.mark.row("WC-30")
@given(TEXTS, OBJECTS)
def test_notifications_come_back_as_they_went(method: str, params: dict[str, Any]) -> None:
    assert parse(encode_notification(method, params)) == JsonRpcNotification(method, params)
    assert parse(encode_notification(method)) == JsonRpcNotification(method, {})


@pytest.mark.row("WC-30")
@given(IDS, OBJECTS)
def test_results_come_back_as_they_went(id: str | int, result: dict[str, Any]) -> None:
    assert parse(encode_result(id, result)) == JsonRpcResponse(id, result)


@pytest.mark.row("WC-30")
@given(IDS | st.none(), st.integers(-40000, 40000), TEXTS, OBJECTS | st.none())
def test_errors_come_back_as_they_went(id: str | int | None, code: int, message: str, data: Any) -> None:
    error = McpError(code, message, data)
    back = parse(encode_error(id, error))
    assert back == JsonRpcError(id, PeerError(code, message, data))
    assert isinstance(back, JsonRpcError)
    assert isinstance(back.error, PeerError)


@given(IDS, TEXTS, OBJECTS)
def test_a_message_is_one_line(id: str | int, text: str, members: dict[str, Any]) -> None:
    for line in (
        encode_request(id, text, members),
        encode_notification(text, members),
        encode_result(id, members),
        encode_error(id, McpError(1, text, members)),
    ):
        assert b"\n" not in line
        assert b"\r" not in line
        assert decode(line)["jsonrpc"] == "2.0"


@pytest.mark.row("WC-30")
@pytest.mark.parametrize(
    ("members", "kind"),
    [
        ({"id": 1, "method": "a"}, JsonRpcRequest),
        ({"id": "1", "method": "a", "params": {}}, JsonRpcRequest),
        ({"method": "a"}, JsonRpcNotification),
        ({"id": 1, "result": {}}, JsonRpcResponse),
        ({"id": 1, "error": {"code": 1, "message": "a"}}, JsonRpcError),
        ({"id": None, "error": {"code": 1, "message": "a"}}, JsonRpcError),
        ({"error": {"code": 1, "message": "a"}}, JsonRpcError),
        ({"id": 1, "method": "a", "extra": [1]}, JsonRpcRequest),
        ({"id": 1, "error": "broken"}, JsonRpcError),
    ],
)
def test_the_kind_of_a_message_follows_from_its_members(members: dict[str, Any], kind: type) -> None:
    assert type(parse(wire(**members))) is kind


@pytest.mark.row("WC-11")
@pytest.mark.parametrize("id", [None, 1.0, 1.5, True, {}, [], [1], {"a": 1}])
def test_a_request_with_a_wrong_id_is_refused_without_an_id(id: Any) -> None:
    for method in ("ping", "tools/call", "no/such"):
        error = refusal(wire(id=id, method=method))
        assert (error.code, error.id, error.status) == (ErrorCode.INVALID_REQUEST, None, 200)
        assert error.message == 'Invalid Request: "id" must be a string or an integer'


@pytest.mark.row("WC-11")
@pytest.mark.parametrize("id", [0, -1, 2**53 + 1, 2**64, -(10**30), "", "a", "é\n\0", "1"])
def test_any_text_and_any_whole_number_is_an_id_and_stays_what_it_is(id: Any) -> None:
    request = parse(wire(id=id, method="ping"))
    assert isinstance(request, JsonRpcRequest)
    assert request.id == id
    assert type(request.id) is type(id)
    assert decode(encode_result(request.id, {}))["id"] == id


def test_an_endless_id_is_refused() -> None:
    parse(wire(id="a" * ID_LIMIT, method="ping"))
    error = refusal(wire(id="a" * (ID_LIMIT + 1), method="ping"))
    assert (error.code, error.id, error.status) == (ErrorCode.INVALID_REQUEST, None, 200)


@pytest.mark.row("WC-12")
@pytest.mark.parametrize(
    "batch", [b"[]", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', b"[1]", b' [ {"jsonrpc":"2.0","method":"a"} , {}]']
)
def test_a_batch_is_refused(batch: bytes) -> None:
    error = refusal(batch)
    assert (error.code, error.id, error.status) == (ErrorCode.INVALID_REQUEST, None, 400)
    assert error.message.startswith("Batch requests are not supported")


@pytest.mark.row("WC-13")
@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"jsonrpc":"2.0","id":1,"method":"ping"', b"hello", b'{"id":1,}', b"\xff\xfe", b"{}{}"]
)
def test_malformed_json_is_a_parse_error(data: bytes) -> None:
    error = refusal(data)
    assert (error.code, error.id, error.status) == (ErrorCode.PARSE_ERROR, None, 400)


@pytest.mark.row("WC-14")
@pytest.mark.parametrize("jsonrpc", [None, "1.0", 2.0, 2, "2", "", {}, "2.0 "])
def test_a_wrong_envelope_is_an_invalid_request_with_its_id(jsonrpc: Any) -> None:
    error = refusal(json.dumps({"jsonrpc": jsonrpc, "id": "a", "method": "ping"}).encode())
    assert (error.code, error.id, error.status) == (ErrorCode.INVALID_REQUEST, "a", 400)
    assert error.message == 'Invalid Request: "jsonrpc" must be "2.0"'


@pytest.mark.row("WC-14")
def test_a_missing_envelope_is_an_invalid_request_with_its_id() -> None:
    assert refusal(b'{"id":7,"method":"ping"}').id == 7
    assert refusal(b'{"method":"ping"}').id is None


@pytest.mark.row("WC-14")
@pytest.mark.parametrize("data", [b"1", b'"ping"', b"null", b"true", b"1.5"])
def test_a_message_is_an_object(data: bytes) -> None:
    error = refusal(data)
    assert (error.code, error.message) == (ErrorCode.INVALID_REQUEST, "Invalid Request: a message is a JSON object")


@pytest.mark.parametrize("method", [None, 1, {}, ["ping"], True])
def test_a_method_is_a_string(method: Any) -> None:
    error = refusal(wire(id=3, method=method))
    assert (error.code, error.id, error.status) == (ErrorCode.INVALID_REQUEST, 3, 400)


def test_a_message_without_anything_is_an_invalid_request() -> None:
    assert refusal(wire()).id is None
    assert refusal(wire(id=3)).id == 3
    assert refusal(wire(id=3)).message == 'Invalid Request: "method" is missing'
    assert refusal(b"{}").code == ErrorCode.INVALID_REQUEST


def test_a_message_is_either_a_request_or_an_answer() -> None:
    for name, answer in (("result", dict[str, Any]()), ("error", {"code": 1, "message": ""})):
        error = refusal(wire(id=3, method="ping", **{name: answer}))
        assert (error.code, error.id) == (ErrorCode.INVALID_REQUEST, 3)


@pytest.mark.row("WC-18")
@pytest.mark.parametrize("params", [[], [1], "a", 1, False, True])
def test_params_are_an_object(params: Any) -> None:
    error = refusal(wire(id=3, method="tools/call", params=params))
    assert (error.code, error.id, error.status) == (ErrorCode.INVALID_PARAMS, 3, 200)
    assert error.message == '"params" must be an object'
    told = refusal(wire(method="notifications/cancelled", params=params))
    assert (told.code, told.id, told.status) == (ErrorCode.INVALID_PARAMS, None, 400)


def test_null_params_are_none() -> None:
    assert parse(wire(id=3, method="ping", params=None)) == JsonRpcRequest(3, "ping", {})
    assert parse(wire(method="a", params=None)) == JsonRpcNotification("a", {})


@pytest.mark.parametrize(
    "members",
    [
        {"id": 5, "result": []},
        {"id": 5, "result": None},
        {"id": 5, "result": "a"},
        {"id": 5, "result": {}, "error": {"code": 1, "message": ""}},
        {"id": 5, "result": {}, "jsonrpc": "1.0"},
        {"id": 5, "error": {}, "jsonrpc": None},
    ],
)
def test_a_broken_response_names_its_request_and_is_not_answered_under_that_id(
    members: dict[str, Any],
) -> None:
    error = refusal(json.dumps({"jsonrpc": "2.0", **members}).encode())
    assert (error.code, error.id, error.response_to, error.status) == (ErrorCode.INVALID_REQUEST, None, 5, 400)


@pytest.mark.parametrize("id", [None, 1.5, {}, True])
def test_a_response_without_an_id_is_refused(id: Any) -> None:
    error = refusal(wire(id=id, result={}))
    assert (error.id, error.response_to) == (None, None)
    if id is not None:
        error = refusal(wire(id=id, error={"code": 1, "message": "a"}))
        assert (error.id, error.response_to) == (None, None)


def test_a_message_that_is_refused_though_well_formed_is_answered_under_its_id() -> None:
    ambiguous = refusal(b'{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"a","name":"b"}}')
    assert (ambiguous.code, ambiguous.id) == (ErrorCode.PARSE_ERROR, 4)
    deep = refusal(b'{"jsonrpc":"2.0","method":"a","params":{"a":' + b"[" * 70 + b"]" * 70 + b'},"id":"x"}')
    assert deep.id == "x"
    answer = refusal(b'{"jsonrpc":"2.0","id":4,"result":{"a":1,"a":2}}')
    assert (answer.id, answer.response_to) == (None, 4)
    for unclear in (
        b'{"jsonrpc":"2.0","id":4,"id":5,"method":"a"}',
        b'{"jsonrpc":"2.0","id":4,"method":"a","method":"a","id":4}',
    ):
        assert refusal(unclear).id is None


def test_keys_are_compared_exactly() -> None:
    for members in ({"ID": 1, "method": "a"}, {"id": 1, "Method": "a"}, {"id\0": 1, "method": "a"}):
        data = wire(**members)
        if "Method" in members:
            assert refusal(data).message == 'Invalid Request: "method" is missing'
        else:
            assert isinstance(parse(data), JsonRpcNotification)


@pytest.mark.row("WC-19")
def test_meta_is_an_object_or_empty() -> None:
    request = JsonRpcRequest(1, "a", {"_meta": {"progressToken": "t", "x": 1}})
    assert request.meta == {"progressToken": "t", "x": 1}
    assert request.progress_token == "t"
    assert JsonRpcNotification("a", {"_meta": {"x": 1}}).meta == {"x": 1}
    wrong: Any
    for wrong in (None, 1, ["a"], "a"):
        assert JsonRpcRequest(1, "a", {"_meta": wrong}).meta == {}
        assert JsonRpcNotification("a", {"_meta": wrong}).meta == {}
        assert JsonRpcRequest(1, "a", {"_meta": wrong}).progress_token is None
    for wrong in (None, 1.5, ["a"], {"a": 1}, True):
        assert JsonRpcRequest(1, "a", {"_meta": {"progressToken": wrong}}).progress_token is None
    assert JsonRpcRequest(1, "a").meta == {}


def test_two_requests_without_params_share_none() -> None:
    one, other = parse(wire(id=1, method="a")), parse(wire(id=2, method="a"))
    assert isinstance(one, JsonRpcRequest)
    assert isinstance(other, JsonRpcRequest)
    one.params["a"] = 1
    assert other.params == {}


def test_encoding_an_error_never_fails() -> None:
    for error in (
        McpError(1, "a", object()),
        McpError(1, "half \ud800", {"a": object()}),
        McpError(1, "a", {"\udfff": 1}),
        RemoteProtocolError(1, "a", {(1, 2): 3}),
    ):
        back = parse(encode_error(3, error))
        assert isinstance(back, JsonRpcError)
        assert (back.id, back.error.code, back.error.data) == (3, 1, None)
    assert decode(encode_error(None, McpError(1, "a"))) == {
        "jsonrpc": "2.0",
        "id": None,
        "error": {"code": 1, "message": "a"},
    }


def test_encoding_an_impossible_value_is_a_local_error() -> None:
    with pytest.raises(LocalProtocolError):
        encode_result(1, {"a": object()})
    with pytest.raises(LocalProtocolError):
        encode_request(1, "a", {"a": object()})
    with pytest.raises(LocalProtocolError):
        encode_notification("a", {"a": "\ud800"})


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["2.0", "ping", "", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "x"]), inner, max_size=7
        )
    ),
    max_leaves=12,
)


def attempt(read: Any, what: Any) -> JsonRpcMessage | RemoteProtocolError:
    try:
        return read(what)  # type: ignore[no-any-return]
    except RemoteProtocolError as error:
        return error


@given(_ANYTHING)
def test_any_json_is_a_message_or_refused_with_a_code_and_a_text(value: Any) -> None:
    found = attempt(classify, value)
    if isinstance(found, RemoteProtocolError):
        assert found.code in {ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_PARAMS}
        assert found.status in {200, 400}
        assert 5 < len(found.message) < 200
        assert found.id is None or found.response_to is None
        parse(encode_error(found.id, found))
    else:
        assert value["jsonrpc"] == "2.0"


@given(st.binary(max_size=120) | _ANYTHING.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    found = attempt(parse, data)
    assert not isinstance(found, RemoteProtocolError) or found.message


@pytest.mark.parametrize(
    "message",
    [JsonRpcRequest(1, "a"), JsonRpcNotification("a"), JsonRpcResponse(1, {}), JsonRpcError(1, PeerError(1, "a"))],
    ids=str,
)
def test_an_encoded_message_is_parsed_to_an_equal_one(message: JsonRpcMessage) -> None:
    for name in message.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(message, name, "changed")
