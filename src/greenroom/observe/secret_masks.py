"""Hides secrets in messages of the protocol before they are shown: values whose names are those of secrets, answers of users, and texts that look like credentials.

It is a second line of defence: what a program does not capture is not shown at all. A secret under a harmless name, in a text of no known form, cannot be recognised.
Each function takes time in proportion to what it shows, whatever it is given: values beyond the bounds are left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from greenroom.supervision.kernel.visible_text import escaped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HIDDEN: Final = "<hidden>"
LEFT_OUT: Final = "<left out>"
"""Stands for what the program does not capture, and for what is too much."""
LONGEST_TEXT: Final = 2_000
"""The longest text that is shown, in characters."""
_MOST_VALUES: Final = 2_000
"""The values of one message that are shown."""
_MOST_TEXT: Final = 64_000
"""The characters of all its texts together."""
_DEEPEST: Final = 24
_LONGEST_NAME: Final = 100

_SECRET_PARTS: Final = (
    "secret",
    "token",
    "password",
    "passwd",
    "passphrase",
    "credential",
    "authorization",
    "cookie",
    "apikey",
    "privatekey",
    "accesskey",
    "encryptionkey",
    "signingkey",
    "sshkey",
    "verifier",
    "passcode",
    "connectionstring",
    "sessionid",
    "csrf",
    "signature",
    "assertion",
    "bearer",
    "otp",
    "inputresponses",
)
_SECRET_NAMES: Final = frozenset({"auth", "pin", "key", "jwt", "sid", "ssn", "requeststate", "state", "code", "nonce"})
"""Names that are secrets as a whole, and no part of other names: `state` and `code` are those of a sign-in."""
_SECRET_WORDS: Final = frozenset({"pass", "pwd", "pat", "cred", "creds"})
"""Words of names, as in `DB_PASS`."""
_NO_SECRETS: Final = frozenset(
    {"progresstoken", "maxtokens", "totaltokens", "inputtokens", "outputtokens", "tokencount"}
)
"""Names of the protocol and of models that only look so."""
_ANSWERS: Final = "content"
"""Where the answer of a user is, in a reply to a question. Those in `inputResponses` are hidden everywhere."""
# Each search is linear: a run of letters is looked at from its beginning only, and is not given back (`++`).
_CREDENTIALS: Final = re.compile(
    r"(?i:(?<![a-z0-9])(?:bearer|basic|dpop)[ \t]++)[A-Za-z0-9._~+/=-]{8,}+"  # headers
    r"|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+(?:\.[A-Za-z0-9_-]++){1,4}+"  # signed and encrypted tokens
    r"|(?<![A-Za-z0-9_-])(?:sk|pk|rk|ghp|gho|ghu|ghs|ghr|github_pat|xox[abprs]|glpat|hf|npm|pypi)[-_][A-Za-z0-9_-]{12,}+"
    r"|(?<![A-Za-z0-9_-])(?:AKIA|ASIA|AIza)[A-Za-z0-9_-]{12,}+"  # keys of well-known services, as those above
    r"|(?<=://)[^/\s:@\"'<>,]{0,200}+:[^/\s\"'<>,]{1,200}(?=@)"  # a name and a password in a URL, or a password alone
    r"|(?<=://)[^/\s:@\"'<>,]{16,200}+(?=@)"  # a token there
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[A-Za-z0-9+/=\s\\-]*+"
)
_PARAMETER: Final = re.compile(r"(?<=[?&#;])([A-Za-z0-9_.\[\]-]{1,60}+=)([^&\s#\"'<>]++)")
"""A parameter of a URL."""
_NAMED: Final = re.compile(
    r"(?<![A-Za-z0-9_.-])(?:(--[A-Za-z0-9_.-]{1,58}+)[ \t]|([A-Za-z0-9_.-]{1,60}+)[\"']?[:=][ \t]?)[\"']?"
)
_VALUE: Final = re.compile(r"(?i:(?:basic|bearer|digest|token|apikey)[ \t])?[^\s\"'<>]{6,}+")
"""A name and its value in a text, as logs, errors and environments have them. A shorter value is more often a word of a sentence."""


def is_secret_name(name: str) -> bool:
    """Whether a value of this name is hidden."""
    return _plain(name) in _SECRET_NAMES or _is_named_secret(name)


def _plain(name: str) -> str:
    return (
        name.lower().replace("_", "").replace("-", "") if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME].lower()
    )


def _is_named_secret(name: str) -> bool:
    plain = _plain(name)
    if plain in _NO_SECRETS:
        return False
    return any(part in plain for part in _SECRET_PARTS) or not _SECRET_WORDS.isdisjoint(
        name[:_LONGEST_NAME].lower().replace("-", "_").split("_")
    )


def _without_named(text: str) -> str:
    """The text without values whose names are there too. Names such as "state" and "code" are words of sentences as well: they count where a name is certain."""
    shown: list[str] = []
    end = 0
    for name in _NAMED.finditer(text):
        if name.start() >= end and _is_named_secret(name[1] or name[2]) and (value := _VALUE.match(text, name.end())):
            shown += text[end : name.end()], HIDDEN
            end = value.end()
    return "".join((*shown, text[end:]))


def masked_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """A text without credentials, of bounded length, with what is invisible escaped."""
    # The cut comes first, so that the search is bounded; what it leaves of a credential is too short to be of use, or is still found.
    shown = _CREDENTIALS.sub(HIDDEN, text[:longest])
    shown = _PARAMETER.sub(lambda each: f"{each[1]}{HIDDEN}" if is_secret_name(each[1][:-1]) else each[0], shown)
    shown = _without_named(shown)
    if len(text) > longest:
        shown = f"{shown}… ({len(text) - longest} more)"
    return escaped(shown, but="\n\t")


class _Mask:
    """One walk through one value."""

    __slots__ = ("hides_answers", "hides_names", "left", "left_of_text")

    def __init__(self, *, hides_answers: bool, hides_names: bool) -> None:
        self.hides_answers = hides_answers
        self.hides_names = hides_names
        self.left = _MOST_VALUES
        self.left_of_text = _MOST_TEXT

    def value(self, value: Any, depth: int = 0) -> Any:
        self.left -= 1
        number: Any = value
        if self.left < 0 or depth > _DEEPEST:
            return LEFT_OUT
        kind = cast("Any", type(value))
        if kind is str:
            longest = min(LONGEST_TEXT, max(0, self.left_of_text))
            self.left_of_text -= len(value)
            return masked_text(value, longest)
        if kind is dict:
            return self._members(value, depth)
        if kind is list:
            shown: list[Any] = []
            for each in value:
                if self.left <= 0:
                    shown.append(LEFT_OUT)
                    break
                shown.append(self.value(each, depth + 1))
            return shown
        if value is None or kind is bool or kind is int or kind is float:
            return value if kind is not int or -(10**18) < number < 10**18 else LEFT_OUT
        return LEFT_OUT

    def _members(self, members: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for name, value in members.items():
            if self.left <= 0:
                shown["…"] = LEFT_OUT
                break
            text = str(name)
            known = masked_text(text, _LONGEST_NAME)
            if self._is_hidden(text, value):
                self.left -= 1
                shown[known] = HIDDEN
            else:
                shown[known] = self.value(value, depth + 1)
        return shown

    def _is_hidden(self, name: str, value: Any) -> bool:
        if value is None or type(value) is bool or (name == "code" and type(value) is int):  # the code of an error
            return False
        return (self.hides_names and is_secret_name(name)) or (self.hides_answers and name == _ANSWERS)


def masked(value: Any, *, hides_answers: bool = False, hides_names: bool = True) -> Any:
    """A JSON value without secrets, of bounded size. `hides_answers` for a message that may have a user's answers; `hides_names` is False for a schema."""
    return _Mask(hides_answers=hides_answers, hides_names=hides_names).value(value)


