"""Values of common libraries in results: sent as data or as pictures, as their hints announce."""

from __future__ import annotations

import collections
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from io import BytesIO
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import matplotlib.figure
import msgspec
import numpy as np
import pytest
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, SecretStr, computed_field

from greenroom import Client, Server, Settings, ToolReply
from greenroom.protocol.errors import LocalProtocolError, PeerError
from greenroom.protocol.handler_results import (
    CallToolResult,
    ReturnSchema,
    Structured,
    UnserializableResult,
    prompt_result,
    resource_contents,
    return_schema_of,
    tool_result,
)
from greenroom.protocol.serialization import is_slow_to_serialize, to_jsonable
from greenroom.protocol.validation_errors import Mismatch

pd: Any = import_module("pandas")  # the library has no type hints


class Celsius(float):
    """A subclass of float."""


class Count(int):
    """A subclass of int."""


class Name(str):  # noqa: SLOT000 - as users write it
    """A subclass of str."""


class Stamp(datetime):
    """A subclass of datetime."""


class Wait(timedelta):
    """A subclass of timedelta."""


@dataclass
class Reading:
    values: np.ndarray[Any, Any]
    heat: Celsius
    when: Stamp


@attrs.define
class Pair:
    one: np.int64
    two: list[float]


def row() -> sqlite3.Row:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    try:
        found: sqlite3.Row = connection.execute("select 1 as one, 'b' as two").fetchone()
        return found
    finally:
        connection.close()


FRAME = pd.DataFrame({"a": [1, 2], "b": [3.5, None], "t": pd.to_datetime(["2020-01-01", None])})
SALES = pd.DataFrame({"c": ["a", "a", "b"], "d": [1, 2, 1], "v": [1, 2, 3]})

VALUES: list[tuple[Any, Any]] = [
    (np.float64(1.5), 1.5),
    (np.float32(2), 2.0),
    (np.longdouble(2), 2.0),
    (np.int64(3), 3),
    (np.bool_(True), True),  # noqa: FBT003 - numpy's own
    (np.str_("x"), "x"),
    (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    (np.array(5), 5),
    (np.datetime64("2020-01-01T00:00:00.123456789"), "2020-01-01T00:00:00.123456"),
    (np.datetime64("NaT", "s"), None),
    (np.timedelta64(5, "s"), "PT5S"),
    (np.array(["2020-01-01"], dtype="datetime64[ns]"), ["2020-01-01T00:00:00"]),
    (np.array([(1, "a")], dtype=[("x", int), ("y", "U1")]), [{"x": 1, "y": "a"}]),
    (np.ma.masked_array([1, 2], mask=[False, True]), [1, None]),
    (Celsius(1.5), 1.5),
    (Count(3), 3),
    (Name("q"), "q"),
    (Stamp(2020, 1, 1, tzinfo=UTC), "2020-01-01T00:00:00Z"),
    (Wait(seconds=2), "PT2S"),
    (Decimal("1.10"), "1.10"),
    (UUID(int=3), "00000000-0000-0000-0000-000000000003"),
    (Path("/a"), "/a"),
    ({2}, [2]),
    (collections.deque([1]), [1]),
    (collections.Counter(np.array([1, 1, 2]).tolist()), {"1": 2, "2": 1}),
    (ip_address("::1"), "::1"),
    (row(), {"one": 1, "two": "b"}),
    (FRAME, [{"a": 1, "b": 3.5, "t": "2020-01-01T00:00:00"}, {"a": 2, "b": None, "t": None}]),
    (pd.DataFrame({"a": [1]}, index=pd.Index(["x"], name="city")), [{"city": "x", "a": 1}]),
    (pd.DataFrame({"a": [1]}, index=["x"]), [{"index": "x", "a": 1}]),
    (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), [{"a.b": 1}]),
    (pd.DataFrame(), []),
    (SALES.groupby(["c", "d"]).v.sum(), [{"c": "a", "d": 1, "v": 1}, {"c": "a", "d": 2, "v": 2}, {"c": "b", "d": 1, "v": 3}]),
    (pd.Series({"x": 1.0, "y": 2.0}), {"x": 1.0, "y": 2.0}),
    (pd.Series([1, 2]), [1, 2]),
    (pd.Series([1, 2], index=["a", "a"]), [{"index": "a", "value": 1}, {"index": "a", "value": 2}]),
    (pd.Timestamp("2020-01-01", tz="UTC"), "2020-01-01T00:00:00Z"),
    (pd.Timedelta("1s"), "PT1S"),
    (pd.NaT, None),
    (pd.NA, None),
    (pd.Interval(0, 1), "(0, 1]"),
    (pd.Index(["a"]), ["a"]),
    ({"a": [np.int64(1), {"b": np.array([1.5])}], np.int64(7): np.float32(2)}, {"a": [1, {"b": [1.5]}], "7": 2.0}),
    ({None: 1, True: 2}, {"null": 1, "true": 2}),
    (Reading(np.array([1]), Celsius(2), Stamp(2021, 1, 1)), {"values": [1], "heat": 2.0, "when": "2021-01-01T00:00:00"}),
    (Pair(np.int64(1), [np.float64(2)]), {"one": 1, "two": [2.0]}),
    (HttpUrl("https://a.example"), "https://a.example/"),
    ({"key": SecretStr("hunter2")}, {"key": "**********"}),
]  # fmt: skip


