"""Tools' names as models' providers take them: letters, digits, `_` and `-`, at most 64, and a letter or `_` first.

`git:log` becomes `git__log`, which says what it is and reads back without a table. What does not fit so (too long, other characters, a `__`
of its own) is cut and gets a digest: `server__tool__digest`. What a name becomes depends on that name alone, so it stays the same
from run to run and whatever servers come and go; and since the three shapes have one, two and three parts, no server can choose a
name for its tool that reads as another one's.

The rule is what all of them share: one provider documents `^[a-zA-Z0-9_-]{1,64}$` and takes 128, another takes 64 and no dot, a third
wants a letter or an underscore first; the whole request is refused for one name that is wrong.
"""

from __future__ import annotations

import re
from base64 import b32encode
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from greenroom.errors import GreenroomError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST: Final = 64
SHORTEST_LIMIT: Final = 32
"""A digest has to fit, and something that people can read."""
_JOINT: Final = "__"
_DIGEST: Final = 10
_LEAST_OF_A_PART: Final = 8

_PART: Final = re.compile(r"[A-Za-z0-9-]+(?:_[A-Za-z0-9-]+)*")
_WHOLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_CLAUDE: Final = re.compile(r"[^A-Za-z0-9_-]")
_OTHERS: Final = re.compile(r"[^A-Za-z0-9-]+")


class NameClash(GreenroomError):
    """Two things would have the same name. `names` are both."""

    def __init__(self, shared: str, names: tuple[str, str]) -> None:
        """`shared` is the name that both would have."""
        super().__init__(shared, names)
        self.shared = shared
        self.names = names

    def __str__(self) -> str:
        return f"{self.names[0]} and {self.names[1]} would both be called {self.shared!r}"


def claude_name(server: str, tool: str) -> str:
    """What Claude Code calls a tool: `mcp__git__log`. Two tools may be called the same; so it is understood, and never given out."""
    return f"mcp__{_CLAUDE.sub('_', server)}__{_CLAUDE.sub('_', tool)}"


def provider_name(name: str, separator: str = ":", longest: int = LONGEST) -> str:
    """What a tool is called at a provider. `name` may or may not have a separator in it."""
    server, found, tool = name.partition(separator)
    parts = (server, tool) if found else (name,)
    plain = _JOINT.join(parts)
    if all(_PART.fullmatch(part) for part in parts) and _WHOLE.fullmatch(plain) and len(plain) <= longest:
        return plain
    return _cut(parts if found else ("tool", name), name, longest)


def _cut(parts: tuple[str, ...], name: str, longest: int) -> str:
    """What can be said of both parts, and the digest of the whole."""
    head, tail = (_OTHERS.sub("_", part).strip("_") or "x" for part in parts)
    if not (head[0].isalpha() or head[0] == "_"):
        head = f"_{head}"
    room = longest - _DIGEST - 2 * len(_JOINT)
    head = head[: max(_LEAST_OF_A_PART, room - len(tail))].rstrip("_")
    tail = tail[: room - len(head)].rstrip("_") or "x"
    digest = b32encode(sha256(name.encode("utf-8", "surrogatepass")).digest()).decode().lower()[:_DIGEST]
    return _JOINT.join((head, tail, digest))


class ProviderNames:
    """The names of a catalogue, both ways."""

    def __init__(self, names: Iterable[str], separator: str = ":", longest: int = LONGEST) -> None:
        """Raises `NameClash` if two of them would be one: for digests of fifty bits, somebody worked on that."""
        if longest < SHORTEST_LIMIT:
            raise ValueError(f"longest is {SHORTEST_LIMIT} or more, not {longest}")
        self._there: dict[str, str] = {}
        self._back: dict[str, str] = {}
        for name in names:
            short = provider_name(name, separator, longest)
            other = self._back.setdefault(short, name)
            if other != name:
                raise NameClash(short, (other, name))
            self._there[name] = short

    def of(self, name: str) -> str:
        """What the provider knows it as. Raises `KeyError` for a name that is not in the catalogue."""
        return self._there[name]

    def back(self, name: str) -> str | None:
        """Which tool a provider's name means; None when it means none."""
        return self._back.get(name)

    def __iter__(self) -> Iterator[str]:
        """The providers' names."""
        return iter(self._back)

    def __len__(self) -> int:
        return len(self._back)