def masked_body(body: bytes, *, is_captured: bool, hides_answers: bool = False) -> str:
    """A message of the protocol as JSON text without secrets. Unless it is captured, only what it is about is shown: its method, its id, its name and its error."""
    message = _decoded(body)
    if message is None:
        return _no_json(body)
    if type(message) is not dict:
        return msgspec.json.encode(masked(message) if is_captured else LEFT_OUT).decode()
    members = cast("dict[str, Any]", message)
    shown = members if is_captured else _outline(members)
    return msgspec.json.encode(masked(shown, hides_answers=hides_answers)).decode()


def masked_part(body: bytes, names: Sequence[str], *, hides_answers: bool) -> str:
    """The first of these members of a message as JSON text without secrets."""
    message = _decoded(body)
    if type(message) is not dict:
        return _no_json(body)
    members = cast("dict[str, Any]", message)
    part = next((members[name] for name in names if name in members), None)
    return msgspec.json.encode(masked(part, hides_answers=hides_answers)).decode()


def _decoded(body: bytes) -> Any:
    """The message; None for bytes that are no JSON, as of a peer whose texts are no UTF-8."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _no_json(body: bytes) -> str:
    return msgspec.json.encode(f"{len(body)} bytes that are no JSON").decode()


def _outline(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without its params and its result."""
    outline: dict[str, Any] = {name: message[name] for name in ("jsonrpc", "id", "method") if name in message}
    params: Any = message.get("params")
    if type(params) is dict:
        kept: dict[str, Any] = {
            name: params[name]
            for name in ("name", "protocolVersion", "requestId", "taskId", "progress")
            if name in params
        }
        outline["params"] = {**kept, "…": LEFT_OUT}
    if "result" in message:
        outline["result"] = LEFT_OUT
    error: Any = message.get("error")
    if type(error) is dict:
        outline["error"] = {name: error[name] for name in ("code", "message") if name in error}
    return outline
