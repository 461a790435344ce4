"""The gateway: a federation, served as one server.

`Gateway` answers requests in place of the catalogue; `ClientConnections` are the clients' own connections to the upstreams.
"""
