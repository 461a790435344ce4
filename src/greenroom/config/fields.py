"""Every field of a configuration: the one table that the checker, the JSON Schema and the reference are made from.

What can be judged by looking at the file alone is judged here. Names are `server.NAME.field`, as in `[server.git]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from greenroom.protocol.wire import is_array, is_object

from .mistakes import nearest, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .documents import Path

# --- What a field may hold: each kind judges a value, and says the same of it as JSON Schema, for editors.
# The two are one: whatever a kind refuses its schema refuses, and the other way round. So patterns are searched for, as JSON Schema does,
# in a form that Python and editors read alike. What only this machine can know (is the variable set, is the file there) is no part of a kind.

MOST: Final = 1_000_000_000
"""No number has to be larger."""
ENOUGH: Final = 1000
"""After so many mistakes in one file it is not looked for more."""
NO_NUL: Final = r"[^\u0000]*"
VARIABLE: Final = r"\$\{"
"""Where this is found a text is made of variables, and what becomes of it is not known yet."""


def whole(pattern: str) -> str:
    """A pattern for all of a text: `$` alone means something else to Python than to editors."""
    return rf"^(?:{pattern})(?![\s\S])"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@dataclass(slots=True)
class Book:
    """Where kinds write what is wrong: the path to it, what, and what to write instead."""

    told: list[tuple[Path, str, str]] = field(default_factory=list["tuple[Path, str, str]"])

    @property
    def full(self) -> bool:
        """Whether there is so much wrong that judging stops."""
        return len(self.told) >= ENOUGH

    def tell(self, path: Path, what: str, hint: str = "") -> None:
        """One more."""
        self.told.append((path, what, hint))


@dataclass(frozen=True, slots=True)
class Text:
    """A text."""

    pattern: str = NO_NUL
    """What all of it is like."""
    said: str = "a text"
    variables: bool = False
    """Whether `${…}` may stand in it, of which nothing is known yet."""

    def schema(self) -> dict[str, Any]:
        """For editors."""
        if self.variables and self.pattern != NO_NUL:
            found = [{"pattern": whole(self.pattern)}, {"pattern": VARIABLE}]
            return {"type": "string", "pattern": whole(NO_NUL), "anyOf": found}
        return {"type": "string", "pattern": whole(self.pattern)}

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Only its kind is told: it may be a secret."""
        if not isinstance(value, str):
            book.tell(path, f"has to be {self.said}, not {kind_of(value)}")
        elif not self.takes(value):
            book.tell(path, f"has to be {self.said}")

    def takes(self, value: str) -> bool:
        """Whether it is such a text."""
        if self.variables and re.search(VARIABLE, value):
            return "\0" not in value
        return _compiled(whole(self.pattern)).search(value) is not None


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    said: str = "true or false"

    def schema(self) -> dict[str, Any]:
        """For editors."""
        return {"type": "boolean"}

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Nothing else stands for it."""
        if not isinstance(value, bool):
            quotes = isinstance(value, str) and value.lower() in {"true", "false"}
            hint = f"write {value.lower()} without quotes" if quotes else ""
            book.tell(path, f"has to be {self.said}, not {kind_of(value)}", hint)


@dataclass(frozen=True, slots=True)
class Number:
    """A number, from the least to the most."""

    least: float
    most: float = MOST
    more_than: bool = False
    """Whether the least itself is too little."""
    whole: bool = False
    what: str = ""

    @property
    def said(self) -> str:
        """In words."""
        kind = self.what or ("a whole number" if self.whole else "a number")
        begin = f"more than {self.least:g}" if self.more_than else f"{self.least:g} or more"
        return f"{kind}, {begin}" + (f", {self.most:g} at most" if self.most != MOST else "")

    def schema(self) -> dict[str, Any]:
        """For editors."""
        least = {"exclusiveMinimum" if self.more_than else "minimum": self.least}
        return {"type": "integer" if self.whole else "number", **least, "maximum": self.most}

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Numbers are shown: they are no secrets."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            number = isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", value)
            book.tell(
                path, f"has to be {self.said}, not {kind_of(value)}", f"write {value} without quotes" if number else ""
            )
        elif not self._fits(value):
            book.tell(path, f"has to be {self.said}, not {_shown(value)}")

    def _fits(self, value: float) -> bool:
        if not (self.least < value if self.more_than else self.least <= value) or not value <= self.most:
            return False
        return not self.whole or isinstance(value, int) or value.is_integer()


def _shown(value: float) -> str:
    """In figures, if those are few: of too many Python refuses to make a text at all."""
    return "such a number" if isinstance(value, int) and abs(value) > 10**18 else f"{value}"


SECONDS: Final = Number(0, more_than=True, what="a number of seconds")


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def said(self) -> str:
        """In words."""
        return f"{', '.join(self.words[:-1])} or {self.words[-1]}"

    def schema(self) -> dict[str, Any]:
        """For editors."""
        return {"enum": list(self.words)}

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """For a mistyped word the hint says which it probably is."""
        if not isinstance(value, str):
            book.tell(path, f"has to be {self.said}, not {kind_of(value)}")
        elif value not in self.words:
            book.tell(path, f"has to be {self.said}, not {quoted(value)}", nearest(value, self.words))


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of texts."""

    item: Text = Text()
    most: int = 10_000

    @property
    def said(self) -> str:
        """In words."""
        return "a list, each item " + self.item.said

    def schema(self) -> dict[str, Any]:
        """For editors."""
        return {"type": "array", "items": self.item.schema(), "maxItems": self.most}

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Each item by itself."""
        if not is_array(value):
            hint = "put it in brackets: […]" if isinstance(value, str) else ""
            book.tell(path, f"has to be a list, not {kind_of(value)}", hint)
            return
        if len(value) > self.most:
            book.tell(path, f"has {len(value)} items, and may have {self.most}")
            return
        for index, one in enumerate(value):
            self.item.judge(one, (*path, index), book)


@dataclass(frozen=True, slots=True)
class TextMap:
    """Names, and a text for each."""

    name: Text = Text()
    value: Kind = Text()
    without: tuple[str, ...] = ()
    """Names that the transport sets itself, whatever their letters' case."""

    @property
    def said(self) -> str:
        """In words."""
        return f"a table of names, each with {self.value.said}"

    def schema(self) -> dict[str, Any]:
        """For editors."""
        names: dict[str, Any] = {"pattern": whole(self.name.pattern)}
        if self.without:
            names["not"] = {"pattern": whole("|".join(map(_any_case, self.without)))}
        return {"type": "object", "propertyNames": names, "additionalProperties": self.value.schema()}

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Each by itself."""
        if not is_object(value):
            book.tell(path, f"has to be a table, not {kind_of(value)}")
            return
        for name, one in value.items():
            if not self.name.takes(name):
                book.tell((*path, name), f"has to be called by {self.name.said}", self._hint(name))
            elif name.lower() in self.without:
                book.tell((*path, name), "is what the transport itself has to say", "leave it out")
            self.value.judge(one, (*path, name), book)

    def _hint(self, name: str) -> str:  # noqa: ARG002 - what is written there may be a secret
        return ""


def _any_case(name: str) -> str:
    return "".join(f"[{one.upper()}{one}]" if one.isalpha() else re.escape(one) for one in name)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table."""

    kind: Kind
    says: str
    """What it is, for people: a sentence or two."""
    default: str = ""
    """What holds without it, for people."""


