"""Questions of a server at the terminal: a form is asked field by field, a page is shown by its whole address. Without a terminal the answer is no.

The terminal is the only subscriber of an `ElicitationBridge`. So questions are asked one after the other, each with the name of its server; a question
is declined after the bridge's cap, and a question that the server withdraws is removed from the screen.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import threading
import webbrowser
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision import Threads

from .click_app import echo, is_terminal, styled
from .exit_codes import DENIED, OK, visible

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
    from contextlib import AbstractContextManager
    from types import FrameType

    from greenroom.actors.elicitation.bridge import ElicitationBridge, FormField, OpenQuestion

    from .server_loader import TargetOptions
    from .target_client import TargetClient

_OPENS_WITHIN: Final = 5.0
_UNSAFE_IN_URLS: Final = frozenset(" \"'<>\\^`{|}")
_LONGEST_NAME: Final = 60
_LONGEST_MESSAGE: Final = 4000
_LONGEST_LABEL: Final = 200


@asynccontextmanager
async def connected_with_prompts(
    where: TargetOptions,
    *,
    yes: bool = False,
    aside: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> AsyncGenerator[tuple[TargetClient, TerminalPrompts]]:
    """A connected client whose server may ask the user. With `yes`, forms are answered with their defaults; `aside` clears the screen for a question."""
    from greenroom.actors.elicitation.bridge import ElicitationBridge  # noqa: PLC0415 - `--help` needs none

    from .target_client import connected  # noqa: PLC0415 - as above

    bridge = ElicitationBridge()
    prompts = TerminalPrompts(bridge, yes=yes, aside=aside)
    name = _name(where)
    callbacks = {"elicitation": partial(bridge.form, name), "url_elicitation": partial(bridge.page, name)}
    async with prompts.open(), connected(replace(where, callbacks=callbacks)) as client:
        yield client, prompts


def _name(where: TargetOptions) -> str:
    """The server as the user typed it. The name that the server reports is not used: a server could claim another's name."""
    text = shlex.join(where.command) if where.command is not None else str(where.target)
    return visible(text, _LONGEST_NAME)


@dataclass(eq=False)
class TerminalPrompts:
    """Subscriber of the bridge that asks the user at the terminal."""

    bridge: ElicitationBridge
    yes: bool
    aside: Callable[[], AbstractContextManager[None]]
    unanswered: int = 0
    """How many questions were declined because there is no terminal."""
    _prompt: TerminalInput | None = field(default_factory=lambda: TerminalInput() if is_terminal() else None)
    _limit: asyncio.Timeout | None = None
    _leaving: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code of a command whose server has answered: DENIED if a question was declined for want of a terminal."""
        return DENIED if self.unanswered else OK

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Answer questions while the block runs; without a terminal, decline them with a message."""
        async with self.bridge.subscribe() as questions:
            answering = asyncio.ensure_future(self._answer_all(questions))
            try:
                yield
            finally:
                answering.cancel()
                await asyncio.wait((answering,))
            if not answering.cancelled():
                answering.result()

    async def within_patience(self, seconds: float | None, what: str, work: Awaitable[Any]) -> Any:
        """Wait up to `seconds` for the work; the time of open questions does not count. Raises `RequestTimeout`."""
        from greenroom.actors.client.errors import RequestTimeout  # noqa: PLC0415 - as above

        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                self._limit = limit
                return await work
        except asyncio.CancelledError:
            self._leaving = True
            raise
        except TimeoutError:
            if seconds is None or not limit.expired():
                raise
            raise RequestTimeout(what, seconds) from None
        finally:
            self._limit = None

    @contextmanager
    def _limit_paused(self) -> Generator[None]:
        limit, loop = self._limit, asyncio.get_running_loop()
        due = None if limit is None else limit.when()
        if limit is None or due is None or limit.expired():
            yield
            return
        left = due - loop.time()
        limit.reschedule(None)
        try:
            yield
        finally:
            if self._limit is limit:  # the call may have ended while the question was open
                limit.reschedule(loop.time() + left)

    async def _answer_all(self, questions: Any) -> None:
        async for question in questions:
            if self.yes and question.url is None:
                _accept_defaults(question)
            elif self._prompt is None:
                self.unanswered += 1
                _print_question(question, "asks")
                _print_call(question)
                better = "" if question.url is not None else ", or pass --yes to accept the form's defaults"
                _print_problem(f"declined, because there is no terminal: run the command in one{better}")
                question.decline()
            else:
                with self.aside(), self._limit_paused():
                    await self._ask_until_settled(question, self._prompt)

    async def _ask_until_settled(self, question: OpenQuestion, prompt: TerminalInput) -> None:
        """Ask the question until it is answered, cancelled by the user, or settled elsewhere."""
        prompt.begin()
        with prompt.interruptible() as left:
            showing = asyncio.ensure_future(
                _fill_in(question, prompt) if question.url is None else _open_page(question, prompt)
            )
            ends = (asyncio.ensure_future(question.wait()), asyncio.ensure_future(left.wait()))
            try:
                await asyncio.wait((showing, *ends), return_when=asyncio.FIRST_COMPLETED)
                if showing.done():
                    showing.result()
                    return
                echo("", error=True)
                if question.withdrawn:
                    if self._leaving:
                        return
                    _print_dim("the server has withdrawn its question")
                elif question.over:
                    _print_dim(f"no answer within {self.bridge.cap:g} s: the question is declined")
                else:
                    question.cancel()
            except PromptAborted:
                echo("", error=True)
                question.cancel()
            finally:
                for each in (showing, *ends):
                    each.cancel()
                await asyncio.wait((showing, *ends))


