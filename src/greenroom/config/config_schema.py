"""Every field of a configuration: the table from which the checker, the JSON Schema and the reference page are made.

The checks here need the file alone. Fields are named `server.NAME.field`, as in `[server.git]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from greenroom.protocol.dialect import HANDSHAKE_VERSIONS, STATELESS_DIALECT
from greenroom.protocol.mirrored_headers import RESERVED_HEADERS
from greenroom.protocol.serialization import is_array, is_object

from .mistakes import nearest, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .parsed_file import KeyPath

# --- Types of fields: each type checks a value, and gives the same rule as JSON Schema, for editors.
# Both accept exactly the same values (a property test compares them). So patterns are searched for, as JSON Schema does, in a syntax that Python and editors
# read alike. Checks that depend on the machine (a variable is set, a file exists) are not part of a type.

LARGEST_NUMBER: Final = 1_000_000_000
"""The largest number that a field accepts."""
MOST_MISTAKES: Final = 1000
"""Checking of a file stops after this many mistakes."""
NO_NUL: Final = r"[^\u0000]*"
VARIABLE: Final = r"\$\{"
"""A text that matches has variables, so its value is not known yet."""


def anchored(pattern: str) -> str:
    """The pattern for a whole text. `$` is not used: in Python it also matches before a final newline, in editors it does not."""
    return rf"^(?:{pattern})(?![\s\S])"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@dataclass(slots=True)
class MistakeCollector:
    """Collects mistakes of a check: the path, the description, and what to write instead."""

    mistakes: list[tuple[KeyPath, str, str]] = field(default_factory=list["tuple[KeyPath, str, str]"])

    @property
    def full(self) -> bool:
        """Whether there are so many mistakes that checking stops."""
        return len(self.mistakes) >= MOST_MISTAKES

    def add(self, path: KeyPath, what: str, hint: str = "") -> None:
        """Add a mistake."""
        self.mistakes.append((path, what, hint))


@dataclass(frozen=True, slots=True)
class TextType:
    """The type of a text field."""

    pattern: str = NO_NUL
    """A pattern for the whole text."""
    expected: str = "a text"
    variables: bool = False
    """Whether it may contain `${…}`; such a text is checked after expansion."""

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the type."""
        if self.variables and self.pattern != NO_NUL:
            found = [{"pattern": anchored(self.pattern)}, {"pattern": VARIABLE}]
            return {"type": "string", "pattern": anchored(NO_NUL), "anyOf": found}
        return {"type": "string", "pattern": anchored(self.pattern)}

    def check(self, value: Any, path: KeyPath, book: MistakeCollector) -> None:
        """Check a value. The mistake does not quote it: it may be a secret."""
        if not isinstance(value, str):
            book.add(path, f"has to be {self.expected}, not {kind_text(value)}")
        elif not self.accepts(value):
            book.add(path, f"has to be {self.expected}")

    def accepts(self, value: str) -> bool:
        """Whether the text matches."""
        if self.variables and re.search(VARIABLE, value):
            return "\0" not in value
        return _compiled(anchored(self.pattern)).search(value) is not None


