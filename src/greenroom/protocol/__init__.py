"""The MCP language: message shapes, their encoding, and the checks of what a peer sends.

Pure: no sockets, no clock, no event loop and no imports from the other packages. The caller passes bytes and gets messages, or an error
that carries its JSON-RPC code and says which side broke the rules. One idea per file; this package re-exports nothing, so a program loads
only what it uses: `from greenroom.protocol.jsonrpc import parse`.

Differences between revisions stand in tables (`versions`, `methods`, `revision_downgrade`). A later revision, even one without sessions,
is one more column and not one more branch in the callers.
"""
