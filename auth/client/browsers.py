"""How a user gets to where they sign in: by their browser, or by an address that they are shown.

A `Browser` is given the address. It returns None when the user comes back by themselves, to the page that waits on this machine; or else the address that
they were sent back to, as text. Programs bring their own: that is where a window, a message or a test comes in.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import webbrowser
from typing import TYPE_CHECKING, Protocol

from greenroom.supervision.kernel.spelling import visible

from .pkce import check_web

if TYPE_CHECKING:
    from collections.abc import Callable

    from .device_flow import DeviceCode


class Browser(Protocol):
    """What takes a user to an address."""

    async def __call__(self, url: str, /) -> str | None:
        """Take them there."""
        ...


async def open_browser(url: str, /) -> str | None:
    """Open the user's browser, and say the address on stderr for those who have none here."""
    check_web(url, "authorization")
    tell(f"To sign in, open this in a browser on this machine:\n\n  {url}\n")
    threading.Thread(
        target=_open, args=(url,), name="greenroom browser", daemon=True
    ).start()  # some do not return before they end
    return None


def _open(url: str) -> None:
    try:
        webbrowser.open(url)
    except (OSError, webbrowser.Error):
        return  # the address was said as well


async def paste_back(url: str, /) -> str | None:
    """Say the address, and have the user give the one that they end up at: for machines without a browser."""
    check_web(url, "authorization")
    tell(
        f"To sign in, open this in a browser on any machine:\n\n  {url}\n\n"
        "In the end it shows a page that cannot be reached. Paste its whole address here:"
    )
    return await _line(sys.stdin.readline)


async def _line(read: Callable[[], str]) -> str:
    """A line that somebody types, read in a thread that nobody waits for when the program ends."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def done(line: str) -> None:
        if not typed.done():
            typed.set_result(line.strip())

    def wait() -> None:
        try:
            line = read()
        except (OSError, ValueError):
            line = ""
        if not loop.is_closed():
            loop.call_soon_threadsafe(done, line)

    threading.Thread(target=wait, name="greenroom paste", daemon=True).start()
    return await typed


async def show_code(code: DeviceCode, /) -> None:
    """Say on stderr where to go with which code."""
    tell(f"To sign in, open {code.verification_uri} in a browser on any machine, and enter:\n\n  {code.user_code}\n")


def tell(words: str) -> None:
    """To the terminal; never on stdout, which may be a protocol's."""
    print(visible(words, lines=True), file=sys.stderr, flush=True)  # noqa: T201 - it is what is asked for
