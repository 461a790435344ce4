"""Mirrored headers: what a client writes, a server accepts; and what differs from the body, or is not valid, the server refuses."""

from __future__ import annotations

import pickle
import re
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError
from greenroom.protocol.mirrored_headers import (
    NAME_PARAMS,
    BadHeaderAnnotation,
    HeaderMismatch,
    HeaderPlan,
    MirroredParameter,
    check_standard_headers,
    decode_header_value,
    encode_header_value,
    header_plan_of,
    is_mirrored_header,
    standard_headers_for,
)

VERSION = "2026-07-28"
SENDABLE = re.compile(r"[\x20-\x7e]*")
LARGEST = 2**53 - 1


def sentinel(text: str) -> str:
    return f"=?base64?{b64encode(text.encode()).decode()}?="


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def annotated(name: Any = "Region", kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": name, **more}


def plan_of(**properties: Any) -> HeaderPlan:
    plan = header_plan_of(schema(**properties))
    assert plan is not None
    return plan


REGION = plan_of(region=annotated())
COUNT = plan_of(count=annotated("Count", "integer"))
FLAG = plan_of(flag=annotated("Flag", "boolean"))


def mismatch(plan: HeaderPlan, arguments: Any, **headers: str) -> HeaderMismatch:
    with pytest.raises(HeaderMismatch) as refused:
        plan.check(arguments, {f"mcp-param-{name}": value for name, value in headers.items()})
    assert refused.value.code == ErrorCode.HEADER_MISMATCH
    return refused.value


# --- the standard headers

NAMED = {
    "tools/call": {"name": "execute_sql"},
    "prompts/get": {"name": "code review"},
    "resources/read": {"uri": "file:///projects/myapp/config.json?x=1%20"},
    "tasks/get": {"taskId": "t-1"},
    "tasks/update": {"taskId": "t-1"},
    "tasks/cancel": {"taskId": "t-1"},
}


@pytest.mark.row("26-P1")
@pytest.mark.parametrize("method", NAMED)
def test_a_named_request_repeats_its_version_method_and_name(method: str) -> None:
    (name,) = NAMED[method].values()
    headers = standard_headers_for(method, {**NAMED[method], "_meta": {}}, VERSION)
    assert headers == (("mcp-protocol-version", VERSION), ("mcp-method", method), ("mcp-name", name))
    check_standard_headers(method, NAMED[method], dict(headers), VERSION)
    assert NAMED.keys() == NAME_PARAMS.keys()


@pytest.mark.row("26-P1")
@pytest.mark.parametrize("method", ["tools/list", "server/discover", "subscriptions/listen", "tasks/list", "x/y"])
def test_a_request_without_a_name_has_no_name_header(method: str) -> None:
    headers = standard_headers_for(method, {"name": "n", "uri": "u", "taskId": "t"}, VERSION)
    assert headers == (("mcp-protocol-version", VERSION), ("mcp-method", method))
    check_standard_headers(method, {"name": "n"}, dict(headers), VERSION)
    check_standard_headers(method, None, dict(headers), VERSION)


@pytest.mark.row("26-P1")
@pytest.mark.parametrize("method", ["méthode", " tools/list", "tools/list\r\nx: y", "tools\tlist", "\0"])
def test_a_method_that_no_header_can_express_is_not_sent(method: str) -> None:
    with pytest.raises(LocalProtocolError, match="visible ASCII"):
        standard_headers_for(method, {}, VERSION)


GOOD = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "echo"}


