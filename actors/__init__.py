"""The processes of MCP servers and clients: sessions, workers, tasks and subscriptions here; clients, gateways, pools and guests in the subpackages.

Each process owns its state, and is the only one that changes it. This package speaks to the wire through
`greenroom.transports`, and its processes are supervised by `greenroom.supervision`.
"""