def _accept_defaults(question: OpenQuestion) -> None:
    from greenroom.protocol.validation_errors import Mismatch  # noqa: PLC0415 - few servers ask

    try:
        question.accept({})
    except Mismatch as error:
        _print_problem(f"the defaults do not fit the form of {question.server} ({_line(question.message)}): {error}")
        question.decline()


async def _fill_in(question: OpenQuestion, prompt: TerminalInput) -> None:
    """Ask the fields one after the other; fields that the form's schema rejects are asked again."""
    from greenroom.protocol.validation_errors import Mismatch  # noqa: PLC0415 - as above

    _print_question(question, "asks")
    _print_call(question)
    _print_dim("Ctrl-C cancels the question, twice ends the command; an empty line takes the value in brackets")
    answers: dict[str, Any] = {}
    fields = question.fields
    while True:
        for each in fields:
            answers[each.name] = await _ask_field(each, prompt)
        if not await prompt.confirmed("Send this?", default=True):
            question.decline()
            return
        try:
            question.accept({name: value for name, value in answers.items() if value is not None})
        except Mismatch as error:
            _print_problem(f"the answers do not fit the form: {error}")
            wrong = {problem.path[0] for problem in error.errors if problem.path}
            fields = [each for each in question.fields if each.name in wrong] or question.fields
        else:
            return


async def _ask_field(field: FormField, prompt: TerminalInput) -> Any:
    from greenroom.actors.elicitation.bridge import InvalidAnswer  # noqa: PLC0415 - as above

    if field.description:
        _print_dim(f"  {_line(field.description)}")
    for number, choice in enumerate(field.choices, 1):
        echo(f"  {number}) {_label(choice.label)}", error=True)
    hint = "" if field.choices else field.hint
    label = f"{_label(field.label)}{f' ({hint})' if hint else ''}{'' if field.required else ' (optional)'}"
    while True:
        try:
            return field.read(await prompt.ask(label, _label(field.shown(field.default))))
        except InvalidAnswer as error:
            _print_problem(str(error))


async def _open_page(question: OpenQuestion, prompt: TerminalInput) -> None:
    """Show the whole address, and open it in the user's browser if the user agrees. The command itself never fetches it."""
    url = str(question.url)
    _print_question(question, "sends you to a page")
    echo(f"  {visible(url)}", error=True)
    _print_call(question)
    for warning in question.warnings:
        _print_problem(warning)
    if not is_safe_url(url):
        _print_problem(
            "the address is not opened: it has a quote, a space, a control character or another unsafe character"
        )
        question.decline()
        return
    if not await prompt.confirmed("Open it in your browser?"):
        question.decline()
        return
    if not await _open_browser(url):
        echo("no browser could be started: open the address yourself", error=True)
    question.accept()


def is_safe_url(url: str) -> bool:
    """Whether the URL may be passed to a browser's command line: it has no character that a shell, a script or a terminal could interpret."""
    return (
        url.lower().startswith(("http://", "https://"))
        and url.isascii()
        and url.isprintable()
        and not set(url) & _UNSAFE_IN_URLS
    )


async def _open_browser(url: str) -> bool:
    try:
        async with asyncio.timeout(_OPENS_WITHIN):
            return await Threads(1).run(webbrowser.open, url)
    except TimeoutError:
        return True  # some browsers keep `open` waiting until they are closed
    except (OSError, webbrowser.Error):
        return False


# --- Output of servers' texts, escaped and bounded.


