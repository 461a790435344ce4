"""The items that nodes send to each other: each is a list that begins with one of these numbers, followed by its arguments.

`to` is a process of the receiver: its serial, or a list with its name. `from` is the serial of a process of the sender. The node that makes a call or a watch gives
it a number, and later items about it carry that number.
"""

from __future__ import annotations

from typing import Final

SEND: Final = 1  # to, message
CAST: Final = 2  # to, method, args, kwargs
TELL: Final = 3  # to, request
CALL: Final = 4  # number, from, to, method, args, kwargs
ASK: Final = 5  # number, from, to, request
REPLY: Final = 6  # number, value
FAIL: Final = 7  # number, error
EXITED: Final = 8  # number, reason: the called process has ended
FORGET: Final = 9  # number: the caller has stopped waiting
WATCH: Final = 10  # number, to
UNWATCH: Final = 11  # number
GONE: Final = 12  # number, reason: the watched process has ended
LINK: Final = 13  # from, to
UNLINK: Final = 14  # from, to
CUT: Final = 15  # from, to, reason: a linked process has ended
EXIT: Final = 16  # from, to, reason
KILL: Final = 17  # to
STOP: Final = 18  # to, reason
BEAT: Final = 19  # no arguments: a heartbeat
