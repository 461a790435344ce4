"""Log records of crashes, and of messages without a callback."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from greenroom.supervision import Crash, GenServer, Options, ProcessExited, Ref, inbox, start, stop

from .servers import Crashed, Subject

LOGGER = "greenroom.supervision"
FIFTEEN = list(range(1, 16))
LIMIT = 2000  # characters that one line may have at the most, whatever the server was told


def records(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in caplog.records if record.name == LOGGER]


def appear(text: str, *parts: str) -> None:
    """These are in the text, in this order."""
    at = 0
    for part in parts:
        found = text.find(part, at)
        assert found >= 0, f"{part!r} is not in {text[at:]!r}"
        at = found + len(part)


async def crashed(ref: Ref[Subject], error: BaseException) -> None:
    with pytest.raises(ProcessExited):
        await ref.call(Subject.crash, error)


@pytest.mark.otp("gen_server_SUITE", "format_log_1")
@pytest.mark.otp("gen_server_SUITE", "format_log_2")
@pytest.mark.otp("gen_server_SUITE", "format_log_with_process_label")
async def test_a_logged_crash_names_process_reason_message_state_and_client(caplog: pytest.LogCaptureFixture) -> None:
    async with inbox() as me:
        ref = await Options(label="the subject").start(Subject, None, FIFTEEN[:3])
        await crashed(ref, Crashed("on the spot"))
        (record,) = records(caplog)
        text = record.getMessage()
        appear(
            text,
            f"the subject {ref.pid}",
            "Crashed: on the spot",
            "last message: call crash(Crashed('on the spot'))",
            "state: ",
            "state=[1, 2, 3]",
            f"asked by inbox {me.pid}",
        )
        assert "\n" not in text
        assert record.levelname == "ERROR"
        assert record.exc_info[1].args == ("on the spot",)
        assert "await ref.call(Subject.crash, error)" in record.greenroom["client_stack"]
        assert record.greenroom["event"] == "CrashReport"


@pytest.mark.otp("gen_server_SUITE", "format_log_1")
@pytest.mark.otp("gen_server_SUITE", "format_log_2")
async def test_long_texts_are_cut_in_message_and_state(caplog: pytest.LogCaptureFixture) -> None:
    ref = await start(Subject, None, FIFTEEN)
    with pytest.raises(ProcessExited):
        await ref.ask(FIFTEEN)
    (record,) = records(caplog)
    cut = "[1, 2, 3, 4, 5, 6, 7, 8, ...]"
    appear(record.getMessage(), f"returned {cut}", f"last message: call {cut}", f"state={cut}")
    assert "9" not in record.getMessage().partition("returned")[2]

    caplog.clear()
    ref = await start(Subject, None, {"text": "x" * 100_000, "nested": [[[[[["deep"]]]]]], "token": "s3cr3t"})
    await crashed(ref, Crashed("y" * 100_000 + "\nand a second line"))
    (record,) = records(caplog)
    assert "\n" not in record.getMessage()
    assert len(record.getMessage()) < LIMIT
    assert "deep" not in record.getMessage()
    assert "s3cr3t" not in record.getMessage()


class Bare(GenServer):
    """Has no callback at all."""


@pytest.mark.otp("gen_server_SUITE", "format_log_1")
@pytest.mark.otp("gen_server_SUITE", "format_log_2")
@pytest.mark.otp("gen_server_SUITE", "undef_handle_info")
async def test_a_message_without_a_callback_is_a_warning_and_the_server_lives(caplog: pytest.LogCaptureFixture) -> None:
    ref = await Options(label="bare").start(Bare)
    ref.send("hej")
    ref.send(FIFTEEN)
    await stop(ref)
    short, long = records(caplog)
    assert [record.levelname for record in (short, long)] == ["WARNING", "WARNING"]
    assert short.getMessage() == f"bare {ref.pid} got an unexpected message: 'hej'"
    assert long.getMessage() == f"bare {ref.pid} got an unexpected message: [1, 2, 3, 4, 5, 6, 7, 8, ...]"


@pytest.mark.otp("gen_server_SUITE", "format_log_with_process_label")
@pytest.mark.parametrize("label", [None, "a label"])
async def test_a_label_stands_where_the_class_does_otherwise(
    label: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    ref = await Options(label=label).start(Subject)
    await stop(ref, Crash(Crashed("told to")))
    (record,) = records(caplog)
    appear(record.getMessage(), f"{label or 'Subject'} {ref.pid}", "Crashed: told to", "last message: stop", "state: ")