def _print_question(question: OpenQuestion, does: str) -> None:
    first, *more = visible(question.message, _LONGEST_MESSAGE, lines=True).split("\n")
    echo(f"{styled(f'{question.server} {does}:', 'name')} {first}", error=True)
    for line in more:
        echo(f"  {line}", error=True)  # indented, so that a server's line cannot look like one of greenroom's


def _print_call(question: OpenQuestion) -> None:
    if question.call_text:
        _print_dim(f"during {question.call_text}")


def _line(text: str) -> str:
    return visible(text, _LONGEST_MESSAGE)


def _label(text: str) -> str:
    return visible(text, _LONGEST_LABEL)


def _print_dim(text: str) -> None:
    echo(styled(text, "dim"), error=True)


def _print_problem(text: str) -> None:
    echo(styled(f"  {visible(text, _LONGEST_MESSAGE)}", "bad"), error=True)


# --- Lines that the user types, read by the event loop.
# The alternative is a thread in `input()`: it cannot be interrupted, so a withdrawn question would keep the terminal, Ctrl-C would come late, and the
# interpreter would wait for the thread at exit. Input that was typed before a question appeared is discarded: it cannot be an answer to that question.

_LONGEST: Final = 1 << 16
_YES: Final = frozenset(("y", "yes"))
_NO: Final = frozenset(("n", "no"))


class PromptAborted(Exception):
    """The user has closed the input (end of file) instead of answering."""


class TerminalInput:
    """Questions to the user on a terminal, one at a time."""

    def __init__(self, stdin: int | None = None) -> None:
        """`stdin` is the descriptor to read from."""
        self._stdin = sys.stdin.fileno() if stdin is None else stdin
        self._typed = b""
        self._interrupted = False

    def begin(self) -> None:
        """Discard pending input before a new question."""
        self._typed = b""
        try:
            import termios  # noqa: PLC0415 - not available on Windows
        except ImportError:
            return
        if os.isatty(self._stdin):
            termios.tcflush(self._stdin, termios.TCIFLUSH)

    async def ask(self, question: str, usual: str = "") -> str:
        """The typed line; empty if the user takes `usual`, which is shown in brackets. Raises `PromptAborted`."""
        echo(f"{question}{f' [{usual}]' if usual else ''}: ", error=True, newline=False)
        return (await self._line()).strip()

    async def confirmed(self, question: str, *, default: bool = False) -> bool:
        """Ask a yes-or-no question; an empty line is the default. Raises `PromptAborted`."""
        while True:
            echo(f"{question} [{'Y/n' if default else 'y/N'}]: ", error=True, newline=False)
            word = (await self._line()).strip().casefold()
            if not word:
                return default
            if word in _YES | _NO:
                return word in _YES
            echo(styled(f"  {word!r} is neither yes nor no", "bad"), error=True)

    async def _line(self) -> str:
        """Read one line, without its newline."""
        while b"\n" not in self._typed and len(self._typed) < _LONGEST:
            got = await self._read()
            if not got:
                raise PromptAborted
            self._typed += got
        line, _, self._typed = self._typed.partition(b"\n")
        return line[:_LONGEST].decode(errors="replace")

    async def _read(self) -> bytes:
        """Read available input, waiting for the first byte; empty at end of file."""
        loop = asyncio.get_running_loop()
        there = asyncio.Event()
        try:
            loop.add_reader(self._stdin, there.set)
        except (
            NotImplementedError
        ):  # Windows: a thread reads, and a line that arrives after a withdrawal goes to the next question
            return await Threads(1).run(os.read, self._stdin, _LONGEST)
        try:
            await there.wait()
            return os.read(self._stdin, _LONGEST)
        except OSError:  # the terminal was closed
            return b""
        finally:
            loop.remove_reader(self._stdin)

    @contextmanager
    def interruptible(self) -> Generator[asyncio.Event]:
        """Have the first Ctrl-C of the program set the event; any later Ctrl-C interrupts the program as usual."""
        left = asyncio.Event()
        before = signal.getsignal(signal.SIGINT)
        if self._interrupted or not callable(before) or threading.current_thread() is not threading.main_thread():
            yield left
            return
        loop = asyncio.get_running_loop()

        def on_sigint(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as signals call it
            self._interrupted = True
            signal.signal(signal.SIGINT, before)
            loop.call_soon_threadsafe(left.set)

        signal.signal(signal.SIGINT, on_sigint)
        try:
            yield left
        finally:
            if signal.getsignal(signal.SIGINT) is on_sigint:
                signal.signal(signal.SIGINT, before)
