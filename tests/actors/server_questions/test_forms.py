"""Forms that users fill in, through the context and over the wire: every field, valid answers and invalid ones."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pytest

from greenroom import Accepted, BadAnswer, Context, Declined, Dismissed, McpError, PeerError
from greenroom.protocol.elicitation_forms import Email, Titles, Uri, check_form, form_of, parse_answer
from greenroom.protocol.errors import LocalProtocolError
from greenroom.protocol.function_parameters import BadHint

from .question_server import EVERYTHING, result_text, running_question_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from .question_server import QuestionServer


class Sky(Enum):
    """The weather."""

    CLEAR = "clear"
    RAIN = "rain"


SIZES = Titles({"s": "Small", "m": "Medium"})


@dataclass
class Everything:
    """One field of every kind."""

    name: Annotated[str, msgspec.Meta(title="Name", description="As on the ticket", min_length=2, max_length=20)]
    mail: Email
    page: Uri
    born: date
    seen: datetime
    seats: Annotated[int, msgspec.Meta(ge=1, le=8)]
    sky: Sky
    size: Annotated[Literal["s", "m"], SIZES]
    old: Annotated[Literal["s", "m"], Titles(SIZES.of, legacy=True)]
    extras: Annotated[list[Literal["a", "b", "c"]], msgspec.Meta(min_length=1, max_length=2)]
    sizes: Annotated[list[Literal["s", "m"]], SIZES]
    tip: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.1
    window: bool = True
    when: Sky = Sky.RAIN
    more: list[Literal["a", "b"]] = field(default_factory=lambda: ["a"])
    note: str | None = None


TITLED = [{"const": "s", "title": "Small"}, {"const": "m", "title": "Medium"}]
FIELDS: dict[str, Any] = {
    "name": {"type": "string", "title": "Name", "description": "As on the ticket", "minLength": 2, "maxLength": 20},
    "mail": {"type": "string", "format": "email"},
    "page": {"type": "string", "format": "uri"},
    "born": {"type": "string", "format": "date"},
    "seen": {"type": "string", "format": "date-time"},
    "seats": {"type": "integer", "minimum": 1, "maximum": 8},
    "sky": {"type": "string", "enum": ["clear", "rain"]},
    "size": {"type": "string", "oneOf": TITLED},
    "old": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
    "extras": {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "minItems": 1, "maxItems": 2},
    "sizes": {"type": "array", "items": {"anyOf": TITLED}},
    "tip": {"type": "number", "minimum": 0, "maximum": 0.5, "default": 0.1},
    "window": {"type": "boolean", "default": True},
    "when": {"type": "string", "enum": ["clear", "rain"], "default": "rain"},
    "more": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "default": ["a"]},
    "note": {"type": "string"},
}
NEEDED = ["name", "mail", "page", "born", "seen", "seats", "sky", "size", "old", "extras", "sizes"]
CONTENT: dict[str, Any] = {
    "name": "Ada",
    "mail": "ada@example.com",
    "page": "https://example.com/ada",
    "born": "1815-12-10",
    "seen": "2026-01-02T03:04:05Z",
    "seats": 2,
    "sky": "clear",
    "size": "m",
    "old": "s",
    "extras": ["a", "c"],
    "sizes": [],
}
SEEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PLAIN: Any = (
    "Ada",
    "ada@example.com",
    "https://example.com/ada",
    date(1815, 12, 10),
    SEEN,
    2,
    Sky.CLEAR,
    "m",
    "s",
    ["a", "c"],
    [],
)


class Trip(TypedDict):
    """A destination."""

    city: str
    days: NotRequired[Annotated[int, msgspec.Meta(ge=1)]]


def answering(content: Any, action: str = "accept") -> dict[str, Callable[[Any], Any]]:
    answer = {"action": action} if content is None else {"action": action, "content": content}
    return {"elicitation/create": lambda _: answer}


async def peer_of(stage: QuestionServer, content: Any, **options: Any) -> Any:
    await stage.probe(answering(content), **options)
    return stage.server.session((await stage.server.peers.all())[-1].id)


@pytest.mark.row("SC-06")
async def test_every_kind_of_field_can_be_asked_and_answered() -> None:
    values: list[Everything] = []

    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Everything, please.", Everything)
        assert isinstance(answer, Accepted)
        values.append(answer.value)
        return answer.action

    async with running_question_server(ask) as stage:
        for more in (
            {},
            {"tip": 0.5, "window": False, "when": "clear", "more": ["b", "a"], "note": "x"},
            {"note": None},
        ):
            probe = await stage.probe(answering({**CONTENT, **more}))
            assert result_text(await probe.call("ask")) == "accept"
            [asked] = await probe.wait_for_notifications("elicitation/create")
            form = {"type": "object", "properties": FIELDS, "required": NEEDED}
            assert asked == {"message": "Everything, please.", "requestedSchema": form}
    assert values == [
        Everything(*PLAIN),
        replace(Everything(*PLAIN), tip=0.5, window=False, when=Sky.CLEAR, more=["b", "a"], note="x"),
        Everything(*PLAIN),
    ]


BAD: dict[str, tuple[Any, ...]] = {
    "name": ("A", "A" * 21, 7, None),
    "mail": ("ada", "ada@", "", 7),
    "page": ("example", "no scheme", 7),
    "born": ("10.12.1815", "1815-13-10", "1815-12-10T00:00:00Z"),
    "seen": ("2026-01-02", "yesterday", "2026-01-02T25:00:00Z"),
    "seats": (0, 9, 1.5, "2", True),
    "sky": ("snow", "", 1),
    "size": ("l", "Medium"),
    "old": ("l", "Small"),
    "extras": ([], ["a", "b", "c"], ["x"], "a"),
    "sizes": (["Small"], {}),
    "tip": (-0.1, 0.6, "0.1"),
    "window": ("yes", 1),
    "when": ("snow",),
    "more": (["c"],),
    "note": (7,),
}


@pytest.mark.row("SC-06")
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in BAD.items() for value in values])
async def test_an_answer_that_does_not_fit_is_an_error_with_its_path(name: str, value: Any) -> None:
    async with running_question_server() as stage:
        peer = await peer_of(stage, {**CONTENT, name: value})
        with pytest.raises(BadAnswer) as refused:
            await peer.elicit("?", Everything)
        assert isinstance(refused.value, PeerError)
        assert refused.value.code == -32603
        if refused.value.problems:  # else it was no answer to any form
            assert [problem.path[0] for problem in refused.value.problems] == [name]
            assert name in str(refused.value)


@pytest.mark.row("SC-06")
async def test_all_problems_of_an_answer_are_reported_and_the_tool_may_ask_again() -> None:
    answers = iter([{"days": 0}, {"city": "Oslo", "days": 2, "unasked": "x"}])
    wrong: list[Any] = []

    async def ask(ctx: Context) -> str:
        while True:
            try:
                answer = await ctx.elicit("Where to?", Trip)
            except BadAnswer as error:
                wrong.append([problem.path for problem in error.problems])
                continue
            assert isinstance(answer, Accepted)
            return str(answer.value)

    async with running_question_server(ask) as stage:
        probe = await stage.probe({"elicitation/create": lambda _: {"action": "accept", "content": next(answers)}})
        assert result_text(await probe.call("ask")) == "{'city': 'Oslo', 'days': 2}"
        assert wrong == [[("days",), ("city",)]]
        form = probe.notifications("elicitation/create")[0]["requestedSchema"]
        assert (form["required"], form["properties"]["days"]) == (["city"], {"type": "integer", "minimum": 1})


@pytest.mark.row("SC-06")
@pytest.mark.parametrize(("action", "value"), [("decline", Declined()), ("cancel", Dismissed())])
async def test_a_no_needs_no_content_and_any_is_ignored(action: str, value: object) -> None:
    async with running_question_server() as stage:
        for content in (None, {"days": 0}):
            await stage.probe(answering(content, action))
            [*_, card] = await stage.server.peers.all()
            assert await stage.server.session(card.id).elicit("?", Trip) == value


@pytest.mark.parametrize("answer", [{}, {"action": "maybe"}, {"action": 7}, {"action": "accept", "content": {"a": {}}}])
async def test_an_invalid_elicitation_answer_raises_bad_answer(answer: dict[str, Any]) -> None:
    async with running_question_server() as stage:
        await stage.probe({"elicitation/create": lambda _: answer})
        [card] = await stage.server.peers.all()
        with pytest.raises(BadAnswer, match="elicitation/create"):
            await stage.server.session(card.id).elicit("?", {"type": "object", "properties": {}})


@pytest.mark.parametrize(
    ("kind", "content", "value"),
    [
        (None, None, None),
        (None, {"unasked": 1}, None),
        (int, {"value": 3}, 3),
        (bool, {"value": False}, False),
        (Sky, {"value": "rain"}, Sky.RAIN),
        (date, {"value": "2026-01-02"}, date(2026, 1, 2)),
    ],
)
async def test_a_form_may_have_one_field_or_none(kind: Any, content: Any, value: Any) -> None:
    async with running_question_server() as stage:
        peer = await peer_of(stage, content)
        assert await peer.elicit("Sure?", kind) == Accepted(value)


# --- forms by hand

BY_HAND: dict[str, Any] = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": FIELDS, "required": NEEDED}  # fmt: skip


@pytest.mark.row("SC-06")
async def test_a_handwritten_form_is_sent_unchanged_and_its_answer_is_checked() -> None:
    async with running_question_server() as stage:
        peer = await peer_of(stage, {**CONTENT, "note": None, "unasked": "x"})
        assert await peer.elicit("?", BY_HAND) == Accepted(CONTENT)
        wrong = await peer_of(stage, {**CONTENT, "mail": "ada"})
        with pytest.raises(BadAnswer, match="mail"):
            await wrong.elicit("?", BY_HAND)


def one(**says: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": says}}


TWO = [{"const": "x", "title": "X"}, {"const": "y", "title": "Y"}]
ILLEGAL: tuple[tuple[Any, str], ...] = (
    ({}, "a form must be an object"),
    ({"type": "object"}, "a form must be an object"),
    ({"type": "array", "properties": {}}, "a form must be an object"),
    ({**one(type="string"), "$defs": {}}, r"no \$defs"),
    ({**one(type="string"), "oneOf": []}, "no oneOf"),
    ({**one(type="string"), "required": ["b"]}, "a list of its fields"),
    ({**one(type="string"), "required": "a"}, "a list of its fields"),
    (one(), "type None"),
    (one(type="object", properties={}), "type 'object'"),
    (one(type="null"), "type 'null'"),
    (one(type=["string", "null"]), "type "),
    (one(anyOf=[{"type": "string"}]), "type None"),
    ({"type": "object", "properties": {"a": True}}, "type None"),
    (one(type="string", multipleOf=2), "has multipleOf"),
    (one(type="integer", exclusiveMinimum=2), "has exclusiveMinimum"),
    (one(type="boolean", enum=[True]), "has enum"),
    (one(type="string", enum=["x"], minLength=1), "has minLength"),
    (one(type="string", enum=["x"], oneOf=TWO), "has oneOf"),
    (one(type="string", const="x"), "has const"),
    (one(type="string", title=7), "title must be a string"),
    (one(type="string", description=None), "description must be a string"),
    (one(type="string", format="ipv4"), "format 'ipv4'"),
    (one(type="string", pattern=7), "pattern must be a string"),
    (one(type="string", minLength=-1), "minLength is a whole number"),
    (one(type="string", minLength=1.5), "minLength is a whole number"),
    (one(type="string", minLength=3, maxLength=2), "minLength is more than its maxLength"),
    (one(type="number", minimum="1"), "minimum is a number"),
    (one(type="number", minimum=float("nan")), "minimum is a number"),
    (one(type="number", minimum=2, maximum=1), "minimum is more than its maximum"),
    (one(type="string", enum=[]), "choices that are not strings, or none"),
    (one(type="string", enum=["x", 1]), "choices that are not strings"),
    (one(type="string", enum=["x", "x"]), "a choice twice"),
    (one(type="string", enum=["x", "y"], enumNames=["X"]), "a string for each of its choices"),
    (one(type="string", oneOf=[{"const": "x"}]), "each of its choices must be"),
    (one(type="string", oneOf=[{"const": 1, "title": "X"}]), "choices that are not strings"),
    (one(type="string", oneOf=[{"const": "x", "title": 1}]), "each of its choices must be"),
    (one(type="string", oneOf=[]), "choices that are not strings, or none"),
    (one(type="array"), "items without choices"),
    (one(type="array", items={"type": "string"}), "items without choices"),
    (one(type="array", items={"type": "integer", "enum": ["x"]}), "its items must have"),
    (one(type="array", items={"enum": ["x"]}), "its items must have"),
    (one(type="array", items={"type": "string", "enum": ["x"], "minLength": 1}), "choices only"),
    (one(type="array", items={"anyOf": TWO, "type": "string"}), "choices only"),
    (one(type="array", items={"anyOf": TWO}, uniqueItems=True), "has uniqueItems"),
    (one(type="array", items={"anyOf": TWO}, minItems=3), "more choices than it has"),
    (one(type="array", items={"anyOf": TWO}, minItems=2, maxItems=1), "minItems is more than"),
    (one(type="string", default=7), "default of the form's field a"),
    (one(type="string", default="x", minLength=2), "default of the form's field a"),
    (one(type="string", default="x", format="email"), "default of the form's field a"),
    (one(type="integer", default=0, minimum=1), "default of the form's field a"),
    (one(type="integer", default=1.5), "default of the form's field a"),
    (one(type="boolean", default="yes"), "default of the form's field a"),
    (one(type="string", enum=["x"], default="y"), "default of the form's field a"),
    (one(type="string", oneOf=TWO, default="X"), "default of the form's field a"),
    (one(type="array", items={"anyOf": TWO}, default=["x", "z"]), "default of the form's field a"),
    (one(type="array", items={"anyOf": TWO}, default=["x", "y"], maxItems=1), "default of the form's field a"),
)


@pytest.mark.row("SC-06")
@pytest.mark.parametrize(("form", "why"), ILLEGAL)
async def test_a_form_that_is_not_flat_is_not_sent(form: Any, why: str) -> None:
    with pytest.raises(BadHint, match=why):
        form_of(form)
    async with running_question_server() as stage:
        peer = await peer_of(stage, {})
        with pytest.raises(BadHint, match=why):
            await peer.elicit("?", form)
        with pytest.raises(LocalProtocolError, match=why):
            await stage.server.peers.elicit(peer.session_id, {"message": "?", "requestedSchema": form})


@pytest.mark.parametrize("message", ["", " "])
async def test_the_form_carries_its_message(message: str) -> None:
    async with running_question_server() as stage:
        peer = await peer_of(stage, {})
        with pytest.raises(LocalProtocolError, match="tells the user why"):
            await peer.elicit(message)


@dataclass
class Late:
    """Its default is no answer."""

    seats: Annotated[int, msgspec.Meta(ge=3)] = 1


def test_a_default_that_no_client_could_send_back_is_refused() -> None:
    with pytest.raises(BadHint, match="default of the form's field seats"):
        form_of(Late)


def test_a_form_is_the_askers_own() -> None:
    form_of(Everything)["properties"] = {}
    form_of(None)["properties"] = {"a": 1}
    assert form_of(Everything)["properties"] == FIELDS
    assert form_of(None)["properties"] == {}
    check_form(form_of(Everything))
    assert parse_answer(Everything, CONTENT) == Everything(*PLAIN)


# --- older revisions


@pytest.mark.row("SC-08")
async def test_a_choice_of_several_is_asked_only_where_it_is_known() -> None:
    async with running_question_server() as stage:
        peer = await peer_of(stage, {"a": "x"}, version="2025-06-18", capabilities={"elicitation": {}})
        with pytest.raises(McpError, match=r"2025-06-18.* no choice of several") as refused:
            await peer.elicit("?", one(type="array", items={"anyOf": TWO}))
        assert refused.value.code == -32600
        assert await peer.elicit("?", one(type="string", oneOf=TWO)) == Accepted({"a": "x"})


@pytest.mark.row("SX-09")
@pytest.mark.row("SC-08")
@pytest.mark.parametrize(
    ("elicitation", "version", "asked"),
    [
        (None, "2025-11-25", False),
        ({}, "2025-11-25", True),
        ({"form": {}}, "2025-11-25", True),
        ({"url": {}}, "2025-11-25", False),
        (EVERYTHING["elicitation"], "2025-11-25", True),
        ({}, "2025-06-18", True),
        ({"url": {}}, "2025-06-18", True),  # it had no parts then
        ({}, "2025-03-26", False),
        ({}, "2024-11-05", False),
    ],
)
async def test_forms_are_only_sent_to_clients_that_declare_them(elicitation: Any, version: str, *, asked: bool) -> None:
    async with running_question_server() as stage:
        capabilities = {} if elicitation is None else {"elicitation": elicitation}
        probe = await stage.probe(answering({"value": 1}), version=version, capabilities=capabilities)
        [card] = await stage.server.peers.all()
        if asked:
            assert await stage.server.session(card.id).elicit("?", int) == Accepted(1)
            return
        with pytest.raises(McpError) as refused:
            await stage.server.session(card.id).elicit("?", int)
        assert refused.value.code == -32600
        assert [each for each in probe.received if "method" in each] == []
