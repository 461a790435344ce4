"""Envelopes of the stateless era: accepted if each member has its type, refused with the name of the first one that has not."""

from __future__ import annotations

from typing import Any

from tests.fuzz.fuzz_target import Target, is_object, seeded

from greenroom.protocol.envelope import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    PROTOCOL_VERSION_KEY,
    check_spoken,
    is_enveloped,
    read_envelope,
)
from greenroom.protocol.errors import ErrorCode, McpError, RemoteProtocolError
from greenroom.protocol.jsonrpc import decode, encode
from greenroom.protocol.versions import STATELESS, SUPPORTED
from greenroom.protocol.wire_shapes import LOG_LEVELS

TEXTS = (
    f'{{"_meta":{{"{PROTOCOL_VERSION_KEY}":"{STATELESS}","{CLIENT_CAPABILITIES_KEY}":{{}}}}}}',
    (
        f'{{"_meta":{{"{PROTOCOL_VERSION_KEY}":"{STATELESS}","{CLIENT_CAPABILITIES_KEY}":{{"roots":{{}}}},'
        f'"{CLIENT_INFO_KEY}":{{"name":"a","version":"1"}},"{LOG_LEVEL_KEY}":"debug"}},"name":"x"}}'
    ),
    f'{{"_meta":{{"{PROTOCOL_VERSION_KEY}":"{SUPPORTED[0]}","{CLIENT_CAPABILITIES_KEY}":{{}}}}}}',
    f'{{"_meta":{{"{PROTOCOL_VERSION_KEY}":7,"{CLIENT_CAPABILITIES_KEY}":[],"{LOG_LEVEL_KEY}":null}}}}',
    f'{{"_meta":{{"{CLIENT_CAPABILITIES_KEY}":{{}},"{CLIENT_INFO_KEY}":null}}}}',
    '{"_meta":[]}',
    "{}",
)
WORDS = (
    *(PROTOCOL_VERSION_KEY, CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY, STATELESS, *SUPPORTED, "_meta"),
    *(*LOG_LEVELS, '"', '":', "{}", "[]", "null", "7", "true", ",", "\\u0000", "9" * 50, "x" * 1100),
)


def check(data: bytes) -> None:
    try:
        params = decode(data)
    except RemoteProtocolError:
        return
    if not is_object(params):
        return
    meta: Any = params.get("_meta")
    wrong = first_wrong(meta if is_object(meta) else {})
    assert is_enveloped(params) == (is_object(meta) and PROTOCOL_VERSION_KEY in meta)
    try:
        envelope = read_envelope(params)
    except McpError as error:
        assert error.code == ErrorCode.INVALID_PARAMS
        assert wrong is not None
        assert f'"{wrong}"' in error.message
        assert len(error.message) < 300
        return
    assert wrong is None
    assert envelope.version == meta[PROTOCOL_VERSION_KEY]
    assert envelope.client_capabilities is meta[CLIENT_CAPABILITIES_KEY]
    assert envelope.client_info == meta.get(CLIENT_INFO_KEY, {})
    assert envelope.log_level == meta.get(LOG_LEVEL_KEY)
    try:
        check_spoken(envelope.version)
    except McpError as error:
        assert error.code == ErrorCode.UNSUPPORTED_PROTOCOL_VERSION
        assert envelope.version != STATELESS
        assert STATELESS in error.data["supported"]
        assert len(encode(error.to_wire())) < 8 * 1024
    else:
        assert envelope.version == STATELESS


def first_wrong(meta: dict[str, Any]) -> str | None:
    """The first member that is missing or has another type."""
    if not isinstance(meta.get(PROTOCOL_VERSION_KEY), str):
        return PROTOCOL_VERSION_KEY
    if not is_object(meta.get(CLIENT_CAPABILITIES_KEY)):
        return CLIENT_CAPABILITIES_KEY
    if not is_object(meta.get(CLIENT_INFO_KEY, {})):
        return CLIENT_INFO_KEY
    level = meta.get(LOG_LEVEL_KEY)
    return None if level is None or (isinstance(level, str) and level in LOG_LEVELS) else LOG_LEVEL_KEY


TARGET = Target(
    "envelopes",
    check,
    lambda: seeded([text.encode() for text in TEXTS], b""),
    [word.encode() for word in WORDS],
    longest=2048,
)