@pytest.mark.row("26-P2", "26-H6")
@pytest.mark.parametrize(
    ("wrong", "header"),
    [
        ({"mcp-protocol-version": None}, "MCP-Protocol-Version"),
        ({"mcp-protocol-version": "2025-11-25"}, "MCP-Protocol-Version"),
        ({"mcp-protocol-version": ""}, "MCP-Protocol-Version"),
        ({"mcp-protocol-version": VERSION + "\xa0"}, "MCP-Protocol-Version"),
        ({"mcp-method": None}, "Mcp-Method"),
        ({"mcp-method": "tools/list"}, "Mcp-Method"),
        ({"mcp-method": "TOOLS/CALL"}, "Mcp-Method"),
        ({"mcp-method": sentinel("tools/call")}, "Mcp-Method"),
        ({"mcp-method": "tools/call\0tools/call"}, "Mcp-Method"),
        ({"mcp-name": None}, "Mcp-Name"),
        ({"mcp-name": ""}, "Mcp-Name"),
        ({"mcp-name": "other"}, "Mcp-Name"),
        ({"mcp-name": "Echo"}, "Mcp-Name"),
        ({"mcp-name": "echo\0echo"}, "Mcp-Name"),
        ({"mcp-name": "ech\xf6"}, "Mcp-Name"),
        ({"mcp-name": "=?base64?ZWNobw?="}, "Mcp-Name"),
        # the earliest of several is reported
        ({"mcp-protocol-version": None, "mcp-method": None, "mcp-name": None}, "MCP-Protocol-Version"),
        ({"mcp-method": None, "mcp-name": None}, "Mcp-Method"),
    ],
)
def test_a_standard_header_that_is_missing_different_or_malformed_is_refused(
    wrong: dict[str, str | None], header: str
) -> None:
    headers = {name: value for name, value in {**GOOD, **wrong}.items() if value is not None}
    with pytest.raises(HeaderMismatch) as refused:
        check_standard_headers("tools/call", {"name": "echo"}, headers, VERSION)
    assert refused.value.code == -32020
    assert refused.value.data == {"header": header}
    assert refused.value.message.startswith(f"Header mismatch: {header} ")
    assert refused.value.message.isprintable()


@pytest.mark.row("26-P2", "26-P3")
@pytest.mark.parametrize("name", ["echo", sentinel("echo")])
def test_right_standard_headers_are_accepted_plain_and_encoded(name: str) -> None:
    check_standard_headers("tools/call", {"name": "echo"}, {**GOOD, "mcp-name": name}, VERSION)


@pytest.mark.row("26-P2")
def test_characters_that_no_header_may_have_are_refused_though_they_equal_the_body() -> None:
    for name in ("ech\xf6", "a\nb", "a\x7fb"):
        with pytest.raises(HeaderMismatch, match="characters"):
            check_standard_headers("tools/call", {"name": name}, {**GOOD, "mcp-name": name}, VERSION)
    with pytest.raises(HeaderMismatch, match="ASCII"):
        check_standard_headers("m\xe9", {}, {**GOOD, "mcp-method": "m\xe9"}, VERSION)
    check_standard_headers("tools/call", {"name": "a\tb"}, {**GOOD, "mcp-name": "a\tb"}, VERSION)


@pytest.mark.parametrize("params", [None, {}, {"name": None}, {"name": 7}, {"name": ["echo"]}])
def test_a_name_that_is_no_text_is_left_to_the_check_of_the_params(params: Any) -> None:
    check_standard_headers("tools/call", params, GOOD, VERSION)
    assert len(standard_headers_for("tools/call", params, VERSION)) == 2


@pytest.mark.row("26-H4")
def test_the_headers_of_a_notification_may_be_missing_but_not_different() -> None:
    method = "notifications/cancelled"
    check_standard_headers(method, {}, {}, VERSION, required=False)
    check_standard_headers(method, {}, {"mcp-protocol-version": "x"}, None, required=False)
    check_standard_headers("tools/call", {"name": "echo"}, {}, VERSION, required=False)
    for headers in ({"mcp-protocol-version": "2025-11-25"}, {"mcp-method": "notifications/initialized"}):
        with pytest.raises(HeaderMismatch):
            check_standard_headers(method, {}, headers, VERSION, required=False)
    with pytest.raises(HeaderMismatch):
        check_standard_headers("tools/call", {"name": "echo"}, {"mcp-name": "other"}, VERSION, required=False)


def test_a_long_or_hostile_value_is_shown_short_and_escaped() -> None:
    with pytest.raises(HeaderMismatch) as refused:
        check_standard_headers("x" * 100_000, {}, {**GOOD, "mcp-method": "\x1b[2J\r\n" * 10_000}, VERSION)
    assert len(refused.value.message) < 500
    assert refused.value.message.isprintable()