@dataclass(frozen=True, slots=True)
class Table:
    """Fields by their names, and no others."""

    fields: Mapping[str, Field]
    meant: Mapping[str, str] = field(default_factory=dict[str, str])
    """What people write for a field because another program calls it so."""
    together: Callable[[Mapping[str, Any], Path, Book], None] | None = None
    """Which fields go together,"""
    together_schema: tuple[dict[str, Any], ...] = ()
    """and the same for editors."""
    said: str = "a table"

    def schema(self) -> dict[str, Any]:
        """For editors."""
        found: dict[str, Any] = {
            "type": "object",
            "properties": {name: _described(one) for name, one in self.fields.items()},
            "additionalProperties": False,
        }
        return {**found, "allOf": list(self.together_schema)} if self.together_schema else found

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Each field, then all together."""
        if not is_object(value):
            book.tell(path, f"has to be a table, not {kind_of(value)}")
            return
        for name, one in value.items():
            if book.full:
                return
            known = self.fields.get(name)
            if known is None:
                meant = self.meant.get(name)
                hint = f"write {meant}" if meant else nearest(name, self.fields, _there_are(self.fields))
                book.tell((*path, name), "there is no such field", hint)
            else:
                known.kind.judge(one, (*path, name), book)
        if self.together is not None:
            self.together(value, path, book)


def _described(one: Field) -> dict[str, Any]:
    default = f" Default: {one.default}." if one.default else ""
    return {"description": one.says + default, **one.kind.schema()}


def _there_are(fields: Mapping[str, Field]) -> str:
    return f"there are {', '.join(fields)}"


Kind: TypeAlias = Text | Flag | Number | Choice | Texts | TextMap | Table
"""Each says what it has to be in words (`said`) and for editors (`schema`), and writes down what is wrong with a value (`judge`)."""


class Tables(TextMap):
    """Names, and a table for each."""

    @property
    def said(self) -> str:
        """In words."""
        return "a table of tables"

    @property
    def table(self) -> Any:
        """What each of them is."""
        return self.value

    def _hint(self, name: str) -> str:
        """Which sign is none of ours: it may look as if it were."""
        found = next((one for one in name if not one.isascii()), None)
        return "" if found is None else f"{quoted(found)} is U+{ord(found):04X}"


def kind_of(value: Any) -> str:
    """What the user has written instead, without saying it."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    if value is None:
        return "null"
    if is_array(value):
        return "a list"
    return "a table" if is_object(value) else "a date or a time"