@pytest.mark.parametrize(("value", "sent"), VALUES, ids=lambda one: type(one).__name__)
def test_values_of_everyday_libraries_are_data(value: Any, sent: Any) -> None:
    assert msgspec.json.decode(msgspec.json.encode(to_jsonable(value))) == sent


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({(1, 2): 3}, "a dict key is no text, number or date: use text keys"),
        ({None: 1, "null": 2}, "two keys of a dict are 'null' in JSON"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "the frame has two columns called 'a'"),
        (1j, "complex cannot be expressed in JSON"),
    ],
)
def test_a_value_that_would_lose_a_part_is_refused(value: Any, why: str) -> None:
    with pytest.raises(UnserializableResult, match=why):
        tool_result(value)


# --- pictures


def drawing() -> Any:
    figure: Any = matplotlib.figure.Figure()
    figure.add_subplot().plot([1, 2])
    return figure


def photo(kind: str) -> Any:
    file = BytesIO()
    Image.new("RGB", (4, 4)).save(file, kind)
    return Image.open(BytesIO(file.getvalue()))


@pytest.mark.parametrize(
    ("value", "mime"),
    [
        (Image.new("RGB", (2, 2)), "image/png"),
        (Image.new("CMYK", (2, 2)), "image/png"),
        (Image.new("F", (2, 2)), "image/png"),
        (photo("JPEG"), "image/jpeg"),
        (photo("BMP"), "image/png"),
        (drawing(), "image/png"),
        (drawing().axes[0], "image/png"),
    ],
)
def test_a_picture_is_image_content(value: Any, mime: str) -> None:
    (block,) = tool_result(value)["content"]
    assert (block["type"], block["mimeType"]) == ("image", mime)
    assert resource_contents(value, "a://b")["contents"][0]["mimeType"] == mime
    assert prompt_result(value)["messages"][0]["content"]["type"] == "image"


def test_pictures_stand_among_texts_and_behind_data() -> None:
    picture = Image.new("L", (2, 2))
    assert [block["type"] for block in tool_result(["see:", picture])["content"]] == ["text", "image"]
    text, image = tool_result({"chart": picture, "mean": 3})["content"]
    assert text["text"] == '{"chart":"content[1]","mean":3}'
    assert image["type"] == "image"
    with pytest.raises(TypeError, match="return it by itself, or in a list"):
        to_jsonable({"chart": picture})


@dataclass
class Chart:
    picture: Image.Image
    mean: float


def promising(hint: Any) -> Any:
    def tool() -> None: ...

    tool.__annotations__["return"] = hint
    return return_schema_of(tool)


def test_hints_of_pictures_promise_what_is_sent() -> None:
    assert promising(Image.Image) is None
    assert promising(list[Image.Image]) is None
    returns: ReturnSchema = promising(Chart)
    result = tool_result(Chart(Image.new("L", (2, 2)), 1.5), returns)
    assert result["structuredContent"] == {"picture": "content[1]", "mean": 1.5}
    assert returns.errors(result["structuredContent"]) == []