def test_a_mismatch_survives_pickling() -> None:
    error = HeaderMismatch("Mcp-Name", "is missing")
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again, again.header) == (HeaderMismatch, error, "Mcp-Name")
    assert isinstance(again, McpError)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("mcp-method", True),
        ("mcp-name", True),
        ("mcp-param-region", True),
        ("mcp-protocol-version", False),
        ("mcp-session-id", False),
        ("mcp-methods", False),
        ("mcp-names", False),
        ("x-mcp-name", False),
    ],
)
def test_mirrored_headers_are_known_by_their_names(name: str, *, is_one: bool) -> None:
    assert is_mirrored_header(name) is is_one


# --- values


@pytest.mark.row("26-P3")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("us-west1", "us-west1"),
        ("us west 1", "us west 1"),
        ("", ""),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        (" us-west1", "=?base64?IHVzLXdlc3Qx?="),
        ("us-west1 ", "=?base64?dXMtd2VzdDEg?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("line1\r\nline2", "=?base64?bGluZTENCmxpbmUy?="),
        ("\tindented", "=?base64?CWluZGVudGVk?="),
        ("日本語", "=?base64?5pel5pys6Kqe?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
        ("=?base64?literal", "=?base64?literal"),
        ("literal?=", "literal?="),
        ("=?BASE64?SGVsbG8=?=", "=?BASE64?SGVsbG8=?="),
        ("a\x7fb", "=?base64?YX9i?="),
    ],
)
def test_a_value_is_encoded_as_the_specification_shows(text: str, value: str) -> None:
    assert encode_header_value(text) == value
    assert decode_header_value(value) == text


def test_a_lone_surrogate_is_not_sent() -> None:
    with pytest.raises(LocalProtocolError, match="surrogate"):
        encode_header_value("\ud800")


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.builds(
    "".join, st.lists(st.sampled_from(["=?base64?", "?=", "?", "=", " ", "\t", "QQ==", "a", "é", "\0", "\r\n"]))
)


@pytest.mark.row("26-P3")
@given(TEXTS)
@example("=?base64??=")
@example("=?base64?=")
@settings(max_examples=examples(1000))
def test_every_text_survives_its_way_through_a_header(text: str) -> None:
    value = encode_header_value(text)
    assert SENDABLE.fullmatch(value)
    assert value.strip() == value
    assert decode_header_value(value) == text
    headers = {**GOOD, "mcp-name": value}
    check_standard_headers("tools/call", {"name": text}, headers, VERSION)
    for other in (text + "x", text[:-1] + "x", f" {text}"):
        if other != text:
            with pytest.raises(HeaderMismatch):
                check_standard_headers("tools/call", {"name": other}, headers, VERSION)


@pytest.mark.row("26-P3", "26-P7")
@pytest.mark.parametrize(
    "value",
    [
        "=?base64?SGVsbG8?=",  # no padding
        "=?base64?SGVs!!!bG8=?=",  # not of the alphabet
        "=?base64?SGVsbG8=\n?=",
        "=?base64? SGVsbG8=?=",
        "=?base64?SGVsbG8=SGVsbG8=?=",
        "=?base64?SGVsbG9=?=",  # bits of the last letter that mean nothing
        "=?base64?SGVsbG8==?=",
        "=?base64?====?=",
        "=?base64?=SGVsbG8=?=",
        "=?base64?SGVsb-_8?=",  # the alphabet of URLs
        "=?base64?/w==?=",  # no UTF-8
        "=?base64?7aCA?=",  # a surrogate
        "=?base64?wIA=?=",  # NUL in two bytes
        "=?base64?=",  # the markers share their question mark
        "=?base64?QQ==?=, =?base64?Qg==?=",
        "=?base64?QQ==?=\0=?base64?Qg==?=",
        "é",
        "a\0b",
        "a\x7fb",
    ],
)
def test_an_invalid_value_is_refused_with_a_reason(value: str) -> None:
    with pytest.raises(ValueError, match="base64") as refused:
        decode_header_value(value)
    assert value not in str(refused.value)
    for there in ("Hello", "A", value, ""):
        mismatch(REGION, {"region": there}, region=value)