NAME: Final = Text(r"[a-z0-9_-]{1,32}", "1 to 32 of the signs a-z, 0-9, _ and -")
_HOST: Final = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9.])?|\[[0-9A-Fa-f:.]+\])"
_PORT: Final = r"(?::(?:[0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
URL: Final = rf"[Hh][Tt][Tt][Pp][Ss]?://(?:[!$-.0-9:;=A-Z_a-z~]*@)?{_HOST}{_PORT}(?:[/?#][!-~]*)?"
_SECURE: Final = rf"[Hh][Tt][Tt][Pp][Ss]://{_HOST}{_PORT}(?:[/?#][!-~]*)?"
_LOOPBACK: Final = rf"[Hh][Tt][Tt][Pp]://(?:localhost|127\.0\.0\.1|\[::1\]){_PORT}(?:[/?#][!-~]*)?"
_OURS: Final = (
    *("accept", "accept-encoding", "connection", "content-length", "content-type", "host", "last-event-id"),
    *("mcp-protocol-version", "mcp-session-id", "te", "trailer", "transfer-encoding", "upgrade"),
)

_WORD: Final = Text(variables=True)
_SOME: Final = Text(r"[^\u0000]+", "a text that is not empty", variables=True)
_ENV_NAME: Final = Text(r"(?:(?!\$\{)[^=\u0000])+", "a name without = and without ${…}, which is for values")
_HEADER_NAME: Final = Text(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", "letters, digits and -")
_HEADER_VALUE: Final = Text(r"[\t\u0020-\u007e\u0080-\u00ff]*", "a text that a header can have", variables=True)
_ENDPOINT: Final = Text(f"{_SECURE}|{_LOOPBACK}", "an https:// URL, or an http:// one of this machine", variables=True)
_PATTERN: Final = Text(r"[^\u0000-\u0020\u007f]+", "a pattern without spaces")


def _times(text: str) -> str:
    return f"How long {text}, in seconds."


MOST_IMPORTS: Final = 50
"""Files of other programs: no user has as many, and each may be large."""
_PATTERNS: Final = Texts(_PATTERN, most=500)

PERMISSIONS: Final = Table(
    {
        "deny": Field(_PATTERNS, "What is never done."),
        "ask": Field(_PATTERNS, "What is asked about each time, unless it was decided for longer."),
        "allow": Field(_PATTERNS, "What is done without asking."),
    },
    meant={"allowed": "allow", "denied": "deny", "block": "deny", "blocked": "deny", "confirm": "ask"},
    said="a table of lists: deny, ask, allow",
)

RESTART: Final = Table(
    {
        "intensity": Field(
            Number(0, whole=True),
            "How often its processes may die within the period; once more, and it is parked.",
            "3",
        ),
        "period": Field(SECONDS, "That period, in seconds.", "60"),
        "first": Field(SECONDS, _times("to wait before it is tried again"), "0.1"),
        "factor": Field(Number(1), "How many times as long each further wait is.", "2"),
        "longest": Field(SECONDS, _times("a wait may be"), "30"),
        "jitter": Field(Number(0, 1), "Which part of a wait is left to chance.", "0.5"),
        "park_after": Field(
            Number(1, whole=True),
            "After so many attempts in vain nobody tries any more, until it is asked for.",
            "never",
        ),
    }
)

BUDGET: Final = Table(
    {
        "concurrent": Field(Number(1, whole=True), "How many requests may be under way at once.", "16"),
        "queue": Field(Number(0, whole=True), "How many more may wait; who comes then is refused.", "256"),
    }
)

TIMEOUTS: Final = Table(
    {
        "connect": Field(SECONDS, _times("it may take to start and to shake hands"), "`GREENROOM_MCP_TIMEOUT`, or 30"),
        "tool": Field(SECONDS, _times("a call of a tool may take"), "`GREENROOM_MCP_TOOL_TIMEOUT`, or 60"),
        "request": Field(SECONDS, _times("any other request may take"), "30"),
        "grace": Field(
            Number(0, what="a number of seconds"), _times("calls may go on when it is replaced or removed"), "10"
        ),
        "ping": Field(SECONDS, "After how many seconds without a word it is asked whether it is there.", "never"),
    },
    meant={"handshake": "connect", "init": "connect", "startup": "connect", "call": "tool"},
)

_TOKENS: Final = Field(
    Number(100, whole=True),
    "How many tokens of an answer a model gets; all of it goes to a file then.",
    "`GREENROOM_MAX_MCP_OUTPUT_TOKENS`, or 25000",
)
_BYTES: Final = Field(Number(100, whole=True), "How many bytes of it.", "1048576")

LIMITS: Final = Table(
    {
        "output_tokens": _TOKENS,
        "output_bytes": _BYTES,
        "message_bytes": Field(
            Number(1024, whole=True), "How many bytes a message may be; what is larger is refused.", "16777216"
        ),
        "tools": Field(
            Tables(
                Text(r"[^\u0000]+", "the name of a tool"),
                Table(
                    {
                        "output_tokens": Field(_TOKENS.kind, _TOKENS.says, "as for the server"),
                        "output_bytes": Field(_BYTES.kind, _BYTES.says, "as for the server"),
                    }
                ),
            ),
            "Other limits for one tool: `[server.NAME.limits.tools.TOOL]`.",
        ),
    },
    meant={"tokens": "output_tokens", "bytes": "output_bytes", "max_output_tokens": "output_tokens"},
)

OAUTH_CONFIG: Final = Table(
    {
        "client_id": Field(_SOME, "As whom this program is known there."),
        "client_secret": Field(_SOME, "Its secret; best a variable."),
        "issuer": Field(_ENDPOINT, "The authorization server, when only that one is to be trusted."),
        "authorization_endpoint": Field(_ENDPOINT, "Where to sign in."),
        "token_endpoint": Field(_ENDPOINT, "Where to get tokens."),
        "client_metadata_url": Field(_ENDPOINT, "Where a document says who this program is."),
        "scopes": Field(Texts(_SOME), "What to ask for."),
        "account": Field(_SOME, "Whose login it is, for who has several.", "default"),
        "port": Field(
            Number(0, 65535, whole=True, what="a port"),
            "Where the user comes back to on this machine.",
            "`GREENROOM_MCP_OAUTH_PORT`, or any that is free",
        ),
    },
    meant={"clientId": "client_id", "clientSecret": "client_secret", "callbackPort": "port", "scope": "scopes"},
)

_STDIO_ONLY: Final = ("command", "args", "env", "inherit", "cwd")
_HTTP_ONLY: Final = ("url", "headers", "oauth", "oauth_config")
_ENDPOINTS: Final = ("client_id", "authorization_endpoint", "token_endpoint")


def _mix(server: Mapping[str, Any], path: Path, book: Book) -> None:
    transport = server.get("transport", "stdio")
    if transport == "stdio":
        for name in _HTTP_ONLY:
            if name in server:
                hint = 'add transport = "http", or leave it out' if "transport" not in server else "leave it out"
                book.tell((*path, name), "is for servers at a URL, and this one is a program (stdio)", hint)
        if "command" not in server and not ("url" in server and "transport" not in server):
            book.tell((*path, "command"), "is missing: a server on stdio is a program", 'add command = "…"')
    elif transport in ("http", "sse"):
        for name in _STDIO_ONLY:
            if name in server:
                book.tell(
                    (*path, name), f"is for programs (stdio), and this one is at a URL ({transport})", "leave it out"
                )
        if "url" not in server:
            book.tell((*path, "url"), "is missing: that is where the server is", 'add url = "https://…"')
    oauth = server.get("oauth", "off")
    known = server.get("oauth_config")
    if oauth == "off" and known is not None:
        book.tell(
            (*path, "oauth_config"), "is of no use while nobody signs in", 'add oauth = "auto" or oauth = "manual"'
        )
    if oauth == "manual":
        missing = [name for name in _ENDPOINTS if not isinstance(known, dict) or name not in known]
        if missing:
            hint = f"add {', '.join(missing)} to [server.NAME.oauth_config]"
            book.tell((*path, "oauth"), 'is "manual", and not all is said that this needs', hint)


def _when(transport: dict[str, Any], then: dict[str, Any], *, said: bool = True) -> dict[str, Any]:
    condition: dict[str, Any] = {"properties": {"transport": transport}}
    return {"if": {**condition, "required": ["transport"]} if said else condition, "then": then}


_MIX: Final = (
    _when(
        {"const": "stdio"},
        {"required": ["command"], "not": {"anyOf": [{"required": [name]} for name in _HTTP_ONLY]}},
        said=False,
    ),
    _when(
        {"enum": ["http", "sse"]},
        {"required": ["url"], "not": {"anyOf": [{"required": [name]} for name in _STDIO_ONLY]}},
    ),
    {
        "if": {"properties": {"oauth": {"const": "off"}}},
        "then": {"not": {"required": ["oauth_config"]}},
    },
    {
        "if": {"properties": {"oauth": {"const": "manual"}}, "required": ["oauth"]},
        "then": {
            "required": ["oauth_config"],
            "properties": {"oauth_config": {"type": "object", "required": list(_ENDPOINTS)}},
        },
    },
)

SERVER: Final = Table(
    {
        "transport": Field(
            Choice(("stdio", "http", "sse")),
            "How it is reached: a program on standard input and output, Streamable HTTP, or the older HTTP with a stream.",
            "stdio",
        ),
        "command": Field(_SOME, "The program to start: a path, or a name to look for in `PATH`. stdio only."),
        "args": Field(Texts(_WORD), "Its arguments; there is no shell in between."),
        "env": Field(TextMap(_ENV_NAME, _WORD), "Variables that it sees besides a small part of our own."),
        "inherit": Field(Texts(_ENV_NAME), "Variables of ours that it sees as well."),
        "cwd": Field(
            _SOME,
            "Its working folder; a relative one counts from the folder of the file (of the project, where it is the project's).",
            "ours",
        ),
        "url": Field(
            Text(URL, "a URL that begins with http:// or https:// and names a host", variables=True),
            "Where it is. http and sse only.",
        ),
        "headers": Field(TextMap(_HEADER_NAME, _HEADER_VALUE, _OURS), "What every request says."),
        "oauth": Field(
            Choice(("off", "auto", "manual")),
            "When to sign in: not at all, where the server asks for it (everything is found out), or at the endpoints of `oauth_config`.",
            "off",
        ),
        "oauth_config": Field(OAUTH_CONFIG, "What was agreed with an authorization server beforehand."),
        "isolation": Field(
            Choice(("none", "process")), "Whether the connection lives in this process, or in one of its own.", "none"
        ),
        "away": Field(
            Choice(("mark", "withdraw", "keep")),
            "What becomes of its tools while it cannot be reached: their descriptions say so, they are not listed, or nothing.",
            "mark",
        ),
        "disabled": Field(Flag(), "Whether it is left out for now.", "false"),
        "restart": Field(RESTART, "How often it may die, and how long to wait before it is tried again."),
        "budget": Field(BUDGET, "How much may be asked of it at once."),
        "timeouts": Field(TIMEOUTS, "How long things may take."),
        "limits": Field(LIMITS, "How much it may answer."),
        "permissions": Field(PERMISSIONS, "What its tools may do, by globs on their own names."),
    },
    meant={
        "type": "transport",
        "cmd": "command",
        "arguments": "args",
        "environment": "env",
        "timeout": "[server.NAME.timeouts]",
        "httpUrl": "url",
        "serverUrl": "url",
        "enabled": "disabled = true instead of enabled = false",
        "autoApprove": "allow in [server.NAME.permissions]",
        "alwaysAllow": "allow in [server.NAME.permissions]",
        "auth": "oauth, or a header",
    },
    together=_mix,
    together_schema=_MIX,
)

ROOT: Final = Table(
    {
        "server": Field(Tables(NAME, SERVER), "The servers: `[server.NAME]`."),
        "permissions": Field(
            PERMISSIONS, "What holds for all servers; `Elicit(NAME)` is for questions of a server to the user."
        ),
        "import": Field(
            Texts(_SOME, most=MOST_IMPORTS),
            "JSON files of other programs whose servers are taken over; relative paths count from the folder of this file.",
        ),
        "$schema": Field(Text(NO_NUL), "Which schema an editor is to use."),
    },
    meant={
        "servers": "[server.NAME]",
        "mcpServers": "[server.NAME]",
        "mcp_servers": "[server.NAME]",
        "imports": "import",
    },
)


def schema() -> dict[str, Any]:
    """The JSON Schema of a `greenroom.toml`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "greenroom.toml",
        "description": "The MCP servers that a greenroom host uses.",
        **ROOT.schema(),
    }


__all__ = ["NAME", "OAUTH_CONFIG", "PERMISSIONS", "ROOT", "SERVER", "URL", "schema", "whole"]
