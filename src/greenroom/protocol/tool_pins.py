"""Tool pins: hashes of tools as the user approved them, and the changes since.

A server may show a harmless tool, wait for its approval, and then change its description (a rug pull). The model reads the description, so its
author steers the model. A pin is the hash of all that a model or a user is shown: name, title, description, both schemas and annotations. A tool
that comes back under another name is reported as renamed, and is as little approved as a new one.
"""

from __future__ import annotations

import os
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from greenroom.errors import ConfigError, GreenroomError

from .serialization import is_object, to_jsonable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_PARTS: Final = ("title", "description", "inputSchema", "outputSchema", "annotations")
_PREFIX: Final = "sha256:"

PinState: TypeAlias = Literal["same", "changed", "new", "gone", "renamed"]


class PinComparison(NamedTuple):
    """The comparison of a tool with its pin."""

    id: str
    """Its name in the catalogue: `git:log`."""
    kind: PinState
    parts: tuple[str, ...] = ()
    """The parts that changed, if the pins have hashes of the parts."""
    was: str | None = None
    """The id under which it was pinned, if it was renamed."""
    tool: Mapping[str, Any] | None = None
    """The current tool; None if it is gone."""

    def __str__(self) -> str:
        match self.kind:
            case "changed":
                what = f" (changed: {', '.join(self.parts)})" if self.parts else ""
                return f"{self.id} is not what was pinned{what}"
            case "renamed":
                return f"{self.id} is what was pinned as {self.was}"
            case "new":
                return f"{self.id} was never pinned"
            case "gone":
                return f"{self.id} is pinned, but gone"
            case _:
                return f"{self.id} is as it was pinned"


Policy: TypeAlias = "Literal['report', 'refuse'] | Callable[[PinComparison], bool]"


class ToolRefused(GreenroomError):
    """The tool differs from its pin, and the policy refuses it."""

    reason = "tool_refused"

    def __init__(self, finding: PinComparison) -> None:
        """`finding` says what is different."""
        super().__init__(finding)
        self.finding = finding

    def __str__(self) -> str:
        return f"{self.finding}; it is not called until it is reviewed and pinned again"


class PinReport(NamedTuple):
    """The comparison of all tools with their pins."""

    findings: Mapping[str, PinComparison]
    refused: Mapping[str, PinComparison]
    """The tools that the policy refuses."""

    def of(self, kind: PinState) -> list[PinComparison]:
        """The comparisons of one kind, by id."""
        return [one for _, one in sorted(self.findings.items()) if one.kind == kind]

    @property
    def clean(self) -> bool:
        """Whether nothing changed."""
        return all(one.kind == "same" for one in self.findings.values())

    def __str__(self) -> str:
        changes = [str(one) for _, one in sorted(self.findings.items()) if one.kind != "same"]
        return "; ".join(changes) or "all tools are as they were pinned"


def tool_hash(tool: Mapping[str, Any], name: str | None = None) -> str:
    """The hash of a tool in wire form. `name` replaces the tool's name."""
    shown = {"name": tool.get("name") if name is None else name, **_hashed_parts(tool)}
    return _PREFIX + _digest(shown)


