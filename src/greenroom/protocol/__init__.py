"""MCP's language, and nothing else: what may be said, how it is written, what is wrong with what was written.

Pure: no socket, no clock, no event loop, no other room. The caller hands in bytes and gets messages, or an error that knows
whose fault it is and as which code it travels. One idea a file; there is no list of names here, so that no program loads what it does
not need: `from greenroom.protocol.jsonrpc import parse`.

What changes from revision to revision stands in tables (`versions`, `methods`, `outgoing`), so a later revision, even
one without sessions, is another column rather than another branch in all callers' code.
"""
