"""MCP's language, and nothing else: what may be said, how it is written, what is wrong with what somebody wrote.

Pure: no socket, no clock, no event loop, no other room. Whoever holds bytes hands them in and gets messages, or an error that knows
whose fault it is and as which code it travels. One idea a file; there is no list of names here, so that nobody loads what they do
not need: `from greenroom.protocol.messages import parse`.

What changes from revision to revision stands in tables (`versions`, `methods`, `automaton`, `fitting`), so a later revision, even
one without sessions, is another column rather than another branch in everybody's code.
"""
