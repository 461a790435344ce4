"""The id of a refused message: found only if it is certain."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.errors import ErrorCode, RemoteProtocolError
from greenroom.protocol.jsonrpc import OversizedMessage, SalvagedId, parse, salvage_id, too_long_error

BULK = "x" * 1000


def told(data: bytes) -> SalvagedId:
    what = OversizedMessage.of(data)
    return salvage_id(what.head, what.tail)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":3,"method":"a","params":{"a":"%s"}}', SalvagedId(3)),
        (b'{"method":"a","params":{"a":"%s"},"jsonrpc":"2.0","id":3}', SalvagedId(3)),
        (b'{ "method" : "a" , "params" : ["%s"] , "id" : "x\\"y" }\n ', SalvagedId('x"y')),
        (b'{"jsonrpc":"2.0","id":"3","result":{"a":"%s"}}', SalvagedId("3", is_response=True)),
        (b'{"result":{"a":"%s"},"jsonrpc":"2.0","id":-3}', SalvagedId(-3, is_response=True)),
        (b'{"error":{"a":"%s"},"id":0}', SalvagedId(0, is_response=True)),
        (b'{"params":{"method":"a","x":"%s"},"id":3}', SalvagedId()),
        (b'{"method":"a","params":{"x":"%s","id":3}}', SalvagedId()),
        (b'{"method":"a","params":{"id":4,"x":"%s"},"id":3}', SalvagedId(3)),
        (b'{"method":"a","id":4,"params":{"x":"%s"},"id":3}', SalvagedId()),
        (b'{"method":"a","id":4,"id":4,"params":{"x":"%s"}}', SalvagedId()),
        (b'{"method":"a","result":{},"id":4,"params":{"x":"%s"}}', SalvagedId()),
        (b'{"method":"a","id":null,"params":{"x":"%s"}}', SalvagedId()),
        (b'{"method":"a","id":1.5,"params":{"x":"%s"}}', SalvagedId()),
        (b'{"method":"a","id":[3],"params":{"x":"%s"}}', SalvagedId()),
        (b'{"method":"a","params":{"x":"%s"},"id":1e3}', SalvagedId()),
        (b'{"method":"a","x":"\\"id\\":3","params":{"x":"%s"}}', SalvagedId()),
        (b'{"method":"a","x":"%s,\\"id\\":3}"}', SalvagedId()),
        (b'[{"method":"a","id":3,"params":{"x":"%s"}}]', SalvagedId()),
        (b'{"method":"a","id":"\\ud800","params":{"x":"%s"}}', SalvagedId()),
        (b"%s", SalvagedId()),
        (b'"%s', SalvagedId()),
    ],
)
def test_the_id_is_found_at_either_end(data: bytes, expected: SalvagedId) -> None:
    assert told(data.replace(b"%s", BULK.encode())) == expected


_MEMBERS = st.fixed_dictionaries(
    {"id": st.integers(-99, 99) | st.text('a"\\{}[]:, id', max_size=5), "method": st.text(max_size=4)},
    optional={
        "params": st.dictionaries(
            st.sampled_from(["id", "method", "result"]), st.integers() | st.text('"\\{},:id', max_size=8) | st.none()
        ),
        "jsonrpc": st.just("2.0"),
    },
)


@given(_MEMBERS, st.randoms(use_true_random=False), st.sampled_from([None, 1]), st.booleans())
def test_a_salvaged_id_is_the_messages_id(members: dict[str, Any], random: Any, indent: Any, bulky: bool) -> None:  # noqa: FBT001
    keys = list(members)
    random.shuffle(keys)
    if bulky and "params" in members:
        members["params"]["bulk"] = BULK
    data = json.dumps({key: members[key] for key in keys}, indent=indent).encode()
    found = told(data)
    assert found == SalvagedId(members["id"]) or (bulky and found == SalvagedId())


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_any_bytes_can_be_searched_for_an_id(head: bytes, tail: bytes) -> None:
    salvage_id(head, tail)
    salvage_id(b'{"method":"a",' + head, tail + b',"id":3}')


def test_the_error_for_an_oversized_message_has_its_size_and_its_id() -> None:
    request = too_long_error(OversizedMessage.of(b'{"method":"a","id":3,"params":{}}' + b" " * 1000), 100)
    assert (request.code, request.status, request.id, request.response_to) == (ErrorCode.INVALID_REQUEST, 413, 3, None)
    assert request.message == "Message too large: 1033 bytes, the limit is 100"
    answer = too_long_error(OversizedMessage.of(b'{"result":{},"id":3}' + b" " * 1000), 100)
    assert (answer.id, answer.response_to) == (None, 3)
    unclear = too_long_error(OversizedMessage.of(b"x" * 1000), 100)
    assert (unclear.id, unclear.response_to) == (None, None)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"method":"a","params":{"x":1,"x":2},"id":3}', 3),
        (b'{"method":"a","id":3,"params":{"id":1,"id":2}}', 3),
        (b'{"method":"a","id":3,"id":3,"params":{}}', None),
        (b'{"method":"a","id":3,"\\u0069d":4,"params":{}}', None),
        (b'{"method":"a","id":3,"params":{"a":"%s"},"id":4,"b":{"a":"%s"}}', None),
        (b'{"method":"a","id":3,"id":4,"params":{"x":1,"x":2}}', None),
    ],
)
def test_a_message_with_two_ids_has_none(data: bytes, expected: int | None) -> None:
    with pytest.raises(RemoteProtocolError, match="occurs twice") as caught:
        parse(data.replace(b"%s", BULK.encode()))
    assert caught.value.id == expected
