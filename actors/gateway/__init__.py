"""The gateway: a federation, served as one server.

`Gateway` answers in the place of the catalogue; the clients' own connections to the upstreams are its `Lodgings`.
"""