@dataclass(frozen=True, slots=True)
class FlagType:
    """The type of a true-or-false field."""

    expected: str = "true or false"

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the type."""
        return {"type": "boolean"}

    def check(self, value: Any, path: KeyPath, book: MistakeCollector) -> None:
        """Check a value; texts such as "true" are not accepted."""
        if not isinstance(value, bool):
            quotes = isinstance(value, str) and value.lower() in {"true", "false"}
            hint = f"write {value.lower()} without quotes" if quotes else ""
            book.add(path, f"has to be {self.expected}, not {kind_text(value)}", hint)


@dataclass(frozen=True, slots=True)
class NumberType:
    """The type of a number field with bounds."""

    least: float
    most: float = LARGEST_NUMBER
    more_than: bool = False
    """Whether the value has to be greater than `least`."""
    integer: bool = False
    what: str = ""

    @property
    def expected(self) -> str:
        """The accepted values in words."""
        kind = self.what or ("a whole number" if self.integer else "a number")
        begin = f"more than {self.least:g}" if self.more_than else f"{self.least:g} or more"
        return f"{kind}, {begin}" + (f", {self.most:g} at most" if self.most != LARGEST_NUMBER else "")

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the type."""
        least = {"exclusiveMinimum" if self.more_than else "minimum": self.least}
        return {"type": "integer" if self.integer else "number", **least, "maximum": self.most}

    def check(self, value: Any, path: KeyPath, book: MistakeCollector) -> None:
        """Check a value. The mistake quotes it: numbers are no secrets."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            number = isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", value)
            book.add(
                path,
                f"has to be {self.expected}, not {kind_text(value)}",
                f"write {value} without quotes" if number else "",
            )
        elif not self._fits(value):
            book.add(path, f"has to be {self.expected}, not {_number_text(value)}")

    def _fits(self, value: float) -> bool:
        if not (self.least < value if self.more_than else self.least <= value) or not value <= self.most:
            return False
        return not self.integer or isinstance(value, int) or value.is_integer()


def _number_text(value: float) -> str:
    """The number as text; a huge one is not converted, which Python refuses beyond 4300 digits."""
    return "such a number" if isinstance(value, int) and abs(value) > 10**18 else f"{value}"


SECONDS: Final = NumberType(0, more_than=True, what="a number of seconds")


@dataclass(frozen=True, slots=True)
class ChoiceType:
    """The type of a field with a few allowed words."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        """The accepted values in words."""
        return f"{', '.join(self.words[:-1])} or {self.words[-1]}"

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the type."""
        return {"enum": list(self.words)}

    def check(self, value: Any, path: KeyPath, book: MistakeCollector) -> None:
        """Check a value; the hint for a mistyped word is the nearest allowed word."""
        if not isinstance(value, str):
            book.add(path, f"has to be {self.expected}, not {kind_text(value)}")
        elif value not in self.words:
            book.add(path, f"has to be {self.expected}, not {quoted(value)}", nearest(value, self.words))


@dataclass(frozen=True, slots=True)
class TextListType:
    """The type of a list of texts."""

    item: TextType = TextType()
    most: int = 10_000

    @property
    def expected(self) -> str:
        """The accepted values in words."""
        return "a list, each item " + self.item.expected

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the type."""
        return {"type": "array", "items": self.item.schema(), "maxItems": self.most}

    def check(self, value: Any, path: KeyPath, book: MistakeCollector) -> None:
        """Check the list and each item."""
        if not is_array(value):
            hint = "put it in brackets: […]" if isinstance(value, str) else ""
            book.add(path, f"has to be a list, not {kind_text(value)}", hint)
            return
        if len(value) > self.most:
            book.add(path, f"has {len(value)} items, and may have {self.most}")
            return
        for index, one in enumerate(value):
            self.item.check(one, (*path, index), book)


@dataclass(frozen=True, slots=True)
class TextMapType:
    """The type of a table from names to texts."""

    name: TextType = TextType()
    value: FieldType = TextType()
    without: tuple[str, ...] = ()
    """Names that the transport sets itself, in any case of letters."""

    @property
    def expected(self) -> str:
        """The accepted values in words."""
        return f"a table of names, each with {self.value.expected}"

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the type."""
        names: dict[str, Any] = {"pattern": anchored(self.name.pattern)}
        if self.without:
            names["not"] = {"pattern": anchored("|".join(map(_any_case, self.without)))}
        return {"type": "object", "propertyNames": names, "additionalProperties": self.value.schema()}

    def check(self, value: Any, path: KeyPath, book: MistakeCollector) -> None:
        """Check each name and its value."""
        if not is_object(value):
            book.add(path, f"has to be a table, not {kind_text(value)}")
            return
        for name, one in value.items():
            if not self.name.accepts(name):
                book.add((*path, name), f"the name has to be {self.name.expected}", self._hint(name))
            elif name.lower() in self.without:
                book.add((*path, name), "is set by the transport itself", "leave it out")
            self.value.check(one, (*path, name), book)

    def _hint(self, name: str) -> str:  # noqa: ARG002 - a name may be a secret, so it is not quoted
        return ""


def _any_case(name: str) -> str:
    return "".join(f"[{one.upper()}{one}]" if one.isalpha() else re.escape(one) for one in name)


