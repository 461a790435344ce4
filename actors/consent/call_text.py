"""The text of a call in a question to the user: which tool, with which arguments, in one short line."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.serialization import is_object
from greenroom.supervision import safe_repr, visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.client.client_handler import AskingCall

_LONGEST_NAME: Final = 80
_LONGEST_URI: Final = 200
_LONGEST: Final = 400
_MOST_ARGUMENTS: Final = 8
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")


def call_text(call: AskingCall | None) -> str:
    """The call as a user may see it: `send_mail(to='Ada', token=<hidden>)`; empty without one.

    Values are cut, and hidden where their names are those of secrets. Invisible characters are escaped, so that no value can look like another
    argument, or like text of the host.
    """
    if call is None:
        return ""
    name: Any = call.params.get("name")
    match call.method:
        case "tools/call":
            return arguments_text(name, call.params.get("arguments"))
        case "prompts/get":
            return f"prompt {arguments_text(name, call.params.get('arguments'))}"
        case "resources/read":
            return f"resource {visible(str(call.params.get('uri')), _LONGEST_URI)}"
        case method:
            return visible(method, _LONGEST_NAME)


def arguments_text(name: object, arguments: object) -> str:
    """A name with its arguments, likewise."""
    shown = visible(str(name), _LONGEST_NAME)
    return f"{shown}({visible(_fields(arguments if is_object(arguments) else {}), _LONGEST)})"


def _fields(arguments: Mapping[str, Any]) -> str:
    first = {_argument_name(key): value for key, value in islice(arguments.items(), _MOST_ARGUMENTS)}
    more = ", …" if len(arguments) > _MOST_ARGUMENTS else ""
    return safe_repr.fields(first) + more


def _argument_name(name: str) -> str:
    """The name as it is if it looks like one; otherwise quoted: a name with `=` or a bracket could imitate other arguments."""
    return name if _PLAIN_NAME.fullmatch(name) else safe_repr.short(name)