@pytest.mark.row("26-P3")
@given(st.text("=?base64QZw/+ AIi9-_", max_size=12))
@settings(max_examples=examples(1000))
def test_no_two_encoded_values_mean_one_text(inside: str) -> None:
    value = f"=?base64?{inside}?="
    try:
        text = decode_header_value(value)
    except ValueError as error:
        assert "=?base64?" in str(error)
    else:
        assert value == sentinel(text)


# --- a tool's parameters: the plan


@pytest.mark.row("26-P4", "26-P5")
def test_a_plan_finds_annotations_at_any_path_of_properties() -> None:
    plan = header_plan_of(
        schema(
            region=annotated(),
            where=schema(
                zone=annotated("Zone"), deep=schema(count=annotated("Count", "integer"), **{"a.b": annotated("A.b!")})
            ),
            flag=annotated("Method", "boolean"),  # becomes Mcp-Param-Method, which is not Mcp-Method
            plain={"type": "string"},
        )
    )
    assert plan == HeaderPlan(
        (
            MirroredParameter("mcp-param-region", "Mcp-Param-Region", ("region",)),
            MirroredParameter("mcp-param-method", "Mcp-Param-Method", ("flag",)),
            MirroredParameter("mcp-param-zone", "Mcp-Param-Zone", ("where", "zone")),
            MirroredParameter("mcp-param-count", "Mcp-Param-Count", ("where", "deep", "count")),
            MirroredParameter("mcp-param-a.b!", "Mcp-Param-A.b!", ("where", "deep", "a.b")),
        )
    )


@pytest.mark.parametrize(
    "found",
    [
        None,
        7,
        "x-mcp-header",
        {},
        schema(),
        schema(region={"type": "string"}),
        schema(**{"x-mcp-header": {"type": "string"}}),  # a property of that name
        schema(a={"type": "object", "default": {"x-mcp-header": "Region"}}),
        schema(a={"enum": [{"x-mcp-header": "Region"}], "examples": [{"x-mcp-header": 1}]}),
        schema(a={"const": {"properties": {"b": {"x-mcp-header": ""}}}}),
        {"x-other": {"x-mcp-header": "Region"}},
        {"required": ["x-mcp-header"], "properties": True},
    ],
)
def test_a_tool_without_annotations_has_no_plan(found: Any) -> None:
    assert header_plan_of(found) is None


@pytest.mark.row("26-P5")
@pytest.mark.parametrize(
    ("name", "say"),
    [
        ("", "not ''"),
        ("My Region", "not 'My Region'"),
        ("Region:Primary", "one or more letters"),
        ("Région", "one or more letters"),
        ("Region\t1", "not 'Region\\t1'"),
        ("Region\r\nX: y", "one or more letters"),
        ("Region\n", "one or more letters"),
        ("(a)", "one or more letters"),
        ("x" * 1000 + "@", "xxx\\u2026'"),
        (7, "not int"),
        (None, "not NoneType"),
        ({"name": "Region"}, "not dict"),
        (["Region"], "not list"),
        (True, "not bool"),
    ],
)
def test_an_annotation_that_is_no_token_is_refused(name: Any, say: str) -> None:
    with pytest.raises(BadHeaderAnnotation) as refused:
        header_plan_of(schema(where=schema(region=annotated(name))))
    told = str(refused.value)
    assert told.startswith("where.region: x-mcp-header ")
    assert say in told
    assert '"x-mcp-header": "Region"' in told
    assert len(told) < 500


@pytest.mark.row("26-P5")
@pytest.mark.parametrize(
    "kind", ["number", "object", "array", "null", "String", "", None, ["string"], ["string", "null"], {"a": 1}, 7]
)
def test_an_annotation_of_another_type_is_refused(kind: Any) -> None:
    with pytest.raises(BadHeaderAnnotation, match=r"^region: .* for a string, an integer or a boolean") as refused:
        header_plan_of(schema(region=annotated(kind=kind)))
    assert "leave the annotation out" in str(refused.value)
    assert "it has no single type" in str(refused.value) or f"its type is {kind!r}" in str(refused.value)


@pytest.mark.row("26-P5")
def test_an_annotation_without_a_type_is_refused() -> None:
    for found in ({"x-mcp-header": "Region"}, {"x-mcp-header": "Region", "enum": ["a"]}):
        with pytest.raises(BadHeaderAnnotation, match="no single type"):
            header_plan_of(schema(region=found))


