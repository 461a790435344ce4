"""Answers to the questions of a task, whatever a client sends."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.protocol.errors import ErrorCode
from greenroom.supervision.testing import Seed, run, seeds

from .stateless_client import ANNE, StatelessClient, ended
from .task_server import running_task_server

# --- whatever a client sends

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from(["question-1", "question-2", "question-3", "question-01", ""]) | st.text(max_size=12)
_RESPONSES = st.dictionaries(_KEYS, _JSON | st.just(ANNE) | st.just({"action": "decline"}), max_size=4)


async def play(updates: list[dict[str, Any]]) -> None:
    async with running_task_server() as stage:
        actions: dict[str, list[str]] = {}

        @stage.server.tool(task_support="optional")
        async def three(ctx: Any) -> str:
            for question in ("one", "two", "three"):
                answer = await ctx.elicit(question, {"type": "object", "properties": {}})
                actions.setdefault(question, []).append(answer.action)
            return "all"

        client = StatelessClient(stage.company)
        id = await client.start("three")
        for responses in updates:
            before = (await client.get(id)).get("inputRequests", {})
            message = await client.answer("tasks/update", taskId=id, inputResponses=responses)
            after = (await client.get(id)).get("inputRequests", {})
            hit = [responses[key] for key in before if key in responses]
            if "error" in message:
                assert message["error"]["code"] == ErrorCode.INVALID_PARAMS
                assert hit
                assert after == before
            else:
                assert all(each["action"] in ("accept", "decline", "cancel") for each in hit)
                assert not after.keys() & before.keys() & responses.keys()
            await asyncio.sleep(0.01)
        assert all(len(answers) == 1 for answers in actions.values())
        await client.result("tasks/cancel", taskId=id)
        assert (await ended(client, id))["status"] in ("cancelled", "completed")


@pytest.mark.row("26-T4")
@settings(max_examples=examples(150))
@given(updates=st.lists(_RESPONSES, max_size=5), seed=seeds())
def test_only_fitting_answers_count_and_each_question_gets_one(updates: list[dict[str, Any]], seed: Seed) -> None:
    run(partial(play, updates), seed=seed)
