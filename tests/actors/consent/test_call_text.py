"""The text of a call for the user: bounded, without secrets, and nothing in it can look like another part of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom import ClientSettings, Context, ElicitationRequest, Host, Server
from greenroom.actors.client.client_handler import AskingCall
from greenroom.actors.consent.call_text import arguments_text, call_text
from greenroom.actors.consent.consent import Consent, ConsentQuestion
from greenroom.actors.consent.rules import RuleDecision
from greenroom.supervision import visible

FORM = {"type": "object", "properties": {"mail": {"type": "string"}}}
STATELESS, LEGACY = "2026-07-28", "legacy"


def tool(arguments: Any, name: Any = "send") -> str:
    return call_text(AskingCall("tools/call", {"name": name, "arguments": arguments}, 1))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (None, ""),
        (AskingCall("tools/call", {"name": "send", "arguments": {"to": "Ada", "n": 2}}, 1), "send(to='Ada', n=2)"),
        (AskingCall("tools/call", {"name": "send"}, 1), "send()"),
        (AskingCall("tools/call", {"name": "send", "arguments": None}, 1), "send()"),
        (AskingCall("tools/call", {}, 1), "None()"),
        (AskingCall("prompts/get", {"name": "letter", "arguments": {"to": "Ada"}}, 1), "prompt letter(to='Ada')"),
        (AskingCall("resources/read", {"uri": "mail://in"}, 1), "resource mail://in"),
        (
            AskingCall("resources/read", {"uri": "mail://\x1b[2J" + "x" * 300}, 1),
            f"resource mail://\\u001b[2J{'x' * 189}…",
        ),
        (AskingCall("com.example/work", {"name": "x"}, 1), "com.example/work"),
    ],
)
def test_a_call_has_a_text_by_its_kind(call: AskingCall | None, text: str) -> None:
    assert call_text(call) == text


def test_secrets_are_hidden_by_their_names() -> None:
    given = {"api_key": "k-123", "to": {"password": "p-123", "name": "Ada"}, "Access-Token": "t-123"}
    assert tool(given) == "send(api_key=<hidden>, to={'name': 'Ada', 'password': <hidden>}, Access-Token=<hidden>)"


def test_long_values_names_and_lists_of_arguments_are_cut() -> None:
    text = tool({"body": "x" * 10_000, **{f"a{n}": n for n in range(20)}}, "n" * 1000)
    assert len(text) < 500
    assert text.startswith(f"{'n' * 80}…(body='xxx")
    assert text.endswith("a6=6, …)")
    assert "a7" not in text
    assert len(tool({f"a{n}": "x" * 200 for n in range(8)})) < 500
    assert len(tool({"k" * 10_000: 1})) < 200


@pytest.mark.parametrize("name", ["to='Ada', cc", "a\n", "x)", "", "ключ", "a\u202eb"])
def test_a_name_that_could_look_like_other_arguments_is_quoted(name: str) -> None:
    assert tool({name: 1}).startswith(("send('", 'send("'))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
    max_leaves=20,
)


@settings(max_examples=examples(300))
@given(st.text(max_size=120), st.dictionaries(st.text(max_size=60), JSON, max_size=12))
def test_whatever_is_called_its_text_is_one_short_line(name: str, arguments: dict[str, Any]) -> None:
    text = arguments_text(name, arguments)
    assert text == visible(text)
    assert len(text) < 1200  # an invisible character is written as up to ten
    assert text.endswith(")")


@settings(max_examples=examples(300))
@given(st.text(max_size=300))
def test_a_servers_words_stay_in_their_quotation_marks(message: str) -> None:
    call = AskingCall("tools/call", {"name": "send", "arguments": {"to": "Ada"}}, 1)
    question = ConsentQuestion("mail", "", RuleDecision("ask"), message=message, call=call)
    assert question.text.startswith("mail asks the user ")
    assert question.text.endswith(" during send(to='Ada')")
    quoted = question.text.removeprefix("mail asks the user ").removesuffix(" during send(to='Ada')")
    mark = quoted[0]
    assert mark in "'\""
    assert quoted[-1] == mark
    assert mark not in quoted[1:-1].replace(f"\\{mark}", "")


# --- At a host.


def mail() -> Server:
    server = Server("mail")

    @server.tool
    async def send(to: str, password: str, ctx: Context) -> str:
        return (await ctx.elicit("Your e-mail, please.", FORM)).action

    return server


@pytest.mark.parametrize("mode", [STATELESS, LEGACY])
async def test_a_consent_question_names_the_server_its_words_and_the_call(mode: str) -> None:
    texts: list[str] = []

    def ask(question: ConsentQuestion) -> bool:
        texts.append(question.text)
        return True

    def decline(server: str, request: ElicitationRequest) -> bool:
        texts.append(f"{server}: {request.call_text}")
        return False

    async with Host(
        {"mail": mail()},
        consent=Consent(ask=ask),
        elicitation=decline,
        settings=ClientSettings(mode=mode),
    ) as host:
        assert await host.call("mail:send", to="Ada", password="p-123") == "decline"
    assert texts == [
        "mail:send(to='Ada', password=<hidden>)",
        "mail asks the user 'Your e-mail, please.' during send(to='Ada', password=<hidden>)",
        "mail: send(to='Ada', password=<hidden>)",
    ]


async def test_a_refused_question_is_declined_without_a_word_to_the_server() -> None:
    shown: list[Any] = []
    async with Host(
        {"mail": mail()},
        consent=Consent(hook=lambda question: bool(question.tool)),
        elicitation=lambda server, request: shown.append(request),
    ) as host:
        assert await host.call("mail:send", to="Ada", password="p-123") == "decline"
    assert shown == []


def test_a_question_without_a_certain_call_names_none() -> None:
    question = ConsentQuestion("mail\x1b", "", RuleDecision("ask"), message="Who?")
    assert question.text == "mail\\u001b asks the user 'Who?'"