@pytest.mark.parametrize(
    ("hint", "value", "schema", "sent"),
    [
        (float, np.float64(2), {"type": "number"}, 2.0),
        (list[float], np.array([1.5]), {"type": "array", "items": {"type": "number"}}, [1.5]),
        (np.ndarray, np.array([1]), {"type": "array"}, [1]),
        (np.int64, np.int64(1), {"type": "integer"}, 1),
        (pd.DataFrame, pd.DataFrame({"a": [1]}), {"type": "array", "items": {"type": "object"}}, [{"a": 1}]),
        (Celsius, Celsius(1), {"type": "number"}, 1.0),
    ],
    ids=str,
)
def test_hints_of_libraries_are_announced_and_kept(hint: Any, value: Any, schema: Any, sent: Any) -> None:
    returns: ReturnSchema = promising(hint)
    assert returns.schema["properties"]["result"] == schema
    result = tool_result(value, returns)
    assert result["structuredContent"] == {"result": sent}
    assert returns.errors(result["structuredContent"]) == []
    assert returns.errors({"result": {"not": "this"}}) != []


def test_slow_values_are_recognized() -> None:
    assert is_slow_to_serialize(np.zeros(20_000))
    assert is_slow_to_serialize({"a": [drawing()]})
    assert is_slow_to_serialize(Chart(Image.new("L", (2, 2)), 1))
    assert not is_slow_to_serialize({"a": [1, "b"], "c": np.zeros(3)})


# --- pydantic