MISPLACED = {
    "root": annotated(kind="object"),
    "items": schema(a={"items": annotated()}),
    "items of old": schema(a={"items": [annotated()]}),
    "prefixItems": schema(a={"prefixItems": [annotated()]}),
    "contains": schema(a={"contains": annotated()}),
    "oneOf": schema(a={"oneOf": [annotated(), {"type": "null"}]}),
    "anyOf": schema(a={"anyOf": [annotated(), {"type": "null"}]}),
    "allOf": {"allOf": [schema(a=annotated())]},
    "not": schema(a={"not": annotated()}),
    "if": {"if": schema(a=annotated())},
    "then": {"then": schema(a=annotated())},
    "else": {"else": schema(a=annotated())},
    "additionalProperties": schema(a={"additionalProperties": annotated()}),
    "unevaluatedProperties": {"unevaluatedProperties": annotated()},
    "unevaluatedItems": schema(a={"unevaluatedItems": annotated()}),
    "patternProperties": {"patternProperties": {"a": annotated()}},
    "propertyNames": {"propertyNames": annotated()},
    "dependentSchemas": {"dependentSchemas": {"a": schema(a=annotated())}},
    "contentSchema": schema(a={"contentSchema": annotated()}),
    "$defs": {**schema(a={"$ref": "#/$defs/a"}), "$defs": {"a": annotated()}},
    "definitions": {"definitions": {"unused": annotated()}},
    "properties in items": schema(a={"items": schema(b=annotated())}),
    "properties in $defs": {"$defs": {"a": schema(b=annotated())}},
}


@pytest.mark.row("26-P5")
@pytest.mark.parametrize("where", MISPLACED)
def test_an_annotation_that_properties_alone_do_not_reach_is_refused(where: str) -> None:
    with pytest.raises(BadHeaderAnnotation, match="`properties` alone"):
        header_plan_of(MISPLACED[where])


@pytest.mark.row("26-P5")
@pytest.mark.parametrize("other", ["Region", "REGION", "rEgIoN"])
def test_an_annotation_is_unique_whatever_its_case(other: str) -> None:
    with pytest.raises(BadHeaderAnnotation, match=r"^where\.b: .* of a is the same.* a name of its own"):
        header_plan_of(schema(a=annotated("Region"), where=schema(b=annotated(other))))


@pytest.mark.row("26-P5")
def test_a_secret_of_our_own_is_not_mirrored_and_a_foreign_one_is() -> None:
    found = schema(key=annotated("Key", writeOnly=True))
    with pytest.raises(BadHeaderAnnotation, match="secret"):
        header_plan_of(found, ours=True)
    assert header_plan_of(found) is not None
    assert header_plan_of(schema(key=annotated("Key", writeOnly=False)), ours=True) is not None


def test_a_schema_with_too_many_places_is_refused() -> None:
    with pytest.raises(BadHeaderAnnotation, match="too large"):
        header_plan_of(schema(region=annotated(), **{f"p{n}": {} for n in range(2_000)}))


_SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.builds(
        annotated,
        st.sampled_from(["Region", "region", "Zone", "", "ü", 7, None]),
        st.sampled_from(["string", "integer", "boolean", "number", "object", None]),
    )
    | st.just({"type": "string"})
    | st.sampled_from([True, None, 7, [], "x"]),
    lambda inner: st.dictionaries(
        st.sampled_from(["properties", "items", "anyOf", "$defs", "not", "default", "type", "x-mcp-header", "a", "b"]),
        inner | st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        max_size=3,
    ),
    max_leaves=8,
)


@pytest.mark.row("26-P5")
@given(found=_SCHEMAS, ours=st.booleans())
@settings(max_examples=examples(1000))
def test_any_schema_has_a_plan_none_or_a_reason(found: Any, *, ours: bool) -> None:
    try:
        plan = header_plan_of(found, ours=ours)
    except BadHeaderAnnotation as error:
        assert str(error).isprintable()
        return
    if plan is None:
        return
    assert len({each.header for each in plan.parameters}) == len(plan.parameters) > 0
    for each in plan.parameters:
        place = found
        for name in each.path:
            place = place["properties"][name]
        assert f"mcp-param-{place['x-mcp-header'].lower()}" == each.header
        assert place["type"] in ("string", "integer", "boolean")