@dataclass(frozen=True, slots=True)
class ConfigField:
    """A field of a table: its type, description and default."""

    kind: FieldType
    description: str
    """A description for people: one or two sentences."""
    default: str = ""
    """The default in words, for people."""


@dataclass(frozen=True, slots=True)
class TableType:
    """The type of a table with fixed fields."""

    fields: Mapping[str, ConfigField]
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of other programs for a field, used for hints."""
    cross_check: Callable[[Mapping[str, Any], KeyPath, MistakeCollector], None] | None = None
    """Checks combinations of fields."""
    cross_schema: tuple[dict[str, Any], ...] = ()
    """The checks of `cross_check` as JSON Schema."""
    expected: str = "a table"

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the type."""
        found: dict[str, Any] = {
            "type": "object",
            "properties": {name: _field_schema(one) for name, one in self.fields.items()},
            "additionalProperties": False,
        }
        return {**found, "allOf": list(self.cross_schema)} if self.cross_schema else found

    def check(self, value: Any, path: KeyPath, book: MistakeCollector) -> None:
        """Check each field, then the combination."""
        if not is_object(value):
            book.add(path, f"has to be a table, not {kind_text(value)}")
            return
        for name, one in value.items():
            if book.full:
                return
            known = self.fields.get(name)
            if known is None:
                meant = self.aliases.get(name)
                hint = f"write {meant}" if meant else nearest(name, self.fields, _known_fields(self.fields))
                book.add((*path, name), "there is no such field", hint)
            else:
                known.kind.check(one, (*path, name), book)
        if self.cross_check is not None:
            self.cross_check(value, path, book)


def _field_schema(one: ConfigField) -> dict[str, Any]:
    default = f" Default: {one.default}." if one.default else ""
    return {"description": one.description + default, **one.kind.schema()}


def _known_fields(fields: Mapping[str, ConfigField]) -> str:
    return f"there are {', '.join(fields)}"


FieldType: TypeAlias = TextType | FlagType | NumberType | ChoiceType | TextListType | TextMapType | TableType
"""Each type describes its values in words (`expected`) and as JSON Schema (`schema`), and checks a value (`check`)."""


class TableMapType(TextMapType):
    """The type of a table from names to tables."""

    @property
    def expected(self) -> str:
        """The accepted values in words."""
        return "a table of tables"

    @property
    def table(self) -> Any:
        """The type of each table."""
        return self.value

    def _hint(self, name: str) -> str:
        """The code point of a non-ASCII character, which may look like an allowed one."""
        found = next((one for one in name if not one.isascii()), None)
        return "" if found is None else f"{quoted(found)} is U+{ord(found):04X}"


def kind_text(value: Any) -> str:
    """The type of a wrong value in words, without the value itself."""
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


NAME: Final = TextType(r"[a-z0-9_-]{1,32}", "1 to 32 of the characters a-z, 0-9, _ and -")
_HOST: Final = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9.])?|\[[0-9A-Fa-f:.]+\])"
_PORT: Final = r"(?::(?:[0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?"
URL: Final = rf"[Hh][Tt][Tt][Pp][Ss]?://(?:[!$-.0-9:;=A-Z_a-z~]*@)?{_HOST}{_PORT}(?:[/?#][!-~]*)?"
_SECURE: Final = rf"[Hh][Tt][Tt][Pp][Ss]://{_HOST}{_PORT}(?:[/?#][!-~]*)?"
_LOOPBACK: Final = rf"[Hh][Tt][Tt][Pp]://(?:localhost|127\.0\.0\.1|\[::1\]){_PORT}(?:[/?#][!-~]*)?"