class Person(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    first: str = Field(alias="firstName")
    age: int = 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def loud(self) -> str:
        return self.first.upper()


ADA = {"firstName": "Ada", "age": 4, "loud": "ADA"}


@pytest.mark.parametrize(
    ("hint", "value", "sent"),
    [
        (Person, {"first": "Ada", "age": 4}, ADA),
        (Person, {"firstName": "Ada", "age": np.int64(4)}, ADA),
        (Person, Person.model_validate({"first": "Ada", "age": 4}), ADA),
        (list[Person], [{"first": "Ada", "age": 4}], {"result": [ADA]}),
        (dict[str, Person], {"a": {"first": "Ada", "age": 4}}, {"a": ADA}),
        (Person | None, None, {"result": None}),
        (HttpUrl, "https://a.example", {"result": "https://a.example/"}),
    ],
    ids=str,
)
def test_a_model_result_fits_the_announced_schema(hint: Any, value: Any, sent: Any) -> None:
    returns: ReturnSchema = promising(hint)
    result = tool_result(value, returns)
    assert result["structuredContent"] == sent
    assert returns.errors(sent) == []


def test_a_value_that_the_model_refuses_is_reported() -> None:
    with pytest.raises(Mismatch, match="firstName: Field required"):
        tool_result({"last": "Ada"}, promising(Person))
    assert [path for path, _ in promising(Person).errors({"firstName": "Ada", "age": 4})] == [("loud",)]


async def test_a_broken_promise_is_an_error_that_says_so() -> None:
    server = Server("x")

    @server.tool
    def person() -> Person:
        made: Any = {"last": "Ada"}
        return made  # type: ignore[no-any-return]

    async with Client(server) as client:
        reply = await client.call_tool("person")
    assert reply.is_error
    assert "The result of person does not match its output schema: firstName: Field required" in reply.text


INF, NAN = float("inf"), float("nan")


@dataclass
class Statistics:
    mean: float
    median: float | None = None


def of_inf() -> Any:
    """Results with an infinity: the hint, the value, the place of the infinity, and its name."""
    frame = pd.DataFrame({"a": [1.0, 2.0], "x": [NAN, -INF]})
    return [
        (Any, frame, "[1].x", "-inf"),
        (pd.DataFrame, frame, "result[1].x", "-inf"),
        (pd.Series, pd.Series([1.0, INF], index=["a", "b"]), "result.b", "inf"),
        (Any, [2**70, INF], "[1]", "inf"),
        (Any, pd.Series([INF]), "[0]", "inf"),
        (np.ndarray, np.array([[1.0, INF]]), "result[0][1]", "inf"),
        (Any, np.float32("inf"), "", "inf"),
        (float, INF, "result", "inf"),
        (float | None, -INF, "result", "-inf"),
        (list[float], [1.0, INF], "result[1]", "inf"),
        (Any, {"deep": ({"x": [None, INF]},)}, "deep[0].x[1]", "inf"),
        (Statistics, Statistics(1.0, INF), "median", "inf"),
        (Any, Structured({"x": INF}, "shown"), "x", "inf"),
        (Any, CallToolResult(["shown"], {"x": INF}), "x", "inf"),
        (Any, CallToolResult.ok("shown", structured_content={"x": INF}), "x", "inf"),
    ]


async def returned(hint: Any, value: Any) -> ToolReply:
    """The result of a tool with this hint that returns this value, as a client gets it."""
    server = Server("numbers")

    def tool() -> Any:
        return value

    tool.__annotations__["return"] = hint
    server.tool(tool)
    async with Client(server) as client:
        return await client.call_tool("tool")


@pytest.mark.parametrize(("hint", "value", "place", "said"), of_inf(), ids=range(len(of_inf())))
async def test_an_infinity_is_an_error_that_says_where_it_is(hint: Any, value: Any, place: str, said: str) -> None:
    reply = await returned(hint, value)
    told = f"{place}: {said}" if place else said
    assert reply.is_error
    assert (
        reply.text == f"The result of tool cannot be sent: {told} cannot be written in JSON: use None or text instead"
    )


def of_nan() -> Any:
    """NaN under hints that allow null: the hint, the value, and the sent data."""
    frame = pd.DataFrame({"x": [NAN, 1.0]})
    return [
        (Any, frame, [{"x": None}, {"x": 1.0}]),
        (pd.DataFrame, frame, [{"x": None}, {"x": 1.0}]),
        (pd.Series, pd.Series([NAN]), [None]),
        (np.ndarray, np.array([NAN, 1.0]), [None, 1.0]),
        (float | None, NAN, None),
        (list[float | None], [NAN], [None]),
        (Any, {"x": NAN}, {"x": None}),
        (Statistics, Statistics(1.0, NAN), {"mean": 1.0, "median": None}),
    ]


@pytest.mark.parametrize(("hint", "value", "sent"), of_nan(), ids=range(len(of_nan())))
async def test_nan_is_null_where_the_hint_takes_null(hint: Any, value: Any, sent: Any) -> None:
    server = Server("numbers")

    def tool() -> Any:
        return value

    tool.__annotations__["return"] = hint
    server.tool(tool)
    async with Client(server) as client:
        assert msgspec.json.decode((await client.call_tool("tool")).text) == sent


@pytest.mark.parametrize(
    ("hint", "value", "place"),
    [
        (float, NAN, "result"),
        (np.floating, np.float64("nan"), "result"),
        (list[float], [1.0, NAN], "result[1]"),
        (Statistics, Statistics(NAN), "mean"),
    ],
)
async def test_nan_where_the_hint_has_no_null_is_an_error_that_says_nan(hint: Any, value: Any, place: str) -> None:
    reply = await returned(hint, value)
    assert reply.is_error
    assert f"schema: {place}: expected a number, got NaN is null in JSON" in reply.text
    assert "`float | None`" in reply.text


async def test_nan_is_looked_at_as_peers_see_it_under_a_schema_by_hand() -> None:
    server = Server("numbers", settings=Settings(strict=True))

    @server.tool(output_schema={"type": "object", "properties": {"x": {"type": "number"}}})
    def tool() -> Any:
        return Structured({"x": NAN})

    async with Client(server) as client:
        assert "x: expected a number, got NaN" in (await client.call_tool("tool")).text


async def test_an_infinity_in_a_resource_is_in_no_answer_as_null(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("numbers")

    @server.resource("data://x")
    def x() -> Any:
        return {"rows": [1.0, INF]}

    async with Client(server) as client:
        with pytest.raises(PeerError):
            await client.read_resource("data://x")
    assert "rows[1]: inf cannot be written in JSON" in caplog.text


async def test_a_clients_infinity_is_refused_before_anything_is_sent() -> None:
    server = Server("numbers")

    @server.tool
    def tool(x: float | None) -> str:
        return str(x)

    async with Client(server) as client:
        with pytest.raises(LocalProtocolError, match=r"the arguments of 'tool' .* x: inf cannot be written in JSON"):
            await client.call("tool", x=INF)
        assert await client.call("tool", x=NAN) == "None"


def test_no_library_is_imported_by_greenroom() -> None:
    asked = "import sys, greenroom; print([n for n in ('numpy', 'pandas', 'PIL', 'matplotlib', 'pydantic', 'attr') if n in sys.modules])"
    found = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
