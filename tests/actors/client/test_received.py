"""Replies of servers are read into values, with unknown members kept; invalid entries are reported and affect no others."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.protocol.content import Audio, Contents, Embedded, Image, ResourceLink, Text
from greenroom.protocol.definitions import Prompt, Resource, ResourceTemplate, Tool
from greenroom.protocol.errors import BadAnswer, PeerError
from greenroom.protocol.handler_results import Message, ReturnSchema, prompt_result, resource_contents, tool_result
from greenroom.protocol.received_results import (
    Page,
    RemoteTask,
    ToolReply,
    read_completion,
    read_contents,
    read_created_task,
    read_detailed_task,
    read_log,
    read_page,
    read_prompt,
    read_task,
    read_tasks,
    read_tool_reply,
)
from greenroom.protocol.reply_values import OutputSchema, is_wrapped, plain_value, typed_value

PIXEL = {"type": "image", "data": "AAEC", "mimeType": "image/png"}
WORKING = {
    "taskId": "t1", "status": "working", "ttl": 60000, "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:01Z", "pollInterval": 500,
}  # fmt: skip


@dataclass
class Day:
    name: str
    high: int


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def reply(**result: Any) -> ToolReply:
    return read_tool_reply(result)


def said(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}]


# --- blocks


def test_each_kind_of_block_is_its_value() -> None:
    wire = [
        {"type": "text", "text": "hello", "annotations": {"audience": ["user"], "later": 1}},
        PIXEL,
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": "a:b", "name": "b", "icons": None},
        {"type": "resource", "resource": {"uri": "a:c", "text": "inside"}},
    ]
    answer = reply(content=wire)
    assert answer.content == [
        Text("hello", {"audience": ["user"], "later": 1}),
        Image(b"\x00\x01\x02", "image/png"),
        Audio(b"", "audio/wav"),
        ResourceLink("a:b", "b"),
        Embedded(Contents("a:c", text="inside")),
    ]
    assert answer.text == "hello\ninside"
    assert not answer.is_error


@pytest.mark.parametrize(
    "block",
    [
        {"type": "video", "data": "AA=="},
        {"type": ["text"]},
        {},
        {"type": "image", "data": "?", "mimeType": "image/png"},
        {"type": "text"},
    ],
)
def test_an_unknown_or_broken_block_stays_what_it_was(block: dict[str, Any]) -> None:
    answer = reply(content=[*said("before"), block])
    assert answer.content == [Text("before"), block]
    assert answer.text == "before"


@pytest.mark.parametrize("result", [{}, {"content": None}, {"content": "text"}, {"content": ["text"]}, {"content": {}}])
def test_an_invalid_tool_result_is_refused(result: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer, match="Invalid"):
        read_tool_reply(result)


def test_the_raw_result_and_its_metadata_are_there() -> None:
    result: dict[str, Any] = {
        "content": [],
        "structuredContent": {"n": 1},
        "isError": True,
        "_meta": {"a": 1},
        "added": 2,
    }
    answer = read_tool_reply(result)
    assert (answer.structured_content, answer.is_error, answer.meta, answer.raw) == ({"n": 1}, True, {"a": 1}, result)
    assert answer.data == {"n": 1}
    assert reply(content=said("words")).data == "words"


def test_a_reply_can_be_passed_on_as_it_came() -> None:
    result = {
        "content": [*said("x"), PIXEL, {"type": "video", "of": [1]}],
        "structuredContent": {"n": 1},
        "isError": False,
        "_meta": {"a": 1},
    }
    assert tool_result(read_tool_reply(result)) == result


# --- tasks


@pytest.mark.parametrize("result", [{"task": WORKING}, WORKING, {"task": WORKING, "content": said("task t1")}])
def test_a_task_is_read_in_its_envelope_and_without_one(result: dict[str, Any]) -> None:
    answer = read_tool_reply(result)
    assert answer.task is not None
    assert (answer.task.id, answer.task.ttl, answer.task.poll_interval, answer.task.over) == ("t1", 60.0, 0.5, False)
    assert answer.task.raw == WORKING
    assert answer.task.created_at == "2026-01-01T00:00:00Z"


def test_a_task_that_has_ended_is_over() -> None:
    states = [read_task({**WORKING, "status": status}).over for status in ("input_required", "completed", "failed")]
    assert states == [False, True, True]


def test_tasks_are_listed() -> None:
    page = read_tasks({"tasks": [WORKING], "nextCursor": ""})
    assert [task.id for task in page] == ["t1"]
    assert page.next_cursor == ""
    assert read_task({"taskId": "x", "status": "working", "ttl": None}) == RemoteTask(
        "x", "working", raw={"taskId": "x", "status": "working", "ttl": None}
    )


FLAT: dict[str, Any] = {
    "resultType": "task", "taskId": "t1", "status": "working", "createdAt": "", "lastUpdatedAt": "", "ttlMs": 60000, "pollIntervalMs": 500,
}  # fmt: skip


def test_a_task_of_the_stateless_era_is_the_result_itself() -> None:
    task = read_tool_reply(FLAT).task
    assert task is not None
    assert (task.id, task.ttl, task.poll_interval, task.over) == ("t1", 60.0, 0.5, False)
    assert read_created_task(FLAT) == task
    assert read_task({**FLAT, "ttlMs": None, "ttl": 5}).ttl is None


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [
        (0, 0.0),
        (-5, -0.005),
        (10**400, math.inf),
        (-(10**400), -math.inf),
        (math.inf, math.inf),
        (math.nan, None),
        (True, None),
        ("1", None),
        ([], None),
    ],
)
def test_a_time_of_a_task_is_a_number_of_seconds_or_nothing(milliseconds: Any, seconds: float | None) -> None:
    task = read_task({**FLAT, "ttlMs": milliseconds, "pollIntervalMs": milliseconds})
    assert (task.ttl, task.poll_interval) == (seconds, seconds)


def test_a_detailed_task_has_what_belongs_to_its_state() -> None:
    asking: dict[str, Any] = {"who": {"method": "elicitation/create", "params": {}}}
    result: dict[str, Any] = {"content": []}
    error = {"code": -32011, "message": "shut"}
    assert (
        read_detailed_task({**FLAT, "status": "input_required", "inputRequests": asking}, "t1").input_requests == asking
    )
    assert read_detailed_task({**FLAT, "status": "completed", "result": result}, "t1").result == result
    assert read_detailed_task({**FLAT, "status": "failed", "error": error}, "t1").error == PeerError(-32011, "shut")
    assert read_detailed_task({**FLAT, "status": "cancelled"}, "t1").over


@pytest.mark.parametrize(
    "changes",
    [
        {"taskId": "t2"},
        {"taskId": 1},
        {"status": "paused"},
        {"status": None},
        {"status": "completed"},
        {"status": "completed", "result": "done"},
        {"status": "completed", "result": None},
        {"status": "failed"},
        {"status": "failed", "error": "shut"},
        {"status": "input_required"},
        {"status": "input_required", "inputRequests": []},
    ],
)
def test_a_detailed_task_of_another_shape_is_no_answer(changes: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer, match="Invalid result of tasks/get"):
        read_detailed_task({**FLAT, **changes}, "t1")


@pytest.mark.parametrize("id", ["", "x" * 1025])
def test_an_id_that_no_request_could_repeat_makes_no_task(id: str) -> None:
    with pytest.raises(BadAnswer, match="1 to 1024 characters"):
        read_created_task({**FLAT, "taskId": id})


@given(value=JSON, changes=st.dictionaries(st.sampled_from(sorted({*FLAT, "result", "error", "inputRequests"})), JSON))
@settings(max_examples=examples(300), deadline=None)
def test_whatever_a_server_says_of_a_task_is_read_or_refused(value: Any, changes: dict[str, Any]) -> None:
    for said_of_it in (value, {**FLAT, **changes}):
        with contextlib.suppress(BadAnswer):
            task = read_detailed_task(said_of_it, "t1")
            assert task.id == "t1"
            assert task.over == (task.status in ("completed", "failed", "cancelled"))
            assert (task.result is not None) or task.status != "completed"


@pytest.mark.parametrize("tasks", [None, [{}], {"taskId": "a"}, [1]])
def test_an_invalid_task_list_is_refused(tasks: Any) -> None:
    with pytest.raises(BadAnswer, match="tasks/list"):
        read_tasks({"tasks": tasks})


# --- lists, resources, prompts, completions, logs


def test_pages_are_lists_of_definitions() -> None:
    tool = {"name": "t", "inputSchema": {"type": "object"}, "title": None, "icons": None, "new": 1}
    page = read_page(Tool, {"tools": [tool], "nextCursor": "c", "_meta": {}})
    assert (list(page), page.next_cursor, len(page)) == ([Tool("t", {"type": "object"})], "c", 1)
    assert page.raw["tools"] == [tool]
    assert read_page(Resource, {"resources": [{"uri": "a:b", "name": "b"}]}) == Page(
        [Resource("a:b", "b")], problems=[], raw={"resources": [{"uri": "a:b", "name": "b"}]}
    )
    assert list(read_page(ResourceTemplate, {"resourceTemplates": [{"uriTemplate": "a:{b}", "name": "b"}]})) == [
        ResourceTemplate("a:{b}", "b")
    ]
    [prompt] = read_page(Prompt, {"prompts": [{"name": "p", "arguments": [{"name": "a", "required": True}]}]})
    assert prompt.arguments[0].required


def test_a_broken_entry_is_named_and_takes_no_other_with_it() -> None:
    page = read_page(Tool, {"tools": [{"name": "broken"}, {"name": "t", "inputSchema": {}}, 7]})
    assert [tool.name for tool in page] == ["t"]
    assert page.problems == [
        "tools[0] (broken): Object missing required field inputSchema",
        "tools[2]: it is of the type int",
    ]


@pytest.mark.parametrize("result", [{}, {"tools": None}, {"tools": {}}])
def test_a_page_without_its_list_is_refused(result: dict[str, Any]) -> None:
    with pytest.raises(BadAnswer, match="Invalid result of tools/list"):
        read_page(Tool, result)


def test_contents_are_text_and_bytes() -> None:
    wire = {
        "contents": [{"uri": "a:b", "text": "one", "mimeType": None}, {"uri": "a:c", "blob": "AAEC"}],
        "_meta": {"k": 1},
    }
    answer = read_contents(wire)
    assert [one.uri for one in answer] == ["a:b", "a:c"]
    assert (len(answer), answer.text, answer.blob, answer.meta) == (2, "one", b"\x00\x01\x02", {"k": 1})
    assert resource_contents(list(answer), "a:b")["contents"][1]["blob"] == "AAEC"
    with pytest.raises(BadAnswer, match="contents"):
        read_contents({"contents": [{"text": "of what?"}]})


def test_a_prompt_is_messages_of_blocks() -> None:
    wire = {
        "description": "d",
        "messages": [{"role": "user", "content": said("a")[0]}, {"role": "assistant", "content": said("b")}],
    }
    answer = read_prompt(wire)
    assert answer.messages == [Message("user", Text("a")), Message("assistant", [Text("b")])]
    assert (answer.text, answer.description, answer.raw) == ("a\nb", "d", wire)
    assert prompt_result(answer)["messages"][0] == wire["messages"][0]


@pytest.mark.parametrize("messages", [None, [1], [{"role": "system", "content": {}}], [{"role": "user"}]])
def test_an_invalid_prompt_result_is_refused(messages: Any) -> None:
    with pytest.raises(BadAnswer, match="Invalid"):
        read_prompt({"messages": messages})


def test_completions_are_texts() -> None:
    answer = read_completion({"completion": {"values": ["a", "b"], "total": 9, "hasMore": True}})
    assert (answer.values, answer.total, answer.has_more) == (["a", "b"], 9, True)
    for broken in (None, {}, {"values": [1]}):
        with pytest.raises(BadAnswer, match="values"):
            read_completion({"completion": broken})


def test_a_log_message_of_an_unknown_level_is_still_one() -> None:
    assert str(read_log({"level": "error", "data": "it broke", "logger": "db"})) == "it broke"
    told = read_log({"level": "loud", "data": {"n": 1}})
    assert (told.level, told.logger, str(told)) == ("info", None, '{"n":1}')


# --- values


def test_a_wrapped_value_is_unwrapped_where_the_schema_says_so() -> None:
    wrapped = reply(content=said("[1]"), structuredContent={"result": [1]})
    schema = ReturnSchema(list[int]).schema
    assert is_wrapped(schema)
    assert plain_value(wrapped, schema) == [1]
    assert plain_value(wrapped, {"type": "object", "x-fastmcp-wrap-result": True}) == [1]
    assert plain_value(wrapped) == {"result": [1]}
    assert plain_value(wrapped, ReturnSchema(Day).schema) == {"result": [1]}


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ([], None),
        (said("x"), "x"),
        (said("x") + said("y"), "x\ny"),
        ([PIXEL], Image(b"\x00\x01\x02", "image/png")),
        ([*said("x"), PIXEL], [Text("x"), Image(b"\x00\x01\x02", "image/png")]),
    ],
)
def test_without_data_the_value_is_what_there_is(content: Any, value: Any) -> None:
    assert plain_value(reply(content=content)) == value


@pytest.mark.parametrize(
    ("kind", "result", "value"),
    [
        (Day, {"structuredContent": {"name": "Mon", "high": 3}}, Day("Mon", 3)),
        (list[Day], {"structuredContent": {"result": [{"name": "Mon", "high": 3}]}}, [Day("Mon", 3)]),
        (dict[str, int], {"structuredContent": {"result": 1}}, {"result": 1}),
        (int, {"content": said("3")}, 3),
        (Day, {"content": said('{"name": "Mon", "high": 3}')}, Day("Mon", 3)),
        (str, {"content": said("3")}, "3"),
        (str, {"content": said("words"), "structuredContent": {"n": 1}}, "words"),
        (Literal["a", "b"], {"content": said("a")}, "a"),
        (bytes, {"content": [PIXEL]}, b"\x00\x01\x02"),
        (Image, {"content": [PIXEL]}, Image(b"\x00\x01\x02", "image/png")),
        (int | None, {"content": []}, None),
    ],
)
def test_a_value_of_the_wanted_type_is_made(kind: Any, result: dict[str, Any], value: Any) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"result": {}}, "required": ["result"]}
    assert typed_value(read_tool_reply(result), kind, schema) == value


@pytest.mark.parametrize(
    ("kind", "result", "complaint"),
    [
        (Day, {"structuredContent": {"name": 3}}, "the result of forecast is no Day: "),
        (int, {"content": said("many")}, "text that is no JSON: 'many'"),
        (int, {"content": []}, "is no int"),
        (list[int], {"structuredContent": {"result": ["x"]}}, r"no list\[int\]"),
    ],
)
def test_a_value_that_does_not_fit_says_why(kind: Any, result: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadAnswer, match=complaint) as failed:
        typed_value(read_tool_reply(result), kind, None, "forecast")
    assert failed.value.problems


def test_every_problem_of_a_reply_is_reported() -> None:
    with pytest.raises(BadAnswer) as failed:
        typed_value(reply(structuredContent={"name": 3}), Day)
    assert sorted(problem.path for problem in failed.value.problems) == [("high",), ("name",)]


def test_a_result_is_held_against_what_was_promised() -> None:
    promise = OutputSchema(ReturnSchema(Day).schema)
    assert promise.problems(reply(structuredContent={"name": "Mon", "high": 3})) == []
    assert [problem.path for problem in promise.problems(reply(structuredContent={"name": "Mon"}))] == [("high",)]
    assert "structuredContent" in str(promise.problems(reply(content=said("x")))[0])
    assert promise.problems(reply(content=said("x"), isError=True)) == ()
    assert promise.problems(read_tool_reply({"task": WORKING})) == ()


def test_a_promise_that_cannot_be_read_promises_nothing() -> None:
    assert OutputSchema(None).problems(reply(content=[])) == ()
    broken = OutputSchema({"type": "nonsense"})
    for _ in range(2):
        assert broken.problems(reply(structuredContent={})) == ()
    assert broken.unusable_reason
