"""Questions of a server, answered at the terminal: a form field by field, a page by its whole address. Where nobody sits, the answer is no."""

from __future__ import annotations

import webbrowser
from typing import TYPE_CHECKING, Any

from .door import ask, confirmed, echo, is_terminal, styled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from greenroom.actors.elicitation.forms import Field
    from greenroom.asked import ElicitationRequest, UrlElicitationRequest


def asking(*, yes: bool = False, pause: Callable[[], None] = lambda: None) -> Mapping[str, Any]:
    """The callbacks of a client. With `yes` a form's defaults are its answer; `pause` takes away what is on the screen."""

    def form(request: ElicitationRequest) -> Any:
        pause()
        if yes:
            return _accepted(request, {})
        return fill_in(request) if is_terminal() else request.decline()

    def page(request: UrlElicitationRequest) -> Any:
        pause()
        return visit(request) if is_terminal() else request.decline()

    return {"elicitation": form, "url_elicitation": page}


def fill_in(request: ElicitationRequest) -> Any:
    """Ask for one field after the other; interrupted, the answer is that there is none."""
    from greenroom.actors.elicitation.forms import fields_of  # noqa: PLC0415 - few are asked

    echo(f"{styled('The server asks:', 'name')} {request.message}", error=True)
    echo(styled("Ctrl-C to answer nothing; an empty line for what stands in brackets", "dim"), error=True)
    try:
        answers = {field.name: _field(field) for field in fields_of(request.schema)}
        if not confirmed("Send this?", default=True):
            return request.decline()
    except KeyboardInterrupt:
        echo("", error=True)
        return request.cancel()
    return _accepted(request, {name: value for name, value in answers.items() if value is not None})


def _field(field: Field) -> Any:
    from greenroom.actors.elicitation.forms import NotAnAnswer  # noqa: PLC0415 - as above

    if field.description:
        echo(styled(f"  {field.description}", "dim"), error=True)
    for number, choice in enumerate(field.choices, 1):
        echo(f"  {number}) {choice.label}", error=True)
    hint = "" if field.choices else field.hint
    label = f"{field.label}{f' ({hint})' if hint else ''}{'' if field.required else ' (optional)'}"
    while True:
        try:
            return field.read(ask(label, default=field.shown(field.default) or None))
        except NotAnAnswer as error:
            echo(styled(f"  {error}", "bad"), error=True)


def _accepted(request: ElicitationRequest, content: Mapping[str, Any]) -> Any:
    from greenroom.protocol.problems import Mismatch  # noqa: PLC0415 - as above

    try:
        return request.accept(content)
    except Mismatch as error:
        echo(styled(f"that does not fit the form: {error}", "bad"), error=True)
        return request.decline()


def visit(request: UrlElicitationRequest) -> Any:
    """Show the whole address, and open it for whoever agrees."""
    echo(f"{styled('The server sends you to a page:', 'name')} {request.message}", error=True)
    echo(f"  {request.url}", error=True)
    try:
        if not confirmed("Open it in your browser?"):
            return request.decline()
    except KeyboardInterrupt:
        return request.cancel()
    webbrowser.open(request.url)
    return request.accept()