# --- a tool's parameters: writing and comparing


@pytest.mark.row("26-P4")
@pytest.mark.parametrize(
    ("plan", "arguments", "value"),
    [
        (REGION, {"region": "us-west1"}, "us-west1"),
        (REGION, {"region": ""}, ""),
        (REGION, {"region": "日本語"}, "=?base64?5pel5pys6Kqe?="),
        (REGION, {"region": None}, None),
        (REGION, {}, None),
        (REGION, {"Region": "us"}, None),
        (REGION, None, None),
        (REGION, ["us"], None),
        (COUNT, {"count": 42}, "42"),
        (COUNT, {"count": -7}, "-7"),
        (COUNT, {"count": 0}, "0"),
        (COUNT, {"count": 42.0}, "42"),
        (COUNT, {"count": -0.0}, "0"),
        (COUNT, {"count": LARGEST}, "9007199254740991"),
        (COUNT, {"count": -LARGEST}, "-9007199254740991"),
        (COUNT, {"count": 4.5}, "4.5"),  # wrong, and for the tool to say
        (COUNT, {"count": float("nan")}, None),  # null in JSON
        (COUNT, {"count": float("inf")}, None),
        (FLAG, {"flag": True}, "true"),
        (FLAG, {"flag": False}, "false"),
        (FLAG, {"flag": [True]}, None),
        (FLAG, {"flag": {}}, None),
    ],
)
def test_an_argument_is_written_as_its_text_and_no_value_as_no_header(
    plan: HeaderPlan, arguments: Any, value: str | None
) -> None:
    headers = plan.headers_for(arguments)
    assert headers == (() if value is None else ((plan.parameters[0].header, value),))
    plan.check(arguments, dict(headers))


NESTED = plan_of(where=schema(deep=schema(zone=annotated("Zone"))), zone={"type": "string"})


@pytest.mark.row("26-P4")
@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ({"where": {"deep": {"zone": "a"}}, "zone": "b"}, "a"),
        ({"zone": "b"}, None),
        ({"where": {"zone": "b"}}, None),
        ({"where": {"deep": None}}, None),
        ({"where": {"deep": "zone"}}, None),
        ({"where": [{"deep": {"zone": "a"}}]}, None),
        ({"where": {"deep": {"zone": None}}}, None),
    ],
)
def test_an_argument_is_read_at_the_exact_path_of_its_property(arguments: Any, value: str | None) -> None:
    assert dict(NESTED.headers_for(arguments)).get("mcp-param-zone") == value
    if value is None:
        assert "arguments.where.deep.zone" in mismatch(NESTED, arguments, zone="b").message
        assert "has no value" in mismatch(NESTED, arguments, zone="").message


@pytest.mark.row("26-P5", "26-P7")
@pytest.mark.parametrize("count", [LARGEST + 1, -LARGEST - 1, 2.0**53, 10**300, 1e300, 10**400])
def test_an_integer_that_not_every_parser_reads_is_neither_sent_nor_accepted(count: float) -> None:
    with pytest.raises(
        LocalProtocolError, match=r"^arguments\.count: .*Mcp-Param-Count .*9007199254740991: take a str"
    ):
        COUNT.headers_for({"count": count})
    mismatch(COUNT, {"count": count})
    mismatch(COUNT, {"count": count}, count=repr(count))


@pytest.mark.row("26-P7")
@pytest.mark.parametrize("value", ["42", "42.0", "42.000", sentinel("42"), sentinel("42.0")])
def test_integers_are_compared_as_numbers(value: str) -> None:
    COUNT.check({"count": 42}, {"mcp-param-count": value})
    COUNT.check({"count": 42.0}, {"mcp-param-count": value})


