"""Answers that are too long: the kept part, the note, and the saved file."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import stat
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom import Image, Server
from greenroom.actors.output.output_limits import OutputLimit, OutputLimiter, OutputLimits, Spill, tokens
from greenroom.errors import ConfigError
from greenroom.host import Host
from greenroom.supervision import Supervisor, start, stop
from greenroom.transports.client.memory_route import MemoryRoute


def answer(*texts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in texts], **more}


def file_of(result: dict[str, Any]) -> Path:
    return Path(unquote(urlparse(str(result["content"][-1]["uri"])).path))


def limiter(spill: Spill, most: int | None = None) -> OutputLimiter:
    return OutputLimiter(OutputLimits(OutputLimit(100, most)), spill)


def test_an_answer_within_the_limit_is_unchanged() -> None:
    result = answer("x" * 400)

    with Spill() as spill:
        assert limiter(spill).limited("git", "log", result) is result


@pytest.mark.row("CB-18")
def test_a_cut_answer_keeps_both_ends_and_names_the_file() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))

    with Spill() as spill:
        result = limiter(spill).limited("git", "log", answer(text, isError=True, _meta={"a": 1}))

        said, link = result["content"]
        path = file_of(result)
        assert said["text"].startswith("line 0\nline 1\n")
        assert said["text"].endswith("line 999\n")
        assert "This answer of git:log has about 2223 tokens" in said["text"]
        assert (
            f"more than the limit of 100 tokens. Here are its beginning and its end; all of it is in {path.as_uri()}]"
            in said["text"]
        )
        assert (link["type"], link["mimeType"], link["size"]) == ("resource_link", "text/plain", len(text))
        assert path.read_text() == text
        assert (result["isError"], result["_meta"]) == (True, {"a": 1})
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.parent.exists()


@pytest.mark.parametrize(
    "result",
    [
        {"content": [], "structuredContent": {"rows": list(range(2000))}},
        answer("short", structuredContent={"rows": ["x" * 5000]}),
        {"content": [{"type": "resource", "resource": {"uri": "a:b", "text": "y" * 5000}}]},
    ],
    ids=["structured", "both", "resource"],
)
def test_a_structured_answer_is_saved_whole_as_json(result: dict[str, Any]) -> None:
    with Spill() as spill:
        cut = limiter(spill, 2000).limited("s", "t", result)

        assert json.loads(file_of(cut).read_text()) == result
        assert "structuredContent" not in cut
        assert len(json.dumps(cut)) < 3500


PICTURE = b"\x89PNG" + bytes(900_000)


def block(kind: str, mime_type: str, data: bytes = PICTURE) -> dict[str, Any]:
    return {"type": kind, "data": b64encode(data).decode(), "mimeType": mime_type}


def test_a_picture_that_can_be_shown_is_shown_whatever_its_size_and_the_text_beside_it_is_cut() -> None:
    picture, text = block("image", "image/png"), {"type": "text", "text": "x" * 5000}
    with Spill() as spill:
        small = limiter(spill, 100)
        assert small.limited("s", "t", {"content": [picture]}) == {"content": [picture]}
        cut = small.limited("s", "t", {"content": [text, picture]})

        assert [one["type"] for one in cut["content"]] == ["text", "resource_link", "image"]
        assert cut["content"][2] is picture
        assert "about 1250 tokens" in cut["content"][0]["text"]
        assert file_of({"content": cut["content"][:2]}).read_text() == "x" * 5000


@pytest.mark.parametrize(
    ("shown", "what", "ending"),
    [
        (block("audio", "audio/mpeg"), "a sound (audio/mpeg, 900,004 bytes)", ".mp3"),
        (block("audio", "audio/mpeg", b"ab"), "a sound (audio/mpeg, 2 bytes)", ".mp3"),
        (block("image", "image/tiff"), "a picture (image/tiff, 900,004 bytes)", ".tiff"),
        (block("image", "image/png", bytes(4_000_000)), "a picture (image/png, 4,000,000 bytes)", ".png"),
        (block("video", "video/x-what"), "a file (video/x-what, 900,004 bytes)", ".bin"),
    ],
    ids=["sound", "small sound", "other picture", "too large", "unknown"],
)
def test_binary_content_becomes_a_text_with_type_and_file(shown: dict[str, Any], what: str, ending: str) -> None:
    with Spill() as spill:
        (said,) = limiter(spill, 2000).limited("s", "t", {"content": [shown]})["content"]

        uri = said["text"].removeprefix(f"[{what}, which cannot be shown here, is in ").removesuffix("]")
        assert uri.startswith("file:///")
        path = Path(uri.removeprefix("file://"))
        assert (path.suffix, path.read_bytes()) == (ending, b64decode(shown["data"]))


def test_files_in_resources_are_shown_or_kept_as_other_binary_content_is() -> None:
    picture = {
        "type": "resource",
        "resource": {"uri": "a:b", "blob": b64encode(PICTURE).decode(), "mimeType": "image/png"},
    }
    other = {"type": "resource", "resource": {"uri": "a:b", "blob": b64encode(PICTURE).decode()}}
    with Spill() as spill:
        shown = limiter(spill, 2000).limited("s", "t", {"content": [picture, other]})["content"]

        assert shown[0] is picture
        assert "a file (application/octet-stream, 900,004 bytes)" in shown[1]["text"]


def test_invalid_base64_is_reported() -> None:
    with Spill() as spill:
        (said,) = limiter(spill, 2000).limited(
            "s", "t", {"content": [{"type": "audio", "data": "A", "mimeType": "a/b"}]}
        )["content"]
    assert said["text"] == "[a sound (a/b), which is not base64]"


def test_an_answer_of_nothing_that_has_a_text_is_cut_as_it_came() -> None:
    links = [{"type": "resource_link", "uri": f"a:{number}", "name": "x"} for number in range(500)]
    with Spill() as spill:
        cut = OutputLimiter(OutputLimits(OutputLimit(None, 1000)), spill).limited("s", "t", {"content": links})

        assert cut["content"][0]["text"].startswith('[{"type":"resource_link","uri":"a:0"')
        assert "null" not in cut["content"][0]["text"]


async def test_a_model_is_shown_a_screenshot_where_its_provider_takes_one_and_is_told_where_it_is_elsewhere() -> None:
    server = Server("s")

    @server.tool
    def screenshot() -> Image:
        return Image(PICTURE, "image/png")

    async with Host({"s": server}, limits=OutputLimits()) as host:
        (shown,) = (await host.run({"type": "tool_use", "id": "1", "name": "s__screenshot", "input": {}}))["content"]
        assert (shown["type"], b64decode(shown["source"]["data"])) == ("image", PICTURE)
        call = {"type": "function_call", "call_id": "2", "name": "s__screenshot", "arguments": "{}"}
        assert (await host.run(call))["output"][0]["type"] == "input_image"
        chat = {"id": "3", "type": "function", "function": {"name": "s__screenshot", "arguments": "{}"}}
        assert "is in file:///" in (await host.run(chat))["content"]
        part: dict[str, Any] = {"functionCall": {"name": "s__screenshot", "args": {}}}
        assert "is in file:///" in (await host.run(part))["functionResponse"]["response"]["output"]


@given(st.text(max_size=3000), st.integers(100, 400))
def test_the_kept_text_never_exceeds_the_limit(text: str, most: int) -> None:
    with Spill() as spill:
        cut = OutputLimiter(OutputLimits(OutputLimit(most, None)), spill)
        head, tail = cut._ends(text, OutputLimit(most, None))

    assert tokens(head) + tokens(tail) <= most
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) == len(text) or tokens(text) > most - 3


@pytest.mark.row("CB-18")
def test_the_most_specific_limit_applies() -> None:
    limits = OutputLimits(OutputLimit(1000), {"git": OutputLimit(2000)}, {"git:log": OutputLimit(3000)})

    assert [limits.of(*name).tokens for name in (("hub", "log"), ("git", "push"), ("git", "log"))] == [1000, 2000, 3000]


def test_a_program_can_count_better() -> None:
    with Spill() as spill:
        counted = OutputLimiter(OutputLimits(OutputLimit(100, None)), spill, count=lambda text: len(text.split()))

        assert counted.limited("s", "t", answer("word " * 100))["content"][0]["text"] == "word " * 100
        assert len(counted.limited("s", "t", answer("word " * 101))["content"]) == 2


def test_files_are_bounded_together_and_the_oldest_go() -> None:
    with Spill(most=250) as spill:
        kept = [spill.keep("a/../b", ".txt", b"x" * 100) for _ in range(3)]

        assert [each.exists() for each in kept] == [False, True, True]
        assert {each.parent for each in kept} == {kept[0].parent}
        assert kept[0].name == "a_.._b-1.txt"


def test_so_many_files_and_no_more_are_kept() -> None:
    with Spill(most_files=2) as spill:
        kept = [spill.keep("a", ".txt", b"") for _ in range(4)]

        assert [each.exists() for each in kept] == [False, False, True, True]
    with pytest.raises(ConfigError, match="most_files has to be at least 1"):
        Spill(most_files=0)


@pytest.mark.parametrize("bound", [{"most": 1000}, {"most_files": 10}])
def test_a_server_that_answers_at_length_puts_out_its_own_answers(bound: dict[str, Any]) -> None:
    with Spill(**bound) as spill:
        quiet = [spill.keep("git-log", ".txt", b"x" * 100, "git") for _ in range(2)]
        loud = [spill.keep("web-get", ".txt", b"x" * 100, "web") for _ in range(50)]
        quiet.append(spill.keep("git-log", ".txt", b"x" * 100, "git"))

        assert [each.exists() for each in quiet] == [True, True, True]
        assert [each.exists() for each in loud] == [False] * 43 + [True] * 7
        large = spill.keep("huge-get", ".txt", b"x" * 2000, "huge")
        assert large.exists()


def test_a_deleted_folder_is_created_again() -> None:
    with Spill(most=250) as spill:
        first = spill.keep("a", ".txt", b"x" * 200)
        shutil.rmtree(first.parent)
        second = spill.keep("a", ".txt", b"x" * 200)
        third = spill.keep("a", ".txt", b"x" * 50)

        assert first.parent != second.parent
        assert stat.S_IMODE(second.parent.stat().st_mode) == 0o700
        assert (second.exists(), third.exists()) == (True, True)  # deleted files do not count
    assert not second.parent.exists()


def test_where_nothing_can_be_kept_the_answer_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = limiter(Spill(tmp_path / "file")).limited("git", "log", answer("x" * 1000, isError=True))

    assert [block["type"] for block in result["content"]] == ["text"]
    assert "its beginning and its end; the rest could not be saved (File exists)]" in result["content"][0]["text"]
    assert result["isError"] is True


def test_half_an_answer_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.FileIO):
        def write(self, _: Any) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    def full(descriptor: int, _: str) -> Full:
        return Full(descriptor, "wb")

    spill = Spill(tmp_path)
    monkeypatch.setattr(os, "fdopen", full)
    cut = limiter(spill).limited("git", "log", answer("x" * 1000))
    assert "the rest could not be saved (No space left on device)]" in cut["content"][0]["text"]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("wrong", [0, 99, -1, True, 1.5, "many"])
def test_a_limit_is_checked(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="tokens has to be 100 or more"):
        OutputLimit(wrong)


async def test_a_model_gets_what_fits_and_a_program_gets_all() -> None:
    server = Server("big")

    @server.tool
    def much() -> str:
        return "x" * 10_000

    async with Host({"big": server}, limits=OutputLimits(OutputLimit(100))) as host:
        name = (await host.to_anthropic())[0]["name"]
        told = await host.run({"type": "tool_use", "id": "1", "name": name, "input": {}})
        assert len(str(told)) < 1500
        assert "more than the limit of 100 tokens" in str(told)
        assert len(await host.call("big:much")) == 10_000
        folder = next(iter(host.limiter.spill._kept["big"])).parent  # type: ignore[union-attr]
        assert folder.exists()
    assert not folder.exists()


async def test_saved_answers_are_deleted_with_a_supervised_host() -> None:
    server = Server("big")

    @server.tool
    def much() -> str:
        return "x" * 10_000

    async with server.started():
        host = Host({"big": MemoryRoute(server.company)}, limits=OutputLimits(OutputLimit(100)))
        top = await start(Supervisor, [host.child_spec()])
        cut = await host.router.call_tool("big:much")
        folder = file_of(cut).parent
        assert folder.exists()
        await stop(top)
        assert not folder.exists()
