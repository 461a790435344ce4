"""What is asked of the authorization server, and what it says: requests, answers, and the errors of OAuth. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from greenroom.protocol.errors import ProtocolError
from greenroom.protocol.json import decode, encode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Asked:
    """One request. Names of headers are lower-cased."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    body: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, method: str, url: str, headers: Mapping[str, str], body: bytes) -> Asked:
        """From a URL, or a path with its query."""
        parts = urlsplit(url)
        return cls(method, parts.path or "/", parts.query, {name.lower(): each for name, each in headers.items()}, body)

    @property
    def params(self) -> dict[str, str]:
        """The query's; of what came twice, the first."""
        return {name: values[0] for name, values in parse_qs(self.query, keep_blank_values=True).items()}

    @property
    def form(self) -> dict[str, str]:
        """The body's, in the same way."""
        return {name: values[0] for name, values in self.forms.items()}

    @property
    def forms(self) -> dict[str, list[str]]:
        """All of the body's."""
        return parse_qs(self.body.decode("utf-8", "replace"), keep_blank_values=True)

    def json(self) -> Any:
        """The body; None for what is no JSON."""
        try:
            return decode(self.body)
        except ProtocolError:
            return None


@dataclass(frozen=True)
class Answer:
    """What goes back."""

    status: int
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


class OAuthError(Exception):
    """A no in the words of OAuth."""

    def __init__(self, error: str, description: str = "", status: int = 400) -> None:
        """`error` is one of the registered codes."""
        super().__init__(error, description)
        self.error = error
        self.description = description
        self.status = status

    def answer(self) -> Answer:
        """As a token endpoint says it."""
        said = {"error": self.error} | ({"error_description": self.description} if self.description else {})
        more = (("www-authenticate", 'Basic realm="oauth"'),) if self.status == 401 else ()  # noqa: PLR2004 - what it means
        return told(said, self.status, more)


def told(value: object, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Answer:
    """An answer in JSON, for this one reader."""
    shared = (("content-type", "application/json"), ("cache-control", "no-store"), ("access-control-allow-origin", "*"))
    return Answer(status, (*shared, *headers), encode(value))


def page(text: str, status: int = 200) -> Answer:
    """An answer for people."""
    return Answer(status, (("content-type", "text/plain; charset=utf-8"), ("cache-control", "no-store")), text.encode())


def landed(location: str) -> dict[str, str]:
    """What a redirect brings: the params of its query."""
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