@pytest.mark.row("26-P7")
@pytest.mark.parametrize(
    "value",
    ["", "43", "-42", "42.5", "42.", ".42", "042", "+42", "4_2", "0x2a", "4.2e1", "42 ", "42,0", "42 42", "\uff14\uff12", "true",
     "9" * 100_000, "42." + "0" * 100_000 + "1", "nan", sentinel("43")],
)  # fmt: skip
def test_another_number_or_another_spelling_of_it_is_refused(value: str) -> None:
    mismatch(COUNT, {"count": 42}, count=value)
    mismatch(COUNT, {"count": 42.0}, count=value)


def test_a_boolean_is_no_number_and_has_one_spelling() -> None:
    for value in ("1", "True", "TRUE", "1.0", "yes", "false", ""):
        mismatch(FLAG, {"flag": True}, flag=value)
    for value in ("0", "False", "-0", ""):
        mismatch(FLAG, {"flag": False}, flag=value)
    mismatch(COUNT, {"count": 1}, count="true")
    FLAG.check({"flag": True}, {"mcp-param-flag": sentinel("true")})


@pytest.mark.row("26-P7")
def test_a_missing_header_for_a_given_argument_is_refused() -> None:
    for plan, arguments in ((REGION, {"region": "us"}), (COUNT, {"count": 0}), (FLAG, {"flag": False})):
        error = mismatch(plan, arguments)
        assert "is missing" in error.message
        assert error.data == {"header": plan.parameters[0].spelled}
    assert "is missing" in mismatch(REGION, {"region": ""}).message


@pytest.mark.row("26-P7")
def test_a_header_without_a_value_in_the_body_is_refused() -> None:
    bodies: list[Any] = [{}, {"region": None}, None, [], "us", {"region": {}}, {"region": ["us"]}]
    for arguments in bodies:
        mismatch(REGION, arguments, region="us")


def test_a_value_that_no_header_can_express_is_left_to_the_check_of_the_arguments() -> None:
    REGION.check({"region": ["us"]}, {})
    REGION.check({"region": {"us": 1}}, {})


@pytest.mark.row("26-P2", "26-P7")
def test_values_are_case_sensitive_and_other_headers_are_ignored() -> None:
    mismatch(REGION, {"region": "us-west1"}, region="US-WEST1")
    REGION.check({"region": "us-west1"}, {"mcp-param-region": "us-west1", "mcp-param-zone": "é", "mcp-region": "x"})


def test_the_values_of_arguments_are_in_no_error() -> None:
    for error in (
        mismatch(REGION, {"region": "secret-one"}, region="secret-two"),
        mismatch(REGION, {"region": "secret-one"}),
        mismatch(REGION, {}, region="secret-two"),
        mismatch(REGION, {"region": "secret-one"}, region="=?base64?secret-two?="),
    ):
        assert "secret" not in f"{error.to_wire()}{error!r}"


@pytest.mark.row("26-P2", "26-P7")
def test_every_parameter_of_a_plan_is_compared() -> None:
    plan = plan_of(a=annotated("A"), b=annotated("B"), c=annotated("C"))
    arguments = {"a": "1", "b": "2", "c": "3"}
    headers = dict(plan.headers_for(arguments))
    plan.check(arguments, headers)
    for name in headers:
        with pytest.raises(HeaderMismatch) as refused:
            plan.check(arguments, {**headers, name: "x"})
        assert refused.value.header.lower() == name


_SCALARS = TEXTS | st.booleans() | st.integers(-LARGEST, LARGEST) | st.floats(-1e15, 1e15)
ALL = plan_of(a=annotated("A"), b=schema(c=annotated("B", "integer"), d=annotated("C", "boolean")))


@pytest.mark.row("26-P4", "26-P7")
@given(_SCALARS | st.none(), _SCALARS | st.none(), _SCALARS | st.none(), _SCALARS)
@settings(max_examples=examples(1000))
def test_what_a_client_writes_a_server_accepts_and_nothing_else(a: Any, c: Any, d: Any, other: Any) -> None:
    arguments = {"a": a, "b": {"c": c, "d": d}}
    headers = dict(ALL.headers_for(arguments))
    assert all(SENDABLE.fullmatch(value) and value == value.strip() for value in headers.values())
    ALL.check(arguments, headers)
    changed = {"a": other, "b": {"c": c, "d": d}}
    assume(dict(ALL.headers_for(changed)) != headers)
    with pytest.raises(HeaderMismatch):
        ALL.check(changed, headers)
