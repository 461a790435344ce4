"""What nodes say to each other: each item is a list whose first is one of these, with what follows beside it.

`to` is a process of the receiver's: its serial, or a list with its name. `from` is the serial of one of the sender's. Calls and watches have
numbers, given by the node that asks; each later item about one names its number.
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
EXITED: Final = 8  # number, reason: the callee has ended
FORGET: Final = 9  # number: the caller does not wait for that answer any more
WATCH: Final = 10  # number, to
UNWATCH: Final = 11  # number
GONE: Final = 12  # number, reason: the watched one has ended
LINK: Final = 13  # from, to
UNLINK: Final = 14  # from, to
CUT: Final = 15  # from, to, reason: a linked process has ended
EXIT: Final = 16  # from, to, reason
KILL: Final = 17  # to
STOP: Final = 18  # to, reason
BEAT: Final = 19  # nothing: the node is here
