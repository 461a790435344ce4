"""The recording of a scenario: masked frames with the texts for people beside them, in one text file for each transport.

A file has for each scenario a line ``= name``, then one line for each frame, in order, and ``~ text`` for each text for people in a frame.
The frame contains its number, as in ``"message":"~0"``: so a later change of wording changes those lines alone. A scenario with the same
frames and texts as an earlier one of the file is ``= name == earlier``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RECORDED = Path(__file__).resolve().parent / "recorded"

_SESSION = re.compile(r"\bmcp_[0-9a-f]{32}\b|\b[0-9a-f]{32}\b")
_NAMED = re.compile(r"\btask_[0-9a-f]{16,}\b|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_ELICITATION = re.compile(r'(?<="elicitationId":")[^"]+')
_MASKS = (
    (re.compile(r"\b[0-9a-f]{16}\.[0-9a-f]{16}\b"), "<instance>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"), "<time>"),
    (re.compile(r"(?i)(?<=\bdate: )\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT"), "<date>"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d{2,5}"), "<port>"),
    (re.compile(r"(?<=localhost:)\d{2,5}"), "<port>"),
)
_DESCRIPTION = re.compile(r'(?<=error_description=")[^"]*')


@dataclass(frozen=True)
class Record:
    """One scenario's frames, and the texts for people in them."""

    frames: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, lanes: list[list[str]]) -> Record:
        """Make a record of the frames in the order in which their exchanges began."""
        maker = _Maker()
        return cls(tuple(maker.frame(each) for lane in lanes for each in lane), tuple(maker.texts))


@dataclass
class _Maker:
    texts: list[str] = field(default_factory=list[str])
    names: dict[str, str] = field(default_factory=dict[str, str])

    def frame(self, raw: str) -> str:
        masked = raw
        for kind, pattern in (("session", _SESSION), ("id", _NAMED), ("elicitation", _ELICITATION)):
            for found in pattern.findall(masked):
                number = sum(each.startswith(f"<{kind}") for each in self.names.values())
                masked = masked.replace(found, self.names.setdefault(found, f"<{kind} {number}>"))
        for pattern, instead in _MASKS:
            masked = pattern.sub(instead, masked)
        masked = _DESCRIPTION.sub(lambda found: self._keep(found[0]), masked)
        return one_line(self._without_texts(masked))

    def _without_texts(self, frame: str) -> str:
        begin = frame.find("{") if not frame.startswith("[") else 0
        if frame.startswith("text: "):
            return f"text: {self._keep(frame.removeprefix('text: '))}"
        if begin < 0:
            return frame
        head, body = frame[:begin], frame[begin:]
        try:
            message: Any = json.loads(body)
        except ValueError:
            return frame
        for one in listed(message):
            for key, said in _for_people(one):
                for written in (json.dumps(said, ensure_ascii=False), json.dumps(said)):
                    if f'"{key}":{written}' in body:
                        body = body.replace(f'"{key}":{written}', f'"{key}":"{self._keep(said)}"', 1)
                        break
        return head + body

    def _keep(self, text: str) -> str:
        self.texts.append(one_line(text))
        return f"~{len(self.texts) - 1}"


def _for_people(message: Any) -> Iterator[tuple[str, str]]:
    """The texts for people in a message, with the names of their fields."""
    if not isinstance(message, dict):
        return
    parts = cast("dict[str, Any]", message)
    error, result, params = (_part(parts, name) for name in ("error", "result", "params"))
    if isinstance(error.get("message"), str):
        yield "message", error["message"]
    if result.get("isError") is True:
        for each in result.get("content", ()):
            if isinstance(each.get("text"), str):
                yield "text", each["text"]
    for place in (result, params, _part(result, "task")):
        if isinstance(place.get("statusMessage"), str):
            yield "statusMessage", place["statusMessage"]
    if parts.get("method") == "notifications/cancelled" and "reason" in params:
        yield "reason", params["reason"]


def _part(message: dict[str, Any], name: str) -> dict[str, Any]:
    found: Any = message.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def listed(message: Any) -> list[Any]:
    """The messages of a batch, or the single message."""
    return message if isinstance(message, list) else [message]  # pyright: ignore[reportUnknownVariableType]


def one_line(text: str) -> str:
    """The text with its line breaks escaped."""
    return "".join(each if each.isprintable() else _SIGNS.get(each, f"<{ord(each):02x}>") for each in text)


_SIGNS = {"\n": "␊", "\r": "␍"}


def write(transport: str, records: Mapping[str, Record]) -> int:
    """Write the records of a transport's scenarios; returns the number of lines."""
    lines: list[str] = []
    first: dict[Record, str] = {}
    for name, record in records.items():
        if record in first and record.frames:
            lines.append(f"= {name} == {first[record]}")
            continue
        first[record] = name
        lines += [f"= {name}", *(f"  {each}" for each in record.frames), *(f"~ {each}" for each in record.texts)]
    (RECORDED / f"{transport}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def read(transport: str) -> dict[str, Record]:
    """The recorded scenarios; empty if there is no file."""
    path = RECORDED / f"{transport}.txt"
    found: dict[str, Record] = {}
    name = ""
    for line in path.read_text(encoding="utf-8").split("\n") if path.exists() else ():
        match line[:2]:
            case "= ":
                name, _, earlier = line[2:].partition(" == ")
                found[name] = found[earlier] if earlier else Record()
            case "  ":
                found[name] = Record((*found[name].frames, line[2:]), found[name].texts)
            case "~ ":
                found[name] = Record(found[name].frames, (*found[name].texts, line[2:]))
            case _:
                assert not line, line
    return found