def _hashed_parts(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The hashed parts of a tool. Empty parts count as missing."""
    return {part: to_jsonable(tool[part]) for part in _PARTS if tool.get(part) not in (None, "", {})}


def _digest(value: Any) -> str:
    return sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


class _Pin(NamedTuple):
    hash: str
    parts: Mapping[str, str] | None = None

    def to_json(self) -> Any:
        return self.hash if self.parts is None else {"hash": self.hash, **self.parts}


class Pins:
    """The hashes of tools by id. Immutable: `pinned` makes a new value."""

    def __init__(self, hashes: Mapping[str, Any] | None = None) -> None:
        """`hashes` are id → hash, or the output of `to_json`. Raises `ConfigError` for anything else."""
        self._pins = {str(id): _pin(str(id), value) for id, value in (hashes or {}).items()}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Pins:
        """Load a file of pins; a missing file has none. Raises `ConfigError` for any other file."""
        file = Path(path)
        if file.exists() and not file.is_file():  # such as a pipe or device, which might never end
            raise ConfigError(f"{os.fspath(path)} is no file of pins: it is no regular file")
        try:
            value = msgspec.json.decode(file.read_bytes())
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, RecursionError) as error:
            raise ConfigError(f"{os.fspath(path)} is no file of pins: {error}") from None
        tools = value.get("tools") if is_object(value) else None
        if not is_object(tools):
            raise ConfigError(f'{os.fspath(path)} is no file of pins: it has no "tools"')
        return cls(tools)

    @classmethod
    def of(cls, tools: Mapping[str, Mapping[str, Any]]) -> Pins:
        """The pins of the current tools, by id."""
        return cls({id: _pin_of(tool).to_json() for id, tool in tools.items()})

    def pinned(self, tools: Mapping[str, Mapping[str, Any]], gone: Iterable[str] = ()) -> Pins:
        """These pins, with the given tools as they are now, and without the `gone` ids."""
        left = set(gone)
        kept = {id: one for id, one in self.to_json().items() if id not in left}
        return Pins(kept | Pins.of(tools).to_json())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the pins atomically, to a readable file for review in a repository."""
        target = Path(path)
        text = msgspec.json.format(msgspec.json.encode({"tools": self.to_json()}, order="deterministic"), indent=2)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text + b"\n")
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def to_json(self) -> dict[str, Any]:
        """The pins as JSON."""
        return {id: pin.to_json() for id, pin in self._pins.items()}

    def __len__(self) -> int:
        return len(self._pins)

    def __contains__(self, id: object) -> bool:
        return id in self._pins

    def compare(
        self, tools: Mapping[str, Mapping[str, Any]], policy: Policy = "report", absent: Iterable[str] = ()
    ) -> PinReport:
        """Compare tools with their pins. `absent` are ids of tools whose server is away.

        Under the policy "refuse", every changed, new or renamed tool is refused; a function is called for each of them, and returns whether the tool
        may be used.
        """
        findings = {id: self._compare_tool(id, tool) for id, tool in tools.items()}
        unknown = set(absent)
        missing = [id for id in self._pins if id not in tools and id not in unknown]
        for id, finding in findings.items():
            if finding.kind == "new" and (was := self._find_renamed(tools[id], missing)) is not None:
                findings[id] = finding._replace(kind="renamed", was=was)
        findings |= {id: PinComparison(id, "gone") for id in missing}
        refused = {
            id: one for id, one in findings.items() if one.kind not in ("same", "gone") and not _allowed(policy, one)
        }
        return PinReport(findings, refused)

    def _compare_tool(self, id: str, tool: Mapping[str, Any]) -> PinComparison:
        pin = self._pins.get(id)
        if pin is None:
            return PinComparison(id, "new", tool=tool)
        if pin.hash == tool_hash(tool):
            return PinComparison(id, "same", tool=tool)
        now = _pin_of(tool).parts or {}
        parts = () if pin.parts is None else tuple(one for one in _PARTS if pin.parts.get(one) != now.get(one))
        return PinComparison(id, "changed", parts, tool=tool)

    def _find_renamed(self, tool: Mapping[str, Any], missing: Iterable[str]) -> str | None:
        """The missing id under which the same tool was pinned, with another name."""
        return next(
            (id for id in missing if any(self._pins[id].hash == tool_hash(tool, name) for name in _possible_names(id))),
            None,
        )


def _possible_names(id: str) -> Iterable[str]:
    """The possible names of a tool with this id at its server: all of the id, or what follows a separator."""
    yield id
    yield from (id[place + 1 :] for place, character in enumerate(id) if not character.isalnum())


def _allowed(policy: Policy, finding: PinComparison) -> bool:
    return policy == "report" if isinstance(policy, str) else policy(finding)


def _pin_of(tool: Mapping[str, Any]) -> _Pin:
    return _Pin(tool_hash(tool), {part: _digest(value)[:16] for part, value in _hashed_parts(tool).items()})


def _pin(id: str, value: Any) -> _Pin:
    match value:
        case str():
            return _Pin(_checked(id, value))
        case {"hash": str(found), **parts}:
            return _Pin(_checked(id, found), {str(part): str(one) for part, one in parts.items()})
        case _:
            raise ConfigError(f"the pin of {id} is no hash")


def _checked(id: str, text: str) -> str:
    text = text if text.startswith(_PREFIX) else _PREFIX + text
    if len(text) != len(_PREFIX) + 64 or not set(text[len(_PREFIX) :]) <= set("0123456789abcdef"):
        raise ConfigError(f"the pin of {id} is no SHA-256 in hexadecimal digits")
    return text