_ANY_TEXT: Final = TextType(variables=True)
_NON_EMPTY: Final = TextType(r"[^\u0000]+", "a text that is not empty", variables=True)
_ENV_NAME: Final = TextType(r"(?:(?!\$\{)[^=\u0000])+", "a name without = and without ${…}, which is for values")
_HEADER_NAME: Final = TextType(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", "letters, digits and -")
_HEADER_VALUE: Final = TextType(r"[\t\u0020-\u007e\u0080-\u00ff]*", "a text that a header can have", variables=True)
_ENDPOINT: Final = TextType(
    f"{_SECURE}|{_LOOPBACK}", "an https:// URL, or an http:// one of this machine", variables=True
)
_PATTERN: Final = TextType(r"[^\u0000-\u0020\u007f]+", "a pattern without spaces")


def _duration(text: str) -> str:
    return f"How long {text}, in seconds."


MOST_IMPORTS: Final = 50
"""The largest number of imported files, each of which may be large."""
_PATTERNS: Final = TextListType(_PATTERN, most=500)

PERMISSIONS: Final = TableType(
    {
        "deny": ConfigField(_PATTERNS, "Tools that are never called."),
        "ask": ConfigField(_PATTERNS, "Tools for which the user is asked, unless an earlier decision still holds."),
        "allow": ConfigField(_PATTERNS, "Tools that are called without asking."),
    },
    aliases={"allowed": "allow", "denied": "deny", "block": "deny", "blocked": "deny", "confirm": "ask"},
    expected="a table of lists: deny, ask, allow",
)

RESTART: Final = TableType(
    {
        "intensity": ConfigField(
            NumberType(0, integer=True),
            "How often its processes may die within the period; after one more death it is parked.",
            "3",
        ),
        "period": ConfigField(SECONDS, "The period for intensity, in seconds.", "60"),
        "first": ConfigField(SECONDS, _duration("to wait before the first retry"), "0.1"),
        "factor": ConfigField(NumberType(1), "The factor by which each further wait grows.", "2"),
        "longest": ConfigField(SECONDS, _duration("a wait may be"), "30"),
        "jitter": ConfigField(NumberType(0, 1), "The random part of a wait.", "0.5"),
        "park_after": ConfigField(
            NumberType(1, integer=True),
            "The number of failed attempts after which it is parked until a caller asks for it.",
            "never",
        ),
    }
)

BUDGET: Final = TableType(
    {
        "concurrent": ConfigField(NumberType(1, integer=True), "How many requests may be under way at once.", "16"),
        "queue": ConfigField(
            NumberType(0, integer=True), "How many more requests may wait; further ones are refused.", "256"
        ),
    }
)

TIMEOUTS: Final = TableType(
    {
        "connect": ConfigField(
            SECONDS, _duration("its start and opening the connection may take"), "`GREENROOM_MCP_TIMEOUT`, or 30"
        ),
        "tool": ConfigField(SECONDS, _duration("a call of a tool may take"), "`GREENROOM_MCP_TOOL_TIMEOUT`, or 60"),
        "request": ConfigField(SECONDS, _duration("any other request may take"), "30"),
        "grace": ConfigField(
            NumberType(0, what="a number of seconds"), _duration("calls may go on when it is replaced or removed"), "10"
        ),
        "ping": ConfigField(SECONDS, "The seconds of silence after which it gets a ping.", "never"),
    },
    aliases={"handshake": "connect", "init": "connect", "startup": "connect", "call": "tool"},
)

_TOKENS: Final = ConfigField(
    NumberType(100, integer=True),
    "How many tokens of an answer a model gets; a longer answer is saved in a file.",
    "`GREENROOM_MAX_MCP_OUTPUT_TOKENS`, or 25000",
)
_BYTES: Final = ConfigField(NumberType(100, integer=True), "How many bytes of an answer a model gets.", "1048576")

LIMITS: Final = TableType(
    {
        "output_tokens": _TOKENS,
        "output_bytes": _BYTES,
        "message_bytes": ConfigField(
            NumberType(1024, integer=True), "How many bytes a message may have; a larger one is refused.", "16777216"
        ),
        "tools": ConfigField(
            TableMapType(
                TextType(r"[^\u0000]+", "the name of a tool"),
                TableType(
                    {
                        "output_tokens": ConfigField(_TOKENS.kind, _TOKENS.description, "as for the server"),
                        "output_bytes": ConfigField(_BYTES.kind, _BYTES.description, "as for the server"),
                    }
                ),
            ),
            "Other limits for one tool: `[server.NAME.limits.tools.TOOL]`.",
        ),
    },
    aliases={"tokens": "output_tokens", "bytes": "output_bytes", "max_output_tokens": "output_tokens"},
)

OAUTH_CONFIG: Final = TableType(
    {
        "client_id": ConfigField(_NON_EMPTY, "The client id of this program at the authorization server."),
        "client_secret": ConfigField(_NON_EMPTY, "The client secret; use a variable."),
        "issuer": ConfigField(_ENDPOINT, "The only authorization server that is trusted."),
        "authorization_endpoint": ConfigField(_ENDPOINT, "The endpoint to sign in at."),
        "token_endpoint": ConfigField(_ENDPOINT, "The endpoint for tokens."),
        "client_metadata_url": ConfigField(_ENDPOINT, "The URL of a document that describes this program."),
        "scopes": ConfigField(TextListType(_NON_EMPTY), "The scopes to request."),
        "account": ConfigField(_NON_EMPTY, "The account, if you have several.", "default"),
        "port": ConfigField(
            NumberType(0, 65535, integer=True, what="a port"),
            "The local port that the browser is sent back to.",
            "`GREENROOM_MCP_OAUTH_PORT`, or any that is free",
        ),
    },
    aliases={"clientId": "client_id", "clientSecret": "client_secret", "callbackPort": "port", "scope": "scopes"},
)

_STDIO_ONLY: Final = ("command", "args", "env", "inherit", "cwd")
_HTTP_ONLY: Final = ("url", "headers", "oauth", "oauth_config")
_ENDPOINTS: Final = ("client_id", "authorization_endpoint", "token_endpoint")


def _check_transport_fields(server: Mapping[str, Any], path: KeyPath, book: MistakeCollector) -> None:
    transport = server.get("transport", "stdio")
    if transport == "stdio":
        for name in _HTTP_ONLY:
            if name in server:
                hint = 'add transport = "http", or leave it out' if "transport" not in server else "leave it out"
                book.add((*path, name), "is for servers at a URL, and this one is a program (stdio)", hint)
        if "command" not in server and not ("url" in server and "transport" not in server):
            book.add((*path, "command"), "is missing: a server on stdio is a program", 'add command = "…"')
    elif transport in ("http", "sse"):
        for name in _STDIO_ONLY:
            if name in server:
                book.add(
                    (*path, name), f"is for programs (stdio), and this one is at a URL ({transport})", "leave it out"
                )
        if "url" not in server:
            book.add((*path, "url"), "is missing: a server over HTTP needs one", 'add url = "https://…"')
    if transport == "sse" and server.get("mode") == STATELESS_DIALECT.version:
        what = f"is {STATELESS_DIALECT.version}, which the older HTTP with SSE (sse) cannot carry"
        book.add((*path, "mode"), what, 'write transport = "http", or leave mode out')
    oauth = server.get("oauth", "off")
    known = server.get("oauth_config")
    if oauth == "off" and known is not None:
        book.add(
            (*path, "oauth_config"), 'has no effect while oauth is "off"', 'add oauth = "auto" or oauth = "manual"'
        )
    if oauth == "manual":
        missing = [name for name in _ENDPOINTS if not isinstance(known, dict) or name not in known]
        if missing:
            hint = f"add {', '.join(missing)} to [server.NAME.oauth_config]"
            book.add((*path, "oauth"), 'is "manual", and some settings for it are missing', hint)


def _when(transport: dict[str, Any], then: dict[str, Any], *, stated: bool = True) -> dict[str, Any]:
    condition: dict[str, Any] = {"properties": {"transport": transport}}
    return {"if": {**condition, "required": ["transport"]} if stated else condition, "then": then}


_TRANSPORT_SCHEMA: Final = (
    _when(
        {"const": "stdio"},
        {"required": ["command"], "not": {"anyOf": [{"required": [name]} for name in _HTTP_ONLY]}},
        stated=False,
    ),
    _when(
        {"enum": ["http", "sse"]},
        {"required": ["url"], "not": {"anyOf": [{"required": [name]} for name in _STDIO_ONLY]}},
    ),
    _when(
        {"const": "sse"},
        {"not": {"properties": {"mode": {"const": STATELESS_DIALECT.version}}, "required": ["mode"]}},
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

SERVER: Final = TableType(
    {
        "transport": ConfigField(
            ChoiceType(("stdio", "http", "sse")),
            "The transport: a program on standard input and output, Streamable HTTP, or the older HTTP with SSE.",
            "stdio",
        ),
        "command": ConfigField(
            _NON_EMPTY, "The program to start: a path, or a name to look for in `PATH`. stdio only."
        ),
        "args": ConfigField(TextListType(_ANY_TEXT), "The program's arguments; no shell interprets them."),
        "env": ConfigField(
            TextMapType(_ENV_NAME, _ANY_TEXT),
            "Environment variables for the program, in addition to a small part of our own.",
        ),
        "inherit": ConfigField(
            TextListType(_ENV_NAME), "Names of our environment variables that the program gets as well."
        ),
        "cwd": ConfigField(
            _NON_EMPTY,
            "Its working folder; a relative one counts from the folder of the file (of the project, where it is the project's).",
            "ours",
        ),
        "url": ConfigField(
            TextType(URL, "a URL that begins with http:// or https:// and names a host", variables=True),
            "The server's URL. http and sse only.",
        ),
        "headers": ConfigField(TextMapType(_HEADER_NAME, _HEADER_VALUE, RESERVED_HEADERS), "Headers of every request."),
        "oauth": ConfigField(
            ChoiceType(("off", "auto", "manual")),
            "Sign-in: none, automatic when the server asks for it (endpoints are discovered), or at the endpoints of `oauth_config`.",
            "off",
        ),
        "oauth_config": ConfigField(OAUTH_CONFIG, "The registration of this program with an authorization server."),
        "mode": ConfigField(
            ChoiceType(("auto", "legacy", STATELESS_DIALECT.version, *HANDSHAKE_VERSIONS)),
            "The protocol: `auto` asks the server which it speaks, `legacy` begins with the handshake of older revisions. "
            f"With {STATELESS_DIALECT.version} no other revision is spoken; an older one is asked for in the handshake.",
            "auto",
        ),
        "isolation": ConfigField(
            ChoiceType(("none", "process")),
            "Whether the connection runs in this process or in one of its own.",
            "none",
        ),
        "away": ConfigField(
            ChoiceType(("mark", "withdraw", "keep")),
            "Its tools while it cannot be reached: marked in their descriptions, not listed, or unchanged.",
            "mark",
        ),
        "disabled": ConfigField(FlagType(), "Whether the server is switched off.", "false"),
        "restart": ConfigField(RESTART, "Restarts after failures: how many, and how long to wait between attempts."),
        "budget": ConfigField(BUDGET, "How many requests it gets at once."),
        "timeouts": ConfigField(TIMEOUTS, "Timeouts for its start, calls and other requests."),
        "limits": ConfigField(LIMITS, "Limits for its answers."),
        "permissions": ConfigField(PERMISSIONS, "Permission rules for its tools, as patterns of their names."),
    },
    aliases={
        "type": "transport",
        "cmd": "command",
        "arguments": "args",
        "environment": "env",
        "timeout": "[server.NAME.timeouts]",
        "protocol": "mode",
        "protocol_version": "mode",
        "protocolVersion": "mode",
        "httpUrl": "url",
        "serverUrl": "url",
        "enabled": "disabled = true instead of enabled = false",
        "autoApprove": "allow in [server.NAME.permissions]",
        "alwaysAllow": "allow in [server.NAME.permissions]",
        "auth": "oauth, or a header",
    },
    cross_check=_check_transport_fields,
    cross_schema=_TRANSPORT_SCHEMA,
)

ROOT: Final = TableType(
    {
        "server": ConfigField(TableMapType(NAME, SERVER), "The servers: `[server.NAME]`."),
        "permissions": ConfigField(
            PERMISSIONS,
            "Permission rules for all servers; `Elicit(NAME)` is for questions of a server to the user, `Skill(NAME)` for loading its skills.",
        ),
        "import": ConfigField(
            TextListType(_NON_EMPTY, most=MOST_IMPORTS),
            "JSON files of other programs whose servers are imported; relative paths count from the folder of this file.",
        ),
        "$schema": ConfigField(TextType(NO_NUL), "The schema for editors."),
    },
    aliases={
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


__all__ = ["NAME", "OAUTH_CONFIG", "PERMISSIONS", "ROOT", "SERVER", "URL", "anchored", "schema"]
